/*
 * A runtime's life: configured, started, run, stopped.
 *
 * weft_run lends the calling thread as the first M and takes it back when main has ended; weft_start
 * makes threads only. Both end in the same way (drain, then teardown): spawns are refused, every
 * cancellable wait is ended again and again until no G is left or the limit is past; then the
 * threads are joined and everything is given back. Past the limit nothing is freed: weft_stop may be called
 * again, and for weft_run shell.c sees to the rest.
 *
 * The stop's order against parking Gs: all cancel flags are set, one heavy fence, then words are
 * claimed (park.c has the other side).
 */
#include "os/cpu.h"
#include "os/tracer.h"
#include "sched/sched.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST_PROCS = WEFT__MOST_PROCS, LEAST_STACK = 16 * 1024 };
static const int64_t RESCAN = 2 * WEFT_MILLISECOND;

/* ---- configuration ----------------------------------------------------------------------------- */

static const char *env_of(const weft_config *c, const char *name) {
    if ((c->flags & WEFT_IGNORE_ENV) != 0 || !weft__cpu_env_allowed()) {
        return NULL;
    }
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

/* A plain number with an optional K or M behind it; -1 if it is not one. */
static long long number_of(const char *text) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || n < 0 || n > INT_MAX) {
        return -1;
    }
    if (*end == 'K' || *end == 'k') {
        n *= 1024;
        end++;
    } else if (*end == 'M' || *end == 'm') {
        n *= 1024 * 1024;
        end++;
    }
    return *end == '\0' ? n : -1;
}

static void read_env(weft__r *r, weft_config *c) {
    const char *v = c->procs == 0 ? env_of(c, "WEFT_PROCS") : NULL;
    if (v != NULL) {
        long long n = number_of(v);
        if (n >= 1 && n <= MOST_PROCS) {
            r->default_procs = c->procs = (int)n;
        } else {
            weft__log(r, WEFT_LOG_WARNING, "WEFT_PROCS=%s is not a number from 1 to %d: ignored", v,
                      MOST_PROCS);
        }
    }
    v = env_of(c, "WEFT_DEBUG");
    if (v != NULL) {
        weft__debug_env(r, v);
    }
    v = c->stack_size == 0 ? env_of(c, "WEFT_STACK") : NULL;
    if (v != NULL) {
        long long n = number_of(v);
        if (n >= LEAST_STACK) {
            c->stack_size = (size_t)n;
        } else {
            weft__log(r, WEFT_LOG_WARNING, "WEFT_STACK=%s is not a size of at least 16K: ignored",
                      v);
        }
    }
}

int weft__default_procs(weft__r *r) {
    if (r->default_procs != 0) {
        return r->default_procs;
    }
    int n = weft__cpu_default_procs("");
    return n < MOST_PROCS ? n : MOST_PROCS;
}

static bool reserved_is_zero(const weft_config *c) {
    bool zero = c->reserved0[0] == NULL && c->reserved0[1] == NULL && c->reserved1 == NULL;
    for (size_t i = 0; i < WEFT_COUNT(c->reserved); i++) {
        zero &= c->reserved[i] == NULL;
    }
    return zero;
}

static int fill_config(weft__r *r, const weft_config *in, bool started) {
    weft_config *c = &r->cfg;
    *c = weft_config_default();
    int err = weft__options_read(c, sizeof *c, offsetof(weft_config, procs), in);
    if (err != 0) {
        return err;
    }
    if (!reserved_is_zero(c) || c->procs < 0 || c->procs > MOST_PROCS || c->max_threads < 0 ||
        (c->stack_size != 0 && c->stack_size < LEAST_STACK)) {
        return -EINVAL;
    }
    read_env(r, c);
    if (c->procs == 0) {
        c->procs = weft__default_procs(r);
        atomic_store(&r->follows, true);
    }
    c->max_threads =
        c->max_threads != 0 ? c->max_threads : (c->procs + 1 > 512 ? c->procs + 1 : 512);
    if (c->max_threads < c->procs + 1) {
        return -EINVAL;
    }
    c->stack_size = c->stack_size != 0 ? c->stack_size : 256 * 1024;
    c->stop_limit = c->stop_limit != 0 ? c->stop_limit : 5 * WEFT_SECOND;
    if (started && (c->flags & WEFT_STUCK_FATAL) == 0) {
        c->flags |= WEFT_STUCK_IGNORE;
    }
    snprintf(r->name, sizeof r->name, "%s", c->name != NULL ? c->name : "weft");
    c->name = r->name;
    r->started = started;
    return 0;
}

