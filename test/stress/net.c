/* stress/net.c: the poller and sockets, with others' hands in every call. Deadlines move under parked
 * reads and writes, connections are closed under them and their descriptors' numbers used again at
 * once, several accept on one listener, several write to one connection. Exact books: each byte that
 * was said to be written arrives once, in its place, on its own connection; a closed handle is -EBADF
 * to everybody from then on.
 */
#include "stress.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

/* ---- streams ---- */

static uint32_t mix(uint64_t x) {
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(x >> 32);
}

/* Byte i of a stream depends on both its place and the stream. */
static unsigned char byte_of(uint64_t stream, uint64_t i) {
    return (unsigned char)mix(stream << 32 ^ i);
}

static void fill(unsigned char *buf, size_t bytes, uint64_t stream, uint64_t at) {
    for (size_t i = 0; i < bytes; i++) {
        buf[i] = byte_of(stream, at + i);
    }
}

static void verify(const unsigned char *buf, size_t bytes, uint64_t stream, uint64_t at) {
    for (size_t i = 0; i < bytes; i++) {
        if (buf[i] != byte_of(stream, at + i)) {
            test_fail(__FILE__, __LINE__, "stream %llu, byte %llu: %d, not %d",
                      (unsigned long long)stream, (unsigned long long)(at + i), buf[i],
                      byte_of(stream, at + i));
        }
    }
}

static _Atomic uint64_t next_stream;

static uint64_t new_stream(void) { return atomic_fetch_add(&next_stream, 1) & 0xffffffff; }

/* ---- connections ---- */

/* fds: the numbers, if wanted. small: buffers that are full after a few writes. */
static void socket_pair(weft_conn *a, weft_conn *b, int fds[2], bool small) {
    int fd[2], bytes = 4096;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    if (small) {
        CHECK_EQ(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
        CHECK_EQ(setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    }
    CHECK_EQ(weft_conn_from_fd(a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(b, fd[1]), 0);
    if (fds != NULL) {
        fds[0] = fd[0];
        fds[1] = fd[1];
    }
}

static weft_listener listen_somewhere(weft_addr *at, char text[64]) {
    weft_listener l;
    CHECK_EQ(weft_listen(&l, "tcp4", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(l, at), 0);
    CHECK_LT(weft_addr_text(at, text, 64), 64);
    return l;
}

/* Whatever is asked of it: it is closed. */
static void check_closed(weft_conn c) {
    char byte = 0;
    size_t done = 3;
    weft_addr at;
    CHECK_EQ(weft_conn_read(c, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_read_until(c, &byte, 1, weft_time_at(0)), -EBADF);
    CHECK_EQ(weft_conn_read_full(c, &byte, 1, &done), -EBADF);
    CHECK_EQ(done, 0);
    CHECK_EQ(weft_conn_write(c, "!", 1), -EBADF);
    CHECK_EQ(weft_conn_write_all(c, "!", 1, NULL), -EBADF);
    CHECK_EQ(weft_conn_set_deadline(c, weft_time_at(0)), -EBADF);
    CHECK_EQ(weft_conn_set_read_deadline(c, WEFT_NEVER), -EBADF);
    CHECK_EQ(weft_conn_set_write_deadline(c, weft_time_at(0)), -EBADF);
    CHECK_EQ(weft_conn_close_write(c), -EBADF);
    CHECK_EQ(weft_conn_local(c, &at), -EBADF);
    CHECK_EQ(weft_conn_close(c), -EBADF);
}

static weft_time soon(uint64_t *seed, uint32_t most_us) {
    return weft_in((weft_duration)(chance(seed) % most_us) * WEFT_MICROSECOND);
}

static void pause_thread(uint64_t *seed, uint32_t most_us) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % (most_us + 1)) * 1000}, NULL);
}

/* ---- echo under moving deadlines ---- */

enum {
    LINES = STRESS_TSAN ? 6 : 16,
    CHUNK = 6000,
    MOVERS = 3,
    MOVES = STRESS_TSAN ? 60 : 150,
};

/* A sender at one end, whose bytes come back to a receiver there; the echo at the other. */
struct line {
    weft_conn near, far;
    uint64_t stream;
    _Atomic uint64_t sent;
    atomic_int stop; /* no more is sent, and deadlines only go */
};

struct echo {
    struct line line[LINES];
    atomic_int closing; /* from here on a mover may meet a closed one */
    weft_waitgroup lines, movers;
};

static size_t random_size(uint64_t *seed) {
    return chance(seed) % 4 == 0 ? 1 + chance(seed) % 3 : 1 + chance(seed) % CHUNK;
}

/* 0 or more bytes moved, whatever ended it; the only error of these calls is a deadline. */
static size_t moved(ssize_t n) {
    if (n < 0) {
        CHECK_EQ(n, -ETIMEDOUT);
        weft_yield(); /* it may go on failing until somebody moves it */
        return 0;
    }
    progress();
    return (size_t)n;
}

static size_t write_some(weft_conn c, const unsigned char *buf, size_t bytes, uint64_t *seed) {
    size_t done = 0;
    int err;
    switch (chance(seed) % 4) {
    case 0:
        err = weft_conn_write_all(c, buf, bytes, &done);
        CHECK(err == 0 ? done == bytes : done < bytes);
        moved(err);
        return done;
    case 1:
        return moved(weft_conn_write_until(c, buf, bytes, soon(seed, 200)));
    default:
        return moved(weft_conn_write(c, buf, bytes));
    }
}

/* True: the end has come. */
static bool read_some(weft_conn c, unsigned char *buf, size_t bytes, size_t *got, uint64_t *seed) {
    ssize_t n;
    int err;
    switch (chance(seed) % 4) {
    case 0:
        err = weft_conn_read_full(c, buf, bytes, got);
        CHECK(err == 0 ? *got == bytes : *got < bytes);
        if (err != WEFT_EOF) {
            moved(err);
        }
        return err == WEFT_EOF;
    case 1:
        n = weft_conn_read_until(c, buf, bytes, soon(seed, 200));
        break;
    default:
        n = weft_conn_read(c, buf, bytes);
    }
    *got = moved(n);
    return n == 0;
}

static int line_sender(void *arg) {
    struct echo *e = ((void **)arg)[0];
    struct line *l = ((void **)arg)[1];
    unsigned char buf[CHUNK];
    uint64_t seed = chance_seed(l->stream), at = 0;
    while (!atomic_load(&l->stop)) {
        size_t n = random_size(&seed);
        fill(buf, n, l->stream, at);
        at += write_some(l->near, buf, n, &seed);
        if (chance(&seed) % 32 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 300) * WEFT_MICROSECOND);
        }
    }
    atomic_store(&l->sent, at);
    CHECK_EQ(weft_conn_close_write(l->near), 0);
    weft_waitgroup_done(&e->lines);
    return 0;
}

