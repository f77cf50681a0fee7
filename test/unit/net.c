/* unit/net.c: connections and listeners. They are made by green threads, and used by green threads,
 * plain threads and those of another runtime.
 */
#include "world.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NET(name)                                                                                  \
    static void net_##name##_scene(void);                                                          \
    TEST(net, name##_1) { play(net_##name##_scene, 1, PARTIES_GREEN); }                            \
    TEST(net, name##_4) { play(net_##name##_scene, 4, PARTIES_GREEN); }                            \
    TEST(net, name##_plain) { play(net_##name##_scene, 2, PARTIES_PLAIN); }                        \
    TEST(net, name##_two_runtimes) { play(net_##name##_scene, 2, PARTIES_FOREIGN); }               \
    static void net_##name##_scene(void)

static weft_time past(void) { return weft_time_at(1); }
static weft_time soon(void) { return weft_in(2 * WEFT_MILLISECOND); }
static weft_time later(void) { return weft_in(WEFT_HOUR); }

static const uint64_t untouched = 0x1234567812345678;

static weft_listener listen_at(const char *network, const char *at, char text[80]) {
    weft_listener l;
    weft_addr a;
    CHECK_EQ(weft_listen(&l, network, at, NULL), 0);
    CHECK_EQ(weft_listener_addr(l, &a), 0);
    CHECK_LT(weft_addr_text(&a, text, 80), 80);
    return l;
}

static void tcp_pair(weft_conn *a, weft_conn *b) {
    char text[80];
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    CHECK_EQ(weft_dial(a, "tcp", text, NULL), 0);
    CHECK_EQ(weft_accept(b, l), 0);
    CHECK_EQ(weft_listener_close(l), 0);
}

static void unix_pair(weft_conn *a, weft_conn *b) {
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(b, fd[1]), 0);
}

static void close_both(weft_conn a, weft_conn b) {
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(weft_conn_close(b), 0);
}

/* ---- what cannot be made ---- */

TEST(net, needs_a_runtime) {
    weft_conn c = {untouched};
    weft_listener l = {untouched};
    int fd[2];
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_dial(&c, "tcp", "127.0.0.1:1", NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_dial_until(&c, "tcp", "127.0.0.1:1", NULL, WEFT_NEVER), WEFT_ENORUNTIME);
    CHECK_EQ(weft_conn_from_fd(&c, fd[0]), WEFT_ENORUNTIME);
    CHECK_EQ(weft_listener_from_fd(&l, fd[0]), WEFT_ENORUNTIME);
    CHECK_EQ(c.id, untouched);
    CHECK_EQ(l.id, untouched);
    CHECK_EQ(fcntl(fd[0], F_GETFL) & O_NONBLOCK, 0);
}

static void use_nothing(uint64_t id) {
    weft_conn c = {id}, out = {untouched};
    weft_listener l = {id};
    weft_addr a;
    char byte = 'x';
    size_t done = 7;
    CHECK_EQ(weft_conn_read(c, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_read(c, &byte, 0), -EBADF);
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, past()), -EBADF);
    CHECK_EQ(weft_conn_read_full(c, &byte, 1, &done), -EBADF);
    CHECK_EQ(done, 0); /* always tells how many */
    done = 7;
    CHECK_EQ(weft_conn_write(c, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_write_until(c, &byte, 1, past()), -EBADF);
    CHECK_EQ(weft_conn_write_all(c, &byte, 1, &done), -EBADF);
    CHECK_EQ(done, 0);
    CHECK_EQ(weft_conn_set_deadline(c, past()), -EBADF);
    CHECK_EQ(weft_conn_set_read_deadline(c, WEFT_NEVER), -EBADF);
    CHECK_EQ(weft_conn_set_write_deadline(c, WEFT_NEVER), -EBADF);
    CHECK_EQ(weft_conn_close_write(c), -EBADF);
    CHECK_EQ(weft_conn_local(c, &a), -EBADF);
    CHECK_EQ(weft_conn_remote(c, &a), -EBADF);
    CHECK_EQ(weft_conn_close(c), -EBADF);
    CHECK_EQ(weft_accept(&out, l), -EBADF);
    CHECK_EQ(weft_accept_until(&out, l, past()), -EBADF);
    CHECK_EQ(weft_listener_addr(l, &a), -EBADF);
    CHECK_EQ(weft_listener_close(l), -EBADF);
    CHECK_EQ(out.id, untouched);
    CHECK_EQ(byte, 'x');
}

PLAYED(net, no_such_handle) {
    static const uint64_t ids[] = {0,           1,          255,         256,
                                   UINT32_MAX,  UINT64_MAX, 1ULL << 32,  (1ULL << 32) + 5,
                                   77ULL << 32, 0x00ffffff, 0x100ffffff, 0x101000000};
    for (size_t i = 0; i < WEFT_COUNT(ids); i++) {
        use_nothing(ids[i]);
    }
}

PLAYED_GREEN(net, bad_networks_and_addresses) {
    static const char *const bad[][2] = {
        {"udp", "127.0.0.1:1"},
        {"", "127.0.0.1:1"},
        {NULL, "127.0.0.1:1"},
        {"TCP", "127.0.0.1:1"},
        {"tcp", NULL},
        {"tcp", ""},
        {"tcp", "127.0.0.1"},
        {"tcp", "127.0.0.1:65536"},
        {"tcp", "localhost:80"},
        {"tcp4", "[::1]:80"},
        {"tcp6", "127.0.0.1:80"},
        {"tcp", "unix:/tmp/x"},
        {"tcp", "@x"},
    };
    weft_conn c = {untouched};
    weft_listener l = {untouched};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        CHECK_EQ(weft_listen(&l, bad[i][0], bad[i][1], NULL), -EINVAL);
        CHECK_EQ(weft_dial(&c, bad[i][0], bad[i][1], NULL), -EINVAL);
        CHECK_EQ(weft_dial_until(&c, bad[i][0], bad[i][1], NULL, later()), -EINVAL);
    }
    CHECK_EQ(c.id, untouched);
    CHECK_EQ(l.id, untouched);
}

PLAYED_GREEN(net, bad_options) {
    weft_conn c = {untouched};
    weft_listener l = {untouched};
    struct {
        weft_listen_options o;
        char more[8];
    } lo = {weft_listen_options_default(), {0}};
    struct {
        weft_dial_options o;
        char more[8];
    } d = {weft_dial_options_default(), {0}};
    lo.o.size = 0;
    d.o.size = 0;
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", &lo.o), -EINVAL);
    CHECK_EQ(weft_dial(&c, "tcp", "127.0.0.1:1", &d.o), -EINVAL);
    lo.o.size = sizeof lo;
    d.o.size = sizeof d;
    lo.more[7] = d.more[7] = 1;
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", &lo.o), -EINVAL);
    CHECK_EQ(weft_dial(&c, "tcp", "127.0.0.1:1", &d.o), -EINVAL);
    CHECK_EQ(c.id, untouched);
    CHECK_EQ(l.id, untouched);
    lo.more[7] = 0;
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", &lo.o), 0);
    CHECK_EQ(weft_listener_close(l), 0);
}

PLAYED_GREEN(net, descriptors_that_will_not_do) {
    weft_conn c = {untouched};
    weft_listener l = {untouched};
    int file = scratch_file(0), fd[2], fds = 0;
    CHECK_GE(file, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    fds = fds_now();
    CHECK_EQ(weft_conn_from_fd(&c, -1), -EBADF);
    CHECK_EQ(weft_conn_from_fd(&c, 99999), -EBADF);
    CHECK_EQ(weft_conn_from_fd(&c, file), -EPERM);
    CHECK_EQ(weft_listener_from_fd(&l, -1), -EINVAL);
    CHECK_EQ(weft_listener_from_fd(&l, file), -EINVAL);
    CHECK_EQ(weft_listener_from_fd(&l, fd[0]), -EINVAL);
    CHECK_EQ(c.id, untouched);
    CHECK_EQ(l.id, untouched);
    CHECK_EQ(fds_now(), fds); /* they stay the caller's, as they were */
    CHECK_EQ(fcntl(file, F_GETFL) & O_NONBLOCK, 0);
    CHECK_EQ(fcntl(fd[0], F_GETFL) & O_NONBLOCK, 0);
    close(file);
    close(fd[0]);
    close(fd[1]);
}

/* ---- listen, dial, accept ---- */

static void ports_agree(const char *network, const char *at) {
    char text[80];
    weft_addr la, a, b;
    weft_conn c, d;
    weft_listener l = listen_at(network, at, text);
    CHECK_EQ(weft_listener_addr(l, &la), 0);
    CHECK_GT(weft_addr_port(&la), 0);
    CHECK_EQ(weft_dial(&c, network, text, NULL), 0);
    CHECK_EQ(weft_accept(&d, l), 0);
    CHECK_NE(c.id, d.id);
    CHECK_EQ(weft_conn_remote(c, &a), 0);
    CHECK(weft_addr_equal(&a, &la));
    CHECK_EQ(weft_conn_local(d, &b), 0);
    CHECK(weft_addr_equal(&b, &la));
    CHECK_EQ(weft_conn_local(c, &a), 0);
    CHECK_EQ(weft_conn_remote(d, &b), 0);
    CHECK(weft_addr_equal(&a, &b));
    close_both(c, d);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listener_close(l), -EBADF);
}

static bool has_ipv6(void) {
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool yes = fd >= 0 && bind(fd, (struct sockaddr *)&in, sizeof in) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return yes;
}

PLAYED_GREEN(net, addresses_of_both_ends) {
    ports_agree("tcp", "127.0.0.1:0");
    ports_agree("tcp4", "127.0.0.1:0");
    if (has_ipv6()) {
        ports_agree("tcp", "[::1]:0");
        ports_agree("tcp6", "[::1]:0");
    }
}

PLAYED_GREEN(net, wildcards) {
    static const char *const networks[] = {"tcp", "tcp4"};
    for (int i = 0; i < 2; i++) {
        weft_listener l;
        weft_addr a;
        weft_conn c, d;
        char text[80];
        CHECK_EQ(weft_listen(&l, networks[i], ":0", NULL), 0);
        CHECK_EQ(weft_listener_addr(l, &a), 0);
        snprintf(text, sizeof text, "127.0.0.1:%d", weft_addr_port(&a));
        CHECK_EQ(weft_dial(&c, "tcp4", text, NULL), 0); /* "tcp" serves both families */
        CHECK_EQ(weft_accept(&d, l), 0);
        close_both(c, d);
        CHECK_EQ(weft_listener_close(l), 0);
    }
}

PLAYED_GREEN(net, an_address_is_taken_until_closed) {
    char text[80];
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text), other = {untouched};
    CHECK_EQ(weft_listen(&other, "tcp", text, NULL), -EADDRINUSE);
    CHECK_EQ(other.id, untouched);
    weft_conn c, d;
    CHECK_EQ(weft_dial(&c, "tcp", text, NULL), 0);
    CHECK_EQ(weft_accept(&d, l), 0);
    close_both(d, c); /* the server's end first: it rests in TIME_WAIT */
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_listen(&other, "tcp", text, NULL), 0); /* and yet at once */
    CHECK_EQ(weft_listener_close(other), 0);
}

