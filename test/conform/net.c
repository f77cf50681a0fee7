/* conform/net.c: sockets and their deadlines. A test is named by the line of the list that it
   comes from (README.md). */
#include "field/field.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

static const weft_time PAST = {1};

/* A listener on a port of its own. */
static weft_listener listen_here(char *text, size_t bytes) {
    weft_listener l;
    weft_addr at;
    WEFT_MUST(weft_listen(&l, "tcp", "127.0.0.1:0", NULL));
    WEFT_MUST(weft_listener_addr(l, &at));
    weft_addr_text(&at, text, bytes);
    return l;
}

/* The two ends of a TCP connection. */
static void connect_pair(weft_conn *a, weft_conn *b) {
    char text[64];
    weft_listener l = listen_here(text, sizeof text);
    WEFT_MUST(weft_dial(a, "tcp", text, NULL));
    WEFT_MUST(weft_accept(b, l));
    WEFT_MUST(weft_listener_close(l));
}

static void close_pair(weft_conn a, weft_conn b) {
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(weft_conn_close(b), 0);
}

/* One call in a green thread of its own. */
struct call {
    weft_fn body;
    weft_conn c;
    weft_listener l;
    atomic_llong result;
    weft_event returned;
};

static int read_call(void *arg) {
    struct call *k = arg;
    char byte;
    atomic_store(&k->result, weft_conn_read(k->c, &byte, 1));
    weft_event_set(&k->returned);
    return 0;
}

/* More than any socket buffers. */
static int write_call(void *arg) {
    struct call *k = arg;
    static char much[16 << 20];
    atomic_store(&k->result, weft_conn_write_all(k->c, much, sizeof much, NULL));
    weft_event_set(&k->returned);
    return 0;
}

static int accept_call(void *arg) {
    struct call *k = arg;
    weft_conn c;
    atomic_store(&k->result, weft_accept(&c, k->l));
    weft_event_set(&k->returned);
    return 0;
}

/* Begins the call and sees it parked, or through already where it has a deadline. */
static void begin(struct call *k, weft_fn body) {
    weft_stats s;
    weft_event_reset(&k->returned);
    WEFT_MUST(weft_go(body, k));
    do {
        CHECK_EQ(weft_sleep(100 * US), 0);
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting == 0 && !weft_event_is_set(&k->returned));
}

static void end_with(struct call *k, long long result) {
    weft_event_wait(&k->returned);
    CHECK_EQ(atomic_load(&k->result), result);
}

/* Not one end of a pair has anything to say for a while. */
static void check_still_waits(struct call *k, int64_t ns) {
    CHECK_EQ(weft_event_wait_until(&k->returned, weft_in(ns)), -ETIMEDOUT);
}

/* ---- 155: dialling with a deadline ----------------------------------------------------------- */

/* A listener whose queue is full: the kernel answers nobody. */
struct deaf {
    int fd, fill[8];
    char text[64];
};

