/* weft_stats and weft_dump: figures and pictures for people, from what the scheduler keeps. */
#include "sched/sched.h"

#include <string.h>
#include <weft/inspect.h>

struct count {
    uint64_t running, runnable, waiting;
};

static void count_g(weft__g *g, void *arg) {
    struct count *c = arg;
    switch (atomic_load_explicit(&g->status, memory_order_relaxed)) {
    case WEFT__G_RUNNING:
        c->running++;
        break;
    case WEFT__G_RUNNABLE:
        c->runnable++;
        break;
    case WEFT__G_WAITING:
        c->waiting++;
        break;
    default:
        break;
    }
}

#define SUM(r, field) weft__sum((r), offsetof(weft__pstats, field))

/* `at`: of a weft__phist in weft__pstats. */
static void fill_hist(weft__r *r, size_t at, weft_hist *h) {
    h->count = weft__sum(r, at + offsetof(weft__phist, count));
    h->sum = weft__sum(r, at + offsetof(weft__phist, sum));
    for (size_t b = 0; b < WEFT_COUNT(h->bucket); b++) {
        h->bucket[b] = weft__sum(r, at + offsetof(weft__phist, bucket) + b * sizeof(uint64_t));
    }
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        weft__phist *of_p = (weft__phist *)(void *)((char *)&r->ps[i]->stats + at);
        uint64_t max = atomic_load_explicit(&of_p->max, memory_order_relaxed);
        h->max = max > h->max ? max : h->max;
    }
}

static void fill(weft__r *r, weft_stats *s) {
    struct count c = {0};
    weft__each_g(r, count_g, &c);
    s->gs_running = c.running;
    s->gs_runnable = c.runnable;
    s->gs_waiting = c.waiting;
    s->gs_ended = SUM(r, ended);
    s->gs_created = SUM(r, created);
    weft__lock_take(&r->lock);
    s->threads =
        r->threads_created - r->threads_ended + (r->main_m != NULL) + 2; /* maker, sysmon */
    s->threads_idle = r->nmidle;
    s->threads_created = r->threads_created + 2;
    weft__lock_drop(&r->lock);
    s->timers_pending = weft__tset_len(r->tset);
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        s->timers_pending += weft__tset_len(r->ps[i]->tset);
    }
    s->timers_fired = SUM(r, timers_fired);
    int64_t conns = atomic_load(&r->conns_open);
    s->conns_open = conns > 0 ? (uint64_t)conns : 0;
    s->steals = SUM(r, steals);
    s->injections = SUM(r, injected);
    s->migrations = SUM(r, migrations);
    s->wake_work = SUM(r, wake_work);
    s->wake_timer = SUM(r, wake_timer);
    s->wake_poll = SUM(r, wake_poll);
    s->polls = SUM(r, polls);
    s->stack_bytes_reserved = weft__stacks_reserved(r->stacks);
    fill_hist(r, offsetof(weft__pstats, timer_late), &s->timer_late);
    fill_hist(r, offsetof(weft__pstats, queue_wait), &s->queue_wait);
    int32_t strays = atomic_load(&r->nstrays);
    s->gs_blocked = strays > 0 ? (uint64_t)strays : 0;
    s->gs_blocked = s->gs_blocked < s->gs_running ? s->gs_blocked : s->gs_running;
    s->gs_running -= s->gs_blocked;
    weft__lock_take(&r->offload_lock);
    s->offload_queued = r->offload_queued;
    s->offload_running = r->offloads;
    weft__lock_drop(&r->offload_lock);
    s->wake_sysmon = atomic_load(&r->wake_sysmon);
    s->handoff_blocked = atomic_load(&r->handoff_blocked);
    s->handoff_computing = atomic_load(&r->handoff_computing);
    s->handoff_hint = atomic_load(&r->handoff_hint);
    s->handoff_false = atomic_load(&r->handoff_false);
    s->handoff_late = atomic_load(&r->handoff_late);
    s->handoff_gave_up = atomic_load(&r->handoff_gave_up);
}

WEFT_API int weft_stats_read(weft_runtime *rt, weft_stats *out, size_t bytes) {
    weft__m *m = weft__enter_nopark();
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    int err = weft__no_runtime();
    if (out == NULL) {
        err = -EINVAL;
    } else if (r != NULL) {
        weft_stats s;
        memset(&s, 0, sizeof s);
        fill(r, &s);
        memset(out, 0, bytes);
        memcpy(out, &s, bytes < sizeof s ? bytes : sizeof s);
        err = 0;
    }
    weft__r_give(taken);
    weft__leave(m);
    return err;
}

WEFT_API int weft_dump(weft_runtime *rt, int fd) {
    weft__m *m = weft__enter_nopark();
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    weft__leave(m); /* it may write for long, and the G stays where it is */
    int err = r != NULL ? weft__dump(r, fd, UINT32_MAX) : weft__no_runtime();
    weft__r_give(taken);
    return err;
}
