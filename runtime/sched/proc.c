/*
 * Finding work, going idle, waking: the scheduler's loop, run on g0.
 *
 * find_runnable looks in this order; the first hit wins:
 *    1. timers of the own P and of the set without a P, if due
 *    2. at latest every 61 picks the global queue; the injection queue; every so often the poller; now
 *       and then what lies in the queue of a P whose thread computes
 *    3. runnext and the ring (after sixteen picks all that lies in the ring comes first)
 *    4. the global queue, in a batch
 *    5. (the poller comes last: waiting in it, step 8, looks as well, and costs no more)
 *    6. other Ps: four passes in an order of their own; the last also runs their due timers and takes
 *       a G that was offered
 *    7. gives the P up, then looks at everything once more (I2, I5)
 *    8. waits in the poller, if nobody else does and something could come of it
 *    9. parks the M
 *
 * Why no wake-up is lost: a submitter publishes, crosses a full fence, and then reads npidle and
 * nmspinning (weft__wakep). Whoever gives up a P raises npidle (and lowers nmspinning), crosses a
 * full fence, and then looks at all queues (go_idle). If the submitter saw no idle P, the giver-up
 * comes later and sees the work; if it saw a spinner, that spinner retires later and sees it.
 *
 * Who watches the poller and the timers: as long as a P is idle and something is to be watched, an M
 * should be in the poller or on its way there. Who takes a P and leaves the watch says so (sysmon.c).
 */
#include "sched/sched.h"

static const int64_t POLL_EVERY =
    50 * WEFT_MICROSECOND; /* a busy P looks at the poller this often */
enum { NAP_MISSES = 4, LOOKS_A_CLOCK = 16 };
static const int64_t LOOK_AGAIN = WEFT_MILLISECOND; /* when it cannot be told whether all is over */
static const int64_t NAP_FIRST = 20 * WEFT_MICROSECOND, NAP_LONGEST = 160 * WEFT_MICROSECOND;

/* Who calls an M out marks it first, then wakes it if it is parked (both under the lock) or else breaks
   the poll. So an M looks again under the lock before it parks, and behind the token before it polls:
   the break may have been taken by whoever held the token before. */
static bool shall_leave(weft__m *m) {
    return atomic_load_explicit(&m->exit, memory_order_acquire) ||
           (m->main && atomic_load_explicit(&m->r->leave_main, memory_order_acquire) != 0);
}

/* ---- idle Ps and Ms ---------------------------------------------------------------------------- */

void weft__pidleput(weft__r *r, weft__p *p) {
    atomic_fetch_or_explicit(&r->idle_mask[p->index / 64], UINT64_C(1) << p->index % 64,
                             memory_order_relaxed);
    if (weft__unlikely(weft__change_of(p) != 0)) {
        weft__p_changes(p);
        if (weft__change_of(p) == WEFT__P_RETIRE) {
            weft__p_retires(r, p);
            return;
        }
    }
    p->link = r->pidle;
    r->pidle = p;
    atomic_fetch_add_explicit(&r->npidle, 1, memory_order_seq_cst);
}

static void pidle_left(weft__r *r, weft__p *p) {
    atomic_fetch_and_explicit(&r->idle_mask[p->index / 64], ~(UINT64_C(1) << p->index % 64),
                              memory_order_relaxed);
    atomic_fetch_sub_explicit(&r->npidle, 1, memory_order_seq_cst);
}

static weft__p *pidleget(weft__r *r) {
    weft__p *p = r->pidle;
    if (p != NULL) {
        r->pidle = p->link;
        pidle_left(r, p);
    }
    return p;
}

static bool is_idle(weft__r *r, uint32_t index) {
    return (atomic_load_explicit(&r->idle_mask[index / 64], memory_order_relaxed) >> index % 64 &
            1) != 0;
}

/* By m's own thread, inside: a retaker looks for what it takes in m->p, and finds m inside. The tick
   moves, or sysmon would add up what this thread did before it lost the same P. */