/* ---- making and freeing ------------------------------------------------------------------------ */

static const size_t PS_BYTES = MOST_PROCS * sizeof(weft__p *),
                    MASK_BYTES = MOST_PROCS / 64 * sizeof(uint64_t);

static int make_ps(weft__r *r) {
    int n = r->cfg.procs;
    r->ps = weft__mem_zalloc(PS_BYTES);
    r->idle_mask = weft__mem_zalloc(MASK_BYTES);
    r->order = weft__order_new((uint32_t)n);
    r->tset = weft__tset_new(r);
    if (r->ps == NULL || r->idle_mask == NULL || r->order == NULL || r->tset == NULL) {
        return -ENOMEM;
    }
    atomic_store(&r->nprocs, n);
    for (int i = 0; i < n; i++) {
        r->ps[i] = weft__p_new(r);
        if (r->ps[i] == NULL) {
            return -ENOMEM;
        }
        r->ps[i]->index = (uint32_t)i;
        atomic_store(&r->ps[i]->change, n == 1 ? WEFT__P_SOLO : WEFT__P_SHARED);
        atomic_store(&r->nps, i + 1);
    }
    for (int i = n - 1; i >= 0; i--) {
        weft__pidleput(r, r->ps[i]);
    }
    return 0;
}

/* Also called when only some have been made; twice is harmless. */
static void close_tsets(weft__r *r) {
    for (int i = 0; i < weft__nps(r); i++) {
        if (r->ps[i]->tset != NULL) {
            weft__tset_close(r->ps[i]->tset);
            r->ps[i]->tset = NULL;
        }
    }
    if (r->tset != NULL) {
        weft__tset_close(r->tset);
        r->tset = NULL;
    }
}

/* All that r owns but threads. Whatever was not made is NULL. */
static void free_parts(weft__r *r) {
    if (r->cfg.fatal != NULL) {
        weft__fatal_drop_hook(r->cfg.fatal, r->cfg.hook_arg);
    }
    close_tsets(r);
    for (int i = 0; i < weft__nps(r); i++) {
        weft__p_free(r->ps[i]);
    }
    weft__follow_end(r);
    if (r->stacks != NULL) {
        weft__hook_stacks_go(r);
        weft__g_free_all(r);
        weft__overflow_unwatch(r->stacks);
        weft__stacks_free(r->stacks);
    }
    if (r->catches_overflow) {
        weft__overflow_remove();
    }
    weft__poller_close(r->poller);
    if (r->life != NULL) {
        weft__pages_unmap(r->life, sizeof *r->life);
    }
    weft__mem_free(r->ps, PS_BYTES);
    weft__mem_free(r->idle_mask, MASK_BYTES);
    weft__order_free(r->order);
    for (weft__m *m = r->allm; m != NULL;) {
        weft__m *next = m->all_link;
        weft__pages_unmap(m, sizeof *m);
        m = next;
    }
    weft__mem_free_aligned(r, sizeof *r, WEFT__LINE);
}

/* The G, if any, that runs on st: for the overflow report, in a signal handler. */
static void describe_stack(const weft__stack *st, char *buf, size_t bytes) {
    weft__m *m = weft__m_self();
    weft__g *g = m != NULL ? m->g : NULL;
    if (g != NULL && g->stack.low == st->low) {
        weft__describe_g_start(g, buf, bytes);
    } else {
        snprintf(buf, bytes, "a green thread that does not run here");
    }
}

static void fatal_who(char *buf, size_t bytes) {
    weft__m *m = weft__m_self();
    if (m != NULL && m->g != NULL && !m->g->standin) {
        weft__describe_g(m->g, buf, bytes);
    }
}

static void init_once(void) {
    weft__fork_holds(&weft__attach_lock);
    weft__fork_holds(&weft__trigger_lock);
    weft__fork_holds(&weft__tset_pool_lock);
    weft__fork_holds(&weft__standin_lock);
    weft__library_pin();
    weft__fence_init();
    weft__tracer_look();
    weft__stack_entry = weft__g_entry;
    weft__fatal_who = fatal_who;
    weft__overflow_describe = describe_stack;
}

