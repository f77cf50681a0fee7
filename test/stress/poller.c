/* stress/poller.c: descriptors. Streams arrive whole and in order over socket pairs and TCP, whatever
 * the sizes, deadlines and threads; a close ends every call on its connection and touches no other,
 * though the numbers of descriptors are used again at once.
 */
#include "stress.h"

#include <errno.h>
#include <sys/socket.h>

/* A stream that can be checked at any place: byte i of stream number n. */
static unsigned char byte_of(uint64_t n, uint64_t i) {
    return (unsigned char)((i * 131 + (i >> 8) * 7 + n * 29) & 255);
}

static void fill(unsigned char *buf, size_t bytes, uint64_t n, uint64_t at) {
    for (size_t i = 0; i < bytes; i++) {
        buf[i] = byte_of(n, at + i);
    }
}

static void check(const unsigned char *buf, size_t bytes, uint64_t n, uint64_t at) {
    for (size_t i = 0; i < bytes; i++) {
        if (buf[i] != byte_of(n, at + i)) {
            test_fail(__FILE__, __LINE__, "stream %llu: byte %llu is %d, not %d",
                      (unsigned long long)n, (unsigned long long)(at + i), buf[i],
                      byte_of(n, at + i));
        }
    }
}

enum { BUF = 8192 };

struct stream {
    weft_conn conn;
    uint64_t number, bytes; /* in all */
    weft_waitgroup *ends;
};

static size_t random_size(uint64_t *seed) {
    switch (chance(seed) % 4) {
    case 0:
        return 1;
    case 1:
        return BUF;
    default:
        return 1 + chance(seed) % BUF;
    }
}

static weft_time soon(uint64_t *seed) {
    return weft_in((weft_duration)(chance(seed) % 400) * WEFT_MICROSECOND);
}

/* ---- one direction of a stream, in every way there is ---- */

static ssize_t write_some(struct stream *s, const unsigned char *buf, size_t bytes,
                          uint64_t *seed) {
    switch (chance(seed) % 8) {
    case 0:
        return weft_conn_write_until(s->conn, buf, bytes, soon(seed));
    case 1: {
        size_t done = 0;
        CHECK_EQ(weft_conn_set_write_deadline(s->conn, soon(seed)), 0);
        int err = weft_conn_write_all(s->conn, buf, bytes, &done);
        CHECK_EQ(weft_conn_set_write_deadline(s->conn, WEFT_NEVER), 0);
        CHECK(err == 0 ? done == bytes : err == -ETIMEDOUT);
        return done > 0 ? (ssize_t)done : err;
    }
    case 2: {
        size_t done = 0;
        CHECK_EQ(weft_conn_write_all(s->conn, buf, bytes, &done), 0);
        CHECK_EQ(done, bytes);
        return (ssize_t)done;
    }
    default:
        return weft_conn_write(s->conn, buf, bytes);
    }
}

static int write_stream(void *arg) {
    struct stream *s = arg;
    unsigned char buf[BUF];
    uint64_t seed = chance_seed(s->number);
    for (uint64_t at = 0; at < s->bytes;) {
        size_t n = random_size(&seed);
        n = n < s->bytes - at ? n : (size_t)(s->bytes - at);
        fill(buf, n, s->number, at);
        ssize_t done = write_some(s, buf, n, &seed);
        if (done > 0) {
            at += (uint64_t)done;
            progress();
        } else {
            CHECK_EQ(done, -ETIMEDOUT);
        }
        if (chance(&seed) % 64 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 200) * WEFT_MICROSECOND);
        }
    }
    CHECK_EQ(weft_conn_close_write(s->conn), 0); /* right behind the last bytes */
    weft_waitgroup_done(s->ends);
    return 0;
}

static ssize_t read_some(struct stream *s, unsigned char *buf, size_t bytes, uint64_t *seed) {
    switch (chance(seed) % 8) {
    case 0:
        return weft_conn_read_until(s->conn, buf, bytes, soon(seed));
    case 1: {
        CHECK_EQ(weft_conn_set_read_deadline(s->conn, soon(seed)), 0);
        ssize_t n = weft_conn_read(s->conn, buf, bytes);
        CHECK_EQ(weft_conn_set_read_deadline(s->conn, WEFT_NEVER), 0);
        return n;
    }
    case 2: {
        size_t done = 0;
        int err = weft_conn_read_full(s->conn, buf, bytes, &done);
        CHECK(err == 0 ? done == bytes : err == WEFT_EOF && done < bytes);
        return (ssize_t)done;
    }
    default:
        return weft_conn_read(s->conn, buf, bytes);
    }
}