void weft__acquirep(weft__m *m, weft__p *p) {
    weft__assert(m->p == NULL, "an M takes a second P");
    m->p = p;
    atomic_store_explicit(&p->tick, atomic_load_explicit(&p->tick, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&p->m, m, memory_order_release);
    p->picks = 0;
    p->now = weft__clock_now();
}

/* Gives P to an idle M, if there is one: then the lock, held, is dropped here. */
static bool to_idle_m(weft__r *r, weft__p *p, bool spinning) {
    weft__m *m = r->midle;
    if (m == NULL) {
        return false;
    }
    r->midle = m->idle_link;
    r->nmidle--;
    m->parked = false;
    m->spinning = spinning;
    m->nextp = p;
    atomic_store(&m->asleep, false);
    weft__lock_drop(&r->lock);
    weft__note_wake(&m->note);
    return true;
}

/* No M could be had for p, which goes back. The M to come for it may be on its way to park or to poll,
   past its last look at the queues: `m_wanted` makes it look once more. The lock is held and dropped. */
static void no_m(weft__r *r, weft__p *p, bool spinning) {
    weft__pidleput(r, p);
    if (spinning) {
        atomic_fetch_sub(&r->nmspinning, 1);
    }
    atomic_store(&r->m_wanted, true);
    weft__lock_drop(&r->lock);
    weft__fence_full(); /* pairs with the one behind the token */
    if (atomic_load(&r->polling) != 0) {
        weft__poller_break(r->poller);
    }
}

/* Under the lock: a P that waits for an M, or NULL. */
static weft__p *waiting_p(weft__r *r) {
    weft__p *p = r->make_list;
    if (p != NULL) {
        r->make_list = p->link;
        r->make_len--;
    }
    return p;
}

static bool unlink_p(weft__p **at, weft__p *p) {
    for (; *at != NULL; at = &(*at)->link) {
        if (*at == p) {
            *at = p->link;
            return true;
        }
    }
    return false;
}

/* Under the lock: takes p, if it is idle, or waits for an M, which finds nothing then. */
enum weft__p_was weft__p_fetch(weft__r *r, weft__p *p) {
    if (unlink_p(&r->make_list, p)) {
        r->make_len--;
        return WEFT__P_WAITED;
    }
    if (!unlink_p(&r->pidle, p)) {
        return WEFT__P_ELSEWHERE;
    }
    pidle_left(r, p);
    return WEFT__P_WAS_IDLE;
}

/* There is one M less to come than was ordered: one of the Ps that wait is given back, if all the
   others can still have an M. */
void weft__not_made(weft__r *r) {
    weft__lock_take(&r->lock);
    r->nm--;
    r->ncoming--;
    weft__p *p = r->make_len > r->ncoming ? waiting_p(r) : NULL;
    if (p == NULL || to_idle_m(r, p, p->make_spinning)) {
        if (p == NULL) {
            weft__lock_drop(&r->lock);
        }
        return;
    }
    weft__lock_drop(&r->lock);
    weft__flush_queue(p);
    weft__lock_take(&r->lock);
    no_m(r, p, p->make_spinning);
}

/* Under the lock: P waits for any M. There is one to come for each that waits. */
static void let_wait(weft__r *r, weft__p *p, bool spinning) {
    p->make_spinning = spinning;
    p->link = r->make_list;
    r->make_list = p;
    r->make_len++;
}

void weft__order_m(weft__r *r) {
    r->nm++; /* counted from here, so that nobody takes the program for dead */
    r->ncoming++;
    r->make_count++;
}

/* Gives P to an idle M, or to one that comes. The lock is held and dropped here. */
void weft__startm(weft__r *r, weft__p *p, bool spinning) {
    if (to_idle_m(r, p, spinning)) {
        return;
    }
    if (r->ncoming > r->make_len) { /* a spare, for instance */
        let_wait(r, p, spinning);
        weft__lock_drop(&r->lock);
        return;
    }
    if ((int)(r->nm - atomic_load(&r->nlocked)) >= r->cfg.max_threads) {
        weft__lock_drop(&r->lock);
        weft__flush_queue(p); /* a P that was taken from its thread has one */
        weft__lock_take(&r->lock);
        no_m(r, p, spinning);
        return;
    }
    weft__order_m(r);
    let_wait(r, p, spinning);
    weft__lock_drop(&r->lock);
    weft__note_wake(&r->maker_note);
}

static void wake_napper(weft__r *r) {
    if (atomic_load_explicit(&r->napper, memory_order_relaxed) != NULL) {
        weft__m *m = atomic_exchange(&r->napper, NULL);
        if (m != NULL) {
            weft__note_wake(&m->nap);
        }
    }
}

/* Work has been published and a full fence crossed: makes sure that somebody comes for it. */
void weft__wakep(weft__r *r, _Atomic uint64_t *cause) {
    if (atomic_load_explicit(&r->nmspinning, memory_order_seq_cst) != 0) {
        wake_napper(r);
        return;
    }
    if (atomic_load_explicit(&r->npidle, memory_order_seq_cst) == 0) {
        weft__sysmon_poke(r); /* should one that has a P keep it from this work, sysmon sees it */
        return;
    }
    weft__lock_take(&r->lock);
    weft__p *p = atomic_load(&r->nmspinning) == 0 ? pidleget(r) : NULL;
    if (p == NULL) {
        weft__lock_drop(&r->lock);
        weft__sysmon_poke(r);
        return;
    }
    atomic_fetch_add(&r->nmspinning, 1);
    if (cause != NULL) {
        atomic_fetch_add_explicit(cause, 1, memory_order_relaxed);
    }
    weft__startm(r, p, true);
}

/* ---- what is there to do? ---------------------------------------------------------------------- */

bool weft__work_waits(weft__r *r) {
    if (atomic_load_explicit(&r->inject, memory_order_relaxed) != NULL ||
        atomic_load_explicit(&r->globq_len, memory_order_relaxed) != 0) {
        return true;
    }
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        weft__p *p = r->ps[i];
        if (is_idle(r, (uint32_t)i)) {
            continue;
        }
        if (weft__runq_has_ring(p)) {
            return true;
        }
        if (atomic_load_explicit(&p->offered, memory_order_relaxed) != NULL ||
            (weft__solo(p) && atomic_load_explicit(&p->runnext, memory_order_relaxed) != NULL)) {
            return true;
        }
    }
    return false;
}

