/*
 * The watch over poller and timers while Ps are idle.
 *
 * As long as a P is idle, somebody should sleep in the poller if anything could come of it: for the
 * timers and descriptors of those that run. An M that comes back from there with work leaves the watch.
 * Most often it is back within microseconds, so it wakes nobody; it only sees to it that the maker's
 * thread makes rounds (one exchange, and a wake-up if that thread slept). A round that finds the watch
 * empty, as the round before did, with nobody having looked at the poller meanwhile, starts an M on an
 * idle P, which goes there. So what the poller or a foreign heap has to tell waits for a round and a half
 * at most beside an idle P. After some rounds in which all was well the thread sleeps for good again:
 * an idle process does not tick.
 *
 * Dropper: polling = 0; full fence; reads rounds_on. Maker: rounds_on = 0; full fence; reads polling. One
 * of the two sees the other.
 */
#include "sched/sched.h"

enum { QUIET_ROUNDS = 8 };
static const int64_t ROUND = 500 * WEFT_MICROSECOND;

/* The watch has been left, or somebody counts on it who does not know of one. */
void weft__watch_dropped(weft__r *r) {
    weft__fence_full();
    if (atomic_load(&r->npidle) != 0 && atomic_load(&r->rounds_on) == 0 &&
        atomic_exchange(&r->rounds_on, 1) == 0) {
        weft__note_wake(&r->maker_note);
    }
}

static bool unwatched(weft__r *r) {
    return atomic_load(&r->polling) == 0 && atomic_load(&r->npidle) != 0 && weft__poll_wanted(r);
}

/* One round, by the maker's thread. */
static void round_once(weft__r *r, weft__watch *w) {
    int64_t looked = atomic_load_explicit(&r->last_poll, memory_order_relaxed);
    if (!unwatched(r)) {
        w->suspect = false;
        w->quiet++;
    } else {
        w->quiet = 0;
        if (w->suspect && looked == w->looked) {
            weft__fence_full();
            weft__wakep(r, &r->stats.wake_poll);
        }
        w->suspect = true;
    }
    w->looked = looked;
    if (w->quiet >= QUIET_ROUNDS) {
        atomic_store(&r->rounds_on, 0);
        weft__fence_full();
        if (unwatched(r)) {
            atomic_store(&r->rounds_on, 1);
        }
        w->quiet = 0;
    }
}

/* The maker's sleep: until its note is woken, making rounds meanwhile if there are to be any. */
void weft__watch_sleep(weft__r *r, weft__watch *w) {
    for (;;) {
        int64_t until = atomic_load(&r->rounds_on) != 0 ? weft__clock_now() + ROUND : INT64_MAX;
        until = until < r->helper_due ? until : r->helper_due;
        if (weft__note_sleep_until(&r->maker_note, until)) {
            weft__note_clear(&r->maker_note);
            return;
        }
        if (atomic_load(&r->rounds_on) != 0) {
            round_once(r, w);
        }
        if (weft__clock_now() >= r->helper_due) {
            return;
        }
    }
}