static void deaf_open(struct deaf *d) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    d->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(bind(d->fd, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(listen(d->fd, 0), 0);
    CHECK_EQ(getsockname(d->fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(d->text, sizeof d->text, "127.0.0.1:%d", ntohs(at.sin_port));
    for (size_t i = 0; i < WEFT_COUNT(d->fill); i++) {
        d->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(connect(d->fill[i], (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    }
}

static void deaf_close(struct deaf *d) {
    for (size_t i = 0; i < WEFT_COUNT(d->fill); i++) {
        close(d->fill[i]);
    }
    close(d->fd);
}

static int dial_with_deadlines(void *arg) {
    (void)arg;
    static const int64_t lengths[] = {-5 * SEC, -1, 1, 1 * MS, 20 * MS, 50 * MS};
    struct deaf d;
    weft_conn c;
    int fds = nfd();
    deaf_open(&d);
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        int64_t start = now();
        CHECK_EQ(weft_dial_until(&c, "tcp", d.text, NULL, weft_in(lengths[i])), -ETIMEDOUT);
        CHECK_GE(now() - start, lengths[i]);
    }
    deaf_close(&d);
    CHECK_EQ(nfd(), fds);

    char text[64];
    weft_listener l = listen_here(text, sizeof text);
    CHECK_EQ(weft_dial_until(&c, "tcp", text, NULL, weft_in(INT64_MAX)), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(weft_dial_until(&c, "tcp", text, NULL, weft_in(INT64_MAX - 1)), 0);
    CHECK_EQ(weft_conn_close(c), 0);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(nfd(), fds);
    return 0;
}

TEST(conform, conform_155) { run_at(2, dial_with_deadlines, NULL); }

/* ---- 156, 167: accept ------------------------------------------------------------------------ */

static int accept_with_deadlines(void *arg) {
    (void)arg;
    char text[64];
    weft_conn c;
    weft_listener l = listen_here(text, sizeof text);
    CHECK_EQ(weft_accept_until(&c, l, weft_in(-5 * SEC)), -ETIMEDOUT);
    int64_t start = now();
    CHECK_EQ(weft_accept_until(&c, l, weft_in(10 * MS)), -ETIMEDOUT);
    CHECK_GE(now() - start, 10 * MS);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(weft_accept_until(&c, l, weft_in(10 * MS)), -EBADF);
    return 0;
}

TEST(conform, conform_156a) { run_at(2, accept_with_deadlines, NULL); }

static int close_unblocks(void *arg) {
    (void)arg;
    static struct call k;
    char text[64];
    weft_conn other;
    k.l = listen_here(text, sizeof text);
    begin(&k, accept_call);
    CHECK_EQ(weft_listener_close(k.l), 0);
    end_with(&k, -EBADF);
    CHECK_EQ(weft_listener_close(k.l), -EBADF);

    static const weft_fn calls[] = {read_call, write_call};
    for (int i = 0; i < 2; i++) {
        connect_pair(&k.c, &other);
        begin(&k, calls[i]);
        CHECK_EQ(weft_conn_close(k.c), 0);
        end_with(&k, -EBADF);
        CHECK_EQ(weft_conn_close(k.c), -EBADF);
        CHECK_EQ(weft_conn_close(other), 0);
    }
    return 0;
}

TEST(conform, conform_167a) { run_at(2, close_unblocks, NULL); }

/* ---- 158: reading with a deadline ------------------------------------------------------------ */

static int read_deadlines(void *arg) {
    (void)arg;
    weft_conn a, b;
    char buf[16];
    connect_pair(&a, &b);
    CHECK_EQ(weft_conn_write(b, "ready", 5), 5);
    CHECK_EQ(weft_conn_set_read_deadline(a, weft_in(-5 * SEC)), 0);
    for (int i = 0; i < 3;
         i++) { /* though there is something to read, and as long as it is not moved */
        CHECK_EQ(weft_conn_read(a, buf, sizeof buf), -ETIMEDOUT);
    }
    CHECK_EQ(weft_conn_set_read_deadline(a, WEFT_NEVER), 0);
    CHECK_EQ(weft_conn_read_full(a, buf, 5, NULL), 0);
    CHECK_MEM(buf, "ready", 5);

    /* What has come first, and then the time. */
    size_t done = 0;
    int64_t start = now();
    CHECK_EQ(weft_conn_set_read_deadline(a, weft_in(50 * MS)), 0);
    CHECK_EQ(weft_conn_write(b, "part", 4), 4);
    CHECK_EQ(weft_conn_read_full(a, buf, sizeof buf, &done), -ETIMEDOUT);
    CHECK_GE(now() - start, 50 * MS);
    CHECK_EQ(done, 4);
    CHECK_EQ(weft_conn_read(a, buf, sizeof buf), -ETIMEDOUT);
    CHECK_EQ(weft_conn_write(a, "x", 1), 1); /* the other direction knows nothing of it */
    close_pair(a, b);
    return 0;
}

TEST(conform, conform_158) { run_at(2, read_deadlines, NULL); }

/* ---- 159, 160: cleared deadlines; writing with one ------------------------------------------- */

static int read_after_clearing(void *arg) {
    (void)arg;
    static struct call k;
    weft_conn other;
    connect_pair(&k.c, &other);
    CHECK_EQ(weft_conn_set_deadline(k.c, weft_in(WEFT_HOUR)), 0);
    begin(&k, read_call);
    CHECK_EQ(weft_conn_set_deadline(k.c, weft_in(50 * MS)), 0);
    CHECK_EQ(weft_conn_set_deadline(k.c, WEFT_NEVER), 0);
    check_still_waits(&k, 100 * MS);
    CHECK_EQ(weft_conn_close(k.c), 0);
    end_with(&k, -EBADF);
    CHECK_EQ(weft_conn_close(other), 0);
    return 0;
}

TEST(conform, conform_159) { run_at(2, read_after_clearing, NULL); }

static int write_deadlines(void *arg) {
    (void)arg;
    static struct call k;
    weft_conn other;
    char byte = 0;
    connect_pair(&k.c, &other);
    CHECK_EQ(weft_conn_set_write_deadline(k.c, weft_in(-5 * SEC)), 0);
    CHECK_EQ(weft_conn_write(k.c, &byte, 1), -ETIMEDOUT);
    int64_t start = now();
    CHECK_EQ(weft_conn_set_write_deadline(k.c, weft_in(50 * MS)), 0);
    begin(&k, write_call);
    end_with(&k, -ETIMEDOUT);
    CHECK_GE(now() - start, 50 * MS);
    CHECK_EQ(weft_conn_write(k.c, &byte, 1), -ETIMEDOUT);

    CHECK_EQ(weft_conn_set_write_deadline(k.c, weft_in(WEFT_HOUR)), 0);
    begin(&k, write_call);
    CHECK_EQ(weft_conn_set_write_deadline(k.c, WEFT_NEVER), 0);
    check_still_waits(&k, 100 * MS);
    CHECK_EQ(weft_conn_close(k.c), 0);
    end_with(&k, -EBADF);
    CHECK_EQ(weft_conn_close(other), 0);
    return 0;
}

TEST(conform, conform_160) { run_at(2, write_deadlines, NULL); }

/* ---- 161, 162: deadlines of every length ----------------------------------------------------- */

static int64_t read_for(weft_conn c, int64_t d) {
    char byte;
    int64_t start = now();
    CHECK_EQ(weft_conn_set_read_deadline(c, weft_in(d)), 0);
    CHECK_EQ(weft_conn_read(c, &byte, 1), -ETIMEDOUT);
    int64_t took = now() - start;
    CHECK_GE(took, d);
    return took;
}

/* Grows until one is met within a tenth of its length. */
static int fluctuation(void *arg) {
    (void)arg;
    weft_conn a, b;
    int64_t d = MS;
    connect_pair(&a, &b);
    while (d < 4 * SEC && !within(read_for(a, d), d + d / 10)) {
        d += d / 4;
    }
    test_clock(d < 4 * SEC, "a deadline of %.2f ms is met within a tenth, bound 4 s",
               (double)d / MS);
    close_pair(a, b);
    return 0;
}

TEST(conform, conform_161) { run_at(2, fluctuation, NULL); }

static const int64_t various[] = {1,      2,        5,        50,       100,      200,      500,
                                  750,    1 * US,   5 * US,   25 * US,  250 * US, 500 * US, 1 * MS,
                                  5 * MS, 100 * MS, 250 * MS, 500 * MS, 1 * SEC};

static int on_a_silent_conn(void *arg) {
    weft_conn a, b;
    connect_pair(&a, &b);
    read_for(a, *(const int64_t *)arg);
    close_pair(a, b);
    return 0;
}

static int various_deadlines(void *arg) {
    (void)arg;
    static int64_t lengths[WEFT_COUNT(various)];
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    memcpy(lengths, various, sizeof lengths);
    for (int run = 0; run < 3; run++) {
        for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
            WEFT_MUST(weft_waitgroup_go(&wg, on_a_silent_conn, &lengths[i]));
        }
    }
    weft_waitgroup_wait(&wg);
    return 0;
}

TEST(conform, conform_162) {
    run_at(1, various_deadlines, NULL);
    run_at(4, various_deadlines, NULL);
}

/* ---- 163, 164, 165, 189: deadlines set all the time ------------------------------------------ */

static int echo_all(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    char byte;
    for (;;) {
        CHECK_EQ(weft_conn_set_deadline(c, weft_in(WEFT_HOUR)), 0);
        ssize_t n = weft_conn_read(c, &byte, 1);
        if (n <= 0) {
            CHECK_EQ(n, 0);
            break;
        }
        CHECK_EQ(weft_conn_set_deadline(c, weft_in(WEFT_HOUR)), 0);
        CHECK_EQ(weft_conn_write(c, &byte, 1), 1);
    }
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}

static int prolonged(void *arg) {
    (void)arg;
    static weft_conn b;
    weft_conn a;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    connect_pair(&a, &b);
    WEFT_MUST(weft_waitgroup_go(&wg, echo_all, &b));
    for (int i = 0; i < 1000; i++) {
        char byte = (char)i, back;
        CHECK_EQ(weft_conn_set_write_deadline(a, weft_in(WEFT_HOUR)), 0);
        CHECK_EQ(weft_conn_write(a, &byte, 1), 1);
        CHECK_EQ(weft_conn_set_read_deadline(a, weft_in(WEFT_HOUR)), 0);
        CHECK_EQ(weft_conn_read(a, &back, 1), 1);
        CHECK_EQ(back, byte);
    }
    CHECK_EQ(weft_conn_close(a), 0);
    weft_waitgroup_wait(&wg);
    return 0;
}

TEST(conform, conform_163) { run_at(2, prolonged, NULL); }

static weft_conn raced;
static atomic_int racers;

static int race_reader(void *arg) {
    (void)arg;
    char byte;
    for (int i = 0; i < 1000; i++) {
        ssize_t n = weft_conn_read(raced, &byte, 1);
        CHECK(n == 1 || n == -ETIMEDOUT);
    }
    atomic_fetch_sub(&racers, 1);
    return 0;
}

static int race_writer(void *arg) {
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        ssize_t n = weft_conn_write(raced, "w", 1);
        CHECK(n == 1 || n == -ETIMEDOUT);
    }
    atomic_fetch_sub(&racers, 1);
    return 0;
}

static int deadline_race(void *arg) {
    (void)arg;
    weft_conn other;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    connect_pair(&raced, &other);
    atomic_store(&racers, 2);
    WEFT_MUST(weft_waitgroup_go(&wg, race_reader, NULL));
    WEFT_MUST(weft_waitgroup_go(&wg, race_writer, NULL));
    while (atomic_load(&racers) > 0) {
        CHECK_EQ(weft_conn_set_read_deadline(raced, weft_in(2 * US)), 0);
        CHECK_EQ(weft_conn_set_write_deadline(raced, weft_in(2 * US)), 0);
        CHECK_EQ(weft_sleep(2 * US), 0);
    }
    weft_waitgroup_wait(&wg);
    close_pair(raced, other);
    return 0;
}

TEST(conform, conform_164) {
    run_at(1, deadline_race, NULL);
    run_at(4, deadline_race, NULL);
}

enum { EARLIER_CONNS = 10, EARLIER_GS = 8, EARLIER_TRIES = 100 };
static weft_conn earlier[EARLIER_CONNS];
static atomic_int countdown;

static int set_earlier(void *arg) {
    (void)arg;
    for (int i = 0; i < EARLIER_TRIES; i++) {
        int left = atomic_fetch_sub(&countdown, 1);
        for (int c = 0; c < EARLIER_CONNS; c++) {
            CHECK_EQ(weft_conn_set_deadline(earlier[c], weft_in(WEFT_HOUR + left * SEC)), 0);
        }
    }
    return 0;
}

static int steadily_earlier(void *arg) {
    (void)arg;
    weft_conn other[EARLIER_CONNS];
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    for (int c = 0; c < EARLIER_CONNS; c++) {
        connect_pair(&earlier[c], &other[c]);
    }
    atomic_store(&countdown, EARLIER_GS * EARLIER_TRIES);
    for (int i = 0; i < EARLIER_GS; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, set_earlier, NULL));
    }
    weft_waitgroup_wait(&wg);
    for (int c = 0; c < EARLIER_CONNS; c++) { /* and they still work, both ways */
        char byte;
        read_for(earlier[c], MS);
        CHECK_EQ(weft_conn_set_deadline(earlier[c], weft_in(WEFT_HOUR)), 0);
        CHECK_EQ(weft_conn_write(other[c], "e", 1), 1);
        CHECK_EQ(weft_conn_read(earlier[c], &byte, 1), 1);
        close_pair(earlier[c], other[c]);
    }
    return 0;
}

TEST(conform, conform_165) { run_at(4, steadily_earlier, NULL); }

/* A short deadline, and before or just after it fires a long one: the short one ends no read of
   later. */
static int stale_deadlines(void *arg) {
    (void)arg;
    weft_conn a, b;
    char byte;
    connect_pair(&a, &b);
    for (int i = 0; i < 3000; i++) {
        CHECK_EQ(weft_conn_set_read_deadline(a, weft_in((i % 60) * US)), 0);
        busy((i % 50) * US);
        CHECK_EQ(weft_conn_set_read_deadline(a, weft_in(WEFT_HOUR)), 0);
        if (i % 2 == 0) {
            CHECK_EQ(weft_conn_write(b, "s", 1), 1);
        } else { /* the read parks first */
            CHECK_EQ(weft_conn_read_until(a, &byte, 1, weft_in(10 * US)), -ETIMEDOUT);
            CHECK_EQ(weft_conn_write(b, "s", 1), 1);
        }
        CHECK_EQ(weft_conn_read(a, &byte, 1), 1);
    }
    close_pair(a, b);
    return 0;
}

TEST(conform, conform_189) {
    run_at(1, stale_deadlines, NULL);
    run_at(4, stale_deadlines, NULL);
}

/* ---- 166, 168, 170: ends and nothings -------------------------------------------------------- */

static int past_unblocks(void *arg) {
    (void)arg;
    static struct call k;
    weft_conn other;
    connect_pair(&k.c, &other);
    begin(&k, read_call);
    int64_t start = now();
    CHECK_EQ(weft_conn_set_read_deadline(k.c, PAST), 0);
    end_with(&k, -ETIMEDOUT);
    test_clock(within(now() - start, 5 * SEC), "after %.3f ms, bound 5 s",
               (double)(now() - start) / MS);
    close_pair(k.c, other);
    return 0;
}

static int half_close(void *arg) {
    (void)arg;
    weft_conn a, b;
    char buf[8];
    connect_pair(&a, &b);
    CHECK_EQ(weft_conn_write(a, "last", 4), 4);
    CHECK_EQ(weft_conn_close_write(a), 0);
    CHECK_EQ(weft_conn_read_full(b, buf, 4, NULL), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_conn_read(b, buf, sizeof buf), 0);
    }
    CHECK_EQ(weft_conn_read_full(b, buf, 1, NULL), WEFT_EOF);
    CHECK_EQ(weft_conn_write(a, "x", 1), -EPIPE);
    CHECK_EQ(weft_conn_write(b, "back", 4), 4);
    CHECK_EQ(weft_conn_read_full(a, buf, 4, NULL), 0);
    CHECK_MEM(buf, "back", 4);
    close_pair(a, b);
    return 0;
}

static int zero_bytes(void *arg) {
    (void)arg;
    weft_conn a, b;
    char byte;
    size_t done = 17;
    connect_pair(&a, &b);
    CHECK_EQ(weft_conn_read(a, &byte, 0), 0);
    CHECK_EQ(weft_conn_write(a, &byte, 0), 0);
    CHECK_EQ(weft_conn_read_full(a, &byte, 0, &done), 0);
    CHECK_EQ(done, 0);
    CHECK_EQ(weft_conn_write_all(a, &byte, 0, NULL), 0);
    CHECK_EQ(weft_conn_write(b, "z", 1), 1);
    CHECK_EQ(weft_conn_read(a, &byte, 0), 0);
    CHECK_EQ(weft_conn_read(a, &byte, 1), 1);
    close_pair(a, b);
    return 0;
}

TEST(conform, conform_166) { run_at(2, past_unblocks, NULL); }
TEST(conform, conform_168a) { run_at(2, half_close, NULL); }
TEST(conform, conform_170a) { run_at(2, zero_bytes, NULL); }

/* ---- 174, 177: ports ------------------------------------------------------------------------- */

static int closed_port(void *arg) {
    (void)arg;
    char text[64];
    weft_conn c;
    weft_listener l = listen_here(text, sizeof text);
    CHECK_EQ(weft_listener_close(l), 0);
    int64_t start = now();
    CHECK_EQ(weft_dial(&c, "tcp", text, NULL), -ECONNREFUSED);
    test_clock(within(now() - start, SEC), "refused after %.3f ms, bound 1 s",
               (double)(now() - start) / MS);
    return 0;
}

static int listen_again(void *arg) {
    (void)arg;
    char text[64];
    weft_conn a, b;
    weft_listener l = listen_here(text, sizeof text);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_dial(&a, "tcp", text, NULL), 0);
        CHECK_EQ(weft_accept(&b, l), 0);
        CHECK_EQ(weft_conn_close(b), 0); /* the server's end first: its port lingers */
        CHECK_EQ(weft_conn_close(a), 0);
        CHECK_EQ(weft_listener_close(l), 0);
        CHECK_EQ(weft_listen(&l, "tcp", text, NULL), 0);
    }
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}