/* Is there anything that the poller, or a sleep in it, could bring? */
bool weft__poll_wanted(weft__r *r) {
    if (atomic_load_explicit(&r->poll_waiters, memory_order_relaxed) > 0 ||
        weft__tset_min(r->tset) != INT64_MAX) {
        return true;
    }
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        if (weft__tset_min(r->ps[i]->tset) != INT64_MAX) {
            return true;
        }
    }
    return false;
}

/* Counted first (a full fence), then npidle is read; an idler raises npidle, then looks at the count. */
void weft__poll_wait_begin(weft__m *m, weft__r *r) {
    atomic_fetch_add(&r->poll_waiters, 1);
    if (atomic_load(&r->npidle) == 0 || atomic_load(&r->polling) != 0) {
        return;
    }
    if (m->p != NULL && m->r == r) {
        weft__watch_dropped(r); /* most likely this M goes there itself */
    } else {
        weft__wakep(r, &r->stats.wake_poll);
    }
}

/* I3: found work. Stops spinning; if there is more to do than this M does, another is woken. */
static void resetspinning(weft__m *m) {
    weft__r *r = m->r;
    m->spinning = false;
    atomic_fetch_sub_explicit(&r->nmspinning, 1, memory_order_seq_cst);
    weft__fence_full();
    if (atomic_load_explicit(&r->npidle, memory_order_relaxed) == 0) {
        return;
    }
#ifdef WEFT_CANARY_SPINNER_WAKES_NO_OTHER
    return;
#endif
    if (weft__work_waits(r)) {
        weft__wakep(r, &m->p->stats.wake_work);
    } else if (atomic_load_explicit(&r->polling, memory_order_relaxed) == 0 &&
               weft__poll_wanted(r)) {
        weft__watch_dropped(r);
    }
}

/* ---- sources ----------------------------------------------------------------------------------- */

/* Up to `most` from the global queue: one to return, the rest to the ring, which has room for them
   (each G is touched once: its line is most likely cold). On the way they lie in no queue, so an
   idler's last look may pass them over: a wake is owed for them, as for all that is put in the ring. */
static weft__g *globq_get(weft__m *m, uint32_t most) {
    weft__r *r = m->r;
    weft__p *p = m->p;
    p->global_tick = atomic_load_explicit(&p->tick, memory_order_relaxed);
    if (atomic_load_explicit(&r->globq_len, memory_order_acquire) == 0) {
        return NULL;
    }
    weft__lock_take(&r->lock);
    uint32_t n = r->globq.len / (uint32_t)weft__nprocs(r) + 1;
    n = n < most ? n : most;
    n = n < r->globq.len ? n : r->globq.len;
    weft__g *first = weft__glist_pop(&r->globq);
    uint32_t t = atomic_load_explicit(&p->tail, memory_order_relaxed);
    for (uint32_t i = 1; i < n; i++) {
        atomic_store_explicit(&p->ring[t++ % WEFT__RING], weft__glist_pop(&r->globq),
                              memory_order_relaxed);
    }
    atomic_store_explicit(&p->tail, t, memory_order_release);
    atomic_store_explicit(&r->globq_len, r->globq.len, memory_order_release);
    weft__lock_drop(&r->lock);
    if (n > 1) {
        m->owed |= WEFT__OWED_WORK;
    }
    return first;
}