PLAYED_GREEN(net, reuse_port_and_backlog) {
    weft_listen_options o = weft_listen_options_default();
    weft_listener a, b;
    weft_addr at;
    char text[80];
    o.reuse_port = true;
    o.backlog = 3;
    CHECK_EQ(weft_listen(&a, "tcp", "127.0.0.1:0", &o), 0);
    CHECK_EQ(weft_listener_addr(a, &at), 0);
    weft_addr_text(&at, text, sizeof text);
    CHECK_EQ(weft_listen(&b, "tcp", text, &o), 0);
    CHECK_EQ(weft_listener_close(a), 0);
    CHECK_EQ(weft_listener_close(b), 0);
}

PLAYED_GREEN(net, dial_from_a_local_address) {
    char text[80];
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    weft_dial_options o = weft_dial_options_default();
    weft_addr local, seen;
    weft_conn c, d;
    CHECK_EQ(weft_addr_parse(&local, "127.0.0.2:0"), 0);
    o.local = &local;
    o.keepalive = -1;
    CHECK_EQ(weft_dial(&c, "tcp", text, &o), 0);
    CHECK_EQ(weft_accept(&d, l), 0);
    CHECK_EQ(weft_conn_remote(d, &seen), 0);
    weft_addr_set_port(&seen, 0);
    CHECK(weft_addr_equal(&seen, &local));
    close_both(c, d);
    CHECK_EQ(weft_addr_parse(&local, "192.0.2.1:0"), 0); /* not ours */
    c.id = untouched;
    int fds = fds_now();
    CHECK_EQ(weft_dial(&c, "tcp", text, &o), -EADDRNOTAVAIL);
    CHECK_EQ(fds_now(), fds);
    CHECK_EQ(c.id, untouched);
    CHECK_EQ(weft_listener_close(l), 0);
}

