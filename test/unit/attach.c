/* unit/attach.c: plain threads that have a runtime: what they may do with it, how attachments nest, and
 * what a stop leaves of them.
 */
#include "world.h"

#include <sys/socket.h>
#include <unistd.h>

static int set_event(void *arg) {
    weft_event_set(arg);
    return 0;
}

static int set_event_of_copy(void *arg) {
    weft_event_set(*(weft_event **)arg);
    return 0;
}

static int three(void *arg) {
    (void)arg;
    return 3;
}

static void on_a_thread(void *(*fn)(void *), void *arg) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, fn, arg), 0);
    pthread_join(t, NULL);
}

/* ---- what an attached thread may do ---- */

static void start_some(weft_runtime *rt) {
    weft_event e = WEFT_EVENT_INIT, *at = &e;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    int result = 0;
    weft_stats s;
    CHECK(weft_current() == rt);
    CHECK_EQ(weft_self(), 0); /* it is no G for all that */
    CHECK_EQ(weft_proc_self(), -1);
    CHECK_EQ(weft_go(set_event, &e), 0);
    weft_event_wait(&e);
    weft_event_reset(&e);
    CHECK_EQ(weft_go_copy(set_event_of_copy, &at, sizeof at), 0);
    weft_event_wait(&e);
    weft_event_reset(&e);
    CHECK_EQ(weft_submit(NULL, set_event, &e), 0);
    weft_event_wait(&e);
    CHECK_EQ(weft_waitgroup_go(&w, three, NULL), 0);
    weft_waitgroup_wait(&w);
    CHECK_EQ(weft_call(NULL, three, NULL, WEFT_NEVER, &result), 0);
    CHECK_EQ(result, 3);
    CHECK_EQ(weft_procs(NULL), weft_procs(rt));
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    weft_external_begin(NULL);
    weft_external_end(NULL);
    weft_yield();
}

static void use_timers(void) {
    weft_timer *t;
    weft_time nominal, before = weft_now();
    weft_event e = WEFT_EVENT_INIT;
    CHECK_EQ(weft_timer_new(&t, WEFT_MILLISECOND, NULL), 0);
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK_GE(weft_time_sub(weft_now(), before), WEFT_MILLISECOND);
    CHECK_EQ(weft_timer_wait_until(t, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    CHECK(weft_timer_reset(t, 1));
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    CHECK(!weft_timer_stop(t));
    weft_timer_free(t);
    CHECK_EQ(weft_after_func(NULL, WEFT_MILLISECOND, set_event, &e, NULL), 0);
    weft_event_wait(&e);
}

static void use_conns(void) {
    weft_listener l, taken;
    weft_conn a, b, p;
    weft_addr at;
    char text[64], got[3];
    int fd[2];
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(l, &at), 0);
    CHECK_GT(weft_addr_text(&at, text, sizeof text), 0);
    CHECK_EQ(weft_dial_until(&a, "tcp", text, NULL, weft_in(20 * WEFT_SECOND)), 0);
    CHECK_EQ(weft_accept(&b, l), 0);
    CHECK_EQ(weft_conn_write(a, "abc", 3), 3);
    CHECK_EQ(weft_conn_read(b, got, 3), 3);
    CHECK_EQ(weft_conn_set_read_deadline(b, weft_in(WEFT_MILLISECOND)), 0);
    CHECK_EQ(weft_conn_read(b, got, 3), -ETIMEDOUT);
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(weft_conn_close(b), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&p, fd[0]), 0);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_conn_read(p, got, 3), 1);
    CHECK_EQ(weft_conn_close(p), 0);
    CHECK_EQ(weft_listener_from_fd(&taken, fd[1]), -EINVAL); /* none, but that is all it lacks */
    close(fd[1]);
}