/* Drains the injection queue, oldest first, into the ring. */
static void take_injected(weft__m *m) {
    weft__p *p = m->p;
    if (atomic_load_explicit(&p->r->inject, memory_order_relaxed) == NULL) {
        return;
    }
    weft__g *newest = atomic_exchange_explicit(&p->r->inject, NULL, memory_order_acq_rel);
    weft__g *oldest = NULL;
#ifdef WEFT_CANARY_INJECTION_ORDER
    oldest = newest;
    newest = NULL;
#endif
    while (newest != NULL) {
        weft__g *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    weft__glist l = {0};
    while (oldest != NULL) {
        weft__g *next = oldest->next;
        weft__glist_push(&l, oldest);
        oldest = next;
    }
    m->owed |= WEFT__OWED_WORK;
    weft__runqput_list(p, &l);
}

static void sink(void *arg, uint64_t tag, unsigned events) {
    struct {
        weft__r *r;
        weft__glist *l;
    } *a = arg;
    atomic_load_explicit(&a->r->net_event, memory_order_acquire)(a->r, tag, events, a->l);
}

/* One poll; what became ready is added to l. */
static void netpoll(weft__r *r, int64_t until, weft__glist *l) {
    struct {
        weft__r *r;
        weft__glist *l;
    } a = {r, l};
    weft__poller_poll(r->poller, until, sink, &a);
    atomic_store_explicit(&r->last_poll, weft__clock_now(), memory_order_relaxed);
}

static void set_runnable(weft__glist *l) {
    for (weft__g *g = l->head; g != NULL; g = g->next) {
        atomic_store_explicit(&g->status, WEFT__G_RUNNABLE, memory_order_relaxed);
    }
}

/* Puts a batch on this P's ring, in order. */
static void put_batch(weft__m *m, weft__glist *l) {
    if (l->len == 0) {
        return;
    }
    set_runnable(l);
    m->owed |= WEFT__OWED_WORK;
    weft__runqput_list(m->p, l);
}

/* A look at the poller that does not wait; one M at a time. */
static void look_poller(weft__m *m) {
    weft__r *r = m->r;
    if (weft__runq_len(m->p) >
            WEFT__RING / 2 || /* what came in would overflow to the global queue */
        atomic_load_explicit(&r->poll_waiters, memory_order_relaxed) <= 0 ||
        atomic_load_explicit(&r->polling, memory_order_relaxed) != 0 ||
        atomic_exchange_explicit(&r->poll_look, 1, memory_order_acquire) != 0) {
        return;
    }
    weft__glist l = {0};
    netpoll(r, 0, &l);
    atomic_store_explicit(&r->poll_look, 0, memory_order_release);
    weft__count(&m->p->stats.polls, 1);
    put_batch(m, &l);
}

/* The heaps of Ps that have been set aside are shared out among the others: see resize.c. */
static void look_orphans(weft__m *m, int64_t now) {
    weft__r *r = m->r;
    int nps = weft__nps(r), step = weft__nprocs(r);
#ifdef WEFT_CANARY_ORPHANS_UNSEEN
    return;
#endif
    for (int i = (int)m->p->index + step; i < nps; i += step) {
        if (weft__tset_min(r->ps[i]->tset) <= now) {
            weft__timers_run(m, r->ps[i]->tset, now);
        }
    }
}

static void look_timers(weft__m *m, int64_t now) {
    weft__p *p = m->p;
    if (weft__tset_min(p->tset) <= now) {
        weft__timers_run(m, p->tset, now);
    }
    if (weft__tset_min(m->r->tset) <= now) {
        weft__timers_run(m, m->r->tset, now);
    }
    if (weft__unlikely(weft__nps(m->r) != weft__nprocs(m->r))) {
        look_orphans(m, now);
    }
}

/* Clock, timers, poller, queues from outside: what direct picks pass over. */
static void look_outside(weft__m *m) {
    weft__r *r = m->r;
    weft__p *p = m->p;
    bool waiters = atomic_load_explicit(&r->poll_waiters, memory_order_relaxed) > 0;
    if (waiters || weft__timers_of(r, p) != INT64_MAX || weft__tset_min(r->tset) != INT64_MAX ||
        p->looks++ % LOOKS_A_CLOCK == 0) { /* "since when" in a dump wants to be about right */
        p->now = weft__clock_now();
        look_timers(m, p->now);
        if (waiters &&
            p->now - atomic_load_explicit(&r->last_poll, memory_order_relaxed) >= POLL_EVERY) {
            look_poller(m);
        }
    }
    take_injected(m);
    if (weft__unlikely(p->gfree_len >= WEFT__GFREE_CHAIN)) {
        weft__gfree_rotate(p);
    }
}

/* Every P is busy, and one of them has picked nothing since this one's last look: its thread computes,
   perhaps for long, and what lies in its queue waits for nobody else. Rare, because the looks take the
   others' hot lines from them. */
static weft__g *rescue(weft__m *m, uint32_t tick) {
    weft__r *r = m->r;
    weft__p *p = m->p;
    p->rescue_tick = tick;
    if (atomic_load_explicit(&r->npidle, memory_order_relaxed) != 0 ||
        weft__runq_len(p) > WEFT__RING / 2) { /* no room for what a thief takes */
        return NULL;
    }
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        weft__p *victim = r->ps[i];
        uint32_t at = atomic_load_explicit(&victim->tick, memory_order_relaxed);
        if (victim == p || at != p->seen_ticks[i]) {
            p->seen_ticks[i] = at;
            continue;
        }
        weft__g *g = weft__runqsteal(p, victim, true, &p->seen_ticks[i]);
        if (g != NULL) {
            m->owed |=
                WEFT__OWED_WORK; /* what came along was in no queue for a moment: as globq_get */
            return g;
        }
    }
    return NULL;
}