static int line_echo(void *arg) {
    struct echo *e = ((void **)arg)[0];
    struct line *l = ((void **)arg)[1];
    unsigned char buf[CHUNK];
    uint64_t seed = chance_seed(l->stream + 1), at = 0;
    for (bool over = false; !over;) {
        size_t got = 0;
        over = read_some(l->far, buf, random_size(&seed), &got, &seed);
        verify(buf, got, l->stream, at);
        for (size_t back = 0; back < got;) {
            back += write_some(l->far, buf + back, got - back, &seed);
        }
        at += got;
    }
    CHECK_EQ(at, atomic_load(&l->sent));
    CHECK_EQ(weft_conn_close_write(l->far), 0);
    weft_waitgroup_done(&e->lines);
    return 0;
}

static int line_receiver(void *arg) {
    struct echo *e = ((void **)arg)[0];
    struct line *l = ((void **)arg)[1];
    unsigned char buf[CHUNK];
    uint64_t seed = chance_seed(l->stream + 2), at = 0;
    for (bool over = false; !over;) {
        size_t got = 0;
        over = read_some(l->near, buf, random_size(&seed), &got, &seed);
        verify(buf, got, l->stream, at);
        at += got;
    }
    CHECK_EQ(at, atomic_load(&l->sent));
    weft_waitgroup_done(&e->lines);
    return 0;
}

/* Earlier, later, past, or none; reading, writing or both. */
static int move_one(weft_conn c, uint64_t *seed) {
    weft_time t = chance(seed) % 6 == 0   ? WEFT_NEVER
                  : chance(seed) % 8 == 0 ? weft_time_at(1)
                  : chance(seed) % 3 == 0 ? soon(seed, 20000)
                                          : soon(seed, 300);
    switch (chance(seed) % 3) {
    case 0:
        return weft_conn_set_read_deadline(c, t);
    case 1:
        return weft_conn_set_write_deadline(c, t);
    default:
        return weft_conn_set_deadline(c, t);
    }
}

static int line_mover(void *arg) {
    struct echo *e = ((void **)arg)[0];
    uint64_t seed = chance_seed((uintptr_t)&seed);
    for (int i = 0; i < MOVES; i++) {
        struct line *l = &e->line[chance(&seed) % LINES];
        CHECK_EQ(move_one(chance(&seed) % 2 ? l->near : l->far, &seed), 0);
        if (chance(&seed) % 4 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 60) * WEFT_MICROSECOND);
        } else if (chance(&seed) % 4 == 0) {
            weft_yield();
        }
    }
    weft_waitgroup_done(&e->movers);
    return 0;
}

