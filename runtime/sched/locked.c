/*
 * Green threads that are locked to their thread, and threads that end with them.
 *
 * A locked G runs on its M alone, and its M runs nothing else. `m->locked` and `g->m` name each other,
 * `g->locked` is the depth. All three are written by the G itself, on that M.
 *
 *   - WEFT__LOCKED in the M's ticket keeps its parks from switching straight to another G, at no cost
 *     for others: the way is g0. There (weft__locked_wait) the M gives its P to who runs what it holds, and
 *     waits on its note.
 *   - The G is queued like any other. Who picks it and is not its M gives it the P that he picked it
 *     with (weft__locked_hand), queue and all, and looks for another. A direct pick that meets one puts it
 *     aside for g0 (`m->aside`).
 *   - The hand-over and the wait meet under sched.lock: the P may come before the M waits, for the G is
 *     committed before.
 *   - An M that waits so is not busy: no deadlock is hidden by it. Nor does it count for max_threads,
 *     or all threads that may exist could be locked ones, with nobody to pick for them.
 *   - A G that ends while locked leaves an M that nobody else may run on: what it did to the thread (name,
 *     mask, namespaces) must not be met by others. Its P is given away first; then the thread ends. The
 *     thread of weft_run cannot end: it runs nothing more and waits for the end of main.
 *   - If main has ended while another G is locked to its thread, that thread cannot do what weft_run
 *     has to do next; so it asks for the stop from here, as weft_request_stop does.
 */
#include "sched/sched.h"

#include <weft/task.h>

WEFT_API void weft_lock_thread(void) {
    weft__m *m = weft__enter_nopark();
    weft__g *g = m->g;
    if (!g->standin && g->locked++ == 0) {
        g->m = m;
        m->locked = g;
        atomic_fetch_or(&m->ticket, WEFT__LOCKED);
        atomic_fetch_add(&m->r->nlocked, 1);
    }
    weft__leave(m);
}

static void unlock(weft__m *m, weft__g *g) {
    g->locked = 0;
    g->m = NULL;
    m->locked = NULL;
    atomic_fetch_and(&m->ticket, ~(uint32_t)WEFT__LOCKED);
    atomic_fetch_sub(&m->r->nlocked, 1);
}

WEFT_API void weft_unlock_thread(void) {
    weft__m *m = weft__enter_nopark();
    weft__g *g = m->g;
    if (!g->standin && g->locked != 0 && --g->locked == 0) {
        unlock(m, g);
    }
    weft__leave(m);
}

/* The bit stays up: it leads by way of g0 to the end of the thread. */
void weft__locked_ends(weft__m *m, weft__g *g) {
    unlock(m, g);
#ifndef WEFT_CANARY_TAINTED_SERVES_ON
    m->tainted = true;
    atomic_fetch_or(&m->ticket, WEFT__LOCKED);
#endif
}

/* ---- on g0 -------------------------------------------------------------------------------------- */

/* Gives the P, with what lies in it, to who runs that. */
static void give_p(weft__m *m) {
    weft__p *p = m->p;
    if (p != NULL) {
        weft__drop_p(m);
        weft__handoffp(m->r, p);
    }
}

/* The thread of weft_run, which main has left: the others must be told to end. Lock held. */
static bool shall_ask_for_stop(weft__m *m) {
    weft__r *r = m->r;
    return m->main && atomic_load(&r->leave_main) != 0 && !r->main_exited &&
           atomic_load(&r->cancelling) == 0;
}

static void ask_for_stop(weft__r *r) {
    atomic_store(&r->stopping, 1);
    atomic_store(&r->cancelling, 1);
    weft__note_wake(&r->maker_note);
}

static bool shall_end(weft__m *m) {
    return atomic_load(&m->exit) || (m->main && atomic_load(&m->r->dead));
}

/* Sleeps until something has happened. False: it has ended, or has its P. */
static bool wait_once(weft__m *m) {
    weft__r *r = m->r;
    weft__lock_take(&r->lock);
    if (m->nextp != NULL || shall_end(m)) {
        weft__lock_drop(&r->lock);
        return false;
    }
    if (shall_ask_for_stop(m)) {
        weft__lock_drop(&r->lock);
        ask_for_stop(r);
        return true;
    }
    atomic_store(&m->asleep, true);
    m->waits_locked = true;
    r->nmlocked++;
    weft__verdict v = weft__checkdead(r);
    weft__lock_drop(&r->lock);
    weft__m_sleep(m, v);
    return true;
}

void weft__locked_wait(weft__m *m) {
    give_p(m);
    while (wait_once(m)) {
    }
    if (m->nextp != NULL) {
        weft__acquirep(m, m->nextp);
        m->nextp = NULL;
    }
}

/* Lock held: it is busy from here on. */
static void rouse(weft__m *m) {
    if (m->waits_locked) {
        m->waits_locked = false;
        m->r->nmlocked--;
    }
    atomic_store(&m->asleep, false);
}

void weft__locked_hand(weft__m *m, weft__g *g) {
    weft__r *r = m->r;
    weft__m *to = g->m;
    weft__p *p = m->p;
    weft__drop_p(m);
    weft__lock_take(&r->lock);
    to->nextp = p;
    rouse(to);
    weft__lock_drop(&r->lock);
    weft__note_wake(&to->note);
}

void weft__locked_rouse(weft__m *m) {
    weft__lock_take(&m->r->lock);
    if (m->waits_locked) {
        rouse(m);
    }
    weft__lock_drop(&m->r->lock);
    weft__note_wake(&m->note);
}

void weft__tainted_ends(weft__m *m) {
    weft__r *r = m->r;
    give_p(m);
    if (!m->main) {
        weft__lock_take(&r->lock);
        r->threads_ended++;
        weft__lock_drop(&r->lock);
    }
    weft__m_gone(r);
    while (m->main && atomic_load(&r->leave_main) == 0) {
        weft__note_sleep(&m->note);
        weft__note_clear(&m->note);
        weft__fence_full(); /* cleared before `leave_main` is read; pairs with weft__note_wake's exchange */
    }
}