/* g is the last one here, perhaps one that does nothing but yield: then this P's share of the global
   queue goes before it, or one of them would come in at every sixty-first pick only. */
static weft__g *share(weft__m *m, weft__g *g) {
    weft__p *p = m->p;
    if (weft__likely(atomic_load_explicit(&p->r->globq_len, memory_order_relaxed) == 0) ||
        weft__runq_has_ring(p)) {
        return g;
    }
    weft__g *other = globq_get(m, WEFT__RING / 2);
    if (other == NULL) {
        return g;
    }
    weft__runqput(p, g);
    return other;
}

/* Steps 1 to 4. What is next in line may come first sixteen times; then all that lies in the ring by
   now has its turn. So a G is picked within as many picks as there are before it, and sixteen. */
static weft__g *look(weft__m *m) {
    weft__p *p = m->p;
    if (p->picks < WEFT__PICKS) {
        p->picks++; /* this pick counts too: else two who wake each other by way of g0 each time would
                       starve the ring */
    } else {
        p->picks = 0;
#ifndef WEFT_CANARY_RUNNEXT_CAP_OFF
        if (p->turns == 0) {
            p->turns = weft__runq_len(p);
        }
#endif
    }
    look_outside(m);
    weft__wait_look(p);
    weft__g *g = NULL;
    uint32_t tick = atomic_load_explicit(&p->tick, memory_order_relaxed);
    if (tick - p->global_tick >= WEFT__GLOBAL_EVERY - WEFT__PICKS) {
        g = globq_get(m, 1);
    }
    if (g == NULL && weft__unlikely(tick - p->rescue_tick >= WEFT__RESCUE_EVERY)) {
        g = rescue(m, tick);
    }
    if (g == NULL) {
        g = weft__pick_local(p);
        if (g != NULL) {
            return share(m, g);
        }
        g = globq_get(m, WEFT__RING / 2);
    }
    return g;
}

/* ---- stealing ---------------------------------------------------------------------------------- */

/* One pass over all other Ps. *offered: a G is offered but its P's holder is about. */
static weft__g *steal_pass(weft__m *m, bool last, bool *offered) {
    weft__r *r = m->r;
    weft__p *p = m->p;
    weft__order *o = atomic_load_explicit(&r->order, memory_order_acquire);
    uint32_t n = o->n;
    uint32_t at = weft__rand(&p->rand) % n, step = o->strides[weft__rand(&p->rand) % o->nstrides];
    for (uint32_t i = 0; i < n; i++, at = (at + step) % n) {
        weft__p *victim = r->ps[at];
        if (victim == p) {
            continue;
        }
        if (last && weft__tset_min(victim->tset) <= p->now) {
            weft__timers_run(m, victim->tset, p->now);
            weft__g *g = weft__pick_local(p);
            if (g != NULL) {
                return g;
            }
        }
        if (is_idle(r, at)) {
            continue;
        }
        weft__g *g = weft__runqsteal(p, victim, last, &p->seen_ticks[at]);
        if (g != NULL) {
            return g;
        }
        *offered |= atomic_load_explicit(&victim->offered, memory_order_relaxed) != NULL;
    }
    return NULL;
}

static bool may_spin(weft__m *m) {
    weft__r *r = m->r;
    int idle = (int)atomic_load_explicit(&r->npidle, memory_order_relaxed);
    int busy = weft__nprocs(r) - idle; /* of different moments, perhaps */
    return m->spinning ||
           2 * (int)atomic_load_explicit(&r->nmspinning, memory_order_relaxed) < busy;
}

/* Sleeps as a spinner. Who has work for more than its own next pick ends the nap (wake_napper); one that
   is missed ends by itself. */
static void nap_for(weft__m *m, int64_t ns) {
    weft__r *r = m->r;
    weft__note_clear(&m->nap);
    atomic_store(&r->napper, m);
    weft__note_sleep_until(&m->nap, weft__clock_now() + ns);
    weft__m *self = m;
    atomic_compare_exchange_strong(&r->napper, &self, NULL);
}

/* Step 6. Where a G is offered while its P's holder picks on, two most likely wake each other in turn:
   the thief naps and looks again, until it has been taken or nothing was offered for some naps. It costs
   the holder nothing, and as long as a spinner naps he owes no wake-up for what he offers. */
