/* stress/stop.c: the end of a runtime with everything still pending. Each cancellable wait ends with
 * -ECANCELED or with a result of its own, each green thread runs to its end and is counted, and the
 * threads and descriptors of the process are as before. Over and over: by the return of main, by
 * weft_exit, by weft_stop, with plain threads that submit until they are refused, with two
 * runtimes whose waits are tangled, and with runtimes that live for a moment, several at a time.
 */
#include "stress.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

enum {
    SUBMITTERS = 2,
    LEFT = 256, /* timers that outlive their runtime, at most */
    MASS = STRESS_TSAN ? 80 : 160,
    CHILDREN = 60, /* short-lived ones at a time */
};

/* What one runtime is filled with. It outlives the runtime. */
struct world {
    weft_runtime *rt;
    struct world *other;          /* two at once: whose connections we use */
    _Atomic int64_t begun, ended; /* green threads, of every kind */
    _Atomic int64_t children, far_fired;
    _Atomic int64_t sent, received; /* through busy */
    weft_chan *empty, *full, *busy;
    weft_mutex mutex, turn;
    weft_event never, released, refused, set_up;
    weft_waitgroup never_done, releases;
    weft_listener quiet, crowded;
    char crowded_at[64];
    weft_conn turns, turns_peer, silent, silent_peer, lent, lent_peer;
    weft_conn shared, shared_peer, stream, stream_peer;
    weft_timer *common, *again; /* for ever; a function that is put off all the time */
    atomic_int submitting;
    weft_timer *left[LEFT];
    atomic_int nleft;
};

/* ---- the process, before and after ---- */

static int entries(const char *path) {
    DIR *d = opendir(path);
    CHECK(d != NULL);
    int n = 0;
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

static int descriptors(void) { return entries("/proc/self/fd"); }

/* A joined thread may stand in /proc a little longer than its join takes; the watchdog bounds this. */
static void wait_for_threads(int before) {
    while (entries("/proc/self/task") != before) {
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
    }
}

static void pause_thread(uint64_t *seed, uint32_t most_us) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % (most_us + 1)) * 1000}, NULL);
}

/* ---- short ones ---- */