void weft__process_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
}

static int catch_overflow(weft__r *r) {
    if ((r->cfg.flags & WEFT_CATCH_OVERFLOW) == 0) {
        return 0;
    }
    int err = weft__overflow_install();
    r->catches_overflow = err == 0;
    return err != 0 ? err : weft__overflow_watch(r->stacks);
}

bool weft__forked(const weft__r *r) {
    return atomic_load_explicit(r->life, memory_order_relaxed) == 0;
}

static int runtime_new(weft__r **out, const weft_config *cfg, bool started) {
    weft__process_init();
    weft__r *r = weft__mem_alloc_aligned(sizeof *r, WEFT__LINE);
    if (r == NULL) {
        return -ENOMEM;
    }
    memset(r, 0, sizeof *r);
    atomic_store(&r->next_id, 1);
    r->helper_due = INT64_MAX;
    r->started_at = weft__clock_now();
    int err = fill_config(r, cfg, started);
    if (err != 0) {
        weft__mem_free_aligned(r, sizeof *r, WEFT__LINE);
        return err;
    }
    err = make_ps(r);
    if (err == 0) {
        r->life = weft__pages_map(sizeof *r->life);
        err = r->life != NULL ? 0 : -ENOMEM;
    }
    if (err == 0) {
        atomic_store(r->life, 1);
        err = weft__stacks_new(&r->stacks, r->cfg.stack_size, r->cfg.max_stack_bytes);
    }
    if (err == 0) {
        err = weft__poller_open(&r->poller);
    }
    if (err == 0) {
        err = catch_overflow(r);
    }
    if (err == 0) {
        err = weft__maker_start(r);
    }
    if (err == 0) {
        err = weft__sysmon_start(r);
        if (err != 0) {
            weft__maker_stop(r);
        }
    }
    if (err != 0) {
        free_parts(r);
        return err;
    }
    if (r->cfg.fatal != NULL) {
        weft__fatal_set_hook(r->cfg.fatal, r->cfg.hook_arg);
    }
    *out = r;
    return 0;
}

/* ---- stopping ---------------------------------------------------------------------------------- */

static void set_cancel(weft__g *g, void *arg) {
    (void)arg;
    atomic_store_explicit(&g->cancel, 1, memory_order_relaxed);
}

static void claim_cancel(weft__g *g, void *arg) {
    weft__glist *l = arg;
    if (atomic_load_explicit(&g->status, memory_order_relaxed) != WEFT__G_DEAD &&
        weft__cancel_claim(g)) {
        weft__glist_push(l, g);
    }
}

uint32_t weft__cancel_all(weft__r *r) {
    weft__glist l = {0};
    weft__each_g(r, set_cancel, NULL);
    weft__fence_heavy();
    weft__each_g(r, claim_cancel, &l);
    uint32_t n = l.len;
    weft__g *g;
    while ((g = weft__glist_pop(&l)) != NULL) {
        weft__inject(r, g);
    }
    return n;
}

/* Until `when`, or till somebody says that it may be over. A G of another runtime parks: its P has
   others to run, perhaps those that this stop waits for. */
static void wait_a_while(weft__r *r, int64_t when) {
    weft__m *m = weft__m_self();
    if (m == NULL || m->r == NULL) {
        weft__note_sleep_until(&r->drained, when);
        weft__note_clear(&r->drained);
        return;
    }
    weft__cause unused;
    m = weft__enter();
    weft__park_begin(m->g, false);
    m = weft__park_free(m, when, WEFT__WAIT_SLEEP, NULL, NULL, &unused);
    weft__leave(m);
}

static void report_left(weft__r *r) {
    uint32_t externals = atomic_load(&r->externals);
    if (externals != 0) {
        weft__log(r, WEFT_LOG_ERROR,
                  "%u weft_external_begin without an end after the limit of the stop", externals);
    }
    if (weft__no_g_left(r)) {
        return;
    }
    weft__log(r, WEFT_LOG_ERROR, "green threads are left behind after the limit of the stop");
    weft__dump(r, STDERR_FILENO, WEFT__REPORT_MOST);
}