PLAYED_GREEN(net, dial_to_nobody) {
    char text[80];
    weft_conn c = {untouched};
    CHECK_EQ(weft_listener_close(listen_at("tcp", "127.0.0.1:0", text)), 0);
    int fds = fds_now();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_dial(&c, "tcp", text, NULL), -ECONNREFUSED);
        CHECK_EQ(weft_dial_until(&c, "tcp", text, NULL, later()), -ECONNREFUSED);
    }
    CHECK_EQ(c.id, untouched);
    CHECK_EQ(fds_now(), fds);
}

/* A listener whose queue is full answers nobody: the dial ends with its deadline. */
PLAYED_GREEN(net, dial_ends_with_its_deadline) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof in;
    CHECK_EQ(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    CHECK_EQ(listen(fd, 0), 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)&in, &bytes), 0);
    char text[80];
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(in.sin_port));
    enum { ENOUGH = 20 };
    weft_conn c[ENOUGH];
    int n = 0, err, fds = 0;
    weft_time until;
    do {
        CHECK_LT(n, ENOUGH);
        fds = fds_now();
        until = weft_in(20 * WEFT_MILLISECOND);
        c[n].id = untouched;
        err = weft_dial_until(&c[n], "tcp", text, NULL, until);
        n++;
    } while (err == 0);
    CHECK_EQ(err, -ETIMEDOUT);
    CHECK_GE(clock_ns(), until.ns);
    CHECK_EQ(c[n - 1].id, untouched);
    CHECK_EQ(fds_now(), fds);
    CHECK_EQ(weft_dial_until(&c[n - 1], "tcp", text, NULL, past()), -ETIMEDOUT);
    for (int i = 0; i < n - 1; i++) {
        CHECK_EQ(weft_conn_close(c[i]), 0);
    }
    close(fd);
}

struct accepting {
    weft_listener listener;
    weft_conn conn;
    weft_time until; /* 0: the plain form */
};

static int accept_once(void *arg) {
    struct accepting *a = arg;
    return a->until.ns == 0 ? weft_accept(&a->conn, a->listener)
                            : weft_accept_until(&a->conn, a->listener, a->until);
}

NET(accept_until) {
    char text[80];
    struct accepting a = {listen_at("tcp", "127.0.0.1:0", text), {untouched}, past()};
    party p;
    CHECK_EQ(weft_accept_until(&a.conn, a.listener, past()), -ETIMEDOUT);
    weft_time until = soon();
    CHECK_EQ(weft_accept_until(&a.conn, a.listener, until), -ETIMEDOUT);
    CHECK_GE(clock_ns(), until.ns);
    party_start(&p, accept_once, &a);
    CHECK_EQ(party_end(&p), -ETIMEDOUT);
    CHECK_EQ(a.conn.id, untouched);
    weft_conn c;
    CHECK_EQ(weft_dial(&c, "tcp", text, NULL), 0);
    CHECK_EQ(weft_accept_until(&a.conn, a.listener, past()), 0); /* a try: somebody was there */
    close_both(c, a.conn);
    CHECK_EQ(weft_listener_close(a.listener), 0);
}