static int read_stream(void *arg) {
    struct stream *s = arg;
    unsigned char buf[BUF];
    uint64_t seed = chance_seed(s->number + 1000), at = 0;
    for (;;) {
        ssize_t n = read_some(s, buf, random_size(&seed), &seed);
        if (n == 0) {
            break;
        }
        if (n < 0) {
            CHECK_EQ(n, -ETIMEDOUT);
            continue;
        }
        check(buf, (size_t)n, s->number, at);
        at += (uint64_t)n;
        progress();
        if (chance(&seed) % 64 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 200) * WEFT_MICROSECOND);
        }
    }
    CHECK_EQ(at, s->bytes);
    char more;
    CHECK_EQ(weft_conn_read(s->conn, &more, 1), 0); /* the end stays */
    weft_waitgroup_done(s->ends);
    return 0;
}

static void *write_thread(void *arg) {
    write_stream(arg);
    return NULL;
}

static void *read_thread(void *arg) {
    read_stream(arg);
    return NULL;
}

/* ---- both directions of many connections ---- */

enum { PAIRS = 12, STREAM_BYTES = STRESS_TSAN ? 30000 : 300000 };

static void tcp_pair(weft_listener l, const char *address, weft_conn *a, weft_conn *b) {
    CHECK_EQ(weft_dial(a, "tcp", address, NULL), 0);
    CHECK_EQ(weft_accept(b, l), 0);
}

static void socket_pair(weft_conn *a, weft_conn *b) {
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(b, fd[1]), 0);
}

static weft_listener listen_on_loopback(char address[64]) {
    weft_listener l;
    weft_addr at;
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(l, &at), 0);
    CHECK_LT(weft_addr_text(&at, address, 64), 64);
    return l;
}

static int duplex(void *arg) {
    (void)arg;
    char address[64];
    weft_listener l = listen_on_loopback(address);
    uint64_t number = 0;
    while (stress_more()) {
        struct stream s[4 * PAIRS];
        weft_conn conns[2 * PAIRS];
        pthread_t t[2];
        weft_waitgroup ends = WEFT_WAITGROUP_INIT;
        weft_waitgroup_add(&ends, 4 * PAIRS);
        for (int i = 0; i < PAIRS; i++) {
            weft_conn *a = &conns[2 * i], *b = &conns[2 * i + 1];
            if (i % 2) {
                tcp_pair(l, address, a, b);
            } else {
                socket_pair(a, b);
            }
            uint64_t there = number++, back = number++;
            s[4 * i] = (struct stream){*a, there, STREAM_BYTES, &ends};
            s[4 * i + 1] = (struct stream){*b, there, STREAM_BYTES, &ends};
            s[4 * i + 2] = (struct stream){*b, back, STREAM_BYTES / 2, &ends};
            s[4 * i + 3] = (struct stream){*a, back, STREAM_BYTES / 2, &ends};
        }
        CHECK_EQ(pthread_create(&t[0], NULL, write_thread, &s[0]), 0);
        CHECK_EQ(pthread_create(&t[1], NULL, read_thread, &s[1]), 0);
        for (int i = 2; i < 4 * PAIRS; i++) {
            CHECK_EQ(weft_go(i % 2 ? read_stream : write_stream, &s[i]), 0);
        }
        weft_waitgroup_wait(&ends);
        for (int i = 0; i < 2 * PAIRS; i++) {
            CHECK_EQ(weft_conn_close(conns[i]), 0);
            CHECK_EQ(weft_conn_close(conns[i]), -EBADF);
        }
        pthread_join(t[0], NULL);
        pthread_join(t[1], NULL);
    }
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}

static void duplexes(int procs) {
    stress_begin(2);
    stress_run(procs, duplex, NULL);
    stress_over();
}

TEST_IN(poller, duplex_1, 40) { duplexes(1); }
TEST_IN(poller, duplex_2, 40) { duplexes(2); }
TEST_IN(poller, duplex_4, 40) { duplexes(4); }