TEST(conform, conform_174) { run_at(2, closed_port, NULL); }
TEST(conform, conform_177) { run_at(2, listen_again, NULL); }

/* ---- 175: many who accept, many who dial ----------------------------------------------------- */

enum { ACCEPTORS = 5, DIALLERS = 20, DIALS = 10, MESSAGES = 20 };

static struct {
    weft_listener l;
    char text[64];
    atomic_int served;
    weft_waitgroup servers, diallers;
} office;

static int serve_conn(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    char text[32];
    while (weft_conn_read_full(c, text, sizeof text, NULL) == 0) {
        CHECK_EQ(weft_conn_write_all(c, text, sizeof text, NULL), 0);
    }
    CHECK_EQ(weft_conn_close(c), 0);
    atomic_fetch_add(&office.served, 1);
    return 0;
}

static int serve_copy(void *arg) {
    serve_conn(arg);
    weft_waitgroup_done(&office.servers);
    return 0;
}

static int acceptor(void *arg) {
    (void)arg;
    weft_conn c;
    while (weft_accept(&c, office.l) == 0) {
        weft_waitgroup_add(&office.servers, 1);
        WEFT_MUST(WEFT_GO_COPY(serve_copy, &c));
    }
    return 0;
}

static int dialler(void *arg) {
    int who = (int)(intptr_t)arg;
    for (int d = 0; d < DIALS; d++) {
        weft_conn c;
        CHECK_EQ(weft_dial(&c, "tcp", office.text, NULL), 0);
        for (int i = 0; i < MESSAGES; i++) {
            char text[32] = "", back[32];
            snprintf(text, sizeof text, "%d/%d/%d", who, d, i);
            CHECK_EQ(weft_conn_write_all(c, text, sizeof text, NULL), 0);
            CHECK_EQ(weft_conn_read_full(c, back, sizeof back, NULL), 0);
            CHECK_STR(back, text);
        }
        CHECK_EQ(weft_conn_close(c), 0);
    }
    return 0;
}