NET(several_accept) {
    enum { SEVERAL = 4 };
    char text[80];
    struct accepting a[SEVERAL];
    party p[SEVERAL];
    weft_conn c[SEVERAL];
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    for (int i = 0; i < SEVERAL; i++) {
        a[i] = (struct accepting){l, {untouched}, i % 2 ? later() : weft_time_at(0)};
        party_start(&p[i], accept_once, &a[i]);
    }
    for (int i = 0; i < SEVERAL; i++) {
        CHECK_EQ(weft_dial(&c[i], "tcp", text, NULL), 0);
    }
    for (int i = 0; i < SEVERAL; i++) {
        CHECK_EQ(party_end(&p[i]), 0);
        for (int k = 0; k < i; k++) {
            CHECK_NE(a[i].conn.id, a[k].conn.id);
        }
    }
    for (int i = 0; i < SEVERAL; i++) {
        close_both(c[i], a[i].conn);
    }
    CHECK_EQ(weft_listener_close(l), 0);
}

NET(close_ends_accepts) {
    enum { SEVERAL = 4 };
    char text[80];
    struct accepting a[SEVERAL];
    party p[SEVERAL];
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    for (int i = 0; i < SEVERAL; i++) {
        a[i] = (struct accepting){l, {untouched}, i % 2 ? later() : weft_time_at(0)};
        party_start(&p[i], accept_once, &a[i]);
        party_parked(&p[i]);
    }
    CHECK_EQ(weft_listener_close(l), 0);
    for (int i = 0; i < SEVERAL; i++) {
        CHECK_EQ(party_end(&p[i]), -EBADF);
        CHECK_EQ(a[i].conn.id, untouched);
    }
    weft_conn c = {untouched};
    CHECK_EQ(weft_dial(&c, "tcp", text, NULL), -ECONNREFUSED);
}

/* A listening descriptor that somebody else has made. */
PLAYED_GREEN(net, listener_from_a_descriptor) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK_EQ(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    CHECK_EQ(listen(fd, 10), 0);
    weft_listener l;
    weft_addr a;
    weft_conn c, d;
    char text[80], byte = 0;
    CHECK_EQ(weft_listener_from_fd(&l, fd), 0);
    CHECK_EQ(weft_listener_addr(l, &a), 0);
    weft_addr_text(&a, text, sizeof text);
    CHECK_EQ(weft_dial(&c, "tcp", text, NULL), 0);
    CHECK_EQ(weft_accept(&d, l), 0);
    CHECK_EQ(weft_conn_write(c, "x", 1), 1);
    CHECK_EQ(weft_conn_read(d, &byte, 1), 1);
    CHECK_EQ(byte, 'x');
    close_both(c, d);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(fcntl(fd, F_GETFL), -1); /* it was taken */
}

/* ---- conns and listeners are told apart ---- */