static weft__g *steal_work(weft__m *m) {
    weft__r *r = m->r;
    if (weft__nprocs(r) == 1 || !may_spin(m)) {
        return NULL;
    }
    if (!m->spinning) {
        m->spinning = true;
        atomic_fetch_add_explicit(&r->nmspinning, 1, memory_order_seq_cst);
    }
    m->p->now = weft__clock_now();
    bool offered = false;
    for (int pass = 0; pass < 4; pass++) {
        weft__g *g = steal_pass(m, pass == 3, &offered);
        if (g != NULL) {
            return g;
        }
    }
    int64_t nap = NAP_FIRST;
    for (int misses = offered ? 0 : NAP_MISSES;
         misses < NAP_MISSES && !shall_leave(m) && weft__change_of(m->p) == 0;) {
        nap_for(m, nap);
        nap = nap * 2 < NAP_LONGEST ? nap * 2 : NAP_LONGEST;
        weft__g *g = look(m);
        if (g == NULL) {
            offered = false;
            m->p->now = weft__clock_now();
            g = steal_pass(m, true, &offered);
        }
        if (g != NULL) {
            return g;
        }
        misses = offered ? 0 : misses + 1;
    }
    return NULL;
}

/* ---- idle -------------------------------------------------------------------------------------- */

/* Under the lock: takes any idle P. As a spinner, M looks at everything next, for whoever wanted one;
   so do all who give a P up when none is idle. */
static bool get_idle_p(weft__m *m, bool spinning) {
    weft__r *r = m->r;
    weft__p *p = pidleget(r);
    if (p == NULL || spinning) {
        atomic_store_explicit(&r->m_wanted, false, memory_order_relaxed);
    }
    if (p == NULL) {
        return false;
    }
    if (spinning) {
        atomic_fetch_add(&r->nmspinning, 1);
        m->spinning = true;
    }
    weft__acquirep(m, p);
    return true;
}

/* Takes any idle P, as a spinner: whoever comes back for work that was seen. */
static bool take_idle_p(weft__m *m, bool spinning) {
    weft__r *r = m->r;
    weft__lock_take(&r->lock);
    bool got = get_idle_p(m, spinning);
    weft__lock_drop(&r->lock);
    return got;
}

void weft__takep(weft__m *m) { take_idle_p(m, false); }

/* Moves p to the head of the idle list. Under the lock. */
static void pidle_first(weft__r *r, weft__p *p) {
    weft__p **at = &r->pidle;
    while (*at != p) {
        at = &(*at)->link;
    }
    *at = p->link;
    p->link = r->pidle;
    r->pidle = p;
}

bool weft__regain(weft__m *m) {
    weft__r *r = m->r;
    if (atomic_load_explicit(&r->npidle, memory_order_seq_cst) == 0) {
        return false;
    }
    weft__lock_take(&r->lock);
    if (m->lost != NULL && is_idle(r, m->lost->index) && !m->lost->gone) {
        pidle_first(r, m->lost);
    }
    bool got = get_idle_p(m, false);
    weft__lock_drop(&r->lock);
#ifndef WEFT_CANARY_REGAIN_WAKES_NO_SYSMON
    if (got) {
        weft__sysmon_poke(r); /* it may sleep for ever, or have seen this P idle: no g0 tells it */
    }
#endif
    return got;
}

static void retire_spinner(weft__m *m) {
    if (m->spinning) {
        m->spinning = false;
        atomic_fetch_sub_explicit(&m->r->nmspinning, 1, memory_order_seq_cst);
    }
}

/* An idle P's queue is empty: that is why thieves and looks pass idle Ps over. */
void weft__flush_queue(weft__p *p) {
    weft__glist l = {0};
    weft__g *g;
    while ((g = weft__pick_local(p)) != NULL) {
        weft__glist_push(&l, g);
    }
    weft__globq_put_list(p->r, &l);
}

void weft__drop_p(weft__m *m) {
    atomic_store_explicit(&m->p->m, NULL, memory_order_relaxed);
    m->p = NULL;
    m->owed = 0;
}

/* I2, by who has put a P on the idle list and has none. */
void weft__pidle_look_again(weft__r *r) {
    weft__fence_full();
    weft__tell_drained(r);
    if (weft__work_waits(r) || (atomic_load(&r->polling) == 0 && weft__poll_wanted(r))) {
        weft__wakep(r, NULL);
    }
}

void weft__releasep(weft__m *m) {
    weft__r *r = m->r;
    weft__p *p = m->p;
    weft__flush_queue(p);
    weft__drop_p(m);
    weft__lock_take(&r->lock);
    weft__pidleput(r, p);
    weft__lock_drop(&r->lock);
    retire_spinner(m);
    weft__pidle_look_again(r);
}

