/*
 * A program that is dead: no M runs, no timer in any heap, nobody waits on a descriptor, nothing is
 * injected, and green threads are left. Looked for whenever the last M goes idle; an M that has been
 * ordered, or that somebody is about to wake, counts as running (nm is raised, nmidle lowered, under
 * the lock that also guards the idle lists). The thread of weft_run is no M any more once main has
 * ended: by return, the rest is about to be cancelled; by weft_exit, the rest can be dead.
 *
 * A thread that is inside from outside (users) may be about to bring something, and will be out in a
 * moment without looking back: whoever cannot tell because of it looks again a little later.
 */
#include "sched/sched.h"

#include <stdlib.h>
#include <unistd.h>

bool weft__no_g_left(weft__r *r) {
    /* ended first: both only grow and ended never passes created, so equal sums mean that at some
       moment between nothing lived; and while stopping nothing is born any more. */
    uint64_t ended = weft__sum(r, offsetof(weft__pstats, ended));
    return ended == weft__sum(r, offsetof(weft__pstats, created));
}

static bool something_may_come(weft__r *r) {
    if (r->globq.len > 0 || atomic_load(&r->inject) != NULL || atomic_load(&r->poll_waiters) > 0 ||
        weft__tset_min(r->tset) != INT64_MAX) {
        return true;
    }
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        weft__p *p = r->ps[i];
        if (weft__tset_min(p->tset) != INT64_MAX || weft__runq_has_ring(p) ||
            atomic_load(&p->runnext) != NULL || atomic_load(&p->offered) != NULL) {
            return true;
        }
    }
    return false;
}

/* Somebody who is no part of r may wake a G of it. Whoever takes back the last word of this kind has
   the maker's thread look again, or is a G, and so looked at when it parks. */
static bool has_outsiders(weft__r *r) {
    return atomic_load(&r->externals) != 0 || atomic_load(&r->abroad) != 0 ||
           atomic_load(&r->ntriggers) != 0;
}

weft__verdict weft__checkdead(weft__r *r) {
    uint32_t busy = weft__busy_ms(r);
    bool poller = busy == 1 && atomic_load(&r->polling) != 0;
    if ((busy != 0 && !poller) || r->make_list != NULL) {
        return WEFT__ALIVE;
    }
    if (atomic_load(&r->leave_main) != 0 && !r->main_exited) {
        return WEFT__ALIVE;
    }
    if ((r->cfg.flags & WEFT_STUCK_IGNORE) != 0 || r->dead || r->make_stop || has_outsiders(r)) {
        return WEFT__ALIVE;
    }
    if (atomic_load(&r->stopping) != 0 &&
        (atomic_load(&r->draining) != 0 || atomic_load(&r->cancel_settled) == 0)) {
        return WEFT__ALIVE; /* whoever waits for the end has a limit; or it may still be cut off */
    }
    /* In this order: a G that counts has been injected once its submitter is no user any more, and
       nobody takes it from there while no M runs. */
    if (weft__no_g_left(r)) {
        return WEFT__ALIVE;
    }
    /* A retaker has a P in its hands, and will place it. */
    bool users = atomic_load(&r->users) != 0 || atomic_load(&r->retaking) != 0;
    if (something_may_come(r)) {
        return WEFT__ALIVE;
    }
    if (users) {
        return WEFT__UNSURE;
    }
    if (poller) { /* it sleeps for what is no more: it shall come back and be the last */
        weft__poller_break(r->poller);
        return WEFT__ALIVE;
    }
    atomic_store(&r->dead, true);
    return WEFT__DEAD;
}

void weft__stuck_report(weft__r *r) {
    uint64_t left =
        weft__sum(r, offsetof(weft__pstats, created)) - weft__sum(r, offsetof(weft__pstats, ended));
    weft__log(r, WEFT_LOG_ERROR,
              "weft: deadlock: %llu green thread%s wait%s and nothing can wake %s",
              (unsigned long long)left, left == 1 ? "" : "s", left == 1 ? "s" : "",
              left == 1 ? "it" : "them");
    weft__dump(r, STDERR_FILENO, WEFT__REPORT_MOST);
    if ((r->cfg.flags & WEFT_STUCK_FATAL) != 0) {
        abort();
    }
    weft__main_out(r);
}
