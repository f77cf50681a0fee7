/* unit/everywhere.c: every call that waits, by a plain thread, by a green thread of the runtime that the
 * thing belongs to, and by one of another runtime; ended by each of these three, and by its time.
 */
#include "world.h"

#include <sys/socket.h>
#include <unistd.h>

enum place { PLAIN, SAME, OTHER, PLACES };
static const char *const place_name[] = {"a plain thread", "a green thread", "another runtime"};

/* One of each; those that belong to a runtime were made by a G of `rt`. */
struct things {
    weft_runtime *rt, *other;
    weft_chan *empty, *full;
    weft_mutex held;
    weft_waitgroup group;
    weft_event event;
    weft_timer *timer;
    weft_conn conn, peer, writer, reader;
    weft_listener listener;
    char address[64];
};

static int make(void *arg) {
    struct things *t = arg;
    int v = 5, fd[2];
    weft_addr at;
    weft_listen_options o = weft_listen_options_default();
    CHECK_EQ(weft_chan_new(&t->empty, sizeof v, 0), 0);
    CHECK_EQ(weft_chan_new(&t->full, sizeof v, 1), 0);
    CHECK_EQ(weft_chan_send(t->full, &v), 0);
    weft_mutex_lock(&t->held);
    weft_waitgroup_add(&t->group, 1);
    CHECK_EQ(weft_timer_new(&t->timer, WEFT_HOUR, NULL), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&t->conn, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&t->peer, fd[1]), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&t->writer, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&t->reader, fd[1]), 0);
    CHECK_EQ(weft_listen(&t->listener, "tcp", "127.0.0.1:0", &o), 0);
    CHECK_EQ(weft_listener_addr(t->listener, &at), 0);
    CHECK_GT(weft_addr_text(&at, t->address, sizeof t->address), 0);
    return 0;
}

/* With the means of any thread. */
static void drop(struct things *t) {
    weft_chan_unref(t->empty);
    weft_chan_unref(t->full);
    weft_timer_free(t->timer);
    CHECK_EQ(weft_conn_close(t->conn), 0);
    CHECK_EQ(weft_conn_close(t->peer), 0);
    CHECK_EQ(weft_conn_close(t->writer), 0);
    CHECK_EQ(weft_conn_close(t->reader), 0);
    CHECK_EQ(weft_listener_close(t->listener), 0);
}

/* ---- the table ---- */

static int64_t wait_sleep(struct things *t, weft_time until) {
    (void)t;
    int err = weft_sleep_until(until);
    CHECK_EQ(err, 0);
    return -ETIMEDOUT;
}

static int64_t wait_recv(struct things *t, weft_time until) {
    int v = 0, err = weft_chan_recv_until(t->empty, &v, until);
    CHECK(err != 0 || v == 7);
    return err;
}
static void end_recv(struct things *t) {
    int v = 7;
    CHECK_EQ(weft_chan_send(t->empty, &v), 0);
}

static int64_t wait_send(struct things *t, weft_time until) {
    int v = 8;
    return weft_chan_send_until(t->full, &v, until);
}
static void end_send(struct things *t) {
    int v;
    CHECK_EQ(weft_chan_recv(t->full, &v), 0);
    CHECK_EQ(v, 5);
}

static int64_t wait_lock(struct things *t, weft_time until) {
    return weft_mutex_lock_until(&t->held, until);
}
static void end_lock(struct things *t) { weft_mutex_unlock(&t->held); }

static int64_t wait_group(struct things *t, weft_time until) {
    return weft_waitgroup_wait_until(&t->group, until);
}
static void end_group(struct things *t) { weft_waitgroup_done(&t->group); }

static int64_t wait_event(struct things *t, weft_time until) {
    return weft_event_wait_until(&t->event, until);
}
static void end_event(struct things *t) { weft_event_set(&t->event); }

static int64_t wait_timer(struct things *t, weft_time until) {
    return weft_timer_wait_until(t->timer, NULL, until);
}
static void end_timer(struct things *t) {
    CHECK(weft_timer_reset(t->timer, 100 * WEFT_MICROSECOND));
}