static int busy_office(void *arg) {
    (void)arg;
    office.l = listen_here(office.text, sizeof office.text);
    for (int i = 0; i < ACCEPTORS; i++) {
        WEFT_MUST(weft_waitgroup_go(&office.servers, acceptor, NULL));
    }
    for (intptr_t i = 0; i < DIALLERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&office.diallers, dialler, (void *)i));
    }
    weft_waitgroup_wait(&office.diallers);
    CHECK_EQ(weft_listener_close(office.l), 0);
    weft_waitgroup_wait(&office.servers);
    CHECK_EQ(atomic_exchange(&office.served, 0), DIALLERS * DIALS);
    return 0;
}

TEST_IN(conform, conform_175, 60) {
    run_at(1, busy_office, NULL);
    run_at(4, busy_office, NULL);
}

/* ---- 182, 184: pipes ------------------------------------------------------------------------- */

static void pipe_conns(weft_conn *reader, weft_conn *writer) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(weft_conn_from_fd(reader, ends[0]), 0);
    CHECK_EQ(weft_conn_from_fd(writer, ends[1]), 0);
}

static int pipes(void *arg) {
    (void)arg;
    static struct call k;
    weft_conn r, w;
    char buf[8];
    pipe_conns(&r, &w);
    CHECK_EQ(weft_conn_write(w, "end", 3), 3);
    CHECK_EQ(weft_conn_close(w), 0);
    CHECK_EQ(weft_conn_read_full(r, buf, 3, NULL), 0);
    CHECK_EQ(weft_conn_read(r, buf, sizeof buf), 0);
    CHECK_EQ(weft_conn_close(r), 0);

    pipe_conns(&r, &w); /* nobody reads: an error, and no signal */
    CHECK_EQ(weft_conn_close(r), 0);
    CHECK_EQ(weft_conn_write(w, "x", 1), -EPIPE);
    CHECK_EQ(weft_conn_close(w), 0);

    pipe_conns(&k.c, &w);
    begin(&k, read_call);
    CHECK_EQ(weft_conn_close(k.c), 0);
    end_with(&k, -EBADF);
    CHECK_EQ(weft_conn_close(w), 0);

    pipe_conns(&r, &k.c);
    begin(&k, write_call);
    CHECK_EQ(weft_conn_close(k.c), 0);
    end_with(&k, -EBADF);
    CHECK_EQ(weft_conn_close(r), 0);
    return 0;
}

TEST(conform, conform_182a) { run_at(2, pipes, NULL); }

static int pipe_deadlines(void *arg) {
    (void)arg;
    static struct call k;
    weft_conn r;
    pipe_conns(&r, &k.c);
    for (int64_t d = US; d < 50 * MS; d *= 5) {
        read_for(r, d);
    }
    CHECK_EQ(weft_conn_set_read_deadline(r, weft_in(-1)), 0);
    CHECK_EQ(weft_conn_write(k.c, "x", 1), 1);
    CHECK_EQ(weft_conn_read(r, &(char){0}, 1), -ETIMEDOUT);
    int64_t start = now();
    CHECK_EQ(weft_conn_set_write_deadline(k.c, weft_in(30 * MS)), 0);
    begin(&k, write_call);
    end_with(&k, -ETIMEDOUT);
    CHECK_GE(now() - start, 30 * MS);
    close_pair(r, k.c);
    return 0;
}

TEST(conform, conform_184a) { run_at(2, pipe_deadlines, NULL); }