PLAYED_GREEN(net, a_conn_is_no_listener) {
    char text[80];
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    weft_conn a, b, out;
    unix_pair(&a, &b);
    weft_listener as_listener = {a.id};
    weft_conn as_conn = {l.id};
    char byte;
    CHECK_EQ(weft_accept(&out, as_listener), -EBADF);
    CHECK_EQ(weft_listener_close(as_listener), -EBADF);
    CHECK_EQ(weft_conn_read(as_conn, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_set_deadline(as_conn, past()), -EBADF);
    CHECK_EQ(weft_conn_close(as_conn), -EBADF);
    close_both(a, b);
    CHECK_EQ(weft_listener_close(l), 0);
}

/* ---- reading and writing ---- */

static void hello(weft_conn a, weft_conn b) {
    char buf[16] = "";
    size_t done = 99;
    CHECK_EQ(weft_conn_write(a, "hello", 5), 5);
    CHECK_EQ(weft_conn_read(b, buf, sizeof buf), 5);
    CHECK_MEM(buf, "hello", 5);
    CHECK_EQ(weft_conn_write(b, "worlds", 6), 6);
    CHECK_EQ(weft_conn_read(a, buf, 2), 2);
    CHECK_MEM(buf, "wo", 2);
    CHECK_EQ(weft_conn_read_until(a, buf, 16, past()), 4); /* a try finds what is there */
    CHECK_MEM(buf, "rlds", 4);
    CHECK_EQ(weft_conn_read_until(a, buf, 16, past()), -ETIMEDOUT);
    CHECK_EQ(weft_conn_write_until(a, "12345", 5, past()), 5);
    CHECK_EQ(weft_conn_write_all(a, "678", 3, &done), 0);
    CHECK_EQ(done, 3);
    CHECK_EQ(weft_conn_read_full(b, buf, 8, &done), 0);
    CHECK_EQ(done, 8);
    CHECK_MEM(buf, "12345678", 8);
    CHECK_EQ(weft_conn_write_all(a, "90", 2, NULL), 0);
    CHECK_EQ(weft_conn_read_full(b, buf, 2, NULL), 0);
}

static void nothing_of_nothing(weft_conn a, weft_conn b) {
    char byte = 'x';
    size_t done = 99;
    CHECK_EQ(weft_conn_read(a, &byte, 0), 0);
    CHECK_EQ(weft_conn_read(a, NULL, 0), 0);
    CHECK_EQ(weft_conn_write(a, NULL, 0), 0);
    CHECK_EQ(weft_conn_read_full(b, NULL, 0, &done), 0);
    CHECK_EQ(done, 0);
    done = 99;
    CHECK_EQ(weft_conn_write_all(b, NULL, 0, &done), 0);
    CHECK_EQ(done, 0);
    CHECK_EQ(byte, 'x');
}

static void half_close(weft_conn a, weft_conn b) {
    char buf[16];
    size_t done = 99;
    CHECK_EQ(weft_conn_write_all(a, "last", 4, NULL), 0);
    CHECK_EQ(weft_conn_close_write(a), 0);
    CHECK_EQ(weft_conn_read_full(b, buf, 8, &done), WEFT_EOF);
    CHECK_EQ(done, 4);
    CHECK_MEM(buf, "last", 4);
    for (int i = 0; i < 3; i++) { /* the end stays */
        CHECK_EQ(weft_conn_read(b, buf, 8), 0);
        CHECK_EQ(weft_conn_read_until(b, buf, 8, past()), 0);
        CHECK_EQ(weft_conn_read_full(b, buf, 1, &done), WEFT_EOF);
        CHECK_EQ(done, 0);
    }
    CHECK_EQ(weft_conn_write(a, "x", 1), -EPIPE);
    CHECK_EQ(weft_conn_write_all(b, "back", 4, NULL), 0); /* the other way is open */
    CHECK_EQ(weft_conn_read_full(a, buf, 4, NULL), 0);
}

static void both_kinds(void (*fn)(weft_conn a, weft_conn b)) {
    weft_conn a, b;
    tcp_pair(&a, &b);
    fn(a, b);
    close_both(a, b);
    unix_pair(&a, &b);
    fn(a, b);
    close_both(a, b);
}

PLAYED_GREEN(net, read_and_write) { both_kinds(hello); }
PLAYED_GREEN(net, nothing_to_transfer) { both_kinds(nothing_of_nothing); }
PLAYED_GREEN(net, half_close) { both_kinds(half_close); }

PLAYED_GREEN(net, pipes) {
    int fd[2];
    weft_conn in, out;
    char buf[8];
    CHECK_EQ(pipe(fd), 0);
    int kept = dup(fd[0]);
    CHECK_EQ(weft_conn_from_fd(&in, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&out, fd[1]), 0);
    CHECK_NE(fcntl(kept, F_GETFL) & O_NONBLOCK, 0);
    CHECK_EQ(weft_conn_write_all(out, "abc", 3, NULL), 0);
    CHECK_EQ(weft_conn_read(in, buf, 8), 3);
    CHECK_EQ(weft_conn_read_until(in, buf, 8, soon()), -ETIMEDOUT);
    CHECK_EQ(weft_conn_close_write(out), -ENOTSOCK);
    CHECK_EQ(weft_conn_write(out, "d", 1), 1);
    CHECK_EQ(weft_conn_close(out), 0);
    CHECK_EQ(weft_conn_read(in, buf, 8), 1);
    CHECK_EQ(weft_conn_read(in, buf, 8), 0);
    CHECK_EQ(weft_conn_close(in), 0);
    CHECK_EQ(fcntl(kept, F_GETFL) & O_NONBLOCK, 0); /* put back as it was */
    close(kept);
    int keep[2];
    CHECK_EQ(pipe2(keep, O_NONBLOCK), 0);
    kept = dup(keep[0]);
    CHECK_EQ(weft_conn_from_fd(&in, keep[0]), 0);
    CHECK_EQ(weft_conn_close(in), 0);
    CHECK_NE(fcntl(kept, F_GETFL) & O_NONBLOCK, 0); /* this one was non-blocking before */
    close(kept);
    close(keep[1]);
}

/* No SIGPIPE, whose effect would be the end of this process. */
PLAYED_GREEN(net, writing_to_nobody) {
    weft_conn a, b;
    int fd[2];
    unix_pair(&a, &b);
    CHECK_EQ(weft_conn_close(b), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_conn_write(a, "x", 1), -EPIPE);
        CHECK_EQ(weft_conn_write_all(a, "x", 1, NULL), -EPIPE);
    }
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(pipe(fd), 0);
    CHECK_EQ(weft_conn_from_fd(&a, fd[1]), 0);
    close(fd[0]);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_conn_write(a, "x", 1), -EPIPE);
    }
    CHECK_EQ(weft_conn_close(a), 0);
    tcp_pair(&a, &b);
    CHECK_EQ(weft_conn_close(b), 0);
    ssize_t n;
    while ((n = weft_conn_write(a, "x", 1)) == 1) {
        nap();
    }
    CHECK(n == -EPIPE || n == -ECONNRESET);
    CHECK_EQ(weft_conn_close(a), 0);
}

PLAYED_GREEN(net, reset_by_peer) {
    weft_conn a;
    char byte, text[80];
    weft_addr at;
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    CHECK_EQ(weft_listener_addr(l, &at), 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(fd, weft_addr_sockaddr(&at), at.bytes), 0);
    CHECK_EQ(weft_accept(&a, l), 0);
    struct linger now = {1, 0};
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(fd);
    CHECK_EQ(weft_conn_read(a, &byte, 1), -ECONNRESET);
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(weft_listener_close(l), 0);
}

/* ---- by parties ---- */

struct io {
    weft_conn conn;
    char *buf;
    size_t bytes, done;
    weft_time until; /* 0: the plain form */
    ssize_t result;
};

static int read_once(void *arg) {
    struct io *io = arg;
    io->result = io->until.ns == 0 ? weft_conn_read(io->conn, io->buf, io->bytes)
                                   : weft_conn_read_until(io->conn, io->buf, io->bytes, io->until);
    return 0;
}

static int read_full(void *arg) {
    struct io *io = arg;
    return weft_conn_read_full(io->conn, io->buf, io->bytes, &io->done);
}