/* Goes on while they are closed: once closed, closed for good. */
static void *mover_thread(void *arg) {
    struct echo *e = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    bool gone[2 * LINES] = {false};
    for (int left = 2 * LINES; left > 0;) {
        uint32_t i = chance(&seed) % (2 * LINES);
        struct line *l = &e->line[i / 2];
        weft_conn c = i % 2 ? l->near : l->far;
        int err =
            atomic_load(&l->stop) ? weft_conn_set_deadline(c, WEFT_NEVER) : move_one(c, &seed);
        if (err != 0) {
            CHECK_EQ(err, -EBADF);
            CHECK(atomic_load(&e->closing));
            left -= !gone[i];
            gone[i] = true;
        } else {
            CHECK(!gone[i]);
        }
        if (chance(&seed) % 4 == 0) {
            pause_thread(&seed, 60);
        }
    }
    return NULL;
}

static void start_line(struct echo *e, struct line *l, weft_runtime *abroad, bool tcp) {
    void *args[2] = {e, l};
    static void *held[LINES][2]; /* for the one abroad, who gets no copy */
    l->stream = new_stream();
    if (tcp) {
        char text[64];
        weft_addr at;
        weft_listener s = listen_somewhere(&at, text);
        CHECK_EQ(weft_dial(&l->near, "tcp", text, NULL), 0);
        CHECK_EQ(weft_accept(&l->far, s), 0);
        CHECK_EQ(weft_listener_close(s), 0);
    } else {
        socket_pair(&l->near, &l->far, NULL, true);
    }
    weft_waitgroup_add(&e->lines, 3);
    CHECK_EQ(weft_go_copy(line_sender, args, sizeof args), 0);
    CHECK_EQ(weft_go_copy(line_receiver, args, sizeof args), 0);
    if (chance_seed(l->stream) >> 40 & 1) {
        void **h = held[l - e->line];
        memcpy(h, args, sizeof args);
        CHECK_EQ(weft_submit(abroad, line_echo, h), 0);
    } else {
        CHECK_EQ(weft_go_copy(line_echo, args, sizeof args), 0);
    }
}

static void echo_round(weft_runtime *abroad) {
    static struct echo e;
    pthread_t thread;
    void *args[1] = {&e};
    memset(&e, 0, sizeof e);
    for (int i = 0; i < LINES; i++) {
        start_line(&e, &e.line[i], abroad, i % 2 == 0);
    }
    weft_waitgroup_add(&e.movers, MOVERS);
    CHECK_EQ(pthread_create(&thread, NULL, mover_thread, &e), 0);
    for (int i = 0; i < MOVERS; i++) {
        CHECK_EQ(weft_go_copy(line_mover, args, sizeof args), 0);
    }
    weft_waitgroup_wait(&e.movers);
    for (int i = 0; i < LINES; i++) {
        atomic_store(&e.line[i].stop, 1);
    }
    weft_waitgroup_wait(&e.lines); /* the thread takes every deadline away by and by */
    atomic_store(&e.closing, 1);
    for (int i = 0; i < LINES; i++) {
        CHECK_EQ(weft_conn_close(e.line[i].near), 0);
        CHECK_EQ(weft_conn_close(e.line[i].far), 0);
        check_closed(e.line[i].near);
        check_closed(e.line[i].far);
    }
    pthread_join(thread, NULL);
}

static void check_none_open(void) {
    weft_stats s;
    do { /* the last call in a closed one may be on its way out */
        CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
        weft_yield();
    } while (s.conns_open != 0);
}

static int echoes(void *arg) {
    weft_config c = stress_config(*(int *)arg);
    weft_runtime *abroad;
    CHECK_EQ(weft_start(&abroad, &c), 0);
    atomic_store(&watchdog.rt[1], abroad);
    while (stress_more()) {
        echo_round(abroad);
    }
    atomic_store(&watchdog.rt[1], NULL);
    CHECK_EQ(weft_stop(abroad, -1), 0);
    check_none_open();
    return 0;
}

static void stress(double seconds, int procs, weft_fn fn) {
    stress_begin(seconds);
    stress_run(procs, fn, &procs);
    stress_over();
}

TEST_IN(net, echo_1, 40) { stress(2, 1, echoes); }
TEST_IN(net, echo_2, 40) { stress(2, 2, echoes); }
TEST_IN(net, echo_4, 40) { stress(2, 4, echoes); }

/* ---- closed under those who wait, numbers used again ---- */

enum { KEEPERS = 8 /* places */, GHOSTS = STRESS_TSAN ? 60 : 200 };

/* A connection that dies, with its users; counted by refs, for the closer goes on at once. */
struct dying {
    weft_conn a, b;
    bool timed;                    /* a's calls may end by its deadline */
    bool a_first;                  /* a is closed before b */
    bool written;                  /* b has bytes that nobody reads: its close is a reset */
    bool stale;                    /* users go on with the dead handles */
    atomic_int inside, late, refs; /* late: users who have met the deadline */
};

