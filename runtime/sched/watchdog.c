/*
 * watchdog=MS: who has kept a thread for longer than that without a wait: blocked in a plain call,
 * computing, or in a loop of calls that never park. One line for each such stay.
 *
 * sysmon looks in its rounds, at every M: a stay begins when the tick of the M's P moves, the M has another G,
 * or has given its P up by a hint, and goes on when the P is taken away; without a P an M goes on with the same
 * G until that waits. Nothing is known of the time before it was switched on. What it finds it leaves in a short list for the maker's
 * thread, which says it. What finds no room is only counted. A thread that waits for a CPU has done nothing
 * wrong: who does not sleep is told of by his thread's CPU time.
 *
 * scheddetail shows since when each runs, so stays are kept for it too.
 */
#include "os/tracer.h"
#include "sched/racy.h"
#include "sched/sched.h"

#include <stdio.h>

static void note(weft__r *r, weft__m *m, weft__g *g, int64_t ns, bool blocked) {
    struct weft__overlong o = {
        .g = g, .id = g->id, .thread = m->thread, .ns = ns, .blocked = blocked};
    weft__lock_take(&r->overlong_lock);
    if (r->noverlong < WEFT_COUNT(r->overlong)) {
        r->overlong[r->noverlong++] = o;
    } else {
        r->overlong_lost++;
    }
    weft__lock_drop(&r->overlong_lock);
    weft__note_wake(&r->maker_note);
}

/* The stays of those that have a P begin anew with each pick. */
static void look_at_ticks(weft__r *r, int64_t now) {
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        weft__p *p = r->ps[i];
        weft__m *m = atomic_load_explicit(&p->m, memory_order_acquire);
        uint32_t tick = atomic_load_explicit(&p->tick, memory_order_relaxed);
        if (m != NULL && (m->stay.p != p || m->stay.tick != tick)) {
            m->stay = (struct weft__stay){.p = p, .tick = tick, .since = now};
        }
    }
}

enum { HARDLY = 16, LOOKS_ASLEEP = 3 };

/* Where one thread runs at a time, each of the others seems to. Where no state is shown, who has hardly used
   a CPU does; a computing one may, if it gets none. */
static bool sleeps(weft__m *m, int64_t wall, int64_t used) {
    char state = weft__thread_state(m->thread);
    return (state == 'S' || state == 'D' || (state == 0 && used < wall / HARDLY)) && !weft__traced;
}

/* g has been on m since stay.since. True: it has been told of. */
static bool is_overlong(weft__r *r, weft__m *m, weft__g *g, int64_t now, int64_t limit) {
    int64_t cpu = weft__thread_cpu(m->thread);
    if (m->stay.cpu == 0) {
        m->stay.cpu = cpu;
    }
    int64_t wall = now - m->stay.since, used = cpu - m->stay.cpu;
    if (wall < limit) {
        return false;
    }
    if (used >= limit) { /* it may nap just now, but has computed */
        note(r, m, g, used, false);
        return true;
    }
    bool asleep = wall - used >= limit && sleeps(m, wall, used);
    m->stay.asleep = asleep ? m->stay.asleep + 1 : 0;
    if (m->stay.asleep < LOOKS_ASLEEP) { /* one who computes waits for a page, now and then */
        return false;
    }
    note(r, m, g, wall - used, true);
    return true;
}

/* The stay goes on, if it is still that of g and was looked at before. */
static void follow(weft__r *r, weft__m *m, weft__g *g, int64_t now, int64_t limit) {
    uint32_t hints = atomic_load_explicit(&m->hints, memory_order_relaxed);
    bool another = m->stay.id != g->id || m->stay.hints != hints;
#ifdef WEFT_CANARY_STAYS_OF_BEFORE
    another = false;
#endif
    if (another) {
        m->stay = (struct weft__stay){
            .p = m->stay.p, .tick = m->stay.tick, .since = now, .id = g->id, .hints = hints};
    } else if (limit != 0 && !m->stay.said && m->stay.since != now) {
        m->stay.said = is_overlong(r, m, g, now, limit);
    }
}

static bool is_on(weft__r *r, int64_t limit) {
    return limit != 0 ||
           (atomic_load(&r->debug.schedtrace) != 0 && atomic_load(&r->debug.scheddetail) != 0);
}

void weft__watchdog_look(weft__r *r, int64_t now) {
    int64_t limit = atomic_load_explicit(&r->debug.watchdog, memory_order_relaxed);
    bool went_on = r->keeps_stays;
    r->keeps_stays = is_on(r, limit);
    if (!r->keeps_stays) {
        return;
    }
#ifdef WEFT_CANARY_STAYS_OF_BEFORE
    went_on = true;
#endif
    weft__racy_reads_begin();
    look_at_ticks(r, now);
    weft__lock_take(&r->lock);
    weft__m *m = r->allm;
    weft__lock_drop(&r->lock);
    for (; m != NULL; m = m->all_link) {
        weft__g *g = m->g;
        if (!went_on || g == NULL || m->stay.since == 0 || atomic_load(&m->asleep)) {
            m->stay = (struct weft__stay){.since = now};
        } else {
            follow(r, m, g, now, limit);
        }
    }
    weft__racy_reads_end();
}

static void say(weft__r *r, const struct weft__overlong *o) {
    char who[256], line[400];
    snprintf(who, sizeof who, "green thread %llu, which has ended,", (unsigned long long)o->id);
    weft__racy_reads_begin();
    if (o->g->id == o->id && atomic_load(&o->g->status) != WEFT__G_DEAD) {
        weft__describe_g_start(o->g, who, sizeof who);
    }
    weft__racy_reads_end();
    snprintf(line, sizeof line, "watchdog: %s: has %s for %lld ms without a wait, on thread %ld",
             who, o->blocked ? "blocked" : "computed", (long long)(o->ns / WEFT_MILLISECOND),
             o->thread);
    weft__say(r, WEFT_LOG_WARNING, line);
}

void weft__watchdog_say(weft__r *r) {
    struct weft__overlong all[WEFT_COUNT(r->overlong)];
    weft__lock_take(&r->overlong_lock);
    uint32_t n = r->noverlong, lost = r->overlong_lost;
    for (uint32_t i = 0; i < n; i++) {
        all[i] = r->overlong[i];
    }
    r->noverlong = 0;
    r->overlong_lost = 0;
    weft__lock_drop(&r->overlong_lock);
    for (uint32_t i = 0; i < n; i++) {
        say(r, &all[i]);
    }
    if (lost > 0) {
        weft__log(r, WEFT_LOG_WARNING, "watchdog: and %u green threads more", lost);
    }
}
