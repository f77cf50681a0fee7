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
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, past), -ETIMEDOUT); /* the conn's own: even with data */
    CHECK_EQ(weft_conn_close(c), 0);
    close(far);
    return 0;
}

TEST(review_net, try_to_read_asks_the_kernel) {
    run_on(1, tries, NULL);
}

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

TEST(review_net, try_to_accept_asks_the_kernel) {
    run_on(1, tries_to_accept, NULL);
}
