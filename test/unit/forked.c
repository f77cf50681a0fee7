/* unit/forked.c: what weft says in a forked child, call by call. The rest is field case C55. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "unit/world.h"

static struct {
    weft_runtime *rt; /* another of the parent's */
    weft_chan *full, *empty;
    weft_conn conn;
    weft_waitgroup wg;
    weft_mutex mutex;
    weft_event event;
} old;

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static weft_time later(void) { return weft_in(WEFT_HOUR); }

/* Every call that can fail says the same; data that is ready does not change it. */
static void every_call_says_so(void) {
    char byte = 'x';
    weft_timer *timer;
    weft_conn conn;
    int fds[2];
    CHECK_EQ(weft_sleep(WEFT_HOUR), -EPERM);
    CHECK_EQ(weft_go(nothing, NULL), -EPERM);
    CHECK_EQ(weft_go_copy(nothing, &byte, 1), -EPERM);
    CHECK_EQ(weft_waitgroup_go(&old.wg, nothing, NULL), -EPERM);
    CHECK_EQ(weft_submit(old.rt, nothing, NULL), -EPERM);
    CHECK_EQ(weft_submit(NULL, nothing, NULL), -EPERM);
    CHECK_EQ(weft_stop(old.rt, -1), -EPERM);
    CHECK_EQ(weft_chan_recv(old.full, &byte), -EPERM);
    CHECK_EQ(weft_chan_recv(old.empty, &byte), -EPERM);
    CHECK_EQ(weft_chan_send(old.empty, &byte), -EPERM);
    CHECK_EQ(weft_chan_send_until(old.full, &byte, later()), -EPERM);
    CHECK_EQ(weft_timer_new(&timer, 1, NULL), -EPERM);
    CHECK_EQ(weft_conn_read(old.conn, &byte, 1), -EPERM);
    CHECK_EQ(weft_event_wait_until(&old.event, later()), -EPERM);
    CHECK_EQ(weft_mutex_lock_until(&old.mutex, later()), -EPERM);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_EQ(weft_conn_from_fd(&conn, fds[0]), -EPERM);
}

/* What need not wait works: a child may have to unlock, on its way to exec, what it holds. */
static void what_need_not_wait_works(void) {
    weft_mutex_lock(&old.mutex);
    weft_mutex_unlock(&old.mutex);
    weft_event_set(&old.event);
    weft_event_wait(&old.event);
    weft_yield();
    CHECK_EQ(weft_self(), 0);
    CHECK(weft_current() == NULL);
}

static int fork_it(void *arg) {
    void (*in_child)(void);
    int fds[2], status = -1;
    memcpy(&in_child, arg, sizeof in_child);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    CHECK_EQ(weft_conn_from_fd(&old.conn, fds[0]), 0);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        in_child();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(weft_conn_close(old.conn), 0);
    return 0;
}

static void from_a_g(void (*in_child)(void)) {
    char byte = 'y';
    weft_config c = config_of(2);
    CHECK_EQ(weft_chan_new(&old.full, 1, 1), 0);
    CHECK_EQ(weft_chan_new(&old.empty, 1, 1), 0);
    CHECK_EQ(weft_chan_try_send(old.full, &byte), 0);
    CHECK_EQ(weft_start(&old.rt, &c), 0);
    for (int procs = 1; procs <= 4; procs *= 2) {
        c = config_of(procs);
        CHECK_EQ(weft_run(fork_it, &in_child, &c, NULL), 0);
    }
    CHECK_EQ(weft_stop(old.rt, -1), 0);
}

TEST(forked, every_call_says_so) { from_a_g(every_call_says_so); }

TEST(forked, what_need_not_wait_works) { from_a_g(what_need_not_wait_works); }

/* While others take the process's locks all the time, a child finds them free. */
static atomic_bool over;

static void *take_locks(void *arg) {
    weft_config c = config_of(1);
    (void)arg;
    while (!atomic_load(&over)) {
        CHECK_EQ(weft_run(nothing, NULL, &c, NULL), 0);
    }
    return NULL;
}

static void *first_call(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(1), 0);
    return NULL;
}

static void start_anew(void) {
    weft_config c = config_of(2);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, first_call, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(weft_run(nothing, NULL, &c, NULL), 0);
}

/* TSan does not let a forked child start threads; ASan keeps a lock of its own over a fork. */
#if !defined(WEFT__TSAN) && !defined(WEFT__ASAN)
TEST(forked, a_child_finds_no_lock_taken) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, take_locks, NULL), 0);
    for (int i = 0; i < 100; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            start_anew();
            _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    atomic_store(&over, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}
#endif