static _Atomic int64_t dying_left;
static _Atomic uint64_t reused;

static void dying_put(struct dying *d) {
    if (atomic_fetch_sub(&d->refs, 1) == 1) {
        free(d);
        atomic_fetch_sub(&dying_left, 1);
    }
}

/* Both handles, when their time has come, are nobody's, whoever has the numbers now. */
static void haunt(struct dying *d, uint64_t *seed) {
    if (!d->stale) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        check_closed(d->a);
        if (chance(seed) % 2) {
            weft_sleep((weft_duration)(chance(seed) % 100) * WEFT_MICROSECOND);
        }
    }
}

static void note_late(struct dying *d, bool *before) {
    CHECK(d->timed);
    atomic_fetch_add(&d->late, !*before);
    *before = true;
}

static int dying_reader(void *arg) {
    struct dying *d = arg;
    uint64_t seed = chance_seed((uintptr_t)arg);
    unsigned char byte = 9;
    ssize_t n;
    atomic_fetch_add(&d->inside, 1);
    bool late = false;
    for (bool told = false;; told = n != -ETIMEDOUT) {
        n = weft_conn_read(d->a, &byte, 1);
        if (n == -EBADF) {
            break;
        }
        if (n == -ETIMEDOUT) {
            note_late(d, &late);
        } else {
            /* The other end is gone. A read inside the kernel at the close of a may have seen that
               of b behind it; the next one may not. */
            CHECK(n == 0 || (n == -ECONNRESET && d->written));
            CHECK(!told || !d->a_first);
        }
        weft_yield();
    }
    CHECK_EQ(byte, 9);
    haunt(d, &seed);
    progress();
    dying_put(d);
    return 0;
}

static const char zeros[32 * 1024];

/* Several: one waits for room, the others for their turn. Nobody reads what they write. */
static int dying_writer(void *arg) {
    struct dying *d = arg;
    uint64_t seed = chance_seed((uintptr_t)arg + 1);
    size_t done;
    int err;
    atomic_fetch_add(&d->inside, 1);
    bool late = false;
    for (bool told = false;; told = err != -ETIMEDOUT) {
        done = sizeof zeros;
        err = weft_conn_write_all(d->a, zeros, sizeof zeros, &done);
        CHECK(err != 0);
        CHECK_LT(done, sizeof zeros);
        if (err == -ETIMEDOUT) {
            note_late(d, &late);
            weft_yield();
        } else if (err == -EBADF) {
            break;
        } else { /* until our own end is closed as well; as in dying_reader */
            CHECK(err == -EPIPE || err == -ECONNRESET);
            CHECK(!told || !d->a_first);
            weft_yield();
        }
    }
    haunt(d, &seed);
    progress();
    dying_put(d);
    return 0;
}

static void *dying_reader_thread(void *arg) {
    dying_reader(arg);
    return NULL;
}

/* Its own bytes and no others; no end, no deadline, no error that was another's. */
struct fresh {
    weft_conn a, b;
    uint64_t stream;
    weft_waitgroup done;
};

static int fresh_reader(void *arg) {
    struct fresh *f = arg;
    unsigned char buf[64];
    size_t done = 0;
    ssize_t n = weft_conn_read(f->b, buf, 1); /* parks before there is anything */
    CHECK_EQ(n, 1);
    verify(buf, 1, f->stream, 0);
    CHECK_EQ(weft_conn_read_full(f->b, buf, sizeof buf - 1, &done), 0);
    verify(buf, done, f->stream, 1);
    CHECK_EQ(weft_conn_read(f->b, buf, sizeof buf), 0);
    return 0;
}

static void use_fresh(int fds[2], uint64_t *seed) {
    struct fresh f = {.stream = new_stream()};
    unsigned char buf[64];
    int now[2];
    socket_pair(&f.a, &f.b, now, false);
    for (int i = 0; i < 4; i++) {
        reused += now[i / 2] == fds[i % 2];
    }
    CHECK_EQ(weft_waitgroup_go(&f.done, fresh_reader, &f), 0);
    weft_sleep((weft_duration)(chance(seed) % 200) * WEFT_MICROSECOND);
    fill(buf, sizeof buf, f.stream, 0);
    CHECK_EQ(weft_conn_write_all(f.a, buf, sizeof buf, NULL), 0);
    CHECK_EQ(weft_conn_close(f.a), 0);
    weft_waitgroup_wait(&f.done);
    CHECK_EQ(weft_conn_close(f.b), 0);
    check_closed(f.b);
}

static void *close_thread(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    CHECK_EQ(weft_conn_close(c), 0);
    return NULL;
}