/* ---- many short connections: accepted by several, data and end in one edge ---- */

static _Atomic int64_t dialled, accepted;

struct hello {
    uint64_t number, bytes;
};

static int serve_one(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    struct hello h;
    unsigned char buf[BUF];
    CHECK_EQ(weft_conn_read_full(c, &h, sizeof h, NULL), 0);
    for (uint64_t at = 0;;) {
        ssize_t n = weft_conn_read(c, buf, sizeof buf);
        CHECK_GE(n, 0);
        if (n == 0) {
            CHECK_EQ(at, h.bytes);
            break;
        }
        check(buf, (size_t)n, h.number, at);
        at += (uint64_t)n;
    }
    CHECK_EQ(weft_conn_write_all(c, &h, sizeof h, NULL), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    progress();
    return 0;
}

static int accept_on(void *arg) {
    weft_listener l = *(weft_listener *)arg;
    for (;;) {
        weft_conn c;
        int err = weft_accept_until(&c, l, weft_in(50 * WEFT_MILLISECOND));
        if (err == -ETIMEDOUT) {
            continue;
        }
        if (err != 0) {
            CHECK_EQ(err, -EBADF);
            return 0;
        }
        atomic_fetch_add(&accepted, 1);
        CHECK_EQ(weft_go_copy(serve_one, &c, sizeof c), 0);
    }
}

static char service[64];

static int dial_on(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    unsigned char buf[3000];
    while (stress_more()) {
        weft_conn c;
        struct hello back, h = {chance(&seed), chance(&seed) % sizeof buf};
        CHECK_EQ(weft_dial(&c, "tcp4", service, NULL), 0);
        atomic_fetch_add(&dialled, 1);
        fill(buf, h.bytes, h.number, 0);
        CHECK_EQ(weft_conn_write_all(c, &h, sizeof h, NULL), 0);
        CHECK_EQ(weft_conn_write_all(c, buf, h.bytes, NULL), 0);
        CHECK_EQ(weft_conn_close_write(c), 0);
        CHECK_EQ(weft_conn_read_full(c, &back, sizeof back, NULL), 0);
        CHECK_MEM(&back, &h, sizeof h);
        CHECK_EQ(weft_conn_read(c, buf, 1), 0);
        CHECK_EQ(weft_conn_close(c), 0);
        /* Ports of closed connections rest for a minute: not more than there are. */
        weft_sleep((weft_duration)(chance(&seed) % 4000) * WEFT_MICROSECOND);
    }
    return 0;
}

static int short_ones(void *arg) {
    (void)arg;
    weft_waitgroup dialers = WEFT_WAITGROUP_INIT, acceptors = WEFT_WAITGROUP_INIT;
    weft_listener l = listen_on_loopback(service);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_waitgroup_go(&acceptors, accept_on, &l), 0);
    }
    for (intptr_t i = 0; i < 8; i++) {
        CHECK_EQ(weft_waitgroup_go(&dialers, dial_on, (void *)i), 0);
    }
    weft_waitgroup_wait(&dialers);
    CHECK_EQ(weft_listener_close(l), 0);
    weft_waitgroup_wait(&acceptors);
    CHECK_EQ(atomic_load(&dialled), atomic_load(&accepted));
    return 0;
}

static void shorts(int procs) {
    stress_begin(1.5);
    stress_run(procs, short_ones, NULL);
    stress_over();
}

TEST_IN(poller, short_connections_1, 30) { shorts(1); }
TEST_IN(poller, short_connections_3, 30) { shorts(3); }

/* ---- closed in the middle, numbers used again ---- */

/* Each connection carries its own number in every byte, so a byte from another is seen. */
struct closing {
    weft_conn a, b;
    unsigned char mark;
    atomic_int left;
};

static bool ended_by_close(ssize_t n) {
    return n == -EBADF || n == -EPIPE || n == -ECONNRESET || n == 0;
}

