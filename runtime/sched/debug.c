/*
 * WEFT_DEBUG and weft_debug: words that have the runtime say what it does. And schedtrace, the line about the
 * scheduler that it says every so often.
 *
 * A word's value is an atomic of the runtime's; who acts on it reads it at each of his rounds. Lines are
 * said by the maker's thread: a hook may take its time, and sysmon must not. While no word is on, nobody
 * does anything for it, and an idle runtime sleeps for ever.
 */
#include "sched/racy.h"
#include "sched/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words -------------------------------------------------------------------------------------- */

enum { MOST_MS = 3600 * 1000, MOST_SHOWN = 64 };

static const struct word {
    const char *name, *shown;
    size_t offset; /* of an _Atomic int64_t in weft__debug */
    bool is_flag;  /* 0 or 1, and 1 without a value; else milliseconds, kept in ns */
} words[] = {
    {"schedtrace", "schedtrace=MS", offsetof(weft__debug, schedtrace), false},
    {"scheddetail", "scheddetail", offsetof(weft__debug, scheddetail), true},
    {"watchdog", "watchdog=MS", offsetof(weft__debug, watchdog), false},
};

/* The value behind `name=`, or of a bare name; -1: it is none. */
static int64_t value_of(const struct word *w, const char *text, size_t len) {
    if (text == NULL) {
        return w->is_flag ? 1 : -1;
    }
    char digits[16], *end;
    if (len == 0 || len >= sizeof digits || text[0] < '0' || text[0] > '9') {
        return -1;
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    long n = strtol(digits, &end, 10);
    if (*end != '\0' || n > (w->is_flag ? 1 : MOST_MS)) {
        return -1;
    }
    return w->is_flag ? n : n * WEFT_MILLISECOND;
}

/* The word in text[0..len), and its value; NULL: it is none that we know. */
static const struct word *word_of(const char *text, size_t len, int64_t *value) {
    const char *eq = memchr(text, '=', len);
    size_t name = eq != NULL ? (size_t)(eq - text) : len;
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        if (strlen(words[i].name) == name && memcmp(words[i].name, text, name) == 0) {
            *value = value_of(&words[i], eq != NULL ? eq + 1 : NULL, len - name - (eq != NULL));
            return &words[i];
        }
    }
    return NULL;
}

static void complain(weft__r *r, const char *text, size_t len, const struct word *w) {
    len = len < MOST_SHOWN ? len : MOST_SHOWN; /* the list behind it shall find room */
    if (w != NULL) {
        weft__log(r, WEFT_LOG_WARNING, "WEFT_DEBUG: \"%.*s\": %s is what can be said", (int)len,
                  text, w->shown);
        return;
    }
    char known[128] = "";
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "", words[i].shown);
    }
    weft__log(r, WEFT_LOG_WARNING, "WEFT_DEBUG: unknown word \"%.*s\"; known are %s", (int)len,
              text, known);
}

/* Reads all words; those that are none are told to `aloud`, if it is not NULL. False: there were such. */
static bool read_words(const char *text, int64_t *values, weft__r *aloud) {
    bool good = true;
    while (*text != '\0') {
        size_t len = strcspn(text, ",");
        int64_t value = -1;
        const struct word *w = len > 0 ? word_of(text, len, &value) : NULL;
        if (w != NULL && value >= 0) {
            values[w - words] = value;
        } else if (len > 0) {
            good = false;
            if (aloud != NULL) {
                complain(aloud, text, len, w);
            }
        }
        text += len + (text[len] == ',');
    }
    return good;
}

static void set_words(weft__r *r, const int64_t *values) {
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        if (values[i] >= 0) {
            _Atomic int64_t *at = (void *)((char *)&r->debug + words[i].offset);
            atomic_store(at, values[i]);
        }
    }
}

static const int64_t UNSET[] = {-1, -1, -1};
_Static_assert(WEFT_COUNT(UNSET) == WEFT_COUNT(words), "a value for each word");

void weft__debug_env(weft__r *r, const char *text) {
    int64_t values[WEFT_COUNT(words)];
    memcpy(values, UNSET, sizeof values);
    read_words(text, values, r);
    set_words(r, values);
}

WEFT_API int weft_debug(weft_runtime *rt, const char *directives) {
    int64_t values[WEFT_COUNT(words)];
    memcpy(values, UNSET, sizeof values);
    if (directives == NULL || !read_words(directives, values, NULL)) {
        return -EINVAL;
    }
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    if (r == NULL) {
        return weft__no_runtime();
    }
    if (!weft__forked(r)) {
        set_words(r, values);
        weft__fence_full();
        weft__note_wake(&r->maker_note); /* each looks at what is new */
#ifndef WEFT_CANARY_DEBUG_WAKES_NO_SYSMON
        weft__sysmon_wake(r);
#endif
    }
    weft__r_give(taken);
    return 0;
}

/* ---- schedtrace --------------------------------------------------------------------------------- */

struct line {
    size_t len;
    char text[1024];
};

