/* Records: made, found, waited on, ended. The head of net.h has the invariants. */
#include "net/net.h"

#include <string.h>

/* ---- the table --------------------------------------------------------------------------------- */
/* Chunks that never move; an index is looked up without a lock. */
enum { CHUNK = 256, CHUNKS = 65536 };
static weft__rec *_Atomic chunks[CHUNKS];
static weft__lock table_lock;
static weft__rec *free_recs;
static uint32_t rec_count;

static weft__rec *rec_at(uint32_t index) {
    if (index / CHUNK >= CHUNKS) {
        return NULL;
    }
    weft__rec *chunk = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
    return chunk != NULL ? &chunk[index % CHUNK] : NULL;
}

static uint64_t id_of(const weft__rec *rec) { return (uint64_t)rec->gen << 32 | rec->index; }

static void deadline_fires(weft__ktimer *k, weft__m *m, weft__tset *ts, int64_t now,
                           weft__fired *out);

static weft__rec *rec_from_table(void) {
    weft__lock_take(&table_lock);
    weft__rec *rec = free_recs;
    if (rec != NULL) {
        free_recs = rec->next_free;
    } else if (rec_count < (uint32_t)CHUNK * CHUNKS) {
        weft__rec *chunk = atomic_load(&chunks[rec_count / CHUNK]);
        if (chunk == NULL) {
            chunk = weft__mem_zalloc(CHUNK * sizeof *chunk);
            atomic_store_explicit(&chunks[rec_count / CHUNK], chunk, memory_order_release);
        }
        if (chunk != NULL) {
            rec = &chunk[rec_count % CHUNK];
            rec->index = rec_count++;
            rec->gen = 1; /* {0} is nobody's handle */
        }
    }
    weft__lock_drop(&table_lock);
    return rec;
}

static void rec_to_table(weft__rec *rec) {
    weft__lock_take(&table_lock);
    rec->next_free = free_recs;
    free_recs = rec;
    weft__lock_drop(&table_lock);
}

/* ---- events ------------------------------------------------------------------------------------ */

/* A G that was claimed and must now run: with the batch if it is of this runtime. */
static void wake_into(weft__r *r, weft__waiter *w, weft__won won, int result, weft__glist *ready) {
    weft__g *g = w->g;
    w->result = result;
    atomic_store_explicit(&w->done, 1, memory_order_release);
    if (won != WEFT__WON_READY) {
        return;
    }
    if (g->r == r) {
        weft__glist_push(ready, g);
    } else {
        weft__ready_far(NULL, g);
    }
}

/* Under the lock: READY comes to a side; who waited, if anybody can be claimed. */
static weft__waiter *make_ready(weft__side *s, weft__won *won) {
    if (atomic_exchange_explicit(&s->word, WEFT__READY, memory_order_acq_rel) != WEFT__WAITED &&
        s->q.head == NULL) {
        return NULL;
    }
    return weft__waitq_claim(&s->q, won);
}

/* The poller's sink: an edge for a tag. */
static void net_event(weft__r *r, uint64_t tag, unsigned events, weft__glist *ready) {
    weft__rec *rec = rec_at((uint32_t)tag);
    if (rec == NULL) {
        return;
    }
    weft__waiter *w[2] = {NULL, NULL};
    weft__won won[2];
    weft__lock_take(&rec->lock);
    if (rec->gen == tag >> 32 && rec->kind != WEFT__FREE) {
        if ((events & WEFT__POLL_STICKY) != 0) {
            atomic_store_explicit(&rec->sticky, true, memory_order_relaxed);
        }
        if ((events & WEFT__POLL_IN) != 0) {
            w[0] = make_ready(&rec->side[WEFT__READ], &won[0]);
        }
        if ((events & WEFT__POLL_OUT) != 0) {
            w[1] = make_ready(&rec->side[WEFT__WRITE], &won[1]);
        }
    }
    weft__lock_drop(&rec->lock);
    for (int i = 0; i < 2; i++) {
        if (w[i] != NULL) {
            wake_into(r, w[i], won[i], 0, ready);
        }
    }
}

/* ---- making and ending ------------------------------------------------------------------------- */

static void side_open(weft__side *s, uint8_t index) {
    s->index = index;
    atomic_store_explicit(&s->word, WEFT__READY, memory_order_relaxed);
    s->busy = false;
    s->q = s->turns = (weft__waitq){NULL, NULL};
    s->deadline = INT64_MAX;
    s->timer.fire = deadline_fires;
    s->timer.t.kind = WEFT__TIMER_K;
}

static void net_stop(weft__r *r);