static int64_t wait_read(struct things *t, weft_time until) {
    char byte = 0;
    CHECK_EQ(weft_conn_set_read_deadline(t->conn, until), 0);
    int64_t n = weft_conn_read(t->conn, &byte, 1);
    CHECK(n != 1 || byte == 'x');
    return n == 1 ? 0 : n;
}
static void end_read(struct things *t) { CHECK_EQ(weft_conn_write(t->peer, "x", 1), 1); }

enum { LARGE = 4 << 20 }; /* more than a socket takes */
static char large[LARGE];

static int64_t wait_write(struct things *t, weft_time until) {
    CHECK_EQ(weft_conn_set_write_deadline(t->writer, until), 0);
    size_t written = 0;
    int err = weft_conn_write_all(t->writer, large, LARGE, &written);
    CHECK_EQ(err == 0, written == LARGE);
    return err;
}
static void end_write(struct things *t) {
    static char into[1 << 16];
    for (int64_t left = LARGE, n; left > 0; left -= n) {
        n = weft_conn_read(t->reader, into, sizeof into);
        CHECK_GT(n, 0);
    }
}

static int64_t wait_accept(struct things *t, weft_time until) {
    weft_conn c;
    int err = weft_accept_until(&c, t->listener, until);
    if (err == 0) {
        CHECK_EQ(weft_conn_close(c), 0);
    }
    return err;
}
static void end_accept(struct things *t) {
    weft_conn c;
    CHECK_EQ(weft_attach(weft_current() != NULL ? NULL : t->rt), 0);
    CHECK_EQ(weft_dial(&c, "tcp", t->address, NULL), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    weft_detach();
}

static const struct row {
    const char *name;
    int64_t (*wait)(struct things *t, weft_time until);
    void (*end)(struct things *t); /* NULL: only time ends it */
} table[] = {
    {"sleep", wait_sleep, NULL},          {"receive", wait_recv, end_recv},
    {"send", wait_send, end_send},        {"lock", wait_lock, end_lock},
    {"waitgroup", wait_group, end_group}, {"event", wait_event, end_event},
    {"timer", wait_timer, end_timer},     {"read", wait_read, end_read},
    {"write", wait_write, end_write},     {"accept", wait_accept, end_accept},
};

/* ---- who ---- */

struct actor {
    struct things *t;
    const struct row *row;
    weft_time until;
    int64_t result;
    atomic_int begun, done;
    pthread_t thread;
    enum place where;
};

static int act_wait(void *arg) {
    struct actor *a = arg;
    atomic_store(&a->begun, 1);
    a->result = a->row->wait(a->t, a->until);
    atomic_store(&a->done, 1);
    return 0;
}

static int act_end(void *arg) {
    struct actor *a = arg;
    a->row->end(a->t);
    atomic_store(&a->done, 1);
    return 0;
}

struct plain {
    weft_fn fn;
    struct actor *a;
};

static void *act_plainly(void *arg) {
    struct plain p = *(struct plain *)arg;
    weft__mem_free(arg, sizeof p);
    p.fn(p.a);
    return NULL;
}

static void begin(struct actor *a, enum place where, weft_fn fn) {
    a->where = where;
    if (where == PLAIN) {
        struct plain *p = weft__mem_alloc(sizeof *p);
        *p = (struct plain){fn, a};
        CHECK_EQ(pthread_create(&a->thread, NULL, act_plainly, p), 0);
    } else {
        CHECK_EQ(weft_submit(where == SAME ? a->t->rt : a->t->other, fn, a), 0);
    }
}

static void end(struct actor *a) {
    UNTIL(atomic_load(&a->done));
    if (a->where == PLAIN) {
        pthread_join(a->thread, NULL);
    }
}

static void served(struct things *t, const struct row *row, enum place waiter, enum place server) {
    struct actor w = {.t = t, .row = row, .until = weft_in(WEFT_HOUR)}, s = {.t = t, .row = row};
    begin(&w, waiter, act_wait);
    UNTIL(atomic_load(&w.begun));
    nap(); /* most times it waits by now; in either case it is served */
    begin(&s, server, act_end);
    end(&s);
    end(&w);
    if (w.result != 0) {
        test_fail(__FILE__, __LINE__, "%s by %s, ended by %s: %lld", row->name, place_name[waiter],
                  place_name[server], (long long)w.result);
    }
}

static void timed_out(struct things *t, const struct row *row, enum place waiter) {
    struct actor w = {.t = t, .row = row, .until = weft_in(WEFT_MILLISECOND)};
    begin(&w, waiter, act_wait);
    end(&w);
    if (w.result != -ETIMEDOUT || weft_time_sub(weft_now(), w.until) < 0) {
        test_fail(__FILE__, __LINE__, "%s by %s until a time: %lld", row->name, place_name[waiter],
                  (long long)w.result);
    }
}

static void with_things(struct things *t, void (*fn)(struct things *, const struct row *, int, int),
                        const struct row *row, int a, int b) {
    t->held = (weft_mutex)WEFT_MUTEX_INIT;
    t->group = (weft_waitgroup)WEFT_WAITGROUP_INIT;
    t->event = (weft_event)WEFT_EVENT_INIT;
    CHECK_EQ(weft_call(t->rt, make, t, WEFT_NEVER, NULL), 0);
    fn(t, row, a, b);
    drop(t);
}

static void serve_one(struct things *t, const struct row *row, int waiter, int server) {
    served(t, row, (enum place)waiter, (enum place)server);
}

static void time_one(struct things *t, const struct row *row, int waiter, int unused) {
    (void)unused;
    timed_out(t, row, (enum place)waiter);
}

static void on_two_runtimes(int procs, bool time) {
    struct things t = {0};
    weft_config c = config_of(procs);
    CHECK_EQ(weft_start(&t.rt, &c), 0);
    CHECK_EQ(weft_start(&t.other, &c), 0);
    for (size_t i = 0; i < WEFT_COUNT(table); i++) {
        for (int w = PLAIN; w < PLACES; w++) {
            for (int s = PLAIN; s < PLACES && table[i].end != NULL && !time; s++) {
                with_things(&t, serve_one, &table[i], w, s);
            }
            if (time) {
                with_things(&t, time_one, &table[i], w, 0);
            }
        }
    }
    CHECK_EQ(weft_stop(t.rt, WEFT_SECOND * 20), 0);
    CHECK_EQ(weft_stop(t.other, WEFT_SECOND * 20), 0);
}

TEST(everywhere, every_wait_is_ended_from_everywhere_1) { on_two_runtimes(1, false); }
TEST(everywhere, every_wait_is_ended_from_everywhere_2) { on_two_runtimes(2, false); }
TEST(everywhere, every_wait_has_a_time_1) { on_two_runtimes(1, true); }
TEST(everywhere, every_wait_has_a_time_2) { on_two_runtimes(2, true); }

/* ---- what is waited for abroad comes, though nothing at home could bring it ---- */

static int wait_abroad(void *arg) {
    struct things *t = arg;
    char byte;
    CHECK(weft_timer_reset(t->timer, 3 * WEFT_MILLISECOND));
    CHECK_EQ(weft_timer_wait(t->timer, NULL), 0);
    struct actor writer = {.t = t, .row = &table[7]}; /* read */
    CHECK_EQ(weft_submit(t->rt, act_end, &writer), 0);
    CHECK_EQ(weft_conn_read(t->conn, &byte, 1), 1);
    UNTIL(atomic_load(&writer.done));
    return 0;
}

static int wait_for_a_stopped_timer_abroad(void *arg) {
    struct things *t = arg;
    CHECK(weft_timer_stop(t->timer));
    CHECK_EQ(weft_timer_wait_until(t->timer, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    static weft_event never;
    weft_event_wait(&never);
    return 0;
}

TEST(everywhere, who_waits_abroad_is_not_stuck) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        struct things t = {0};
        weft_config c = config_of(procs), strict = config_of(procs);
        strict.flags = WEFT_IGNORE_ENV;
        CHECK_EQ(weft_start(&t.rt, &c), 0);
        CHECK_EQ(weft_call(t.rt, make, &t, WEFT_NEVER, NULL), 0);
        CHECK_EQ(weft_run(wait_abroad, &t, &strict, NULL), 0);
        weft_timer_reset(t.timer, WEFT_HOUR);
        CHECK_EQ(weft_run(wait_for_a_stopped_timer_abroad, &t, &strict, NULL), -EDEADLK);
        drop(&t);
        CHECK_EQ(weft_stop(t.rt, WEFT_SECOND * 20), 0);
    }
}