static int write_all(void *arg) {
    struct io *io = arg;
    return weft_conn_write_all(io->conn, io->buf, io->bytes, &io->done);
}

NET(a_waiting_reader_is_woken) {
    for (int i = 0; i < 4; i++) {
        weft_conn a, b;
        party p;
        char buf[8] = "";
        if (i % 2) {
            tcp_pair(&a, &b);
        } else {
            unix_pair(&a, &b);
        }
        struct io io = {.conn = b, .buf = buf, .bytes = 8, .until = {i < 2 ? 0 : later().ns}};
        party_start(&p, read_once, &io);
        party_parked(&p);
        CHECK_EQ(weft_conn_write(a, "wake", 4), 4);
        party_end(&p);
        CHECK_EQ(io.result, 4);
        CHECK_MEM(buf, "wake", 4);
        party_start(&p, read_once, &io);
        party_parked(&p);
        CHECK_EQ(weft_conn_close(a), 0); /* the peer's end wakes too */
        party_end(&p);
        CHECK_EQ(io.result, 0);
        CHECK_EQ(weft_conn_close(b), 0);
    }
}

/* What comes right before the end of the stream is read, and so is the end: from a plain socket that
   sends both in one go, while the reader waits. */
NET(data_and_end_together) {
    char text[80];
    weft_addr at;
    weft_listener l = listen_at("tcp", "127.0.0.1:0", text);
    CHECK_EQ(weft_listener_addr(l, &at), 0);
    for (int i = 0; i < 20; i++) {
        weft_conn c;
        party p;
        char buf[100];
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_EQ(connect(fd, weft_addr_sockaddr(&at), at.bytes), 0);
        CHECK_EQ(weft_accept(&c, l), 0);
        struct io io = {.conn = c, .buf = buf, .bytes = sizeof buf};
        party_start(&p, read_full, &io);
        party_parked(&p);
        int cork = 1; /* TCP_CORK: data and FIN leave in one segment */
        CHECK_EQ(setsockopt(fd, IPPROTO_TCP, 3, &cork, sizeof cork), 0);
        CHECK_EQ(send(fd, "0123456789", 10, 0), 10);
        close(fd);
        CHECK_EQ(party_end(&p), WEFT_EOF);
        CHECK_EQ(io.done, 10);
        CHECK_EQ(weft_conn_close(c), 0);
    }
    CHECK_EQ(weft_listener_close(l), 0);
}

/* More than the kernel takes at once, to a reader in no hurry. */
NET(a_writer_waits_for_room) {
    enum { MUCH = 1 << 20 };
    static char out[MUCH], in[MUCH];
    for (int i = 0; i < MUCH; i++) {
        out[i] = (char)(i * 7 + i / 1000);
    }
    for (int i = 0; i < 2; i++) {
        weft_conn a, b;
        party p;
        if (i) {
            tcp_pair(&a, &b);
        } else {
            unix_pair(&a, &b);
        }
        struct io io = {.conn = a, .buf = out, .bytes = MUCH};
        party_start(&p, write_all, &io);
        size_t done = 0;
        memset(in, 0, MUCH);
        while (done < MUCH) {
            size_t n = 1 + done % 50000;
            n = n < MUCH - done ? n : MUCH - done;
            CHECK_EQ(weft_conn_read_full(b, in + done, n, NULL), 0);
            done += n;
            if (done % 5 == 0) {
                nap();
            }
        }
        CHECK_EQ(party_end(&p), 0);
        CHECK_EQ(io.done, MUCH);
        CHECK_MEM(in, out, MUCH);
        close_both(a, b);
    }
}

static void fill_up(weft_conn c) {
    char junk[4096] = "";
    while (weft_conn_write_until(c, junk, sizeof junk, past()) > 0) {
    }
}

NET(a_second_reader_is_busy) {
    weft_conn a, b;
    party p;
    char buf[8], byte = 'x';
    size_t done = 9;
    unix_pair(&a, &b);
    struct io io = {.conn = a, .buf = buf, .bytes = 8};
    party_start(&p, read_once, &io);
    party_parked(&p);
    CHECK_EQ(weft_conn_read(a, &byte, 1), -EBUSY);
    CHECK_EQ(weft_conn_read_until(a, &byte, 1, past()), -EBUSY);
    CHECK_EQ(weft_conn_read_full(a, &byte, 1, &done), -EBUSY);
    CHECK_EQ(done, 0);
    CHECK_EQ(byte, 'x');
    CHECK_EQ(weft_conn_write(b, "y", 1), 1);
    party_end(&p);
    CHECK_EQ(io.result, 1);
    CHECK_EQ(weft_conn_write(b, "z", 1), 1);
    CHECK_EQ(weft_conn_read(a, &byte, 1), 1);
    close_both(a, b);
}

/* Writers stand in line, and each write_all stays in one piece. */
NET(writers_take_turns) {
    enum { WRITERS = 4, PIECE = 300000 };
    static char pieces[WRITERS][PIECE], in[PIECE];
    weft_conn a, b;
    party p[WRITERS];
    struct io io[WRITERS];
    unix_pair(&a, &b);
    for (int i = 0; i < WRITERS; i++) {
        memset(pieces[i], 'a' + i, PIECE);
        io[i] = (struct io){.conn = a, .buf = pieces[i], .bytes = PIECE};
        party_start(&p[i], write_all, &io[i]);
        party_parked(&p[i]); /* the first for room, the others for their turn */
    }
    CHECK_EQ(weft_conn_write_until(a, "x", 1, past()), -ETIMEDOUT);
    CHECK_EQ(weft_conn_write_until(a, "x", 1, soon()), -ETIMEDOUT);
    for (int i = 0; i < WRITERS; i++) {
        CHECK_EQ(weft_conn_read_full(b, in, PIECE, NULL), 0);
        CHECK_MEM(in, pieces[i], PIECE);
    }
    for (int i = 0; i < WRITERS; i++) {
        CHECK_EQ(party_end(&p[i]), 0);
        CHECK_EQ(io[i].done, PIECE);
    }
    close_both(a, b);
}

