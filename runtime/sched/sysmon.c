/*
 * sysmon: the runtime's own thread, without a P. It finds threads that keep a P without using it and
 * takes it from them (handoff.c has the protocol), starts an M for a timer that is late, and sees to it
 * that somebody watches the poller. It also trims surplus threads.
 *
 * When a P is taken. Each round looks at every P that has an M. A tick that moves is a good sign, and
 * the end of the look. One that stood still for 100 us makes its M a suspect:
 *   blocked    the thread sleeps (state S or D): at once; but while nothing waits for this P (its ring
 *              empty, no timer due, another P idle or spinning, the poller looked after) only after 10 ms.
 *              Not under a tool that runs one thread at a time (os/tracer.h): each seems to sleep there.
 *   computing  (inside too: a loop of calls) after 10 ms of the thread's own CPU time. A clock that
 *              stands still proves nothing: a thread that waits for a CPU has one too.
 *   late       a timer is overdue by 1 ms and no P is idle to run it: the P it belongs to, or else the
 *              one whose thread has been longest in user code.
 *
 * How it sleeps. Short (300 us) while something waits in a queue or the watch is empty; long (10 ms, but
 * never past the next timer and 1 ms) when nothing does; for ever when every P is idle. Two Dekker pairs:
 *   long      sysmon: sysmon_sleep = LONG; heavy fence; looks at queues, timers, watch once more.
 *             others: make work wait, or a timer earlier; fence (full, or light); read sysmon_sleep.
 *   for ever  sysmon: sysmon_sleep = FOR_EVER; full fence; reads npidle.
 *             others: lower npidle; then, before a G runs, read sysmon_sleep.
 *
 * Its looks at threads open files. So it has a table of descriptors of its own, where only the poller's
 * break is shared: a host that counts its descriptors, or has none left, does not meet ours. Therefore
 * no hook of the host is called on this thread, and nothing is logged: the maker's thread does that.
 *
 * The watch. As long as a P is idle, somebody should sleep in the poller if anything could come of it.
 * An M that comes back from there with work leaves the watch, and most often is back in a moment: it only
 * pokes sysmon. A round that finds the watch empty, as the round before did, with nobody having looked at
 * the poller meanwhile, starts an M on an idle P, which goes there.
 */
#include "os/tracer.h"
#include "sched/sched.h"

#include <string.h>

static const int64_t SHORT = 300 * WEFT_MICROSECOND, LONG = 10 * WEFT_MILLISECOND,
                     STILL = 100 * WEFT_MICROSECOND, SLICE = 10 * WEFT_MILLISECOND,
                     LATE = WEFT_MILLISECOND, RESIZING = 50 * WEFT_MICROSECOND,
                     KEEP_BUSY = 2 * WEFT_SECOND, KEEP_IDLE = 50 * WEFT_MILLISECOND;
enum { QUIET_ROUNDS = 8, IDLE_SHORT = 2, IDLE_LONG = 2 };

/* What sysmon knows of a P. */
struct seen {
    uint32_t tick;
    int64_t since; /* the tick has stood there at least since then */
    int64_t cpu;   /* its thread's CPU time then; -1: not read yet */
    weft__m *m;    /* whose P it was */
    bool raised;   /* asked back, and a fence crossed */
    bool chosen;   /* in this round */
    enum weft__handoff why;
    int still_looks; /* in a row with the CPU clock still: where the system shows no state */
    int64_t last_cpu;
};

/* Touched only as far as there are Ps. */
static const size_t SEEN_BYTES = WEFT__MOST_PROCS * sizeof(struct seen);

struct sysmon {
    weft__r *r;
    struct seen *seen; /* one a P */
    bool suspect;      /* the last round found the watch empty */
    int64_t looked;    /* last_poll then */
    int resizing;      /* rounds in a row in which the number of Ps was to change */
    int quiet;         /* short rounds in a row in which nothing waited */
    int idle;          /* long rounds in a row in which every P was idle */
    bool surplus;      /* there are more idle Ms than are kept */
    uint32_t spared;   /* so many at least in each round since `spared_since` */
    int64_t spared_since;
    int64_t trimmed; /* when they were looked at last */
};

/* ---- being woken ------------------------------------------------------------------------------- */