/* The open record of a descriptor, under the lock. Two references: the open one, the opener's. */
static void rec_begin(weft__rec *rec, weft__r *r, int fd, enum weft__rec_kind kind,
                      unsigned traits) {
    rec->kind = kind;
    rec->closing = false;
    rec->tcp = (traits & WEFT__REC_TCP) != 0;
    rec->socket = (traits & WEFT__REC_SOCKET) != 0;
    rec->was_blocking = (traits & WEFT__REC_WAS_BLOCKING) != 0;
    atomic_store_explicit(&rec->sticky, false, memory_order_relaxed);
    atomic_store_explicit(&rec->starved, false, memory_order_relaxed);
    rec->refs = 2;
    rec->fd = fd;
    rec->r = r;
    side_open(&rec->side[WEFT__READ], WEFT__READ);
    side_open(&rec->side[WEFT__WRITE], WEFT__WRITE);
}

static void next_gen(weft__rec *rec) { rec->gen = rec->gen + 1 != 0 ? rec->gen + 1 : 1; }

/* It could not be registered: ends the record, which keeps its hands off the descriptor. */
static void rec_abort(weft__rec *rec) {
    weft__lock_take(&rec->lock);
    rec->fd = -1;
    rec->was_blocking = false;
    if (!rec->closing) { /* else a stop has been here */
        rec->closing = true;
        next_gen(rec);
        rec->refs--;
    }
    weft__lock_drop(&rec->lock);
}

int weft__rec_open(weft__rec **out, uint64_t *id, weft__r *r, int fd, enum weft__rec_kind kind,
                   unsigned traits) {
    if (!weft__poller_takes_fds()) {
        return -ENOTSUP;
    }
    weft__rec *rec = rec_from_table();
    if (rec == NULL) {
        return -ENOMEM;
    }
    weft__fork_holds(&table_lock);
    atomic_store_explicit(&r->net_event, net_event, memory_order_release);
    atomic_store(&r->net_stop, net_stop);
    atomic_fetch_add(&r->conns_open, 1);
    weft__lock_take(&rec->lock);
    bool open = !atomic_load(&r->net_closed);
    if (open) {
        rec_begin(rec, r, fd, kind, traits);
        *id = id_of(rec);
    }
    weft__lock_drop(&rec->lock);
    if (!open) {
        rec_to_table(rec);
        atomic_fetch_sub(&r->conns_open, 1);
        return -EBADF;
    }
    int err = weft__poller_add(r->poller, fd, *id);
    if (err != 0) {
        rec_abort(rec);
    }
    weft__rec_put(rec);
    *out = err == 0 ? rec : *out;
    return err;
}

weft__rec *weft__rec_get(uint64_t id, enum weft__rec_kind kind) {
    weft__rec *rec = rec_at((uint32_t)id);
    if (rec == NULL) {
        return NULL;
    }
    weft__lock_take(&rec->lock);
    bool ok = rec->gen == id >> 32 && rec->kind == kind;
    rec->refs += ok;
    weft__lock_drop(&rec->lock);
    return ok ? rec : NULL;
}

void weft__rec_put(weft__rec *rec) {
    weft__lock_take(&rec->lock);
    bool last = --rec->refs == 0;
    weft__lock_drop(&rec->lock);
    if (!last) {
        return;
    }
    int fd = rec->fd; /* closing and without references: nobody else looks at it */
    weft__r *r = rec->r;
    if (rec->was_blocking) {
        bool unused;
        weft__sys_set_nonblock(fd, false, &unused);
    }
    weft__lock_take(&rec->lock);
    rec->kind = WEFT__FREE;
    rec->closing = false;
    rec->fd = -1;
    rec->r = NULL;
    weft__lock_drop(&rec->lock);
    if (fd >= 0) {
        weft__sys_close(fd);
    }
    rec_to_table(rec);
    atomic_fetch_sub(&r->conns_open, 1); /* from here r may be gone */
}

static weft__waiter *claim_side(weft__side *s, weft__waiter **turns) {
    *turns = weft__waitq_claim_all(&s->turns);
    return weft__waitq_claim_all(&s->q);
}

/* Closes an open record: a new generation from here on; whoever waits gets -EBADF. Lock held, and
   dropped; the open reference is the caller's to put. */
static void close_locked(weft__m *m, weft__rec *rec) {
    weft__waiter *chain[4];
    int fd = rec->fd;
    rec->closing = true;
#ifndef WEFT_CANARY_CLOSE_KEEPS_GENERATION
    next_gen(rec);
#endif
    for (int i = 0; i < 2; i++) {
        chain[2 * i] = claim_side(&rec->side[i], &chain[2 * i + 1]);
    }
    weft__lock_drop(&rec->lock);
    weft__poller_remove(rec->r->poller, fd);
    for (int i = 0; i < 2; i++) {
        if (rec->side[i].timer.t.home != NULL) {
            weft__timer_stop(&rec->side[i].timer.t);
        }
    }
    for (int i = 0; i < 4; i++) {
        weft__wake_chain(m, chain[i], -EBADF);
    }
}