/* ---- close ---- */

NET(close_ends_everything) {
    enum { WRITERS = 3 };
    static char much[300000];
    weft_conn a, b;
    party r, w[WRITERS];
    char buf[8] = "";
    unix_pair(&a, &b);
    struct io in = {.conn = a, .buf = buf, .bytes = 8};
    struct io out[WRITERS];
    party_start(&r, read_once, &in);
    party_parked(&r);
    for (int i = 0; i < WRITERS; i++) {
        out[i] = (struct io){.conn = a, .buf = much, .bytes = sizeof much};
        party_start(&w[i], write_all, &out[i]);
        party_parked(&w[i]);
    }
    CHECK_EQ(weft_conn_close(a), 0);
    party_end(&r);
    CHECK_EQ(in.result, -EBADF);
    for (int i = 0; i < WRITERS; i++) {
        CHECK_EQ(party_end(&w[i]), -EBADF);
        CHECK_LT(out[i].done, sizeof much);
        CHECK_EQ(i == 0, out[i].done > 0);
    }
    use_nothing(a.id);
    CHECK_EQ(weft_conn_close(b), 0);
}

static int close_it(void *arg) { return weft_conn_close(*(weft_conn *)arg); }

NET(closed_by_another) {
    for (int i = 0; i < 10; i++) {
        weft_conn a, b;
        party p;
        char byte;
        unix_pair(&a, &b);
        party_start(&p, close_it, &a);
        CHECK_EQ(weft_conn_read(a, &byte, 1), -EBADF);
        CHECK_EQ(party_end(&p), 0);
        CHECK_EQ(weft_conn_close(b), 0);
    }
}

/* A handle names one connection for ever, though the descriptor's number is used again. */
PLAYED_GREEN(net, old_handles_stay_closed) {
    enum { OLD = 200 };
    weft_conn old[OLD];
    int fds = fds_now();
    for (int i = 0; i < OLD; i++) {
        weft_conn b;
        unix_pair(&old[i], &b);
        close_both(old[i], b);
        for (int k = 0; k < i; k++) {
            CHECK_NE(old[k].id, old[i].id);
        }
    }
    weft_conn a, b;
    char byte;
    unix_pair(&a, &b);
    for (int i = 0; i < OLD; i += 11) {
        use_nothing(old[i].id);
    }
    CHECK_EQ(weft_conn_write(a, "x", 1), 1);
    CHECK_EQ(weft_conn_read(b, &byte, 1), 1);
    close_both(a, b);
    CHECK_EQ(fds_now(), fds);
}

/* ---- deadlines ---- */

PLAYED_GREEN(net, a_past_deadline_fails_even_with_data) {
    weft_conn a, b;
    char buf[8];
    size_t done = 9;
    unix_pair(&a, &b);
    CHECK_EQ(weft_conn_write(b, "data", 4), 4);
    CHECK_EQ(weft_conn_set_read_deadline(a, past()), 0);
    for (int i = 0; i < 3; i++) { /* and goes on failing until moved */
        CHECK_EQ(weft_conn_read(a, buf, 8), -ETIMEDOUT);
        CHECK_EQ(weft_conn_read_until(a, buf, 8, later()), -ETIMEDOUT);
        CHECK_EQ(weft_conn_read_full(a, buf, 4, &done), -ETIMEDOUT);
        CHECK_EQ(done, 0);
    }
    CHECK_EQ(weft_conn_write(a, "x", 1), 1); /* the other way has its own */
    CHECK_EQ(weft_conn_set_write_deadline(a, past()), 0);
    CHECK_EQ(weft_conn_write(a, "x", 1), -ETIMEDOUT);
    CHECK_EQ(weft_conn_write_all(a, "x", 1, &done), -ETIMEDOUT);
    CHECK_EQ(done, 0);
    CHECK_EQ(weft_conn_set_deadline(a, WEFT_NEVER), 0);
    CHECK_EQ(weft_conn_read(a, buf, 8), 4);
    CHECK_EQ(weft_conn_write(a, "y", 1), 1);
    CHECK_EQ(weft_conn_set_deadline(a, past()), 0);
    CHECK_EQ(weft_conn_read(a, buf, 8), -ETIMEDOUT);
    CHECK_EQ(weft_conn_write(a, "x", 1), -ETIMEDOUT);
    CHECK_EQ(weft_conn_set_deadline(a, later()), 0);
    CHECK_EQ(weft_conn_write(a, "z", 1), 1);
    CHECK_EQ(weft_conn_read_full(b, buf, 3, NULL), 0);
    CHECK_MEM(buf, "xyz", 3);
    close_both(a, b);
}