static void close_by_anybody(weft_conn *c, bool plain) {
    pthread_t t;
    if (plain) {
        CHECK_EQ(pthread_create(&t, NULL, close_thread, c), 0);
        pthread_join(t, NULL);
    } else {
        CHECK_EQ(weft_conn_close(*c), 0);
    }
}

static void start_user(struct dying *d, weft_fn fn) {
    atomic_fetch_add(&d->refs, 1);
    CHECK_EQ(weft_go(fn, d), 0);
}

/* Often nothing but this ends what they wait in. Then everybody must notice, then wait again. */
static void time_out(struct dying *d, int users, uint64_t *seed) {
    if (chance(seed) % 2) {
        CHECK_EQ(weft_conn_set_deadline(d->a, weft_in(WEFT_HOUR)), 0);
    }
    weft_time t = chance(seed) % 4 == 0 ? weft_time_at(1) : soon(seed, 100);
    CHECK_EQ(weft_conn_set_deadline(d->a, t), 0);
    if (chance(seed) % 2) {
        while (atomic_load(&d->late) < users) {
            weft_yield();
        }
        CHECK_EQ(weft_conn_set_deadline(d->a, WEFT_NEVER), 0);
    }
}

static void one_death(uint64_t *seed) {
    struct dying *d = calloc(1, sizeof *d);
    pthread_t thread;
    int fds[2], writers = (int)(chance(seed) % 4);
    CHECK(d != NULL);
    socket_pair(&d->a, &d->b, fds, true);
    d->timed = chance(seed) % 2;
    d->a_first = chance(seed) % 2;
    d->stale = chance(seed) % 2;
    d->written = writers > 0;
    bool plain = chance(seed) % 16 == 0;
    atomic_store(&d->refs, 2);
    atomic_fetch_add(&dying_left, 1);
    if (plain) {
        CHECK_EQ(pthread_create(&thread, NULL, dying_reader_thread, d), 0);
    } else {
        CHECK_EQ(weft_go(dying_reader, d), 0);
    }
    for (int i = 0; i < writers; i++) {
        start_user(d, dying_writer);
    }
    if (chance(seed) % 4 != 0) {
        while (atomic_load(&d->inside) < 1 + writers) {
            weft_yield();
        }
        weft_sleep((weft_duration)(chance(seed) % 60) * WEFT_MICROSECOND);
    }
    if (d->timed) {
        time_out(d, 1 + writers, seed);
    }
    close_by_anybody(d->a_first ? &d->a : &d->b, chance(seed) % 16 == 0);
    close_by_anybody(d->a_first ? &d->b : &d->a, chance(seed) % 16 == 0);
    use_fresh(fds, seed);
    if (plain) {
        pthread_join(thread, NULL);
    }
    dying_put(d);
}

static int deaths(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        one_death(&seed);
        while (atomic_load(&dying_left) > GHOSTS) {
            weft_yield();
        }
    }
    return 0;
}

static int ghosts(void *arg) {
    (void)arg;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 0; i < KEEPERS; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, deaths, (void *)i), 0);
    }
    weft_waitgroup_wait(&w);
    while (atomic_load(&dying_left) > 0) {
        weft_sleep(WEFT_MILLISECOND);
    }
    CHECK_GT(atomic_load(&reused), 0);
    check_none_open();
    return 0;
}

TEST_IN(net, ghosts_1, 40) { stress(2, 1, ghosts); }
TEST_IN(net, ghosts_2, 40) { stress(2, 2, ghosts); }
TEST_IN(net, ghosts_4, 40) { stress(2, 4, ghosts); }

/* ---- several acceptors, peers that send and close in one go ---- */

enum { ACCEPTORS = 5, CALLS = STRESS_TSAN ? 40 : 150, PLAIN_CALLS = 10 };

struct call {
    uint32_t number, bytes;
    bool wants_reply;
};

struct office {
    weft_listener l;
    weft_addr at;
    char text[64];
    uint64_t stream;
    atomic_int seen[CALLS], closed;
    _Atomic int64_t taken;
    weft_waitgroup acceptors, callers, clerks;
};

struct clerk {
    struct office *o;
    weft_conn c;
};

static int serve(void *arg) {
    struct office *o = ((struct clerk *)arg)->o;
    weft_conn c = ((struct clerk *)arg)->c;
    struct call call;
    unsigned char buf[2000];
    uint64_t seed = chance_seed((uintptr_t)arg), at = 0;
    CHECK_EQ(weft_conn_read_full(c, &call, sizeof call, NULL), 0);
    CHECK_LT(call.number, CALLS);
    CHECK_EQ(atomic_fetch_add(&o->seen[call.number], 1), 0);
    for (size_t got;;) {
        bool over = read_some(c, buf, 1 + chance(&seed) % sizeof buf, &got, &seed);
        verify(buf, got, o->stream + call.number, at);
        at += got;
        if (over) {
            break;
        }
    }
    CHECK_EQ(at, call.bytes);
    if (call.wants_reply) { /* only half of it is closed */
        CHECK_EQ(weft_conn_write_all(c, &call, sizeof call, NULL), 0);
    }
    CHECK_EQ(weft_conn_close(c), 0);
    check_closed(c);
    weft_waitgroup_done(&o->clerks);
    return 0;
}

