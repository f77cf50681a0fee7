/* Conns and listeners at their edges. */
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft.h>

static void run_on(int procs, weft_fn app, void *arg) {
    weft_config cfg = weft_config_default();
    cfg.procs = procs;
    cfg.flags = WEFT_IGNORE_ENV;
    CHECK_EQ(weft_run(app, arg, &cfg, NULL), 0);
}

static void pair(weft_conn *c, int *far) {
    int sv[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    CHECK_EQ(weft_conn_from_fd(c, sv[0]), 0);
    *far = sv[1];
}

/* ---- a past time makes a call a try -------------------------------------------------------------- */

static int tries(void *arg) {
    (void)arg;
    weft_conn c;
    int far;
    char byte;
    weft_time past = weft_time_at(0);
    pair(&c, &far);
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, past), -ETIMEDOUT);
    CHECK_EQ(write(far, "x", 1), 1);
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, past), 1); /* nobody has polled meanwhile */
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, past), -ETIMEDOUT);
    CHECK_EQ(weft_conn_set_read_deadline(c, past), 0);
    CHECK_EQ(write(far, "x", 1), 1);
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, past),
             -ETIMEDOUT); /* the conn's own: even with data */
    CHECK_EQ(weft_conn_close(c), 0);
    close(far);
    return 0;
}

TEST(review_net, try_to_read_asks_the_kernel) { run_on(1, tries, NULL); }

static int tries_to_accept(void *arg) {
    (void)arg;
    weft_listener l;
    weft_conn there, here;
    weft_addr at;
    char text[64];
    CHECK_EQ(weft_listen(&l, "tcp4", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(l, &at), 0);
    weft_addr_text(&at, text, sizeof text);
    CHECK_EQ(weft_accept_until(&here, l, weft_time_at(0)), -ETIMEDOUT);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(fd, weft_addr_sockaddr(&at), at.bytes), 0);
    CHECK_EQ(weft_accept_until(&here, l, weft_time_at(0)), 0);
    CHECK_EQ(weft_accept_until(&there, l, weft_time_at(0)), -ETIMEDOUT);
    CHECK_EQ(weft_conn_close(here), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    close(fd);
    return 0;
}

TEST(review_net, try_to_accept_asks_the_kernel) { run_on(1, tries_to_accept, NULL); }

/* ---- no descriptors left ------------------------------------------------------------------------- */

enum { CLIENTS = 4, LIMIT = 64 };

struct shortage {
    _Atomic int lines, served, refused;
    weft_listener l;
    int fillers[LIMIT], filled;
};

static void count_line(void *arg, int level, const char *line) {
    struct shortage *s = arg;
    if (level == WEFT_LOG_WARNING && strncmp(line, "accept", 6) == 0) {
        s->lines++;
    }
}

static int serves_one(void *arg) {
    struct shortage *s = arg;
    weft_conn c;
    int err = weft_accept(&c, s->l);
    if (err == 0) {
        s->served++;
    } else {
        CHECK_EQ(err, -EBADF);
        s->refused++;
    }
    return 0;
}

static void fill(struct shortage *s) {
    struct rlimit few = {LIMIT, LIMIT};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    int fd;
    while ((fd = dup(0)) >= 0) {
        s->fillers[s->filled++] = fd;
    }
}

/* Four accept, none can be served; then one; then none is left to serve and the listener closes. */
static int runs_short(void *arg) {
    struct shortage *s = arg;
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    weft_addr at;
    CHECK_EQ(weft_listen(&s->l, "tcp4", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(s->l, &at), 0);
    for (int i = 0; i < CLIENTS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_EQ(connect(fd, weft_addr_sockaddr(&at), at.bytes), 0);
    }
    fill(s);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK_EQ(weft_waitgroup_go(&all, serves_one, s), 0);
    }
    CHECK_EQ(weft_sleep(100 * WEFT_MILLISECOND), 0);
    CHECK_EQ(s->served, 0);
    CHECK_EQ(s->lines, 1);
    close(s->fillers[--s->filled]);
    while (s->served == 0) {
        CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
    }
    CHECK_EQ(weft_sleep(50 * WEFT_MILLISECOND), 0);
    CHECK_EQ(s->served, 1);
    weft_time before = weft_now();
    CHECK_EQ(weft_listener_close(s->l), 0);
    weft_waitgroup_wait(&all);
    CHECK_EQ(s->refused, CLIENTS - 1);
    test_clock(weft_time_sub(weft_now(), before) < 4 * WEFT_MILLISECOND * (int64_t)test_slack(),
               "back-off outlived the close by %lld us",
               (long long)(weft_time_sub(weft_now(), before) / WEFT_MICROSECOND));
    return 0;
}

TEST(review_net, accept_out_of_descriptors_says_so_once) {
    struct shortage s = {.filled = 0};
    weft_config cfg = weft_config_default();
    cfg.procs = 2;
    cfg.log = count_line;
    cfg.hook_arg = &s;
    CHECK_EQ(weft_run(runs_short, &s, &cfg, NULL), 0);
}

/* ---- what is refused stays as it was -------------------------------------------------------------- */

static int takes_twice(void *arg) {
    (void)arg;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    weft_listener l = {0}, again = {77};
    CHECK_EQ(listen(fd, 5), 0);
    CHECK_EQ(weft_listener_from_fd(&l, fd), 0);
    CHECK_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
    CHECK_EQ(weft_listener_from_fd(&again, fd), -EEXIST);
    CHECK_EQ(again.id, 77);
    CHECK_EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}

TEST(review_net, listener_refused_keeps_its_mode) { run_on(1, takes_twice, NULL); }