WEFT_PRINTF(2, 3) static void put(struct line *l, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->len, sizeof l->text - l->len, fmt, ap);
    va_end(ap);
    size_t room = sizeof l->text - l->len - 1;
    l->len += (size_t)n < room ? (size_t)n : room;
}

static uint32_t queued(weft__p *p) {
    uint32_t n = weft__runq_len(p); /* of two moments: perhaps more than there is room for */
    n = n < WEFT__RING ? n : WEFT__RING;
    return n + (atomic_load(&p->runnext) != NULL) + (atomic_load(&p->offered) != NULL);
}

static void say_sched(weft__r *r, int64_t now) {
    struct line l = {0};
    weft__lock_take(&r->lock);
    uint32_t nm = r->nm, nmidle = r->nmidle, waiting = r->nmlocked;
    weft__lock_drop(&r->lock);
    int procs = weft__nprocs(r), nps = weft__nps(r);
    uint32_t timers = weft__tset_len(r->tset);
    for (int i = 0; i < nps; i++) {
        timers += weft__tset_len(r->ps[i]->tset);
    }
    put(&l,
        "sched %lld ms: procs=%d idle=%u spinning=%u polling=%u threads=%u idle=%u without_p=%d "
        "locked_waiting=%u timers=%u injected=%d global=%u queues=[",
        (long long)((now - r->started_at) / WEFT_MILLISECOND), procs, atomic_load(&r->npidle),
        atomic_load(&r->nmspinning), atomic_load(&r->polling), nm, nmidle, atomic_load(&r->nstrays),
        waiting, timers, atomic_load(&r->inject) != NULL, atomic_load(&r->globq_len));
    for (int i = 0; i < procs && l.len < sizeof l.text - 16; i++) {
        put(&l, "%s%u", i > 0 ? " " : "", queued(r->ps[i]));
    }
    put(&l, "]");
    weft__say(r, WEFT_LOG_INFO, l.text);
}

static void put_runs(struct line *l, weft__m *m, int64_t now) {
    weft__g *g = m->g;
    if (g == NULL) {
        put(l, " looks for work");
    } else {
        put(l, " %s green thread %llu", atomic_load(&m->incall) != 0 ? "in a call of" : "runs",
            (unsigned long long)g->id);
        if (m->stay.id == g->id) {
            put(l, " for %lld ms", (long long)((now - m->stay.since) / WEFT_MILLISECOND));
        }
    }
    if ((atomic_load(&m->ticket) & WEFT__REVOKE) != 0) {
        put(l, ", asked for its P");
    }
    if (m->locked != NULL) {
        put(l, ", locked to it");
    }
}

/* Figures of others are read as they are, and said with nothing held back from a checker: a hook is user
   code. */
static void say_p(weft__r *r, weft__p *p, int64_t now) {
    struct line l = {0};
    weft__racy_reads_begin();
    weft__m *m = atomic_load(&p->m);
    put(&l, "  P %u: %u queued, %u picks, %u timers,", p->index, queued(p), atomic_load(&p->tick),
        weft__tset_len(p->tset));
    if (m == NULL) {
        put(&l, " %s", p->index < (uint32_t)weft__nprocs(r) ? "no thread" : "set aside");
    } else {
        put(&l, " thread %ld", m->thread);
        put_runs(&l, m, now);
    }
    weft__racy_reads_end();
    weft__say(r, WEFT_LOG_INFO, l.text);
}

static void say_m(weft__r *r, weft__m *m, int64_t now) {
    struct line l = {0};
    weft__racy_reads_begin();
    bool shown = m->thread == 0 || m->joined || m->p != NULL; /* or has not begun, or has ended */
    if (!shown) {
        put(&l, "  thread %ld: no P,", m->thread);
    }
    if (!shown && atomic_load(&m->asleep)) {
        put(&l, " asleep");
    } else if (!shown) {
        put_runs(&l, m, now);
    }
    weft__racy_reads_end();
    if (!shown) {
        weft__say(r, WEFT_LOG_INFO, l.text);
    }
}

static void say_detail(weft__r *r, int64_t now) {
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        say_p(r, r->ps[i], now);
    }
    weft__lock_take(&r->lock);
    weft__m *all = r->allm;
    weft__lock_drop(&r->lock);
    for (weft__m *m = all; m != NULL; m = m->all_link) {
        say_m(r, m, now);
    }
}

int64_t weft__schedtrace_look(weft__r *r) {
    int64_t period = atomic_load(&r->debug.schedtrace);
    if (period == 0) {
        r->trace_due = 0;
        return INT64_MAX;
    }
    int64_t now = weft__clock_now();
    if (r->trace_due == 0 || r->trace_due > now + period) {
        r->trace_due = now + period;
    }
    if (now >= r->trace_due) {
        r->trace_due += period;
        r->trace_due = r->trace_due > now ? r->trace_due : now + period;
        say_sched(r, now);
        if (atomic_load(&r->debug.scheddetail) != 0) {
            say_detail(r, now);
        }
    }
    return r->trace_due;
}