/* A close of the listener ends it, and only that. */
static int acceptor(void *arg) {
    struct office *o = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    for (;;) {
        struct clerk k = {.o = o};
        int err;
        if (chance(&seed) % 2) {
            err = weft_accept_until(&k.c, o->l, soon(&seed, 2000));
        } else {
            err = weft_accept(&k.c, o->l);
        }
        if (err == -EBADF) {
            break;
        }
        if (err != -ETIMEDOUT) {
            CHECK_EQ(err, 0);
            atomic_fetch_add(&o->taken, 1);
            CHECK_EQ(weft_go_copy(serve, &k, sizeof k), 0);
        }
        progress();
    }
    weft_conn c;
    CHECK(atomic_load(&o->closed));
    CHECK_EQ(weft_accept(&c, o->l), -EBADF);
    CHECK_EQ(weft_accept_until(&c, o->l, weft_time_at(0)), -EBADF);
    weft_waitgroup_done(&o->acceptors);
    return 0;
}

static size_t make_message(struct office *o, uint32_t number, bool wants_reply, unsigned char *buf,
                           size_t bytes, uint64_t *seed) {
    struct call call;
    memset(&call, 0, sizeof call);
    call.number = number;
    call.bytes = chance(seed) % 3 ? chance(seed) % (uint32_t)(bytes - sizeof call) : 0;
    call.wants_reply = wants_reply;
    memcpy(buf, &call, sizeof call);
    fill(buf + sizeof call, call.bytes, o->stream + number, 0);
    return sizeof call + call.bytes;
}

struct caller {
    struct office *o;
    uint32_t number;
};

static int caller(void *arg) {
    struct office *o = ((struct caller *)arg)->o;
    uint32_t number = ((struct caller *)arg)->number;
    uint64_t seed = chance_seed(number);
    unsigned char buf[5000], back[sizeof(struct call)];
    bool wants_reply = chance(&seed) % 2;
    size_t n = make_message(o, number, wants_reply, buf, sizeof buf, &seed);
    weft_conn c;
    CHECK_EQ(weft_dial(&c, "tcp", o->text, NULL), 0);
    CHECK_EQ(weft_conn_write_all(c, buf, n, NULL), 0);
    if (wants_reply) {
        CHECK_EQ(weft_conn_close_write(c), 0);
        CHECK_EQ(weft_conn_write(c, "!", 1), -EPIPE);
        CHECK_EQ(weft_conn_read_full(c, back, sizeof back, NULL), 0);
        CHECK_MEM(back, buf, sizeof back);
        CHECK_EQ(weft_conn_read(c, back, 1), 0);
    }
    CHECK_EQ(weft_conn_close(c), 0);
    weft_waitgroup_done(&o->callers);
    return 0;
}

/* Connected, sent and closed before anybody has accepted it, perhaps. */
static void *caller_thread(void *arg) {
    struct office *o = arg;
    uint64_t seed = chance_seed((uintptr_t)arg);
    unsigned char buf[3000];
    for (uint32_t i = 0; i < PLAIN_CALLS; i++) {
        size_t n = make_message(o, i, false, buf, sizeof buf, &seed);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_GE(fd, 0);
        CHECK_EQ(connect(fd, weft_addr_sockaddr(&o->at), o->at.bytes), 0);
        for (size_t at = 0; at < n;) {
            ssize_t k = send(fd, buf + at, n - at, MSG_NOSIGNAL);
            CHECK_GT(k, 0);
            at += (size_t)k;
        }
        CHECK_EQ(close(fd), 0);
    }
    return NULL;
}

static void *acceptor_thread(void *arg) {
    struct office *o = arg;
    weft_conn c;
    int err;
    while ((err = weft_accept(&c, o->l)) != -EBADF) { /* it answers itself: no runtime here */
        struct clerk k = {o, c};
        CHECK_EQ(err, 0);
        atomic_fetch_add(&o->taken, 1);
        serve(&k);
    }
    weft_waitgroup_done(&o->acceptors);
    return NULL;
}