void weft__sysmon_wake(weft__r *r) {
    if (atomic_exchange(&r->sysmon_sleep, WEFT__SYSMON_SHORT) != WEFT__SYSMON_SHORT) {
        weft__note_wake(&r->sysmon_note);
    }
}

void weft__watch_dropped(weft__r *r) {
    weft__fence_full();
    if (atomic_load(&r->npidle) != 0) {
        weft__sysmon_poke(r);
    }
}

/* ---- the watch --------------------------------------------------------------------------------- */

bool weft__watch_empty(weft__r *r) { return atomic_load(&r->polling) == 0 && weft__poll_wanted(r); }

/* True: all is well. */
static bool look_at_watch(struct sysmon *s) {
    weft__r *r = s->r;
    int64_t looked = atomic_load_explicit(&r->last_poll, memory_order_relaxed);
    bool empty = atomic_load(&r->npidle) != 0 && weft__watch_empty(r);
    if (empty && s->suspect && looked == s->looked) {
        weft__fence_full();
        weft__wakep(r, &r->stats.wake_poll);
    }
    s->suspect = empty;
    s->looked = looked;
    return !empty;
}

/* ---- suspects ---------------------------------------------------------------------------------- */

static bool nothing_waits_for(weft__r *r, weft__p *p, int64_t now) {
    return !weft__runq_has_ring(p) && atomic_load(&p->offered) == NULL &&
           atomic_load(&p->runnext) == NULL && weft__timers_of(r, p) > now &&
           (atomic_load(&r->npidle) != 0 || atomic_load(&r->nmspinning) != 0) &&
           (atomic_load(&r->polling) != 0 || !weft__poll_wanted(r));
}

/* Where the system does not show a thread's state: its clock has stood still for three looks. */
static bool blocked_by_clock(struct seen *k, int64_t cpu, int64_t still) {
    k->still_looks = cpu >= 0 && cpu == k->last_cpu ? k->still_looks + 1 : 0;
    k->last_cpu = cpu;
    return k->still_looks >= 3 && still >= WEFT_MILLISECOND;
}

static enum weft__handoff judge_computing(struct seen *k, int64_t cpu) {
    if (k->cpu < 0 || cpu < 0) {
        k->cpu = cpu;
        return WEFT__HANDOFF_NONE;
    }
    return cpu - k->cpu >= SLICE ? WEFT__HANDOFF_COMPUTING : WEFT__HANDOFF_NONE;
}

static enum weft__handoff judge(weft__r *r, weft__p *p, struct seen *k, weft__m *m, int64_t now) {
    int64_t still = now - k->since;
#ifndef WEFT_CANARY_TRACED_SEEMS_BLOCKED
    if (weft__traced) {
        return judge_computing(k, weft__thread_cpu(m->thread));
    }
#endif
#ifdef WEFT_CANARY_BLOCKED_KEEPS_P
    char state = 'R';
#else
    char state = weft__thread_state(m->thread);
#endif
    int64_t cpu = state == 'S' || state == 'D' ? -1 : weft__thread_cpu(m->thread);
    if (state == 'S' || state == 'D' || (state == 0 && blocked_by_clock(k, cpu, still))) {
        return still >= SLICE || !nothing_waits_for(r, p, now) ? WEFT__HANDOFF_BLOCKED
                                                               : WEFT__HANDOFF_NONE;
    }
    return judge_computing(k, cpu);
}

/* One P's part of a round: is it to be asked back? */
static void look_at_p(weft__r *r, weft__p *p, struct seen *k, int64_t now) {
    weft__m *m = atomic_load_explicit(&p->m, memory_order_acquire);
    uint32_t tick = atomic_load_explicit(&p->tick, memory_order_relaxed);
    uint8_t change = weft__change_of(p); /* asked for by weft_set_procs, which waits for it */
    bool wanted = m != NULL && (change == WEFT__P_RETIRE || change == WEFT__P_SHARED);
    k->chosen = wanted;
    if (m == NULL || m != k->m || (tick != k->tick && !wanted) ||
        (k->raised && (atomic_load(&m->ticket) & WEFT__REVOKE) == 0)) { /* answered */
        *k = (struct seen){.m = m, .tick = tick, .since = now, .cpu = -1, .chosen = wanted};
    }
    if (wanted || k->since == now) {
        k->why = WEFT__HANDOFF_NONE;
        return;
    }
    if (now - k->since < STILL) {
        return;
    }
    if (k->raised) {
        k->chosen = true;
        return;
    }
    /* Inside it may sleep: it spins, or naps. But a loop of calls that never park is seen inside nearly
       always, and computes. */
    bool inside = atomic_load_explicit(&m->incall, memory_order_acquire) != 0;
    k->why = inside ? judge_computing(k, weft__thread_cpu(m->thread)) : judge(r, p, k, m, now);
    k->chosen = k->why != WEFT__HANDOFF_NONE;
}