int weft__rec_close(weft__m *m, uint64_t id, enum weft__rec_kind kind, weft__rec **out) {
    weft__rec *rec = rec_at((uint32_t)id);
    if (rec == NULL) {
        return -EBADF;
    }
    weft__lock_take(&rec->lock);
    if (rec->gen != id >> 32 || rec->kind != kind || rec->closing) {
        weft__lock_drop(&rec->lock);
        return -EBADF;
    }
    close_locked(m, rec);
    *out = rec;
    return 0;
}

/* The runtime ends, and with it all its descriptors. No G of it is left. A record that is being opened
   from outside either sees net_closed or is seen here. */
static void net_stop(weft__r *r) {
    weft__m *m = weft__enter_nopark();
    atomic_store(&r->net_closed, true);
    weft__lock_take(&table_lock);
    uint32_t n = rec_count;
    weft__lock_drop(&table_lock);
    for (uint32_t i = 0; i < n; i++) {
        weft__rec *rec = rec_at(i);
        weft__lock_take(&rec->lock);
        if (rec->r != r || rec->kind == WEFT__FREE || rec->closing) {
            weft__lock_drop(&rec->lock);
            continue;
        }
        close_locked(m, rec);
        weft__rec_put(rec);
    }
    weft__leave(m);
}

/* ---- deadlines --------------------------------------------------------------------------------- */

/* In no heap any more; what follows needs the record's lock, which ranks above the heap's. */
static void deadline_run(weft__m *m, void *arg, uint64_t side) {
    weft__rec *rec = arg;
    weft__waiter *chain = NULL, *turns = NULL;
    weft__lock_take(&rec->lock);
    weft__side *s = &rec->side[side];
    if (rec->kind == WEFT__FREE || rec->closing) {
        /* nobody waits, and it is armed no more */
    } else if (s->deadline <= weft__clock_now()) { /* else moved, or another's by now */
        chain = claim_side(s, &turns);
    } else if (s->deadline != INT64_MAX) { /* moved while this one was on its way */
        weft__timer_arm(m, rec->r, &s->timer.t, s->deadline);
    }
    weft__lock_drop(&rec->lock);
    weft__wake_chain(m, chain, -ETIMEDOUT);
    weft__wake_chain(m, turns, -ETIMEDOUT);
}

static void deadline_fires(weft__ktimer *k, weft__m *m, weft__tset *ts, int64_t now,
                           weft__fired *out) {
    (void)m, (void)ts, (void)now;
    weft__side *s = weft__container(k, weft__side, timer);
    out->run = deadline_run;
    out->arg = weft__container(s - s->index, weft__rec, side);
    out->num = s->index;
}

/* Under the lock. Later: one store in the heap; past: who waits is claimed. */
static int move_deadline(weft__m *m, weft__rec *rec, weft__side *s, int64_t when, int64_t now,
                         weft__waiter **chain, weft__waiter **turns) {
    s->deadline = when;
    *chain = *turns = NULL;
    if (when == INT64_MAX) {
        if (s->timer.t.home != NULL) {
            weft__timer_stop(&s->timer.t);
        }
        return 0;
    }
    if (when <= now) {
        *chain = claim_side(s, turns);
        return 0;
    }
#ifdef WEFT_CANARY_DEADLINE_NOT_MOVED
    if (s->timer.t.pos != 0) {
        return 0;
    }
#endif
    return weft__timer_arm(m, rec->r, &s->timer.t, weft__round_time(when, now));
}

