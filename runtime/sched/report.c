/* What people read: the log line, the dump, the sums that statistics are made of. */
#include "sched/racy.h"
#include "sched/sched.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void weft__say(weft__r *r, int level, const char *line) {
    if (r != NULL && r->cfg.log != NULL) {
        r->cfg.log(r->cfg.hook_arg, level, line);
        return;
    }
    char out[1100];
    int n =
        snprintf(out, sizeof out, "%s%s\n", strncmp(line, "weft:", 5) == 0 ? "" : "weft: ", line);
    ssize_t w = write(STDERR_FILENO, out, (size_t)n < sizeof out ? (size_t)n : sizeof out - 1);
    (void)w;
}

void weft__log(weft__r *r, int level, const char *fmt, ...) {
    char line[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (level <= WEFT_LOG_WARNING || (r != NULL && r->cfg.log != NULL)) {
        weft__say(r, level, line);
    }
}

uint64_t weft__sum(weft__r *r, size_t offset) {
    uint64_t sum = 0;
    int nps = weft__nps(r);
    for (int i = -1; i < nps; i++) {
        weft__pstats *s = i < 0 ? &r->stats : &r->ps[i]->stats;
        sum += atomic_load_explicit((_Atomic uint64_t *)(void *)((char *)s + offset),
                                    memory_order_acquire);
    }
    return sum;
}

void weft__phist_add(weft__phist *h, int64_t ns) {
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    int b = v < 2 ? 0 : 63 - __builtin_clzll(v);
    weft__count(&h->bucket[b < 47 ? b : 47], 1);
    weft__count(&h->count, 1);
    weft__count(&h->sum, v);
    if (v > atomic_load_explicit(&h->max, memory_order_relaxed)) {
        atomic_store_explicit(&h->max, v, memory_order_relaxed);
    }
}

struct out {
    int fd, err;
    uint32_t most, gs; /* how many Gs to show, how many there were */
    size_t len;
    char buf[2048];
};

static void flush(struct out *o) {
    size_t at = 0;
    while (at < o->len && o->err == 0) {
        ssize_t n = write(o->fd, o->buf + at, o->len - at);
        if (n < 0 && errno != EINTR) {
            o->err = -errno;
        } else if (n > 0) {
            at += (size_t)n;
        }
    }
    o->len = 0;
}

WEFT_PRINTF(2, 3) static void put(struct out *o, const char *fmt, ...) {
    if (sizeof o->buf - o->len < 512) {
        flush(o);
    }
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->buf + o->len, sizeof o->buf - o->len, fmt, ap);
    va_end(ap);
    o->len += (size_t)n < sizeof o->buf - o->len ? (size_t)n : sizeof o->buf - o->len - 1;
}

/* A code address as people know it: symbol and offset, or file and offset. */
static void put_code(struct out *o, const char *before, const void *address) {
    Dl_info info;
    if (address == NULL) {
        return;
    }
    if (dladdr(address, &info) != 0 && info.dli_sname != NULL) {
        put(o, "%s%s+0x%zx", before, info.dli_sname,
            (size_t)((const char *)address - (const char *)info.dli_saddr));
    } else if (dladdr(address, &info) != 0 && info.dli_fname != NULL) {
        const char *base = strrchr(info.dli_fname, '/');
        put(o, "%s%s+0x%zx", before, base != NULL ? base + 1 : info.dli_fname,
            (size_t)((const char *)address - (const char *)info.dli_fbase));
    } else {
        put(o, "%s%p", before, address);
    }
}

/* "green thread 17 (name), started at worker+0x0": also in a signal handler. */
void weft__describe_g_start(const weft__g *g, char *buf, size_t bytes) {
    struct out o = {.fd = -1};
    weft__describe_g(g, o.buf, 128);
    o.len = strlen(o.buf);
    put_code(&o, ", started at ", (const void *)(uintptr_t)g->fn);
    snprintf(buf, bytes, "%s", o.buf);
}

static void put_g(weft__g *g, void *arg) {
    struct out *o = arg;
    static const char *const states[] = {"dead", "runnable", "running", "waiting"};
    unsigned status = atomic_load_explicit(&g->status, memory_order_relaxed);
    if (status == WEFT__G_DEAD) {
        return;
    }
    if (++o->gs > o->most) {
        return;
    }
    char who[128];
    weft__describe_g(g, who, sizeof who);
    put(o, "%s: %s%s", who, states[status], g->locked != 0 ? ", locked to its thread," : "");
    if (status == WEFT__G_WAITING) {
        put(o, " in %s", weft__reason_text[g->reason]);
        if (g->object != NULL) {
            put(o, " %p", g->object);
        }
        if (g->since != 0) {
            put(o, " for %lld ms", (long long)((weft__clock_now() - g->since) / WEFT_MILLISECOND));
        }
        put_code(o, " at ", g->site);
    }
    put_code(o, ", runs ", (const void *)(uintptr_t)g->fn);
    put_code(o, ", started at ", g->created_at);
    put(o, "\n");
}

/* Every P and up to `most` Gs, without stopping anybody: a G may change under the pen. */
int weft__dump(weft__r *r, int fd, uint32_t most) {
    struct out o = {.fd = fd, .most = most};
    weft__lock_take(&r->lock);
    uint32_t nm = r->nm, nmidle = r->nmidle;
    weft__lock_drop(&r->lock);
    put(&o, "weft runtime %s: %d Ps (%u idle), %u threads (%u idle)%s\n", r->name, weft__nprocs(r),
        atomic_load(&r->npidle), nm, nmidle,
        atomic_load(&r->polling) != 0 ? ", one in the poller" : "");
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        weft__p *p = r->ps[i];
        int64_t when = weft__tset_min(p->tset);
        put(&o, "P %d%s: %u queued, %u picks%s", i, i < weft__nprocs(r) ? "" : " (set aside)",
            weft__runq_len(p) + (atomic_load(&p->runnext) != NULL ? 1u : 0u) +
                (atomic_load(&p->offered) != NULL ? 1u : 0u),
            atomic_load(&p->tick), when != INT64_MAX ? "" : ", no timer\n");
        if (when != INT64_MAX) {
            put(&o, ", %u timers, next in %lld us\n", weft__tset_len(p->tset),
                (long long)((when - weft__clock_now()) / WEFT_MICROSECOND));
        }
    }
    weft__racy_reads_begin();
    weft__each_g(r, put_g, &o);
    weft__racy_reads_end();
    if (o.gs > most) {
        put(&o, "and %u green threads more\n", o.gs - most);
    }
    flush(&o);
    return o.err;
}