static int read_marks(void *arg) {
    struct closing *c = arg;
    unsigned char buf[700];
    ssize_t n;
    while ((n = weft_conn_read(c->b, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            CHECK_EQ(buf[i], c->mark);
        }
        progress();
    }
    CHECK(ended_by_close(n));
    ssize_t again = weft_conn_read(c->b, buf, 1);
    CHECK(again == n || again == -EBADF); /* by now this end may be closed too */
    atomic_fetch_sub(&c->left, 1);
    return 0;
}

static int write_marks(void *arg) {
    struct closing *c = arg;
    unsigned char buf[300];
    memset(buf, c->mark, sizeof buf);
    ssize_t n;
    do {
        n = weft_conn_write(c->a, buf, sizeof buf);
    } while (n > 0);
    CHECK(ended_by_close(n));
    CHECK_NE(n, 0);
    atomic_fetch_sub(&c->left, 1);
    return 0;
}

static void *write_marks_thread(void *arg) {
    write_marks(arg);
    return NULL;
}

static int open_and_close(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        struct closing c = {.mark = (unsigned char)chance(&seed)};
        socket_pair(&c.a, &c.b);
        pthread_t t;
        bool plain = chance(&seed) % 8 == 0;
        atomic_store(&c.left, 2);
        CHECK_EQ(weft_go(read_marks, &c), 0);
        if (plain) {
            CHECK_EQ(pthread_create(&t, NULL, write_marks_thread, &c), 0);
        } else {
            CHECK_EQ(weft_go(write_marks, &c), 0);
        }
        if (chance(&seed) % 2 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 300) * WEFT_MICROSECOND);
        }
        weft_conn first = chance(&seed) % 2 ? c.a : c.b;
        weft_conn second = first.id == c.a.id ? c.b : c.a;
        CHECK_EQ(weft_conn_close(first), 0);
        if (chance(&seed) % 2 == 0) {
            CHECK_EQ(weft_conn_close(second), 0);
        } else {
            while (atomic_load(&c.left) > 0) { /* the peer's end ends the other side too */
                weft_sleep(20 * WEFT_MICROSECOND);
            }
            CHECK_EQ(weft_conn_close(second), 0);
        }
        while (atomic_load(&c.left) > 0) {
            weft_sleep(20 * WEFT_MICROSECOND);
        }
        CHECK_EQ(weft_conn_set_deadline(first, WEFT_NEVER), -EBADF);
        CHECK_EQ(weft_conn_close(first), -EBADF);
        if (plain) {
            pthread_join(t, NULL);
        }
        progress();
    }
    return 0;
}

static int all_closing(void *arg) {
    (void)arg;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 0; i < 8; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, open_and_close, (void *)i), 0);
    }
    weft_waitgroup_wait(&w);
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    CHECK_EQ(s.conns_open, 0);
    return 0;
}

static void closings(int procs) {
    stress_begin(2);
    stress_run(procs, all_closing, NULL);
    stress_over();
}

TEST_IN(poller, closing_1, 40) { closings(1); }
TEST_IN(poller, closing_2, 40) { closings(2); }
TEST_IN(poller, closing_4, 40) { closings(4); }

/* ---- deadlines moved under a reader by others ---- */

struct moved {
    weft_conn conn, peer;
    atomic_int movers, over;
    weft_waitgroup ends;
};

static int move_deadline(void *arg) {
    struct moved *m = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    while (stress_more()) {
        weft_time t = chance(&seed) % 8 == 0   ? WEFT_NEVER
                      : chance(&seed) % 4 == 0 ? weft_time_at(1)
                                               : soon(&seed);
        CHECK_EQ(chance(&seed) % 2 ? weft_conn_set_read_deadline(m->conn, t)
                                   : weft_conn_set_deadline(m->conn, t),
                 0);
        weft_sleep((weft_duration)(chance(&seed) % 100) * WEFT_MICROSECOND);
    }
    if (atomic_fetch_sub(&m->movers, 1) == 1) {
        atomic_store(&m->over, 1);
        CHECK_EQ(weft_conn_set_deadline(m->conn, weft_time_at(1)), 0); /* ends a read for sure */
    }
    weft_waitgroup_done(&m->ends);
    return 0;
}

static void *move_thread(void *arg) {
    move_deadline(arg);
    return NULL;
}

static int read_moved(void *arg) {
    struct moved *m = arg;
    char byte;
    int64_t timeouts = 0;
    while (!atomic_load(&m->over)) {
        ssize_t n = weft_conn_read(m->conn, &byte, 1);
        if (n == -ETIMEDOUT) {
            timeouts++;
            weft_yield();
        } else {
            CHECK_EQ(n, 1);
            CHECK_EQ(byte, 'x');
        }
        progress();
    }
    CHECK_GT(timeouts, 0);
    weft_waitgroup_done(&m->ends);
    return 0;
}

