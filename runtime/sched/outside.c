/*
 * What comes from outside a runtime and is no green thread of it: a stop that is asked for, wakers that
 * weft cannot see.
 *
 * A request to stop cancels once on the caller's thread and leaves the rest to the maker's thread, since
 * one pass is not enough: a G that has looked at its cancel flag just before may go on into a held park,
 * which is not looked at behind (see park.c). So passes are made again, farther and farther apart, until
 * one has proved that it was the last:
 *
 *   - Every G has the flag once a first pass is over: those that existed by the pass, younger ones at
 *     their birth (g.c: made visible, full fence, reads `cancelling`; here: `cancelling`, full fence,
 *     looks at all). From then on no G begins a wait that a stop can end, but one that had looked before.
 *   - If after that, at one moment under the lock, no M ran a G, those have parked too. A pass that
 *     began later and claimed nobody leaves nobody to be claimed.
 *
 * From there (`cancel_settled`) the rest can only be woken by others, and a program in which nobody can
 * is stuck as ever, and said to be. If somebody waits for the end (`draining`) he makes passes of his own and has a
 * limit.
 *
 * Wakers that weft cannot see are counted (`externals`). While there are any the program is not stuck,
 * and the runtime is not freed: the usual last words are a wake and then the end, and the wake may let
 * main return. Who takes the count to zero has the maker's thread look for a deadlock, for all Ms may be
 * asleep by then and nobody else would; it is never looked for on the thread that says so, which may be
 * in a callback.
 */
#include "sched/sched.h"

static const int64_t LOOK_AGAIN = WEFT_MILLISECOND;
static const int64_t RESCAN_FIRST = 2 * WEFT_MILLISECOND, RESCAN_LONGEST = 64 * WEFT_MILLISECOND;

/* No M runs a G: one that is about to wait in the poller has none. */
static bool all_parked(weft__r *r) {
    weft__lock_take(&r->lock);
    uint32_t busy = weft__busy_ms(r);
    bool parked =
        r->make_list == NULL && (busy == 0 || (busy == 1 && atomic_load(&r->polling) != 0));
    weft__lock_drop(&r->lock);
    return parked;
}

/* A pass of the stop if it is time for one; when the next is due. */
static int64_t stop_round(weft__r *r) {
    if (atomic_load(&r->cancelling) == 0 || atomic_load(&r->cancel_settled) != 0) {
        return INT64_MAX;
    }
#ifdef WEFT_CANARY_STOP_PASSES_ONCE
    return INT64_MAX;
#endif
    int64_t now = weft__clock_now();
    if (now < r->rescan_at) {
        return r->rescan_at;
    }
    bool last = r->rescans > 0 && all_parked(r);
    if (weft__cancel_all(r) == 0 && last) {
        atomic_store(&r->cancel_settled, 1);
        atomic_store(&r->look_stuck, 1);
        return INT64_MAX;
    }
    int64_t pause = RESCAN_FIRST << (r->rescans < 8 ? r->rescans : 8);
    r->rescans++;
    r->rescan_at = now + (pause < RESCAN_LONGEST ? pause : RESCAN_LONGEST);
    return r->rescan_at;
}

/* Nobody looks for a deadlock once all Ms sleep: so this thread does, when a reason not to call the
   program stuck has gone. */
static int64_t look_for_dead(weft__r *r) {
    if (atomic_exchange(&r->look_stuck, 0) == 0) {
        return INT64_MAX;
    }
    weft__lock_take(&r->lock);
    weft__verdict v = weft__checkdead(r);
    weft__lock_drop(&r->lock);
    if (v == WEFT__DEAD) {
        weft__stuck_report(r);
    }
    if (v != WEFT__UNSURE) {
        return INT64_MAX;
    }
    atomic_store(&r->look_stuck, 1);
    return weft__clock_now() + LOOK_AGAIN;
}

static int64_t earlier_of(int64_t a, int64_t b) { return a < b ? a : b; }

void weft__outside_look(weft__r *r) {
    weft__fence_full(); /* the note has been cleared: who sets it from here on wakes us again */
    int64_t due = earlier_of(weft__triggers_run(r), stop_round(r));
    due = earlier_of(due, weft__schedtrace_look(r));
    weft__watchdog_say(r);
    weft__follow(r);
    r->helper_due = earlier_of(due, look_for_dead(r));
}

void weft__look_again(weft__r *r) {
    atomic_store(&r->look_stuck, 1);
    weft__note_wake(&r->maker_note);
}

WEFT__COLD WEFT__NORETURN static void no_runtime(const char *call) {
    weft__fatal("%s without a runtime, on a thread that has none", call);
}

WEFT_API void weft_external_begin(weft_runtime *rt) {
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    if (r == NULL) {
        no_runtime("weft_external_begin");
    }
    atomic_fetch_add(&r->externals, 1);
    weft__r_give(taken);
}

WEFT_API void weft_external_end(weft_runtime *rt) {
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    if (r == NULL) {
        no_runtime("weft_external_end");
    }
    atomic_fetch_add(&r->users, 1); /* who waits for the count may free r behind it */
    uint32_t before = atomic_fetch_sub(&r->externals, 1);
    if (before == 0) {
        weft__fatal("weft_external_end without a weft_external_begin");
    }
#ifndef WEFT_CANARY_EXTERNAL_END_LOOKS_NOT
    if (before == 1) {
        weft__look_again(r);
        weft__note_wake(&r->drained);
    }
#endif
    atomic_fetch_sub(&r->users, 1);
    weft__r_give(taken);
}

WEFT_API int weft_request_stop(weft_runtime *rt) {
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    if (r == NULL) {
        return weft__no_runtime();
    }
    atomic_fetch_add(&r->users, 1); /* the last G may end under us, and who waits for it go on */
    atomic_store(&r->stopping, 1);
    if (atomic_exchange(&r->cancelling, 1) == 0) {
        weft__fence_full();
        weft__cancel_all(r);
        weft__note_wake(&r->maker_note);
        weft__note_wake(&r->drained);
    }
    atomic_fetch_sub(&r->users, 1);
    weft__r_give(taken);
    return 0;
}