/* A timer is late and no P is idle: one P more is asked back. */
static void look_at_late(struct sysmon *s, int64_t now) {
    weft__r *r = s->r;
    struct seen *longest = NULL;
    bool late = weft__tset_min(r->tset) <= now - LATE, own = false;
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        struct seen *k = &s->seen[i];
        bool mine = weft__tset_min(r->ps[i]->tset) <= now - LATE;
        late |= mine;
        if (k->m == NULL || now - k->since < STILL || own || k->chosen ||
            atomic_load_explicit(&k->m->incall, memory_order_acquire) != 0) {
            continue;
        }
        if (mine || longest == NULL || k->since < longest->since) {
            longest = k;
            own = mine;
        }
    }
#ifdef WEFT_CANARY_LATE_TIMER_WAITS
    late = false;
#endif
    if (!late) {
        return;
    }
    if (atomic_load(&r->npidle) != 0) {
        weft__fence_full();
        weft__wakep(r, &r->stats.wake_timer);
    } else if (longest != NULL) {
        longest->chosen = true;
        longest->why = WEFT__HANDOFF_LATE;
    }
}

/* An M to come for a P that will be taken: made now, since making one takes its time. */
static void order_spare(weft__r *r) {
    weft__lock_take(&r->lock);
    int strays = (int)atomic_load(&r->nstrays) + (int)r->nmlocked;
    bool order = r->midle == NULL && r->ncoming == 0 && !r->make_stop &&
                 (int)r->nm - strays <= weft__nprocs(r) &&
                 (int)(r->nm - atomic_load(&r->nlocked)) < r->cfg.max_threads;
    if (order) {
        weft__order_m(r);
    }
    weft__lock_drop(&r->lock);
    if (order) {
        weft__note_wake(&r->maker_note);
    }
}

static void count_taken(weft__r *r, enum weft__handoff why) {
    if (why == WEFT__HANDOFF_NONE) {
        return; /* for weft_set_procs */
    }
    atomic_fetch_add_explicit(why == WEFT__HANDOFF_BLOCKED ? &r->handoff_blocked
                                                           : &r->handoff_computing,
                              1, memory_order_relaxed);
    if (why == WEFT__HANDOFF_LATE) {
        atomic_fetch_add_explicit(&r->handoff_late, 1, memory_order_relaxed);
    }
}

static void take(weft__r *r, weft__p *p, struct seen *k) {
    if (!weft__retake(r, p, k->m)) {
        k->raised = true;
        return;
    }
    count_taken(r, k->why);
    k->m = NULL;
    if (weft__handoffp(r, p)) {
        atomic_fetch_add_explicit(&r->wake_sysmon, 1, memory_order_relaxed);
    }
}

static void retake_chosen(struct sysmon *s) {
    weft__r *r = s->r;
    bool any = false, fence = false;
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        any |= s->seen[i].chosen;
    }
    if (!any) {
        return;
    }
    atomic_store(&r->retaking, 1); /* H5 */
    for (int i = 0; i < nps; i++) {
        struct seen *k = &s->seen[i];
        if (k->chosen && !k->raised) {
            atomic_fetch_or(&k->m->ticket, WEFT__REVOKE);
            fence = true;
        }
    }
#ifdef WEFT_CANARY_RETAKE_WITHOUT_FENCE
    fence = false;
#endif
    if (fence) {
        weft__fence_heavy();
    }
    for (int i = 0; i < nps; i++) {
        if (s->seen[i].chosen) {
            take(r, r->ps[i], &s->seen[i]);
        }
    }
    atomic_store(&r->retaking, 0);
}