int weft__rec_set_deadline(weft__m *m, uint64_t id, unsigned sides, int64_t when) {
    int64_t now = weft__clock_now();
    weft__rec *rec = rec_at((uint32_t)id);
    if (rec == NULL) {
        return -EBADF;
    }
    int err = 0;
    weft__waiter *chain[4] = {NULL, NULL, NULL, NULL};
    weft__lock_take(&rec->lock);
    if (rec->gen != id >> 32 || rec->kind != WEFT__CONN || rec->closing) {
        weft__lock_drop(&rec->lock);
        return -EBADF;
    }
    for (int i = 0; i < 2 && err == 0; i++) {
        if ((sides >> i & 1) != 0) {
            err = move_deadline(m, rec, &rec->side[i], when, now, &chain[2 * i], &chain[2 * i + 1]);
        }
    }
    weft__lock_drop(&rec->lock);
    for (int i = 0; i < 4; i++) {
        weft__wake_chain(m, chain[i], -ETIMEDOUT);
    }
    return err;
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Under the lock: 0, or what ends a wait on this side now. */
static int ended(weft__io *io, int64_t now) {
    weft__side *s = &io->rec->side[io->side];
    if (io->rec->closing) {
        return -EBADF;
    }
    return s->deadline <= now || io->until.ns <= now ? -ETIMEDOUT : 0;
}

static int64_t clock_if_timed(weft__io *io) {
    bool timed = io->until.ns != INT64_MAX || io->rec->side[io->side].deadline != INT64_MAX;
    return timed ? weft__clock_now() : INT64_MIN;
}

int weft__io_check(weft__io *io) {
    if (weft__cancelled(io->m->g)) {
        return weft__cancel_error(io->m->g);
    }
    weft__lock_take(&io->rec->lock);
    int64_t now = clock_if_timed(io);
    int err = io->rec->closing ? -EBADF : io->rec->side[io->side].deadline <= now ? -ETIMEDOUT : 0;
    weft__lock_drop(&io->rec->lock);
    return err;
}

/* Parks in q, lock held and dropped. 0: woken by the record. */
static int park_in(weft__io *io, weft__waitq *q, int64_t deadline, int64_t now) {
    weft__rec *rec = io->rec;
    weft__r *r = rec->r;
    weft__waiter w;
    weft__cause cause;
    weft__waiter_init(&w, io->m->g, weft__park_begin(io->m->g, true), NULL);
    weft__waitq_push(q, &w);
    weft__lock_drop(&rec->lock);
    weft__abroad_begin(io->m, r);
    weft__poll_wait_begin(io->m, r);
    io->m =
        weft__park_free(io->m, deadline == INT64_MAX ? deadline : weft__round_time(deadline, now),
                        io->why, rec, io->site, &cause);
    weft__poll_wait_end(r);
    weft__abroad_end(io->m, r);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&w);
        return w.result;
    }
    weft__lock_take(&rec->lock);
    weft__waitq_unlink(q, &w);
    weft__lock_drop(&rec->lock);
    return weft__error_of(cause);
}

int weft__io_wait(weft__io *io) {
    weft__side *s = &io->rec->side[io->side];
    weft__lock_take(&io->rec->lock);
    int64_t now = clock_if_timed(io);
    int err = ended(io, now);
    uint32_t nothing = WEFT__NOTHING;
    bool ready = atomic_load_explicit(&s->word, memory_order_acquire) == WEFT__READY;
    if (err == 0 && !ready) {
        ready = !atomic_compare_exchange_strong(&s->word, &nothing, WEFT__WAITED) &&
                nothing == WEFT__READY;
    }
    if (err != 0 || ready) {
        weft__lock_drop(&io->rec->lock);
        return err;
    }
    return park_in(io, &s->q, io->until.ns, now);
}

bool weft__io_is_try(const weft__io *io, bool asked) {
    return !asked && io->until.ns != INT64_MAX && io->until.ns <= weft__clock_now();
}

int weft__io_pause(weft__io *io, int64_t ns) {
    weft__side *s = &io->rec->side[io->side];
    int64_t now = weft__clock_now(), end = now + ns;
    weft__lock_take(&io->rec->lock);
    int err = ended(io, now);
    if (err != 0) {
        weft__lock_drop(&io->rec->lock);
        return err;
    }
    err = park_in(io, &s->turns, end < io->until.ns ? end : io->until.ns, now);
    return err == -ETIMEDOUT && weft__clock_now() < io->until.ns ? 0 : err;
}

int weft__io_take_turn(weft__io *io) {
    weft__side *s = &io->rec->side[io->side];
    weft__lock_take(&io->rec->lock);
    if (!s->busy) {
        s->busy = true;
        weft__lock_drop(&io->rec->lock);
        return 0;
    }
    int64_t now = clock_if_timed(io);
    int err = io->side == WEFT__READ ? -EBUSY : ended(io, now);
    if (err != 0) {
        weft__lock_drop(&io->rec->lock);
        return err;
    }
    weft__reason why = io->why;
    io->why = WEFT__WAIT_WRITE_TURN;
    err = park_in(io, &s->turns, io->until.ns, now); /* 0: handed over, still busy */
    io->why = why;
    return err;
}

void weft__io_pass_turn(weft__io *io) {
    weft__side *s = &io->rec->side[io->side];
    weft__won won = WEFT__LOST;
    weft__lock_take(&io->rec->lock);
    weft__waiter *w = weft__waitq_claim(&s->turns, &won);
    s->busy = w != NULL;
    weft__lock_drop(&io->rec->lock);
    if (w != NULL) {
        weft__wake(io->m, w, won, 0);
    }
}

void weft__io_pass_ready(weft__io *io) {
    weft__won won = WEFT__LOST;
    weft__lock_take(&io->rec->lock);
    weft__waiter *w = make_ready(&io->rec->side[io->side], &won);
    weft__lock_drop(&io->rec->lock);
    if (w != NULL) {
        weft__wake(io->m, w, won, 0);
    }
}