/* Step 8, with the token taken: the earliest time is found behind it (I8). True: came back with a P,
   what became ready lies in its ring. */
static bool wait_in_poller(weft__m *m) {
    weft__r *r = m->r;
    weft__glist l = {0};
    weft__fence_full(); /* between the token and all that is looked at behind it */
    int64_t now = weft__clock_now();
    int64_t when = weft__timers_next(r);
    if (when > now && !shall_leave(m) && !atomic_load(&r->m_wanted)) {
        atomic_store(&r->poll_until, when);
        /* An adder that read 0 has broken us; one that came before is in `when`. */
        netpoll(r, when, &l);
        atomic_store(&r->poll_until, 0);
    }
    atomic_store(&r->polling, 0);
    bool found = l.len > 0;
    if (!take_idle_p(m, !found)) {
        set_runnable(&l);
        weft__globq_put_list(r, &l);
        weft__fence_full();
        weft__wakep(r, NULL);
        return false;
    }
    weft__count(&m->p->stats.polls, 1);
    put_batch(m, &l);
    if (found && weft__poll_wanted(r)) {
        weft__watch_dropped(r);
    }
    return true;
}

/* Under the lock: a P that waits for an M. Whoever comes first takes it: the one that is being made may
   be kept, for making a thread allocates. */
static bool take_waiting_p(weft__m *m) {
    weft__p *p = waiting_p(m->r);
    if (p == NULL) {
        return false;
    }
    m->spinning = p->make_spinning;
    weft__acquirep(m, p);
    return true;
}

void weft__m_sleep(weft__m *m, weft__verdict v) {
    weft__r *r = m->r;
    while (atomic_load(&m->asleep)) {
        if (v == WEFT__DEAD) {
            weft__stuck_report(r);
            v = WEFT__ALIVE;
        }
        if (v == WEFT__ALIVE) {
            weft__note_sleep(&m->note);
        } else if (!weft__note_sleep_until(&m->note, weft__clock_now() + LOOK_AGAIN)) {
            weft__lock_take(&r->lock);
            v = weft__checkdead(r); /* alive, too, once this M has been called for */
            weft__lock_drop(&r->lock);
        }
        weft__note_clear(&m->note);
        weft__fence_full(); /* cleared before `asleep` is read; pairs with weft__note_wake's exchange */
    }
}

/* Step 9. Returns with a P, or without one if the M shall leave. */
static void stopm(weft__m *m) {
    weft__r *r = m->r;
    weft__lock_take(&r->lock);
    if (m->fresh) {
        m->fresh = false;
        r->ncoming--;
    }
    if (shall_leave(m) || take_waiting_p(m) || (atomic_load(&r->m_wanted) && get_idle_p(m, true))) {
        weft__lock_drop(&r->lock);
        return;
    }
    m->parked = true;
    atomic_store(&m->asleep, true);
    m->idle_link = r->midle;
    r->midle = m;
    r->nmidle++;
    bool surplus = r->nmidle > (uint32_t)weft__nprocs(r) + 1;
    weft__verdict v = weft__checkdead(r);
    weft__lock_drop(&r->lock);
    if (weft__unlikely(surplus)) {
        weft__sysmon_poke(r); /* it may sleep for ever, and has more to trim now */
    }
    weft__m_sleep(m, v);
    if (m->nextp != NULL) {
        weft__acquirep(m, m->nextp);
        m->nextp = NULL;
    }
}

/* Steps 7 to 9: on return the M holds a P again, or leaves. */
static void go_idle(weft__m *m) {
    weft__r *r = m->r;
    weft__lock_take(&r->lock);
    if (r->globq.len > 0) {
        weft__lock_drop(&r->lock);
        return; /* step 4 finds it */
    }
    weft__p *p = m->p;
    weft__drop_p(m); /* nothing waits here: what was owed is looked at below */
    weft__pidleput(r, p);
    weft__lock_drop(&r->lock);
    retire_spinner(m);
#ifndef WEFT_CANARY_NO_RECHECK
    weft__fence_full(); /* pairs with the submitters': see the head of this file */
    if (weft__work_waits(r) && take_idle_p(m, true)) {
        return;
    }
#endif
    weft__tell_drained(r);
    if (weft__poll_wanted(r) && atomic_exchange(&r->polling, 1) == 0) {
        if (wait_in_poller(m)) {
            return;
        }
    } else if (atomic_load(&r->polling) != 0) {
        /* Somebody sleeps there; perhaps for longer than what this P had seen, or for something that
           has been taken back: then he shall park, or a program that is dead would not be seen. */
        int64_t when = weft__timers_next(r);
        int64_t until = atomic_load(&r->poll_until);
        if (until == 0 ? when != INT64_MAX : when < until) { /* 0: it may have looked before us */
            weft__poller_break(r->poller);
        }
    }
    stopm(m);
}