static void *use_all(void *arg) {
    weft_runtime *rt = arg;
    weft_timer *t;
    weft_listener l;
    weft_conn c;
    CHECK_EQ(weft_attach(rt), 0);
    start_some(rt);
    use_timers();
    use_conns();
    weft_detach();
    CHECK(weft_current() == NULL);
    CHECK_EQ(weft_go(three, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_timer_new(&t, 1, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_after_func(NULL, 1, three, NULL, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_dial(&c, "tcp", "127.0.0.1:1", NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_conn_from_fd(&c, 0), WEFT_ENORUNTIME);
    CHECK_EQ(weft_attach(NULL), WEFT_ENORUNTIME);
    weft_detach(); /* one too many does nothing */
    return NULL;
}

TEST(attach, an_attached_thread_has_a_runtime) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_runtime *rt;
        weft_config c = config_of(procs);
        CHECK_EQ(weft_start(&rt, &c), 0);
        on_a_thread(use_all, rt);
        use_all(rt);
        CHECK(rt->attached == NULL);
        CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
    }
}

/* ---- nesting, and green threads ---- */

static int attach_within(void *arg) {
    weft_runtime *other = arg, *mine = weft_current();
    CHECK_EQ(weft_attach(mine), 0);
    CHECK_EQ(weft_attach(NULL), 0);
    CHECK_EQ(weft_attach(other), -EBUSY);
    CHECK(weft_current() == mine);
    weft_detach();
    weft_detach();
    weft_detach();
    CHECK(weft_current() == mine);
    return 0;
}

TEST(attach, a_green_thread_has_its_own) {
    weft_runtime *a, *b;
    CHECK_EQ(weft_start(&a, NULL), 0);
    CHECK_EQ(weft_start(&b, NULL), 0);
    CHECK_EQ(weft_call(a, attach_within, b, WEFT_NEVER, NULL), 0);
    CHECK(a->attached == NULL && b->attached == NULL);
    CHECK_EQ(weft_stop(a, -1), 0);
    CHECK_EQ(weft_stop(b, -1), 0);
}

TEST(attach, the_innermost_counts) {
    weft_runtime *a, *b;
    CHECK_EQ(weft_start(&a, NULL), 0);
    CHECK_EQ(weft_start(&b, NULL), 0);
    CHECK_EQ(weft_attach(a), 0);
    CHECK_EQ(weft_attach(b), 0);
    CHECK_EQ(weft_attach(a), 0);
    CHECK_EQ(weft_attach(NULL), 0);
    CHECK(weft_current() == a);
    weft_detach();
    CHECK(weft_current() == a);
    weft_detach();
    CHECK(weft_current() == b);
    CHECK_EQ(weft_attach(b), 0);
    CHECK_EQ(weft_stop(b, -1), 0); /* an attached thread may */
    CHECK(weft_current() == NULL);
    weft_detach();
    CHECK_EQ(weft_go(three, NULL), WEFT_ENORUNTIME);
    weft_detach();
    CHECK(weft_current() == a);
    int status = 0;
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(three, NULL, &c, &status), 0); /* and it may run another meanwhile */
    CHECK_EQ(status, 3);
    CHECK(weft_current() == a);
    CHECK_EQ(weft_request_stop(NULL), 0);
    CHECK_EQ(weft_attach(a), WEFT_ESTOPPING);
    CHECK_EQ(weft_go(three, NULL), WEFT_ESTOPPING);
    weft_detach();
    CHECK_EQ(weft_stop(a, -1), 0);
}

/* ---- ends ---- */

static void *attach_and_end(void *arg) {
    CHECK_EQ(weft_attach(arg), 0);
    CHECK_EQ(weft_attach(arg), 0);
    return NULL;
}

TEST(attach, ends_with_its_thread) {
    weft_runtime *rt;
    CHECK_EQ(weft_start(&rt, NULL), 0);
    for (int i = 0; i < 100; i++) {
        on_a_thread(attach_and_end, rt);
        CHECK(rt->attached == NULL);
        CHECK(weft_current() == NULL);
    }
    CHECK_EQ(weft_stop(rt, -1), 0);
}

struct idler {
    weft_runtime *rt;
    weft_event go_on;
    atomic_int attached;
};

static void *idle_attached(void *arg) {
    struct idler *i = arg;
    weft_timer *t;
    CHECK_EQ(weft_attach(i->rt), 0);
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    atomic_store(&i->attached, 1);
    weft_event_wait(&i->go_on);
    CHECK(weft_current() == NULL);
    CHECK_EQ(weft_go(three, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_timer_wait(t, NULL), -EBADF);
    weft_timer_free(t);
    return NULL;
}

TEST(attach, a_stop_takes_the_runtime_away) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        struct idler i = {.go_on = WEFT_EVENT_INIT};
        pthread_t t;
        weft_config c = config_of(procs);
        CHECK_EQ(weft_start(&i.rt, &c), 0);
        CHECK_EQ(pthread_create(&t, NULL, idle_attached, &i), 0);
        UNTIL(atomic_load(&i.attached));
        CHECK_EQ(weft_stop(i.rt, -1), 0); /* does not wait for it */
        weft_event_set(&i.go_on);
        pthread_join(t, NULL);
    }
}

/* Whoever is busy with all that an attached thread may do when the stop comes is told so. */
struct busy {
    weft_runtime *rt;
    atomic_int attached;
};

static bool is_over(int err) {
    CHECK(err == 0 || err == WEFT_ESTOPPING || err == WEFT_ENORUNTIME || err == -EBADF);
    return err == WEFT_ENORUNTIME;
}

static void *busy_till_stopped(void *arg) {
    struct busy *b = arg;
    CHECK_EQ(weft_attach(b->rt), 0);
    atomic_fetch_add(&b->attached, 1);
    for (unsigned i = 0;; i++) {
        weft_timer *t = NULL;
        weft_conn c;
        weft_stats s;
        int fd[2], err = 0;
        switch (i % 5) {
        case 0:
            err = weft_go(three, NULL);
            break;
        case 1:
            err = weft_timer_new(&t, 20 * WEFT_MICROSECOND, NULL);
            if (err == 0) {
                int waited = weft_timer_wait(t, NULL);
                CHECK(waited == 0 || waited == -EBADF);
            }
            weft_timer_free(t);
            break;
        case 2:
            err = weft_after_func(NULL, 20 * WEFT_MICROSECOND, three, NULL, NULL);
            break;
        case 3:
            CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
            err = weft_conn_from_fd(&c, fd[0]);
            if (err == 0) {
                int closed = weft_conn_close(c);
                CHECK(closed == 0 || closed == -EBADF);
            } else {
                close(fd[0]);
            }
            close(fd[1]);
            break;
        default:
            err = weft_stats_read(NULL, &s, sizeof s);
            break;
        }
        if (is_over(err)) {
            return NULL;
        }
    }
}

TEST(attach, through_a_stop) {
    for (int i = 0; i < rounds(100); i++) {
        struct busy b = {0};
        pthread_t t[2];
        weft_config c = config_of(1 + i % 3);
        CHECK_EQ(weft_start(&b.rt, &c), 0);
        for (int n = 0; n < 2; n++) {
            CHECK_EQ(pthread_create(&t[n], NULL, busy_till_stopped, &b), 0);
        }
        UNTIL(atomic_load(&b.attached) == 2);
        nanosleep(&(struct timespec){.tv_nsec = i * 10 * 1000}, NULL);
        CHECK_EQ(weft_stop(b.rt, WEFT_SECOND * 20), 0);
        pthread_join(t[0], NULL);
        pthread_join(t[1], NULL);
    }
}