/* True: somebody is in user code for long. */
static bool look_at_ps(struct sysmon *s, int64_t now) {
    weft__r *r = s->r;
    bool still = false;
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        look_at_p(r, r->ps[i], &s->seen[i], now);
        still |= s->seen[i].m != NULL && now - s->seen[i].since >= STILL;
    }
    look_at_late(s, now);
    if (still) {
        order_spare(r);
    }
    retake_chosen(s);
    return still;
}

/* ---- threads ----------------------------------------------------------------------------------- */

/* Tells an idle M to end, if there is one. Records stay: whoever uses this one by the time of the wake is
   woken for nothing. */
static bool end_idle_m(weft__r *r) {
    weft__lock_take(&r->lock);
    weft__m **at = &r->midle;
    while (*at != NULL && (*at)->main) {
        at = &(*at)->idle_link;
    }
    weft__m *m = *at;
    if (m != NULL) {
        *at = m->idle_link;
        r->nmidle--;
        r->nm--;
        r->threads_ended++;
        m->parked = false;
        atomic_store(&m->exit, true);
        atomic_store(&m->asleep, false);
    }
    weft__lock_drop(&r->lock);
    if (m != NULL) {
        weft__note_wake(&m->note);
    }
    return m != NULL;
}

/* Ms that nobody has needed for a while are told to end; one for each P and a spare are kept. */
static void trim(struct sysmon *s, int64_t now) {
    weft__r *r = s->r;
    uint32_t out = 0;
    int64_t keep_for = s->idle > 0 ? KEEP_IDLE : KEEP_BUSY;
    if (now - s->trimmed < LONG) {
        return; /* the lock is wanted by others */
    }
    s->trimmed = now;
    weft__lock_take(&r->lock);
    uint32_t keep = (uint32_t)weft__nprocs(r) + 1;
    uint32_t surplus = r->nmidle > keep ? r->nmidle - keep : 0;
    s->surplus = surplus > 0;
    s->spared = surplus < s->spared ? surplus : s->spared;
    if (now - s->spared_since >= keep_for) {
        out = s->spared;
        s->spared = UINT32_MAX;
        s->spared_since = now;
    }
    weft__lock_drop(&r->lock);
    while (out > 0 && end_idle_m(r)) {
        out--;
    }
}

/* ---- sleeping ---------------------------------------------------------------------------------- */

static bool all_idle(weft__r *r) { return atomic_load(&r->npidle) == (uint32_t)weft__nprocs(r); }

static void set_owes(weft__r *r, uint8_t owes) {
    if (weft__solo(r->ps[0])) {
        atomic_store_explicit(&r->ps[0]->owes, owes, memory_order_relaxed);
    }
}

/* The first time at which a timer of a P that is not idle would be late. */
static int64_t first_late(weft__r *r) {
    int64_t first = weft__tset_min(r->tset);
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        int64_t min = weft__tset_min(r->ps[i]->tset);
        first = min < first ? min : first;
    }
    return first < INT64_MAX - LATE ? first + LATE : INT64_MAX;
}

static bool work_or_watch(weft__r *r) {
    return atomic_load(&r->resizes) != 0 || weft__work_waits(r) ||
           (atomic_load(&r->npidle) != 0 && weft__watch_empty(r));
}

static void sleep_long(weft__r *r, int64_t now) {
    set_owes(r, WEFT__OWED_NEXT | WEFT__OWED_WORK | WEFT__OWED_TIMER);
    atomic_store(&r->sysmon_sleep, WEFT__SYSMON_LONG);
    weft__fence_heavy();
    int64_t until = first_late(r);
    int64_t limit = atomic_load(&r->debug.watchdog),
            most = limit != 0 && limit < LONG ? limit : LONG;
    until = until < now + most ? until : now + most;
    if (!work_or_watch(r) && !atomic_load(&r->sysmon_stop)) {
        weft__note_sleep_until(&r->sysmon_note, until);
    }
    set_owes(r, 0);
    atomic_store(&r->sysmon_sleep, WEFT__SYSMON_SHORT);
}

/* They run without a P: no P will tell that there is something to look at. */
static bool watches_strays(weft__r *r) {
    return atomic_load(&r->debug.watchdog) != 0 && atomic_load(&r->nstrays) > 0;
}