/* Nobody listens there; but a call may, by chance, come from the port that it goes to. */
static void check_refused(const char *text) {
    weft_conn c;
    weft_addr from, to;
    int err = weft_dial(&c, "tcp", text, NULL);
    if (err == 0) {
        CHECK_EQ(weft_conn_local(c, &from), 0);
        CHECK_EQ(weft_conn_remote(c, &to), 0);
        CHECK(weft_addr_equal(&from, &to));
        CHECK_EQ(weft_conn_close(c), 0);
    } else {
        CHECK_EQ(err, -ECONNREFUSED);
    }
}

static void office_round(uint64_t *seed) {
    static struct office o;
    pthread_t t[2];
    weft_conn c;
    memset(&o, 0, sizeof o);
    o.l = listen_somewhere(&o.at, o.text);
    o.stream = atomic_fetch_add(&next_stream, CALLS) & 0x7fffffff;
    weft_waitgroup_add(&o.acceptors, ACCEPTORS + 1);
    weft_waitgroup_add(&o.callers, CALLS - PLAIN_CALLS);
    weft_waitgroup_add(&o.clerks, CALLS);
    CHECK_EQ(pthread_create(&t[0], NULL, caller_thread, &o), 0);
    CHECK_EQ(pthread_create(&t[1], NULL, acceptor_thread, &o), 0);
    for (int i = 0; i < ACCEPTORS; i++) {
        CHECK_EQ(weft_go(acceptor, &o), 0);
    }
    for (uint32_t i = PLAIN_CALLS; i < CALLS; i++) {
        struct caller one = {&o, i};
        CHECK_EQ(weft_go_copy(caller, &one, sizeof one), 0);
        if (chance(seed) % 16 == 0) {
            weft_sleep((weft_duration)(chance(seed) % 200) * WEFT_MICROSECOND);
        }
    }
    weft_waitgroup_wait(&o.callers);
    weft_waitgroup_wait(&o.clerks); /* every call has been served */
    CHECK_EQ(atomic_load(&o.taken), CALLS);
    atomic_store(&o.closed, 1);
    CHECK_EQ(weft_listener_close(o.l), 0);
    CHECK_EQ(weft_listener_close(o.l), -EBADF);
    CHECK_EQ(weft_accept(&c, o.l), -EBADF);
    weft_waitgroup_wait(&o.acceptors);
    check_refused(o.text);
    pthread_join(t[0], NULL);
    pthread_join(t[1], NULL);
    CHECK_EQ(atomic_load(&o.taken), CALLS);
}

static int offices(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed(11);
    while (stress_more()) {
        office_round(&seed);
        weft_sleep(10 * WEFT_MILLISECOND); /* ports of closed connections rest for a while */
    }
    check_none_open();
    return 0;
}

TEST_IN(net, acceptors_1, 40) { stress(1.5, 1, offices); }
TEST_IN(net, acceptors_2, 40) { stress(1.5, 2, offices); }
TEST_IN(net, acceptors_4, 40) { stress(1.5, 4, offices); }

/* ---- writers in turn, one reader ---- */

enum { WRITERS = 6, PIECES = STRESS_TSAN ? 60 : 200, LONGEST = 9000, INTRUDERS = 2 };

/* What each writer says it has written, in its order. */
struct desk {
    weft_conn to, from;
    weft_waitgroup writers, reader, intruders;
    atomic_int occupied, over;
    size_t done[WRITERS][PIECES];
    size_t bytes;
    unsigned char stream[WRITERS * PIECES * LONGEST + 1];
};

static struct desk desk;

/* The upper bits say whose it is. */
static unsigned char desk_byte(uint32_t writer, uint32_t piece, uint64_t i) {
    return (unsigned char)(writer << 5 | (mix((uint64_t)piece << 32 ^ i) & 31));
}

static int desk_writer(void *arg) {
    uint32_t me = (uint32_t)(uintptr_t)arg;
    unsigned char buf[LONGEST];
    uint64_t seed = chance_seed(me);
    for (uint32_t k = 0; k < PIECES; k++) {
        size_t n = 1 + chance(&seed) % LONGEST, *done = &desk.done[me][k];
        for (size_t i = 0; i < n; i++) {
            buf[i] = desk_byte(me, k, i);
        }
        if (chance(&seed) % 3 == 0) {
            ssize_t w = weft_conn_write_until(desk.to, buf, n, soon(&seed, 500));
            CHECK(w > 0 || w == -ETIMEDOUT);
            *done = w > 0 ? (size_t)w : 0;
        } else {
            int err = weft_conn_write_all(desk.to, buf, n, done);
            CHECK(err == 0 ? *done == n : err == -ETIMEDOUT && *done < n);
        }
        CHECK_LE(*done, n);
        progress();
        if (chance(&seed) % 8 == 0) {
            weft_yield();
        }
    }
    weft_waitgroup_done(&desk.writers);
    return 0;
}

static void *desk_writer_thread(void *arg) {
    desk_writer(arg);
    return NULL;
}

