/*
 * Handoff: a green thread may call any C, for as long as it likes. The thread keeps the G and loses
 * the P.
 *
 * The words. `incall` of an M is its depth of calls, written by its own thread alone: 0 in user code,
 * else inside. `ticket` is WEFT__PEACE, with WEFT__REVOKE beside it while the P is asked back. A retaker
 * raises REVOKE with an atomic or; only the M lowers it, under its `settle` lock. Taking and giving a P
 * never writes the ticket.
 *
 *   enter     incall = 1; light fence; ticket at peace? else the slow way (weft__answer).
 *   retaker   (sysmon; one at a time a runtime) REVOKE up; heavy fence; then under settle: REVOKE still
 *             up, incall 0, m->p the P that was meant: m->p = NULL, the P is in its hands.
 *
 * Invariants:
 *   H1  m->p is written by the M itself while inside, or by a retaker that holds settle, has seen
 *       REVOKE up and incall 0, in this order, with a heavy fence between raising and looking. Either the
 *       retaker sees the M inside and keeps its hands off, or the M sees REVOKE and takes the slow way,
 *       where settle makes it wait for the end of the retaker's look.
 *   H2  The P that is taken is m->p as re-read under settle, never the one seen from afar: the M may
 *       have another by now. M records are never freed while the runtime lives.
 *   H3  A request that finds the M inside stays up: its next enter, or its scheduler, answers it. A later
 *       look needs no fence: the M has been inside, or will see the request, since the first.
 *   H4  REVOKE is up whenever an M runs user code without a P. So each of its calls takes the slow way.
 *   H5  From raising to the placing of the P the retaker counts as a running M (`retaking`): else the
 *       M that comes back and parks would find a dead program.
 *
 * What the slow way does, by class of call (sched.h):
 *   may park     with its P: yields, by way of g0, which looks at timers, poller and global queue.
 *                without: an idle P, its old one first; none: the G goes to the injection queue and
 *                the M parks.
 *   never parks  gives the P up if it has one, and goes on without. So a loop of such calls becomes an
 *                ordinary thread and shuts nobody out.
 */
#include "sched/sched.h"

#include <weft/task.h>

static const int64_t FALSE_WITHIN = 20 * WEFT_MICROSECOND;

bool weft__handoffp(weft__r *r, weft__p *p) {
    if (weft__unlikely(weft__change_of(p) != 0)) {
        weft__p_changes(p);
        if (weft__change_of(p) == WEFT__P_RETIRE) {
            weft__p_set_aside(p);
            return false;
        }
    }
    bool work = weft__runq_has_ring(p) || atomic_load(&p->runnext) != NULL ||
                atomic_load(&p->offered) != NULL || atomic_load(&r->inject) != NULL ||
                weft__tset_min(p->tset) <= weft__clock_now() || weft__watch_empty(r);
#ifdef WEFT_CANARY_HANDOFFP_LOOKS_ONCE
    weft__thread_nap(WEFT_MILLISECOND); /* what comes now has been looked for already */
#endif
    weft__lock_take(&r->lock);
    if (work || r->globq.len > 0) {
        weft__startm(r, p, false);
        return true;
    }
    weft__pidleput(r, p);
    weft__lock_drop(&r->lock);
#ifndef WEFT_CANARY_HANDOFFP_LOOKS_ONCE
    weft__pidle_look_again(r);
#endif
    return false;
}

/* Takes the P from an M that is in user code, or in a call of ours that gives it up. Under settle. */
static weft__p *disown(weft__m *m, int64_t now) {
    weft__p *p = m->p;
    m->p = NULL;
    atomic_store_explicit(&p->m, NULL, memory_order_relaxed);
    m->lost = p;
    m->lost_at = now;
    atomic_fetch_add_explicit(&p->r->nstrays, 1, memory_order_relaxed);
    return p;
}