static void sleep_for_ever(weft__r *r) {
    atomic_store(&r->sysmon_sleep, WEFT__SYSMON_FOR_EVER);
    weft__lock_take(&r->lock); /* who parks behind it sees FOR_EVER */
    bool surplus = r->nmidle > (uint32_t)weft__nprocs(r) + 1;
    weft__lock_drop(&r->lock);
    weft__fence_full();
    /* Strays are looked for behind the fence: one is counted before its P is idle, and who switches the
       watchdog on does so before he wakes us. */
    if (all_idle(r) && !surplus && !work_or_watch(r) && !watches_strays(r) &&
        !atomic_load(&r->sysmon_stop)) {
        weft__note_sleep(&r->sysmon_note);
    }
    atomic_store(&r->sysmon_sleep, WEFT__SYSMON_SHORT);
}

static void nap_short(weft__r *r, int64_t until) {
    if (!atomic_load(&r->sysmon_stop)) {
        weft__note_sleep_until(&r->sysmon_note, until);
    }
}

static void sleep_a_while(struct sysmon *s, bool calm, int64_t now) {
    weft__r *r = s->r;
    weft__note_clear(&r->sysmon_note);
    weft__fence_full(); /* cleared before `sysmon_stop` and `resizes` are read */
    if (atomic_load(&r->resizes) != 0) {
        return;
    }
    s->quiet = calm ? s->quiet + 1 : 0;
    s->idle = calm && all_idle(r) ? s->idle + 1 : 0;
    if (s->idle == 1) { /* what was needed while there was work is looked at anew */
        s->spared = UINT32_MAX;
        s->spared_since = now;
    }
    if (s->quiet < QUIET_ROUNDS && s->idle < IDLE_SHORT) {
        nap_short(r, now + SHORT);
    } else if (s->idle >= IDLE_SHORT + IDLE_LONG && !s->surplus && !watches_strays(r)) {
        sleep_for_ever(r);
        s->idle = 0;
    } else {
        sleep_long(r, now);
    }
}

static void *body(void *arg) {
    struct sysmon *s = arg;
    weft__r *r = s->r;
    weft__thread_exact_timers();
    weft__thread_own_files(weft__poller_break_fd(r->poller));
    s->spared = UINT32_MAX;
    s->spared_since = weft__clock_now();
    while (!atomic_load(&r->sysmon_stop)) {
        int64_t now = weft__clock_now();
        bool calm = look_at_watch(s);
        bool resizing = weft__resize_step(r);
        if ((r->cfg.flags & WEFT_EXCLUSIVE) == 0) {
            look_at_ps(s, now);
        }
        if (resizing && !weft__resize_step(r)) {
            continue; /* done, by what was taken in this round */
        }
        weft__watchdog_look(r, now);
        weft__follow_look(r, now);
        trim(s, now);
        calm = calm && !resizing && !weft__work_waits(r);
        s->resizing = resizing ? s->resizing + 1 : 0;
        if (resizing) {
            weft__note_clear(&r->sysmon_note);
            nap_short(r, now + (s->resizing < 40 ? RESIZING : SHORT));
        } else {
            sleep_a_while(s, calm, now);
        }
    }
    weft__pages_unmap(s->seen, SEEN_BYTES);
    weft__mem_free(s, sizeof *s);
    return NULL;
}

int weft__sysmon_start(weft__r *r) {
    struct sysmon *s = weft__mem_zalloc(sizeof *s);
    struct seen *seen = weft__pages_map(SEEN_BYTES);
    if (s == NULL || seen == NULL) {
        weft__mem_free(s, sizeof *s);
        if (seen != NULL) {
            weft__pages_unmap(seen, SEEN_BYTES);
        }
        return -ENOMEM;
    }
    s->r = r;
    s->seen = seen;
    int err = weft__thread_start(&r->sysmon, r->name, body, s);
    if (err != 0) {
        weft__pages_unmap(seen, SEEN_BYTES);
        weft__mem_free(s, sizeof *s);
    }
    return err;
}

void weft__sysmon_stop(weft__r *r) {
    atomic_store(&r->sysmon_stop, true);
    weft__note_wake(&r->sysmon_note);
    pthread_join(r->sysmon, NULL);
}