/* In one call from the first byte to the end, once whoever looks for it is out of its way. */
static int desk_reader(void *arg) {
    (void)arg;
    int err;
    while ((err = weft_conn_read_full(desk.from, desk.stream, sizeof desk.stream, &desk.bytes)) ==
           -EBUSY) {
        CHECK(!atomic_load(&desk.occupied));
        weft_yield();
    }
    CHECK_EQ(err, WEFT_EOF);
    weft_waitgroup_done(&desk.reader);
    return 0;
}

/* There is nothing to be had yet: whoever is refused has met the reader, who stays. */
static void find_reader(void) {
    char byte;
    ssize_t n;
    while ((n = weft_conn_read_until(desk.from, &byte, 1, weft_time_at(0))) == -ETIMEDOUT) {
        weft_yield();
    }
    CHECK_EQ(n, -EBUSY);
    atomic_store(&desk.occupied, 1);
}

static int intruder(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    char byte = 0;
    while (!atomic_load(&desk.over)) {
        size_t done = 1;
        CHECK_EQ(weft_conn_read(desk.from, &byte, 1), -EBUSY);
        CHECK_EQ(weft_conn_read_until(desk.from, &byte, 1, soon(&seed, 100)), -EBUSY);
        CHECK_EQ(weft_conn_read_full(desk.from, &byte, 1, &done), -EBUSY);
        CHECK_EQ(done, 0);
        weft_sleep((weft_duration)(chance(&seed) % 100) * WEFT_MICROSECOND);
    }
    CHECK_EQ(byte, 0);
    weft_waitgroup_done(&desk.intruders);
    return 0;
}

/* The stream is a row of whole pieces, each writer's in his order, as long as he was told. */
static void check_desk(void) {
    uint32_t next[WRITERS] = {0};
    for (size_t at = 0; at < desk.bytes;) {
        uint32_t who = desk.stream[at] >> 5;
        CHECK_LT(who, WRITERS);
        uint32_t *k = &next[who];
        while (*k < PIECES && desk.done[who][*k] == 0) {
            ++*k;
        }
        CHECK_LT(*k, PIECES);
        size_t n = desk.done[who][*k];
        CHECK_LE(n, desk.bytes - at);
        for (size_t i = 0; i < n; i++) {
            CHECK_EQ(desk.stream[at + i], desk_byte(who, *k, i));
        }
        at += n;
        ++*k;
    }
    for (uint32_t who = 0; who < WRITERS; who++) {
        for (uint32_t k = next[who]; k < PIECES; k++) {
            CHECK_EQ(desk.done[who][k], 0);
        }
    }
}

static void desk_round(uint64_t *seed) {
    pthread_t thread;
    memset(&desk, 0, offsetof(struct desk, stream));
    socket_pair(&desk.to, &desk.from, NULL, chance(seed) % 2);
    weft_waitgroup_add(&desk.writers, WRITERS);
    weft_waitgroup_add(&desk.reader, 1);
    weft_waitgroup_add(&desk.intruders, INTRUDERS);
    CHECK_EQ(weft_go(desk_reader, NULL), 0);
    find_reader();
    for (int i = 0; i < INTRUDERS; i++) {
        CHECK_EQ(weft_go(intruder, NULL), 0);
    }
    CHECK_EQ(pthread_create(&thread, NULL, desk_writer_thread, (void *)(uintptr_t)0), 0);
    for (uintptr_t i = 1; i < WRITERS; i++) {
        CHECK_EQ(weft_go(desk_writer, (void *)i), 0);
    }
    bool moves = chance(seed) % 2;
    for (int i = 0; i < 30; i++) {
        if (moves) {
            CHECK_EQ(weft_conn_set_write_deadline(desk.to, soon(seed, 1000)), 0);
        }
        weft_sleep((weft_duration)(chance(seed) % 400) * WEFT_MICROSECOND);
    }
    CHECK_EQ(weft_conn_set_write_deadline(desk.to, WEFT_NEVER), 0);
    weft_waitgroup_wait(&desk.writers);
    atomic_store(&desk.over, 1);
    weft_waitgroup_wait(&desk.intruders);
    CHECK_EQ(weft_conn_close_write(desk.to), 0);
    weft_waitgroup_wait(&desk.reader);
    check_desk();
    CHECK_EQ(weft_conn_close(desk.to), 0);
    CHECK_EQ(weft_conn_close(desk.from), 0);
    pthread_join(thread, NULL);
}

static int desks(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed(12);
    while (stress_more()) {
        desk_round(&seed);
    }
    check_none_open();
    return 0;
}

TEST_IN(net, turns_1, 40) { stress(1.5, 1, desks); }
TEST_IN(net, turns_2, 40) { stress(1.5, 2, desks); }
TEST_IN(net, turns_4, 40) { stress(1.5, 4, desks); }