static int64_t end_of(weft_duration limit) {
    return limit < 0 ? INT64_MAX : weft_time_add(weft_time_at(weft__clock_now()), limit).ns;
}

/* Waits until no G is left; cancelling them if so told. On a thread that runs no G of r.
   Who starts one from outside enters it in the books before he looks at `stopping`; here it is the
   other way round, so a G that is started after all is waited for. */
static int drain(weft__r *r, bool cancel, weft_duration limit) {
    int64_t end = end_of(limit);
    bool closing = cancel;
    atomic_store(&r->draining, 1);
    if (cancel) {
        atomic_store(&r->stopping, 1);
        atomic_store(&r->cancelling, 1);
    }
    weft__fence_full(); /* told before the books are read */
    while (!atomic_load(&r->dead)) {
        if (!cancel && atomic_load(&r->cancelling) != 0) { /* asked for meanwhile */
            cancel = closing = true;
            end = end_of(limit);
        }
        bool gone = weft__no_g_left(r);
        if (gone && closing && atomic_load(&r->externals) == 0) {
            return 0;
        }
        if (gone && !closing) {
            closing = true; /* the rest has run to its end: from here nobody begins */
            atomic_store(&r->stopping, 1);
            weft__fence_full();
            continue;
        }
        if (cancel) {
            weft__cancel_all(r);
        }
        int64_t now = weft__clock_now();
        if (cancel && now >= end) {
            report_left(r);
            return -ETIMEDOUT;
        }
        int64_t next = now + RESCAN < end ? now + RESCAN : end;
        wait_a_while(r, cancel ? next : INT64_MAX);
        weft__fence_full(); /* and the note cleared */
    }
    return -EDEADLK;
}

/* Its Gs stand in queues of the user's: what they stand on stays, and leak checkers find it here. */
static void keep_dead(weft__r *r) {
    static weft__lock lock;
    static weft__r *dead;
    weft__lock_take(&lock);
    r->dead_link = dead;
    dead = r;
    weft__lock_drop(&lock);
}

/* They are inside for a moment only. */
static void wait_for_users(weft__r *r) {
    while (atomic_load(&r->users) != 0) {
        wait_a_while(r, weft__clock_now() + 20 * WEFT_MICROSECOND);
    }
}

void weft__teardown(weft__r *r) {
    bool dead = atomic_load(&r->dead);
    weft__attach_detach_all(r);
    wait_for_users(r); /* of the attached, before what they use goes */
    weft__sysmon_stop(r);
    weft__maker_stop(r);
    weft__triggers_stop(r);
    weft__ms_stop(r);
    void (*net_stop)(weft__r *) = atomic_load(&r->net_stop);
    if (net_stop != NULL) {
        net_stop(r);
    }
    if (dead) {
        keep_dead(r);
        return;
    }
    close_tsets(r);
    /* Calls from outside that were under way have been told to end. */
    while (atomic_load(&r->conns_open) != 0) {
        wait_a_while(r, weft__clock_now() + 20 * WEFT_MICROSECOND);
    }
    wait_for_users(r);
    free_parts(r);
}

/* Calls the thread of weft_run out of the scheduler, or out of its wait for the rest. */
void weft__main_out(weft__r *r) {
    weft__m *m = r->main_m;
    if (m == NULL) {
        return;
    }
    bool wake = false;
    weft__lock_take(&r->lock);
    atomic_store(&r->leave_main, 1);
    if (m->parked) {
        weft__m **at = &r->midle;
        while (*at != m) {
            at = &(*at)->idle_link;
        }
        *at = m->idle_link;
        r->nmidle--;
        m->parked = false;
        atomic_store(&m->asleep, false);
        wake = true;
    }
    weft__lock_drop(&r->lock);
    if (wake) {
        weft__note_wake(&m->note);
    } else {
        weft__locked_rouse(m);
        weft__poller_break(r->poller);
    }
    weft__note_wake(&r->drained);
}

void weft__main_ends(weft__r *r, int result, bool by_exit) {
    r->main_result = result;
    r->main_exited = by_exit;
    weft__main_out(r);
}

/* ---- the public calls -------------------------------------------------------------------------- */

static int first_g(weft__r *r, weft__m *m, weft_fn app, void *arg, const void *site) {
    int err;
    weft__g *g = weft__g_new(m, r, app, arg, site, &err);
    if (g != NULL) {
        g->is_main = true;
        weft__ready(m, g);
    }
    return err;
}