bool weft__retake(weft__r *r, weft__p *p, weft__m *m) {
    (void)r;
    bool ours = false;
    weft__lock_take(&m->settle);
#ifdef WEFT_CANARY_STALE_P_TAKEN
    p = m->p; /* whatever it has by now; the caller goes on with what it saw */
#endif
    if ((atomic_load_explicit(&m->ticket, memory_order_relaxed) & WEFT__REVOKE) != 0 &&
#ifndef WEFT_CANARY_RETAKE_FROM_INSIDE
        atomic_load_explicit(&m->incall, memory_order_acquire) == 0 &&
#endif
        m->p == p) {
#ifdef WEFT_CANARY_LOWERED_WITHOUT_SETTLE
        weft__thread_nap(WEFT_MILLISECOND); /* seen, not yet done: the M may come back now */
#endif
        disown(m, weft__clock_now());
        ours = true;
    }
#ifdef WEFT_CANARY_REQUEST_PUT_BACK
    if (!ours) {
        atomic_fetch_and(&m->ticket, ~(uint32_t)WEFT__REVOKE);
    }
#endif
    weft__lock_drop(&m->settle);
    return ours;
}

void weft__lower(weft__m *m) {
#ifdef WEFT_CANARY_LOWERED_WITHOUT_SETTLE
    atomic_fetch_and(&m->ticket, ~(uint32_t)WEFT__REVOKE);
#else
    weft__lock_take(&m->settle);
    atomic_fetch_and(&m->ticket, ~(uint32_t)WEFT__REVOKE);
    weft__lock_drop(&m->settle);
#endif
}

/* To g0 with a commit, and back when the G is run again. */
static weft__m *by_way_of_g0(weft__m *m, uint8_t commit) {
    weft__g *g = m->g;
    m->commit = commit;
    m->commit_g = g;
#ifdef WEFT_CANARY_LEAVE_ON_WRONG_M
    weft__m *before = m;
    m = weft__fiber_switch(&g->fiber, &m->g0, m, false);
    weft__commit(m);
    return before;
#else
    m = weft__fiber_switch(&g->fiber, &m->g0, m, false);
    weft__commit(m);
    return m;
#endif
}

/* A retake that won nothing: the G was back at once. A thread that the system had put aside looks so. */
static void note_return(weft__m *m) {
    if (m->lost_at != 0 && weft__clock_now() - m->lost_at < FALSE_WITHIN) {
        atomic_fetch_add_explicit(&m->r->handoff_false, 1, memory_order_relaxed);
    }
    m->lost_at = 0;
}

static weft__m *answer_parking(weft__m *m) {
    weft__lower(m);
    if (m->p != NULL) {
        return by_way_of_g0(m, WEFT__COMMIT_YIELD);
    }
    note_return(m);
    atomic_fetch_sub_explicit(&m->r->nstrays, 1, memory_order_relaxed);
    return weft__regain(m) ? m : by_way_of_g0(m, WEFT__COMMIT_QUEUE);
}

static weft__m *answer_nopark(weft__m *m) {
    weft__lock_take(&m->settle); /* a retaker may be looking */
    weft__p *p = m->p != NULL ? disown(m, 0) : NULL;
    weft__lock_drop(&m->settle); /* REVOKE stays up: H4 */
#ifdef WEFT_CANARY_NOPARK_LOWERS
    weft__lower(m);
#endif
    if (p != NULL) {
        atomic_fetch_add_explicit(&m->r->handoff_computing, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&m->r->handoff_gave_up, 1, memory_order_relaxed);
        weft__handoffp(m->r, p);
    }
    return m;
}

weft__m *weft__answer(weft__m *m, bool may_park) {
    return may_park ? answer_parking(m) : answer_nopark(m);
}

void weft__handoff_now(weft__m *m) {
    weft__lock_take(&m->settle);
    atomic_fetch_or(&m->ticket, WEFT__REVOKE);
    weft__p *p = disown(m, 0);
    weft__lock_drop(&m->settle);
#ifndef WEFT_CANARY_SHORT_STAYS_TOGETHER
    atomic_fetch_add_explicit(&m->hints, 1, memory_order_relaxed);
#endif
    atomic_fetch_add_explicit(&m->r->handoff_hint, 1, memory_order_relaxed);
    weft__handoffp(m->r, p);
}

WEFT_API void weft_block_begin(void) {
    weft__m *m = weft__enter_nopark();
    bool nested = atomic_load_explicit(&m->incall, memory_order_relaxed) > 1; /* the P is in use */
    if (m->p != NULL && !nested && (m->r->cfg.flags & WEFT_EXCLUSIVE) == 0) {
        weft__handoff_now(m);
    }
    weft__leave(m);
}

WEFT_API void weft_block_end(void) { weft__leave(weft__enter()); }
