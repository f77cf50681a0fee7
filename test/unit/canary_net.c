/* unit/canary_net.c: descriptors, where one fault would hang a call or serve it somebody else's. With one
 * P, what the far end does between two parks of ours comes to us in a single edge. */
#include "test.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft.h>

enum { ROUNDS = 20 };

static void run_alone(weft_fn app) {
    weft_config cfg = weft_config_default();
    cfg.procs = 1;
    cfg.flags = WEFT_IGNORE_ENV;
    CHECK_EQ(weft_run(app, NULL, &cfg, NULL), 0);
}

/* For what must come at once: a call that hangs ends with an error that the test can name. */
static weft_time patience(void) { return weft_in((weft_duration)(3 * test_slack() * WEFT_SECOND)); }

static void wait_until_waiting(uint64_t gs) {
    weft_stats s;
    do {
        weft_yield();
        CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    } while (s.gs_waiting != gs);
}

static void listen_on(weft_listener *l, weft_addr *at) {
    CHECK_EQ(weft_listen(l, "tcp4", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(*l, at), 0);
}

/* A plain socket: it connects, and later acts, without leaving the P. */
static int connect_raw(const weft_addr *at) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_GE(fd, 0);
    CHECK_EQ(connect(fd, weft_addr_sockaddr(at), at->bytes), 0);
    return fd;
}

/* ---- reading ---- */

struct reading {
    weft_conn conn;
    weft_waitgroup ended;
};

/* Reads its bytes in pieces of at most `piece`, then what comes behind them. */
static void read_all(weft_conn c, size_t bytes, size_t piece) {
    char buf[4096];
    for (size_t sum = 0; sum < bytes;) {
        ssize_t n = weft_conn_read(c, buf, piece);
        CHECK_GT(n, 0);
        sum += (size_t)n;
    }
}

static int reads_to_the_end(void *arg) {
    struct reading *r = arg;
    char byte;
    read_all(r->conn, 4, 1024);
    CHECK_EQ(weft_conn_read(r->conn, &byte, 1), 0);
    return 0;
}

static int reads_in_halves(void *arg) {
    struct reading *r = arg;
    read_all(r->conn, 2048, 1024);
    return 0;
}

/* The reader is parked before the far end writes all at once and, if it shall, closes. */
static void one_edge(weft_listener l, const weft_addr *at, weft_fn reader, size_t bytes,
                     bool ends) {
    static const char data[4096];
    struct reading r = {.ended = WEFT_WAITGROUP_INIT};
    int far = connect_raw(at);
    CHECK_EQ(weft_accept(&r.conn, l), 0);
    CHECK_EQ(weft_conn_set_read_deadline(r.conn, patience()), 0);
    CHECK_EQ(weft_waitgroup_go(&r.ended, reader, &r), 0);
    wait_until_waiting(1);
    CHECK_EQ(write(far, data, bytes), (ssize_t)bytes);
    if (ends) {
        close(far);
    }
    weft_waitgroup_wait(&r.ended);
    CHECK_EQ(weft_conn_close(r.conn), 0);
    if (!ends) {
        close(far);
    }
}

static void one_edge_each_round(weft_fn reader, size_t bytes, bool ends) {
    weft_listener l;
    weft_addr at;
    listen_on(&l, &at);
    for (int i = 0; i < ROUNDS; i++) {
        one_edge(l, &at, reader, bytes, ends);
    }
    CHECK_EQ(weft_listener_close(l), 0);
}

static int data_and_end(void *arg) {
    (void)arg;
    one_edge_each_round(reads_to_the_end, 4, true);
    return 0;
}

TEST(canary_net, end_in_the_edge_of_the_data_is_read) { run_alone(data_and_end); }

static int more_than_asked_for(void *arg) {
    (void)arg;
    one_edge_each_round(reads_in_halves, 2048, false);
    return 0;
}

TEST(canary_net, rest_of_the_data_needs_no_other_edge) { run_alone(more_than_asked_for); }

/* ---- handles ---- */

static int late_user(void *arg) {
    (void)arg;
    weft_conn old, next;
    int sv[2], other[2];
    char byte;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
    CHECK_EQ(weft_conn_from_fd(&old, sv[0]), 0);
    CHECK_EQ(weft_conn_close(old), 0);
    CHECK_EQ(weft_conn_from_fd(&next, other[0]), 0); /* takes the record that was freed last */
    CHECK_EQ((uint32_t)next.id, (uint32_t)old.id);
    CHECK_EQ(write(other[1], "x", 1), 1);
    CHECK_EQ(weft_conn_read_until(old, &byte, 1, patience()), -EBADF);
    CHECK_EQ(weft_conn_close(old), -EBADF);
    CHECK_EQ(weft_conn_read_until(next, &byte, 1, patience()), 1);
    CHECK_EQ(weft_conn_close(next), 0);
    close(sv[1]);
    close(other[1]);
    return 0;
}

TEST(canary_net, late_user_never_meets_the_next_conn) { run_alone(late_user); }

/* ---- accepting ---- */

static int accepts_one(void *arg) {
    weft_listener *l = arg;
    weft_conn c;
    CHECK_EQ(weft_accept_until(&c, *l, patience()), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}

static int two_in_one_edge(void *arg) {
    (void)arg;
    weft_listener l;
    weft_addr at;
    listen_on(&l, &at);
    for (int i = 0; i < ROUNDS; i++) {
        weft_waitgroup all = WEFT_WAITGROUP_INIT;
        CHECK_EQ(weft_waitgroup_go(&all, accepts_one, &l), 0);
        CHECK_EQ(weft_waitgroup_go(&all, accepts_one, &l), 0);
        wait_until_waiting(2);
        weft_time began = weft_now();
        int a = connect_raw(&at), b = connect_raw(&at);
        weft_waitgroup_wait(&all);
        /* One who waits out his time asks once more, and would be served then. */
        CHECK_LT(weft_time_sub(weft_now(), began), (weft_duration)(2 * test_slack() * WEFT_SECOND));
        close(a);
        close(b);
    }
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}

TEST(canary_net, both_who_accept_are_served_by_one_edge) { run_alone(two_in_one_edge); }

/* ---- deadlines ---- */

static int times_out(void *arg) {
    struct reading *r = arg;
    char byte;
    CHECK_EQ(weft_conn_read(r->conn, &byte, 1), -ETIMEDOUT);
    return 0;
}

static int sooner(void *arg) {
    (void)arg;
    struct reading r = {.ended = WEFT_WAITGROUP_INIT};
    int sv[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    CHECK_EQ(weft_conn_from_fd(&r.conn, sv[0]), 0);
    CHECK_EQ(weft_conn_set_read_deadline(r.conn, weft_in(1000 * WEFT_SECOND)), 0);
    CHECK_EQ(weft_waitgroup_go(&r.ended, times_out, &r), 0);
    wait_until_waiting(1);
    CHECK_EQ(weft_conn_set_read_deadline(r.conn, weft_in(5 * WEFT_MILLISECOND)), 0);
    CHECK_EQ(weft_waitgroup_wait_until(&r.ended, patience()), 0);
    CHECK_EQ(weft_conn_close(r.conn), 0);
    close(sv[1]);
    return 0;
}

TEST(canary_net, deadline_moved_to_sooner_is_kept) { run_alone(sooner); }