/* The calling thread serves as an M until main has ended. */
static int run_here(weft__r *r, weft_fn app, void *arg, const void *site) {
    weft__m *before = weft__m_self();
    weft__m *m = weft__m_new(r);
    if (m == NULL) {
        return -ENOMEM;
    }
    m->main = true;
    r->main_m = m;
    weft__lock_take(&r->lock);
    r->nm = 1;
    weft__lock_drop(&r->lock);
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    weft__sigstack sig;
    bool has_sig = weft__sigstack_setup(&sig) == 0;
    weft__thread_exact_timers();
    weft__m_begin(m);
    weft__takep(m);
    int err = first_g(r, m, app, arg, site);
    if (err != 0) {
        atomic_store(&m->exit, true);
    }
    weft__serve(m);
    weft__m_end(m);
    if (!m->tainted) { /* then it has said so before */
        weft__m_gone(r);
    }
    if (has_sig) {
        weft__sigstack_teardown(&sig);
    }
    prctl(PR_SET_TIMERSLACK, slack > 0 ? slack : 0, 0, 0, 0);
    weft__m_set_self(before);
    return err;
}

/* Of the calling G. To run or stop a runtime a thread may well be attached to it. */
static weft__r *own_runtime(void) {
    weft__m *m = weft__m_self();
    return m != NULL ? m->r : NULL;
}

WEFT_API int weft_run(weft_fn app, void *arg, const weft_config *cfg, int *status) {
    if (app == NULL) {
        return -EINVAL;
    }
    if (own_runtime() != NULL) {
        return -EDEADLK;
    }
    weft__r *r;
    int err = runtime_new(&r, cfg, false);
    if (err != 0) {
        return err;
    }
    err = run_here(r, app, arg, weft__caller());
    if (err == 0) {
        err = drain(r, !r->main_exited, r->cfg.stop_limit);
    }
    int result = r->main_result;
    if (err == -ETIMEDOUT) {
        weft__shell_leave(r);
    } else {
        weft__teardown(r);
    }
    if (err == 0 && status != NULL) {
        *status = result;
    }
    return err;
}

struct app {
    int argc;
    char **argv;
    int (*fn)(int argc, char **argv);
};

static int app_body(void *arg) {
    struct app *a = arg;
    return a->fn(a->argc, a->argv);
}

WEFT_API int weft_main(int argc, char **argv, int (*app)(int argc, char **argv)) {
    struct app a = {argc, argv, app};
    weft_config cfg = weft_config_default();
    cfg.flags = WEFT_CATCH_OVERFLOW;
    int status = 0;
    int err = weft_run(app_body, &a, &cfg, &status);
    if (err != 0) {
        weft__log(NULL, WEFT_LOG_ERROR, "weft: the runtime failed: %s", weft_strerror(err));
        return 255;
    }
    return status & 255;
}

WEFT_API int weft_start(weft_runtime **out, const weft_config *cfg) {
    return out == NULL ? -EINVAL : runtime_new(out, cfg, true);
}

WEFT_API int weft_stop(weft_runtime *rt, weft_duration limit) {
    if (rt == NULL) {
        return -EINVAL;
    }
    if (weft__forked(rt)) {
        return -EPERM;
    }
    if (own_runtime() == rt || !rt->started) {
        return -EDEADLK;
    }
    int err = drain(rt, true, limit);
    if (err == -ETIMEDOUT) {
        return err;
    }
    weft__teardown(rt);
    return err;
}

WEFT_API int weft_submit(weft_runtime *rt, weft_fn fn, void *arg) {
    const void *site = weft__caller();
    weft__m *m = weft__enter_nopark();
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    int err = r != NULL ? -EPERM : weft__no_runtime();
    if (r != NULL && !weft__forked(r)) {
        atomic_fetch_add(&r->users, 1);
        err = weft__g_start(m, r, fn, arg, site);
        atomic_fetch_sub(&r->users, 1);
    }
    weft__r_give(taken);
    weft__leave(m);
    return err;
}

WEFT_API int weft_procs(weft_runtime *rt) {
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    int procs = r != NULL ? weft__nprocs(r) : weft__no_runtime();
    weft__r_give(taken);
    return procs;
}