static int feed(void *arg) {
    struct moved *m = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    while (!atomic_load(&m->over)) {
        CHECK_EQ(weft_conn_write(m->peer, "x", 1), 1);
        weft_sleep((weft_duration)(chance(&seed) % 2000) * WEFT_MICROSECOND);
    }
    weft_waitgroup_done(&m->ends);
    return 0;
}

static int all_moved(void *arg) {
    (void)arg;
    enum { CONNS = 6 };
    static struct moved m[CONNS];
    pthread_t t[CONNS];
    for (int i = 0; i < CONNS; i++) {
        socket_pair(&m[i].conn, &m[i].peer);
        atomic_store(&m[i].movers, 3);
        weft_waitgroup_add(&m[i].ends, 5);
        CHECK_EQ(weft_go(read_moved, &m[i]), 0);
        CHECK_EQ(weft_go(feed, &m[i]), 0);
        CHECK_EQ(weft_go(move_deadline, &m[i]), 0);
        CHECK_EQ(weft_go(move_deadline, &m[i]), 0);
        CHECK_EQ(pthread_create(&t[i], NULL, move_thread, &m[i]), 0);
    }
    for (int i = 0; i < CONNS; i++) {
        weft_waitgroup_wait(&m[i].ends);
        pthread_join(t[i], NULL);
        CHECK_EQ(weft_conn_close(m[i].conn), 0);
        CHECK_EQ(weft_conn_close(m[i].peer), 0);
    }
    return 0;
}

static void moves(int procs) {
    stress_begin(1.5);
    stress_run(procs, all_moved, NULL);
    stress_over();
}

TEST_IN(poller, deadlines_moved_1, 30) { moves(1); }
TEST_IN(poller, deadlines_moved_3, 30) { moves(3); }

/* ---- several writers: each write stays in one piece ---- */

static weft_conn common_conn;

static int write_records(void *arg) {
    unsigned char record[5000];
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        uint16_t n = (uint16_t)(3 + chance(&seed) % (sizeof record - 3));
        memset(record, (int)(intptr_t)arg, n);
        memcpy(record, &n, 2);
        CHECK_EQ(weft_conn_write_all(common_conn, record, n, NULL), 0);
        progress();
    }
    return 0;
}

static void *write_records_thread(void *arg) {
    write_records(arg);
    return NULL;
}

static int read_records(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    unsigned char record[5000];
    uint16_t n;
    int err;
    while ((err = weft_conn_read_full(c, &n, 2, NULL)) == 0) {
        CHECK_GE(n, 3);
        CHECK_LE(n, sizeof record);
        CHECK_EQ(weft_conn_read_full(c, record, n - 2u, NULL), 0);
        for (int i = 1; i < n - 2; i++) {
            CHECK_EQ(record[i], record[0]);
        }
    }
    CHECK_EQ(err, WEFT_EOF);
    return 0;
}

static int records(void *arg) {
    (void)arg;
    weft_conn peer;
    pthread_t t;
    weft_waitgroup writers = WEFT_WAITGROUP_INIT, reader = WEFT_WAITGROUP_INIT;
    socket_pair(&common_conn, &peer);
    CHECK_EQ(weft_waitgroup_go(&reader, read_records, &peer), 0);
    for (intptr_t i = 1; i <= 5; i++) {
        CHECK_EQ(weft_waitgroup_go(&writers, write_records, (void *)i), 0);
    }
    CHECK_EQ(pthread_create(&t, NULL, write_records_thread, (void *)(intptr_t)6), 0);
    weft_waitgroup_wait(&writers);
    while (stress_more()) {
        weft_yield();
    }
    pthread_join(t, NULL);
    CHECK_EQ(weft_conn_close(common_conn), 0);
    weft_waitgroup_wait(&reader);
    CHECK_EQ(weft_conn_close(peer), 0);
    return 0;
}

TEST_IN(poller, writers_2, 30) {
    stress_begin(1.5);
    stress_run(2, records, NULL);
    stress_over();
}