PLAYED_GREEN(net, deadlines_are_never_early) {
    weft_conn a, b;
    char buf[8];
    unix_pair(&a, &b);
    fill_up(a);
    static const weft_duration lengths[] = {1, 1000, 50000, 1000000, 1300000, 5000000};
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        weft_time t = weft_in(lengths[i]);
        CHECK_EQ(weft_conn_set_read_deadline(a, t), 0);
        CHECK_EQ(weft_conn_read(a, buf, 8), -ETIMEDOUT);
        CHECK_GE(clock_ns(), t.ns);
        t = weft_in(lengths[i]);
        CHECK_EQ(weft_conn_set_write_deadline(a, t), 0);
        CHECK_EQ(weft_conn_write(a, "x", 1), -ETIMEDOUT);
        CHECK_GE(clock_ns(), t.ns);
        t = weft_in(lengths[i]);
        CHECK_EQ(weft_conn_read_until(b, buf, 0, t), 0);
        CHECK_EQ(weft_conn_set_read_deadline(a, later()), 0); /* the earlier of the two holds */
        CHECK_EQ(weft_conn_read_until(a, buf, 8, t), -ETIMEDOUT);
        CHECK_GE(clock_ns(), t.ns);
        t = weft_in(lengths[i]);
        CHECK_EQ(weft_conn_set_read_deadline(a, t), 0);
        CHECK_EQ(weft_conn_read_until(a, buf, 8, later()), -ETIMEDOUT);
        CHECK_GE(clock_ns(), t.ns);
    }
    close_both(a, b);
}

NET(a_deadline_is_moved_under_a_reader) {
    weft_conn a, b;
    party p;
    char buf[8];
    unix_pair(&a, &b);
    struct io io = {.conn = a, .buf = buf, .bytes = 8};
    CHECK_EQ(weft_conn_set_read_deadline(a, later()), 0);
    party_start(&p, read_once, &io);
    party_parked(&p);
    CHECK_EQ(weft_conn_set_read_deadline(a, past()), 0); /* to the past: at once */
    party_end(&p);
    CHECK_EQ(io.result, -ETIMEDOUT);

    CHECK_EQ(weft_conn_set_read_deadline(a, WEFT_NEVER), 0);
    party_start(&p, read_once, &io);
    party_parked(&p);
    weft_time t = soon();
    CHECK_EQ(weft_conn_set_deadline(a, t), 0); /* to a nearer one */
    party_end(&p);
    CHECK_EQ(io.result, -ETIMEDOUT);
    CHECK_GE(clock_ns(), t.ns);

    CHECK_EQ(weft_conn_set_deadline(a, weft_in(30 * WEFT_MILLISECOND)), 0);
    party_start(&p, read_once, &io);
    UNTIL(party_is_parked(&p) || atomic_load(&p.ended));
    t = weft_in(60 * WEFT_MILLISECOND);
    CHECK_EQ(weft_conn_set_deadline(a, t), 0); /* to a later one */
    party_end(&p);
    CHECK_EQ(io.result, -ETIMEDOUT);

    CHECK_EQ(weft_conn_set_deadline(a, weft_in(5 * WEFT_MILLISECOND)), 0);
    CHECK_EQ(weft_conn_set_deadline(a, WEFT_NEVER), 0); /* and away: it must not end the read */
    party_start(&p, read_once, &io);
    party_parked(&p);
    weft_sleep(8 * WEFT_MILLISECOND);
    CHECK_EQ(atomic_load(&p.ended), 0);
    CHECK_EQ(weft_conn_write(b, "x", 1), 1);
    party_end(&p);
    CHECK_EQ(io.result, 1);
    close_both(a, b);
}

/* Some came before the deadline: they are there, and counted. */
PLAYED_GREEN(net, part_before_the_deadline) {
    static char much[400000];
    weft_conn a, b;
    party p;
    char buf[8];
    unix_pair(&a, &b);
    CHECK_EQ(weft_conn_write(b, "abc", 3), 3);
    struct io in = {.conn = a, .buf = buf, .bytes = 8};
    party_start(&p, read_full, &in);
    party_parked(&p); /* only now: what is due at once would find nothing read */
    CHECK_EQ(weft_conn_set_read_deadline(a, soon()), 0);
    CHECK_EQ(party_end(&p), -ETIMEDOUT);
    CHECK_EQ(in.done, 3);
    CHECK_MEM(buf, "abc", 3);
    struct io out = {.conn = a, .buf = much, .bytes = sizeof much};
    party_start(&p, write_all, &out);
    party_parked(&p);
    CHECK_EQ(weft_conn_set_write_deadline(a, soon()), 0);
    CHECK_EQ(party_end(&p), -ETIMEDOUT);
    CHECK_GT(out.done, 0);
    CHECK_LT(out.done, sizeof much);
    close_both(a, b);
}

/* ---- what ends with the runtime ---- */

static int leave_open(void *arg) {
    weft_conn *c = arg;
    weft_listener l;
    char text[80];
    unix_pair(&c[0], &c[1]);
    l = listen_at("tcp", "127.0.0.1:0", text);
    c[2].id = l.id;
    CHECK_EQ(weft_conn_set_deadline(c[0], later()), 0);
    return 0;
}

TEST(net, conns_end_with_their_runtime) {
    weft_config cfg = config_of(2);
    weft_conn c[3];
    CHECK_EQ(weft_run(leave_open, c, &cfg, NULL), 0);
    int fds = fds_now();
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_run(leave_open, c, &cfg, NULL), 0);
        use_nothing(c[0].id);
        use_nothing(c[1].id);
        use_nothing(c[2].id);
    }
    CHECK_EQ(fds_now(), fds);
}