static int child(void *arg) {
    struct world *w = arg;
    weft_yield();
    atomic_fetch_sub(&w->children, 1);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

/* Counts it first, so that it is in the books before it can end. */
static int start_child(struct world *w, bool from_outside) {
    atomic_fetch_add(&w->begun, 1);
    atomic_fetch_add(&w->children, 1);
    int err = from_outside ? weft_submit(w->rt, child, w) : weft_go(child, w);
    if (err != 0) {
        CHECK_EQ(err, WEFT_ESTOPPING);
        atomic_fetch_sub(&w->begun, 1);
        atomic_fetch_sub(&w->children, 1);
    }
    return err;
}

/* ---- waits that only a stop ends; each gives -ECANCELED ---- */

static weft_time far_off(uint64_t *seed) {
    return chance(seed) % 2 ? WEFT_NEVER : weft_in(WEFT_HOUR + chance(seed));
}

static weft_time soon(uint64_t *seed) { return weft_in((weft_duration)(chance(seed) % 60000)); }

static int sleeps(struct world *w, uint64_t *seed) {
    (void)w;
    switch (chance(seed) % 4) {
    case 0:
        return weft_sleep(WEFT_FOREVER);
    case 1:
        return weft_sleep(WEFT_HOUR);
    default:
        return weft_sleep_until(far_off(seed));
    }
}

static int naps(struct world *w, uint64_t *seed) {
    (void)w;
    int err;
    do {
        err = weft_sleep(1 + (weft_duration)(chance(seed) % 100000));
    } while (err == 0);
    return err;
}

static int receives(struct world *w, uint64_t *seed) {
    uint64_t v = 77;
    int err;
    switch (chance(seed) % 4) {
    case 0:
        err = weft_chan_recv_until(w->empty, &v, far_off(seed));
        break;
    case 1:
        err = weft_chan_recv(NULL, &v);
        break;
    default:
        err = weft_chan_recv(w->empty, &v);
    }
    CHECK_EQ(v, 77);
    return err;
}

static int sends(struct world *w, uint64_t *seed) {
    uint64_t v = 78;
    return chance(seed) % 2 ? weft_chan_send(w->full, &v)
                            : weft_chan_send_until(w->full, &v, far_off(seed));
}

/* A deadline that passes again and again. */
static int polls(struct world *w, uint64_t *seed) {
    uint64_t v;
    int err;
    do {
        err = weft_chan_recv_until(w->empty, &v, chance(seed) % 4 ? soon(seed) : weft_time_at(0));
        weft_yield();
    } while (err == -ETIMEDOUT);
    return err;
}

static int traffic_out(struct world *w, uint64_t *seed) {
    uint64_t v = 1;
    int err;
    while ((err = chance(seed) % 2 ? weft_chan_send(w->busy, &v)
                                   : weft_chan_send_until(w->busy, &v, far_off(seed))) == 0) {
        atomic_fetch_add(&w->sent, 1);
    }
    return err;
}

static int traffic_in(struct world *w, uint64_t *seed) {
    uint64_t v;
    int err;
    while ((err = chance(seed) % 2 ? weft_chan_recv(w->busy, &v)
                                   : weft_chan_recv_until(w->busy, &v, far_off(seed))) == 0) {
        CHECK_EQ(v, 1);
        atomic_fetch_add(&w->received, 1);
    }
    return err;
}

static void pair_of(weft_conn *a, weft_conn *b) {
    int fd[2], small = 4096;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    CHECK_EQ(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    CHECK_EQ(weft_conn_from_fd(a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(b, fd[1]), 0);
}

/* Some close what they have, some leave it to the runtime. */
static void let_go(weft_conn c, uint64_t *seed) {
    if (chance(seed) % 2) {
        CHECK_EQ(weft_conn_close(c), 0);
        CHECK_EQ(weft_conn_close(c), -EBADF);
    }
}

static int reads(struct world *w, uint64_t *seed) {
    (void)w;
    weft_conn a, b;
    char byte;
    size_t done = 9;
    ssize_t n;
    pair_of(&a, &b);
    switch (chance(seed) % 4) {
    case 0:
        n = weft_conn_read_full(a, &byte, 1, &done);
        CHECK_EQ(done, 0);
        break;
    case 1:
        n = weft_conn_read_until(a, &byte, 1, far_off(seed));
        break;
    case 2:
        CHECK_EQ(weft_conn_set_deadline(a, far_off(seed)), 0);
        n = weft_conn_read(a, &byte, 1);
        break;
    default:
        n = weft_conn_read(a, &byte, 1);
    }
    let_go(a, seed);
    let_go(b, seed);
    return (int)n;
}

/* Of one connection, which has one reader at a time. */
static int reads_together(struct world *w, uint64_t *seed) {
    char byte;
    ssize_t n = chance(seed) % 2 ? weft_conn_read(w->shared, &byte, 1)
                                 : weft_conn_read_until(w->shared, &byte, 1, far_off(seed));
    return n == -EBUSY ? weft_sleep(WEFT_HOUR) : (int)n;
}

static int reads_in_turns(struct world *w, uint64_t *seed) {
    (void)w;
    weft_conn a, b;
    char byte;
    ssize_t n;
    pair_of(&a, &b);
    do {
        n = weft_conn_read_until(a, &byte, 1, soon(seed));
    } while (n == -ETIMEDOUT);
    let_go(a, seed);
    return (int)n;
}

static const char zeros[64 * 1024];

static int writes(struct world *w, uint64_t *seed) {
    (void)w;
    weft_conn a, b;
    ssize_t n;
    pair_of(&a, &b);
    do {
        n = chance(seed) % 2 ? weft_conn_write(a, zeros, sizeof zeros)
                             : weft_conn_write_until(a, zeros, sizeof zeros, far_off(seed));
    } while (n > 0);
    let_go(b, seed);
    return (int)n;
}

/* One is in the system call's wait, the others wait for their turn. */
static int writes_in_line(struct world *w, uint64_t *seed) {
    (void)seed;
    size_t done = 0;
    int err;
    do {
        err = weft_conn_write_all(w->turns, zeros, sizeof zeros, &done);
    } while (err == 0);
    CHECK_LT(done, sizeof zeros);
    return err;
}

static int accepts(struct world *w, uint64_t *seed) {
    weft_conn c;
    return chance(seed) % 2 ? weft_accept(&c, w->quiet)
                            : weft_accept_until(&c, w->quiet, far_off(seed));
}

/* Few fit in line there: the rest wait to be connected. */
static int dials(struct world *w, uint64_t *seed) {
    weft_conn c;
    char byte;
    int err = chance(seed) % 2 ? weft_dial(&c, "tcp", w->crowded_at, NULL)
                               : weft_dial_until(&c, "tcp", w->crowded_at, NULL, far_off(seed));
    return err != 0 ? err : (int)weft_conn_read(c, &byte, 1);
}

static void leave_timer(struct world *w, weft_timer *t, uint64_t *seed) {
    int at = chance(seed) % 2 ? atomic_fetch_add(&w->nleft, 1) : LEFT;
    if (at < LEFT) {
        w->left[at] = t;
    } else {
        weft_timer_free(t);
    }
}

static int timer_waits(struct world *w, uint64_t *seed) {
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, chance(seed) % 2 ? WEFT_HOUR : WEFT_FOREVER, NULL), 0);
    int err =
        chance(seed) % 2 ? weft_timer_wait(t, NULL) : weft_timer_wait_until(t, NULL, far_off(seed));
    leave_timer(w, t, seed);
    return err;
}

/* All for the same one. */
static int timer_waits_together(struct world *w, uint64_t *seed) {
    return chance(seed) % 2 ? weft_timer_wait(w->common, NULL)
                            : weft_timer_wait_until(w->common, NULL, far_off(seed));
}

static int fires_far_off(void *arg) {
    struct world *w = arg;
    atomic_fetch_add(&w->far_fired, 1);
    return 0;
}

/* Fires, or is overtaken by the stop: then it is never seen. */
static int fires_soon(void *arg) {
    struct world *w = arg;
    atomic_fetch_add(&w->begun, 1);
    weft_yield();
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static int functions(struct world *w, uint64_t *seed) {
    weft_timer *t;
    CHECK_EQ(weft_after_func(&t, WEFT_HOUR, fires_far_off, w, NULL), 0);
    CHECK_EQ(weft_after_func(NULL, WEFT_HOUR, fires_far_off, w, NULL), 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(
            weft_after_func(NULL, (weft_duration)(chance(seed) % 2000000), fires_soon, w, NULL), 0);
    }
    int err = weft_sleep(WEFT_HOUR);
    leave_timer(w, t, seed);
    return err;
}

/* One holds it asleep; the next gets it when that one has been cancelled, and is so too. */
static int locks(struct world *w, uint64_t *seed) {
    if (chance(seed) % 2) {
        weft_mutex_lock(&w->mutex);
    } else {
        int err = weft_mutex_lock_until(&w->mutex, far_off(seed));
        if (err != 0) {
            return err;
        }
    }
    int err = weft_sleep(WEFT_HOUR);
    weft_mutex_unlock(&w->mutex);
    return err;
}

/* Is always busy: what it waits for comes, or its time is up at once. */
static int works(struct world *w, uint64_t *seed) {
    weft_chan *own;
    uint64_t v = 0;
    int err = 0;
    CHECK_EQ(weft_chan_new(&own, 8, 1), 0);
    while (err != -ECANCELED) {
        switch (chance(seed) % 8) {
        case 0:
            err = weft_chan_send_until(own, &v, weft_in(20 * WEFT_MICROSECOND));
            break;
        case 1:
            err = weft_chan_recv_until(own, &v, weft_in(20 * WEFT_MICROSECOND));
            break;
        case 2:
            err = weft_sleep((weft_duration)(chance(seed) % 100) * WEFT_MICROSECOND);
            break;
        case 3:
            weft_mutex_lock(&w->turn); /* cannot be cut off */
            weft_yield();
            weft_mutex_unlock(&w->turn);
            break;
        case 4:
            weft_timer_reset(w->again, (weft_duration)(chance(seed) % 100000));
            break;
        default:
            weft_yield();
        }
        CHECK(err == 0 || err == -ETIMEDOUT || err == -ECANCELED);
    }
    weft_chan_unref(own);
    return err;
}

static int joins(struct world *w, uint64_t *seed) {
    return chance(seed) % 2 ? weft_event_wait_until(&w->never, far_off(seed))
                            : weft_waitgroup_wait_until(&w->never_done, far_off(seed));
}

/* The plain forms are not cancelled: their partner is. */
static int joins_plainly(struct world *w, uint64_t *seed) {
    if (chance(seed) % 2) {
        weft_event_wait(&w->released);
    } else {
        weft_waitgroup_wait(&w->releases);
    }
    return weft_sleep(WEFT_HOUR);
}

static int spawns(struct world *w, uint64_t *seed) {
    for (;;) {
        if (atomic_load(&w->children) > CHILDREN) {
            int err = weft_sleep(1 + (weft_duration)(chance(seed) % 50000));
            if (err != 0) {
                return err;
            }
        } else if (start_child(w, false) != 0) {
            return weft_sleep(WEFT_HOUR);
        }
        weft_yield();
    }
}

/* On what belongs to another runtime, which may end first. */
static int reads_abroad(struct world *w, uint64_t *seed) {
    if (w->other == NULL) {
        return sleeps(w, seed);
    }
    char byte;
    ssize_t n = weft_conn_read(w->other->lent, &byte, 1);
    CHECK(n == -ECANCELED || n == -EBADF || n == -EBUSY);
    return weft_sleep(WEFT_HOUR);
}

typedef int (*wait_fn)(struct world *w, uint64_t *seed);

static const wait_fn kinds[] = {
    sleeps,        sleeps,         naps,        receives,       receives,
    sends,         polls,          traffic_out, traffic_in,     reads,
    reads,         reads_in_turns, writes,      writes_in_line, accepts,
    dials,         timer_waits,    functions,   locks,          joins,
    joins_plainly, reads_abroad,   works,       reads_together, timer_waits_together,
};

struct one {
    struct world *w;
    wait_fn wait;
    uint64_t seed;
};

static int pending(void *arg) {
    struct one *o = arg;
    struct world *w = o->w;
    CHECK_EQ(o->wait(w, &o->seed), -ECANCELED);
    /* and so does every wait from here on */
    uint64_t v;
    weft_conn c;
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    CHECK_EQ(weft_chan_recv(w->empty, &v), -ECANCELED);
    CHECK_EQ(weft_accept(&c, w->quiet), -ECANCELED);
    CHECK_EQ(weft_go(child, w), WEFT_ESTOPPING);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

/* False: the runtime is being stopped. */
static bool start_pending(struct world *w, wait_fn wait, uint64_t *seed) {
    struct one o = {w, wait, chance_seed(chance(seed))};
    atomic_fetch_add(&w->begun, 1);
    int err = weft_go_copy(pending, &o, sizeof o);
    if (err != 0) {
        CHECK_EQ(err, WEFT_ESTOPPING);
        atomic_fetch_sub(&w->begun, 1);
    }
    return err == 0;
}

/* ---- those that a world begins with ---- */

/* Those in plain waits go on when this one has been cancelled. */
static int releaser(void *arg) {
    struct world *w = arg;
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    weft_event_set(&w->released);
    weft_waitgroup_done(&w->releases);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

/* A writer and a reader that never run dry. */
static int bytes_out(void *arg) {
    struct world *w = arg;
    ssize_t n;
    while ((n = weft_conn_write(w->stream_peer, zeros, 100)) > 0) {
        weft_yield();
    }
    CHECK_EQ(n, -ECANCELED);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static int bytes_in(void *arg) {
    struct world *w = arg;
    char buf[70];
    ssize_t n;
    while ((n = weft_conn_read(w->stream, buf, sizeof buf)) > 0) {
    }
    CHECK_EQ(n, -ECANCELED);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

/* While threads may submit, the runtime must not be freed: it cannot end before this one has. */
static int keeper(void *arg) {
    struct world *w = arg;
    weft_event_wait(&w->refused);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static void start_first(struct world *w, weft_fn fn) {
    atomic_fetch_add(&w->begun, 1);
    CHECK_EQ(weft_go(fn, w), 0);
}

static void listen_on(weft_listener *l, int backlog, char at[64]) {
    weft_listen_options o = weft_listen_options_default();
    weft_addr addr;
    o.backlog = backlog;
    CHECK_EQ(weft_listen(l, "tcp", "127.0.0.1:0", &o), 0);
    CHECK_EQ(weft_listener_addr(*l, &addr), 0);
    CHECK_LT(weft_addr_text(&addr, at, 64), 64);
}

static void world_new(struct world *w) {
    uint64_t v = 5;
    memset(w, 0, sizeof *w);
    CHECK_EQ(weft_chan_new(&w->empty, 8, 0), 0);
    CHECK_EQ(weft_chan_new(&w->full, 8, 1), 0);
    CHECK_EQ(weft_chan_send(w->full, &v), 0);
    CHECK_EQ(weft_chan_new(&w->busy, 8, (size_t)clock_ns() % 3), 0);
    weft_waitgroup_add(&w->never_done, 1);
    weft_waitgroup_add(&w->releases, 1);
    atomic_store(&w->submitting, SUBMITTERS);
}

/* Nothing of it has been refused: the stop comes later. The caller, a G, is in the books. */
static void furnish(struct world *w) {
    char unused[64];
    listen_on(&w->quiet, 0, unused);
    listen_on(&w->crowded, 1, w->crowded_at);
    pair_of(&w->turns, &w->turns_peer);
    pair_of(&w->silent, &w->silent_peer);
    pair_of(&w->lent, &w->lent_peer);
    pair_of(&w->shared, &w->shared_peer);
    pair_of(&w->stream, &w->stream_peer);
    CHECK_EQ(weft_timer_new(&w->common, WEFT_HOUR, NULL), 0);
    CHECK_EQ(weft_after_func(&w->again, WEFT_HOUR, fires_soon, w, NULL), 0);
    start_first(w, keeper);
    start_first(w, releaser);
    start_first(w, bytes_out);
    start_first(w, bytes_in);
    weft_event_set(&w->set_up);
}

/* The mass. The stop may come in the middle of it. */
static void fill_up(struct world *w, uint64_t *seed) {
    if (!start_pending(w, spawns, seed)) {
        return;
    }
    for (int i = 0; i < MASS; i++) {
        if (!start_pending(w, kinds[chance(seed) % WEFT_COUNT(kinds)], seed)) {
            return;
        }
        if (chance(seed) % 32 == 0) {
            weft_yield();
        }
    }
}

/* All is over: the books agree, and what is left works without its runtime or says that it is gone. */
static void world_end(struct world *w) {
    uint64_t v;
    char byte;
    weft_conn c;
    CHECK_EQ(atomic_load(&w->begun), atomic_load(&w->ended));
    CHECK_EQ(atomic_load(&w->children), 0);
    CHECK_EQ(atomic_load(&w->far_fired), 0);
    while (weft_chan_try_recv(w->busy, &v) == 0) {
        CHECK_EQ(v, 1);
        atomic_fetch_add(&w->received, 1);
    }
    CHECK_EQ(atomic_load(&w->sent), atomic_load(&w->received));
    CHECK_EQ(weft_chan_try_recv(w->full, &v), 0);
    CHECK_EQ(v, 5);
    CHECK_EQ(weft_chan_try_recv(w->full, &v), -EAGAIN);
    CHECK_EQ(weft_chan_try_recv(w->empty, &v), -EAGAIN);
    CHECK(weft_mutex_try_lock(&w->mutex));
    weft_mutex_unlock(&w->mutex);
    CHECK_EQ(weft_conn_read(w->silent, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_write(w->turns, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_set_deadline(w->silent, WEFT_NEVER), -EBADF);
    CHECK_EQ(weft_conn_close(w->silent_peer), -EBADF);
    CHECK_EQ(weft_accept(&c, w->quiet), -EBADF);
    CHECK_EQ(weft_listener_close(w->quiet), -EBADF);
    for (int i = 0; i < LEFT; i++) {
        weft_timer_free(w->left[i]);
    }
    weft_timer_free(w->common);
    weft_timer_free(w->again);
    weft_chan_unref(w->empty);
    weft_chan_unref(w->full);
    weft_chan_unref(w->busy);
    progress();
}

/* ---- plain threads about a world ---- */

struct threads {
    pthread_t submit[SUBMITTERS], read, accept;
};

static void *submit_until_refused(void *arg) {
    struct world *w = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    while (start_child(w, true) == 0) {
        while (atomic_load(&w->children) > CHILDREN) {
            sched_yield();
        }
        if (chance(&seed) % 16 == 0) {
            pause_thread(&seed, 100);
        }
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(start_child(w, true), WEFT_ESTOPPING); /* and stays so */
    }
    if (atomic_fetch_sub(&w->submitting, 1) == 1) {
        weft_event_set(&w->refused); /* the last touch of the runtime is inside */
    }
    return NULL;
}

/* No green thread of the runtime: only the end of the connection ends it. */
static void *read_to_the_end(void *arg) {
    struct world *w = arg;
    char byte;
    CHECK_EQ(weft_conn_read(w->silent, &byte, 1), -EBADF);
    return NULL;
}

static void *accept_to_the_end(void *arg) {
    struct world *w = arg;
    weft_conn c;
    CHECK_EQ(weft_accept(&c, w->quiet), -EBADF);
    return NULL;
}

static void threads_start(struct world *w, struct threads *t) {
    for (int i = 0; i < SUBMITTERS; i++) {
        CHECK_EQ(pthread_create(&t->submit[i], NULL, submit_until_refused, w), 0);
    }
    CHECK_EQ(pthread_create(&t->read, NULL, read_to_the_end, w), 0);
    CHECK_EQ(pthread_create(&t->accept, NULL, accept_to_the_end, w), 0);
}

static void threads_join(struct threads *t) {
    for (int i = 0; i < SUBMITTERS; i++) {
        pthread_join(t->submit[i], NULL);
    }
    pthread_join(t->read, NULL);
    pthread_join(t->accept, NULL);
}

/* Some stop in the middle of the filling, some long after. */
static uint32_t random_moment(uint64_t *seed) { return chance(seed) % 4 == 0 ? 0 : 4000; }

/* ---- main returns ---- */

struct main_arg {
    struct world *w;
    struct threads *t;
    int procs;
};

static int fill_up_g(void *arg) {
    struct world *w = arg;
    uint64_t seed = chance_seed((uintptr_t)arg);
    fill_up(w, &seed);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static int main_returns(void *arg) {
    struct main_arg *a = arg;
    uint64_t seed = chance_seed(1);
    a->w->rt = weft_current();
    CHECK_EQ(weft_procs(NULL), a->procs);
    furnish(a->w);
    threads_start(a->w, a->t);
    if (chance(&seed) % 2) {
        fill_up(a->w, &seed);
    } else {
        start_first(a->w, fill_up_g);
    }
    CHECK_EQ(weft_sleep((weft_duration)(chance(&seed) % (random_moment(&seed) + 1)) * 1000), 0);
    return 7;
}

static weft_config patient_config(int procs) {
    weft_config c = stress_config(procs);
    c.stop_limit = -1; /* the watchdog is the limit */
    return c;
}

static void return_round(int procs) {
    static struct world w;
    struct threads t;
    struct main_arg a = {&w, &t, procs};
    weft_config c = patient_config(procs);
    int status = -1;
    world_new(&w);
    CHECK_EQ(weft_run(main_returns, &a, &c, &status), 0);
    CHECK_EQ(status, 7);
    threads_join(&t);
    world_end(&w);
}

static void repeat(int procs, void (*round)(int procs)) {
    stress_begin(1.5);
    int fds = descriptors(), threads = entries("/proc/self/task");
    while (stress_more()) {
        round(procs);
        CHECK_EQ(descriptors(), fds);
        wait_for_threads(threads);
    }
    stress_over();
}

TEST_IN(stop, main_returns_1, 40) { repeat(1, return_round); }
TEST_IN(stop, main_returns_2, 40) { repeat(2, return_round); }
TEST_IN(stop, main_returns_4, 40) { repeat(4, return_round); }

/* ---- weft_stop ---- */

static int first(void *arg) {
    struct world *w = arg;
    furnish(w);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static void begin_started(struct world *w, int procs) {
    weft_config c = stress_config(procs);
    CHECK_EQ(weft_start(&w->rt, &c), 0);
    atomic_fetch_add(&w->begun, 1);
    CHECK_EQ(weft_submit(w->rt, first, w), 0);
    weft_event_wait(&w->set_up);
}

static void stop_round(int procs) {
    static struct world w;
    struct threads t;
    uint64_t seed = chance_seed(2);
    world_new(&w);
    begin_started(&w, procs);
    threads_start(&w, &t);
    atomic_fetch_add(&w.begun, 1);
    CHECK_EQ(weft_submit(w.rt, fill_up_g, &w), 0);
    pause_thread(&seed, random_moment(&seed));
    atomic_store(&watchdog.rt[0], w.rt);
    CHECK_EQ(weft_stop(w.rt, chance(&seed) % 2 ? -1 : WEFT_MINUTE), 0);
    atomic_store(&watchdog.rt[0], NULL);
    threads_join(&t);
    world_end(&w);
}

TEST_IN(stop, started_1, 40) { repeat(1, stop_round); }
TEST_IN(stop, started_2, 40) { repeat(2, stop_round); }
TEST_IN(stop, started_4, 40) { repeat(4, stop_round); }

/* ---- two at once ---- */

static int stop_other(void *arg) {
    struct world *w = arg;
    CHECK_EQ(weft_stop(w->rt, -1), -EDEADLK); /* not from inside */
    CHECK_EQ(weft_stop(w->other->rt, -1), 0);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static void *stop_thread(void *arg) {
    struct world *w = arg;
    CHECK_EQ(weft_stop(w->rt, -1), 0);
    return NULL;
}

static void two_round(int procs) {
    static struct world w[2];
    struct threads t[2];
    pthread_t stopper;
    uint64_t seed = chance_seed(3);
    for (int i = 0; i < 2; i++) {
        world_new(&w[i]);
        begin_started(&w[i], i == 0 ? procs : 1 + (int)(chance(&seed) % 3));
    }
    w[0].other = &w[1];
    w[1].other = &w[0];
    for (int i = 0; i < 2; i++) {
        threads_start(&w[i], &t[i]);
        atomic_fetch_add(&w[i].begun, 1);
        CHECK_EQ(weft_submit(w[i].rt, fill_up_g, &w[i]), 0);
    }
    pause_thread(&seed, random_moment(&seed));
    int a = (int)(chance(&seed) % 2);
    atomic_store(&watchdog.rt[0], w[a].rt);
    if (chance(&seed) % 2) { /* a green thread of the one ends the other, then is waited for */
        atomic_fetch_add(&w[a].begun, 1);
        CHECK_EQ(weft_submit(w[a].rt, stop_other, &w[a]), 0);
        pause_thread(&seed, random_moment(&seed));
        CHECK_EQ(weft_stop(w[a].rt, -1), 0);
    } else { /* both at the same time */
        CHECK_EQ(pthread_create(&stopper, NULL, stop_thread, &w[!a]), 0);
        CHECK_EQ(weft_stop(w[a].rt, -1), 0);
        pthread_join(stopper, NULL);
    }
    atomic_store(&watchdog.rt[0], NULL);
    for (int i = 0; i < 2; i++) {
        threads_join(&t[i]);
        world_end(&w[i]);
    }
}

TEST_IN(stop, two_1, 40) { repeat(1, two_round); }
TEST_IN(stop, two_2, 40) { repeat(2, two_round); }
TEST_IN(stop, two_4, 40) { repeat(4, two_round); }

/* ---- weft_exit in main: nobody is cancelled, the rest runs to its end ---- */

static int passes_on(void *arg) {
    struct world *w = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed), v = 1;
    weft_conn a, b;
    weft_timer *t;
    char byte = 0;
    CHECK_EQ(weft_sleep((weft_duration)(chance(&seed) % 2000000)), 0);
    CHECK_EQ(weft_chan_send(w->busy, &v), 0); /* each sends one and receives one */
    CHECK_EQ(weft_timer_new(&t, (weft_duration)(chance(&seed) % 500000), NULL), 0);
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    weft_timer_free(t);
    weft_mutex_lock(&w->mutex);
    CHECK_EQ(weft_sleep((weft_duration)(chance(&seed) % 2000)), 0);
    weft_mutex_unlock(&w->mutex);
    CHECK_EQ(start_child(w, false), 0);
    pair_of(&a, &b);
    CHECK_EQ(weft_conn_read_until(a, &byte, 1, soon(&seed)), -ETIMEDOUT);
    CHECK_EQ(weft_conn_write_all(b, "z", 1, NULL), 0);
    CHECK_EQ(weft_conn_read(a, &byte, 1), 1);
    CHECK_EQ(byte, 'z');
    let_go(a, &seed);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

static int takes_in(void *arg) {
    struct world *w = arg;
    uint64_t v;
    CHECK_EQ(weft_chan_recv(w->busy, &v), 0);
    CHECK_EQ(weft_waitgroup_wait_until(&w->never_done, weft_in(WEFT_MICROSECOND)), -ETIMEDOUT);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

/* None is refused while the keeper waits for us. */
static void *submit_some(void *arg) {
    struct world *w = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(start_child(w, true), 0);
        if (chance(&seed) % 8 == 0) {
            pause_thread(&seed, 100);
        }
    }
    if (atomic_fetch_sub(&w->submitting, 1) == 1) {
        weft_event_set(&w->refused);
    }
    return NULL;
}

static int main_exits(void *arg) {
    struct main_arg *a = arg;
    uint64_t seed = chance_seed(4);
    a->w->rt = weft_current();
    start_first(a->w, keeper);
    for (int i = 0; i < SUBMITTERS; i++) {
        CHECK_EQ(pthread_create(&a->t->submit[i], NULL, submit_some, a->w), 0);
    }
    for (int i = 0; i < MASS / 2; i++) {
        start_first(a->w, passes_on);
        start_first(a->w, takes_in);
    }
    CHECK_EQ(weft_sleep((weft_duration)(chance(&seed) % 2000000)), 0);
    weft_exit(9);
}

static void exit_round(int procs) {
    static struct world w;
    struct threads t;
    struct main_arg a = {&w, &t, procs};
    weft_config c = patient_config(procs);
    int status = -1;
    world_new(&w);
    CHECK_EQ(weft_run(main_exits, &a, &c, &status), 0);
    CHECK_EQ(status, 9);
    for (int i = 0; i < SUBMITTERS; i++) {
        pthread_join(t.submit[i], NULL);
    }
    CHECK_EQ(weft_chan_len(w.busy), 0);
    world_end(&w);
}

TEST_IN(stop, main_exits_1, 40) { repeat(1, exit_round); }
TEST_IN(stop, main_exits_2, 40) { repeat(2, exit_round); }
TEST_IN(stop, main_exits_4, 40) { repeat(4, exit_round); }

/* ---- a bare runtime: all that happens are submits and the stop ---- */

static int keep_alone(void *arg) {
    struct world *w = arg;
    weft_event_set(&w->set_up);
    return keeper(w);
}

static void race_round(int procs) {
    static struct world w;
    pthread_t t[SUBMITTERS];
    uint64_t seed = chance_seed(5);
    weft_config c = stress_config(procs);
    memset(&w, 0, sizeof w);
    atomic_store(&w.submitting, SUBMITTERS);
    CHECK_EQ(weft_start(&w.rt, &c), 0);
    atomic_fetch_add(&w.begun, 1);
    CHECK_EQ(weft_submit(w.rt, keep_alone, &w), 0);
    for (int i = 0; i < SUBMITTERS; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, submit_until_refused, &w), 0);
    }
    pause_thread(&seed, chance(&seed) % 200);
    CHECK_EQ(weft_stop(w.rt, -1), 0);
    for (int i = 0; i < SUBMITTERS; i++) {
        pthread_join(t[i], NULL);
    }
    CHECK(weft_event_is_set(&w.set_up));
    CHECK_EQ(atomic_load(&w.begun), atomic_load(&w.ended));
    CHECK_EQ(atomic_load(&w.children), 0);
    progress();
}

TEST_IN(stop, submits_1, 40) { repeat(1, race_round); }
TEST_IN(stop, submits_2, 40) { repeat(2, race_round); }
TEST_IN(stop, submits_4, 40) { repeat(4, race_round); }

/* ---- begun and ended over and over ---- */

static int one_submitted(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

/* What was accepted is run, however close the stop is behind it. */
static void short_round(int procs) {
    weft_runtime *rt;
    weft_config c = stress_config(procs);
    uint64_t seed = chance_seed(8);
    atomic_int count = 0;
    int n = (int)(chance(&seed) % 4);
    CHECK_EQ(weft_start(&rt, &c), 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_submit(rt, one_submitted, &count), 0);
    }
    if (chance(&seed) % 2 == 0) {
        pause_thread(&seed, 200);
    }
    CHECK_EQ(weft_stop(rt, -1), 0);
    CHECK_EQ(atomic_load(&count), n);
    progress();
}

TEST_IN(stop, short_lives_1, 30) { repeat(1, short_round); }
TEST_IN(stop, short_lives_3, 30) { repeat(3, short_round); }

/* Several threads, each with runtimes of its own. */
static void *live_on(void *arg) {
    int procs = (int)(intptr_t)arg;
    while (stress_more()) {
        atomic_int count = 0;
        weft_config c = stress_config(procs);
        CHECK_EQ(weft_run(one_submitted, &count, &c, NULL), 0);
        CHECK_EQ(atomic_load(&count), 1);
        progress();
    }
    return NULL;
}

TEST_IN(stop, side_by_side, 30) {
    pthread_t t[3];
    stress_begin(1.5);
    for (intptr_t i = 0; i < 3; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, live_on, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
    }
    stress_over();
}

/* ---- whoever wakes the last green thread is still inside when the runtime goes ---- */

enum touch {
    BY_SUBMIT,
    BY_EVENT,
    BY_CHANNEL,
    BY_MUTEX,
    BY_WAITGROUP,
    BY_TIMER,
    BY_WRITE,
    BY_CLOSE,
    TOUCHES
};

struct last {
    weft_runtime *rt;
    enum touch how;
    weft_event ready, go, done;
    weft_chan *chan;
    weft_mutex mutex;
    weft_waitgroup group;
    weft_timer *timer;
    weft_conn here, there;
};

static int says_done(void *arg) {
    struct last *l = arg;
    weft_event_set(&l->done);
    return 0;
}

static int waits_for_touch(void *arg) {
    struct last *l = arg;
    uint64_t v;
    char byte;
    if (l->how == BY_TIMER) {
        CHECK_EQ(weft_timer_new(&l->timer, WEFT_FOREVER, NULL), 0);
    }
    pair_of(&l->here, &l->there);
    weft_event_set(&l->ready);
    switch (l->how) {
    case BY_EVENT:
        weft_event_wait(&l->go);
        break;
    case BY_CHANNEL:
        CHECK_EQ(weft_chan_recv(l->chan, &v), 0);
        break;
    case BY_MUTEX:
        weft_mutex_lock(&l->mutex);
        break;
    case BY_WAITGROUP:
        weft_waitgroup_wait(&l->group);
        break;
    case BY_TIMER:
        CHECK_EQ(weft_timer_wait(l->timer, NULL), 0);
        break;
    case BY_WRITE:
        CHECK_EQ(weft_conn_read(l->here, &byte, 1), 1);
        break;
    case BY_CLOSE:
        CHECK_EQ(weft_conn_read(l->here, &byte, 1), -EBADF);
        break;
    default:
        return 0; /* another one will be submitted */
    }
    return says_done(l);
}

/* After the call that wakes it, neither the thread nor anybody for it may touch the runtime, unless
   the runtime waits for that. */
static void *touch_thread(void *arg) {
    struct last *l = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed), v = 1;
    weft_event_wait(&l->ready);
    if (chance(&seed) % 2) {
        pause_thread(&seed, 50);
    }
    switch (l->how) {
    case BY_SUBMIT:
        CHECK_EQ(weft_submit(l->rt, says_done, l), 0);
        break;
    case BY_EVENT:
        weft_event_set(&l->go);
        break;
    case BY_CHANNEL:
        CHECK_EQ(weft_chan_send(l->chan, &v), 0);
        break;
    case BY_MUTEX:
        weft_mutex_unlock(&l->mutex);
        break;
    case BY_WAITGROUP:
        weft_waitgroup_done(&l->group);
        break;
    case BY_TIMER:
        CHECK(!weft_timer_reset(l->timer, 0));
        break;
    case BY_WRITE:
        CHECK_EQ(weft_conn_write(l->there, "x", 1), 1);
        break;
    default:
        CHECK_EQ(weft_conn_close(l->here), 0);
    }
    return NULL;
}

static void touch_round(int procs) {
    static struct last l;
    pthread_t t;
    uint64_t seed = chance_seed(7);
    weft_config c = stress_config(procs);
    memset(&l, 0, sizeof l);
    l.how = (enum touch)(chance(&seed) % TOUCHES);
    CHECK_EQ(weft_chan_new(&l.chan, 8, 0), 0);
    CHECK(weft_mutex_try_lock(&l.mutex)); /* the thread unlocks it */
    weft_waitgroup_add(&l.group, 1);
    CHECK_EQ(weft_start(&l.rt, &c), 0);
    CHECK_EQ(weft_submit(l.rt, waits_for_touch, &l), 0);
    CHECK_EQ(pthread_create(&t, NULL, touch_thread, &l), 0);
    weft_event_wait(&l.done);
    CHECK_EQ(weft_stop(l.rt, -1), 0);
    pthread_join(t, NULL);
    weft_timer_free(l.timer);
    weft_chan_unref(l.chan);
    progress();
}

TEST_IN(stop, last_touch_1, 40) { repeat(1, touch_round); }
TEST_IN(stop, last_touch_2, 40) { repeat(2, touch_round); }
TEST_IN(stop, last_touch_4, 40) { repeat(4, touch_round); }

/* ---- past the limit: nothing is freed, and another stop finishes ---- */

static atomic_int complaints;

static void count_log(void *hook_arg, int level, const char *line) {
    (void)hook_arg, (void)line;
    CHECK_EQ(level, WEFT_LOG_ERROR);
    atomic_fetch_add(&complaints, 1);
}

static int stubborn(void *arg) {
    struct world *w = arg;
    weft_event_set(&w->set_up);
    weft_event_wait(&w->refused);
    atomic_fetch_add(&w->ended, 1);
    return 0;
}

/* The list of those left goes to the standard error: not in a test that is all right. */
static int stop_quietly(weft_runtime *rt, weft_duration limit) {
    int keep = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    CHECK(keep >= 0 && null >= 0);
    CHECK_EQ(dup2(null, STDERR_FILENO), STDERR_FILENO);
    int err = weft_stop(rt, limit);
    CHECK_EQ(dup2(keep, STDERR_FILENO), STDERR_FILENO);
    close(keep);
    close(null);
    return err;
}

static void limit_round(int procs) {
    static struct world w;
    uint64_t seed = chance_seed(6);
    weft_config c = stress_config(procs);
    c.log = count_log;
    memset(&w, 0, sizeof w);
    atomic_store(&complaints, 0);
    CHECK_EQ(weft_start(&w.rt, &c), 0);
    atomic_store(&w.begun, 20);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_submit(w.rt, stubborn, &w), 0);
    }
    weft_event_wait(&w.set_up);
    int tries = 1 + (int)(chance(&seed) % 3);
    for (int i = 0; i < tries; i++) {
        CHECK_EQ(stop_quietly(w.rt, (weft_duration)(chance(&seed) % 3000000)), -ETIMEDOUT);
        CHECK_EQ(atomic_load(&complaints), i + 1);
        CHECK_EQ(weft_submit(w.rt, child, &w), WEFT_ESTOPPING);
        CHECK_EQ(weft_procs(w.rt), procs);
        CHECK_EQ(atomic_load(&w.ended), 0);
    }
    weft_event_set(&w.refused);
    CHECK_EQ(weft_stop(w.rt, -1), 0);
    CHECK_EQ(atomic_load(&w.ended), 20);
    CHECK_EQ(atomic_load(&complaints), tries);
    progress();
}

TEST_IN(stop, limit_1, 40) { repeat(1, limit_round); }
TEST_IN(stop, limit_3, 40) { repeat(3, limit_round); }