/* A G to run, this M holding a P; NULL: the M shall leave. */
static weft__g *find_runnable(weft__m *m) {
    for (;;) {
        if (weft__unlikely(shall_leave(m))) {
            return NULL;
        }
        if (m->p == NULL) {
            stopm(m);
            continue;
        }
        if (weft__unlikely(weft__change_of(m->p) != 0)) {
            weft__p_heed(m);
            continue;
        }
        weft__g *g = look(m);
        if (g == NULL) {
            g = steal_work(m);
        }
        if (g != NULL) {
            return g;
        }
        go_idle(m);
    }
}

/* Before g runs: spinning ends, what is owed is paid. */
static void settle(weft__m *m) {
    weft__r *r = m->r;
    if (weft__unlikely(atomic_load(&r->sysmon_sleep) == WEFT__SYSMON_FOR_EVER)) {
        weft__sysmon_wake(r); /* it slept because every P was idle; npidle was lowered before */
    }
    if (m->spinning) {
        resetspinning(m);
    }
    if (m->owed == 0) {
        return;
    }
    weft__p *p = m->p;
    if ((m->owed & WEFT__OWED_TIMER) != 0 && atomic_load(&r->polling) != 0) {
        m->owed &= (uint8_t)~WEFT__OWED_TIMER; /* somebody watches by now */
    }
    if (m->owed == WEFT__OWED_NEXT &&
        atomic_load_explicit(&p->runnext, memory_order_relaxed) == NULL) {
        m->owed = 0; /* it is what runs now */
    }
    if (m->owed == WEFT__OWED_WORK && !weft__runq_has_ring(p)) {
        m->owed = 0;
    }
    if (m->owed != 0) {
        weft__pay(m);
    }
}

/* Something is up: a request, which is answered by being here; a G that is locked to this thread, which
   alone may run here; or one that was and has ended. */
WEFT__COLD static weft__g *next_with_ticket(weft__m *m) {
    if ((atomic_load(&m->ticket) & WEFT__REVOKE) != 0) {
        weft__lower(m);
    }
    if (m->locked != NULL) {
        weft__locked_wait(m);
        return m->p != NULL ? m->locked : NULL;
    }
    return m->tainted ? NULL : find_runnable(m);
}

/* What a direct pick has put aside runs on another thread, and goes before all else. */
WEFT__COLD static weft__g *take_aside(weft__m *m) {
    weft__g *g = m->aside;
    m->aside = NULL;
    return g;
}

static weft__g *next_g(weft__m *m) {
    if (weft__unlikely(m->aside != NULL)) {
        return take_aside(m);
    }
    if (weft__unlikely(atomic_load_explicit(&m->ticket, memory_order_relaxed) != WEFT__PEACE)) {
        return next_with_ticket(m);
    }
    return find_runnable(m);
}

void weft__schedule(weft__m *m) {
    for (;;) {
        weft__g *g = next_g(m);
        if (g == NULL) {
            break;
        }
        settle(m);
#ifndef WEFT_CANARY_LOCKED_RUNS_ANYWHERE
        if (weft__unlikely(g->locked != 0 && g->m != m)) {
            weft__locked_hand(m, g);
            continue;
        }
#endif
        weft__execute(m, g);
        m = weft__fiber_switch(&m->g0, &g->fiber, m, false);
        m->g = NULL;
        weft__commit(m);
    }
    if (weft__unlikely(m->tainted)) {
        weft__tainted_ends(m);
    }
    if (m->p != NULL) {
        weft__releasep(m);
    }
    retire_spinner(m);
}

/* ---- from outside ------------------------------------------------------------------------------ */

void weft__inject(weft__r *r, weft__g *g) {
    atomic_fetch_add(&r->users, 1); /* once pushed, g may run, end, and let r be stopped */
    atomic_store_explicit(&g->status, WEFT__G_RUNNABLE, memory_order_relaxed);
    weft__wait_injected(g, atomic_fetch_add_explicit(&r->stats.injected, 1, memory_order_relaxed));
    weft__g *head = atomic_load_explicit(&r->inject, memory_order_relaxed);
    do {
        g->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&r->inject, &head, g, memory_order_seq_cst,
                                                    memory_order_relaxed));
    weft__fence_full();
#ifndef WEFT_CANARY_NO_WAKEP
    weft__wakep(r, &r->stats.wake_work);
#endif
    atomic_fetch_sub(&r->users, 1);
}

/* Ready without a P of g's runtime. */
WEFT__COLD void weft__ready_far(weft__m *m, weft__g *g) {
    (void)m;
    if (g->standin) {
        weft__note_wake(&g->m->note);
        return;
    }
    weft__inject(g->r, g);
}
