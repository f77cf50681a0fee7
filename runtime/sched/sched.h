/*
 * Room sched: G, P, M and the runtime R that holds them; queues, park and ready, find work, idle and
 * wake, timers' heaps, start and stop. Read this first.
 *
 *   G  a green thread. It lies at the top of its own stack; its memory outlives every reference to
 *      it and is used for one G after another: the generation in its wait word tells them apart.
 *   P  the right to run Gs: a ring of runnable Gs, a slot for the next one, a timer heap.
 *   M  an OS thread of the runtime. Its own stack is its scheduler stack, called g0.
 *   R  a runtime. Several may live in one process; nothing here is global but the registry of
 *      stand-ins.
 *   A plain thread that calls weft is given an M without a P and a stand-in G: its park is a futex
 *   wait, everything else takes the same paths.
 *
 * Files: enter.c (who calls: M of this thread, stand-ins), g.c (Gs: making, starting, ending),
 * runq.c (ring and runnext), proc.c (find work, idle, wake), park.c (the wait word and its claim),
 * timers.c (heaps in the scheduler), local.c and defer.c (what belongs to a G), maker.c (threads),
 * handoff.c (a thread that blocks or computes loses its P), sysmon.c (who looks for those), resize.c
 * (how many Ps), locked.c (threads of a G's own), offload.c (a bounded class of calls that block),
 * runtime.c (start, run, stop), shell.c (what outlives weft_run),
 * outside.c (a stop asked for from anywhere, wakers that weft cannot see), call.c (a G that somebody
 * outside waits for), attach.c (plain threads with a runtime), trigger.c (starts by signal handlers),
 * stuck.c (a program that is dead), report.c (what dumps and statistics read), wait.c (how long Gs wait
 * in queues), debug.c and watchdog.c (what is said aloud).
 *
 * Lock order, outermost first: M.settle > a source's lock (channel, record, ...) > tset.lock >
 * sched.lock > gfree_lock, maker. An offload_lock is a source's; resize_lock and overlong_lock are held
 * for a few stores, with nothing taken under them. No two locks of one rank are held together. No user code runs under
 * any, and nobody is readied under a source's lock.
 *
 * Classes of calls. One that may park begins with weft__enter: it holds a P from there on, and may be
 * on another thread when it returns. One that never parks begins with weft__enter_nopark: it stays on
 * its thread, never waits, and may find itself without a P (m->p NULL), as a plain thread is.
 *
 * Invariants of the queues (names as in DESIGN 5.1):
 *   I1  submit: publish the work; full fence; read npidle and nmspinning. An idle P and no spinner:
 *       wake one.
 *   I2  retire: a P is put on the idle list, nmspinning goes down; full fence; then every source is
 *       looked at once more. I1 and I2 are Dekker's pattern: one of the two sees the other.
 *   I3  a spinner that finds work stops spinning before it runs it, and wakes another if it was the
 *       last: k pieces of work wake k Ms one after another.
 *   I4  nmspinning counts only Ms that hold a P: an idle P is taken and the count raised under
 *       sched.lock, so there is no passing increment that could hide work from a waker.
 *   I5  whoever puts a P on the idle list looks again, spinner or not. (So no "needspinning".)
 *   I8  polling is 1 iff an M is about to wait in the poller. Who publishes an earlier timer:
 *       publish; full fence; polling? poll_until 0 or later than the timer: break. Not polling: wakep.
 */
#ifndef WEFT__SCHED_H
#define WEFT__SCHED_H

#include "base/base.h"

#include <errno.h>

#include "heap/heap.h"
#include "os/os.h"
#include "poller/poller.h"
#include "sched/eh.h"
#include "stack/stack.h"
#include "stack/switch.h"

#include <weft/inspect.h>
#include <weft/runtime.h>
#include <weft/task.h>

typedef struct weft__g weft__g;
typedef struct weft__m weft__m;
typedef struct weft__p weft__p;
typedef struct weft_runtime weft__r;

/* ---- fibers: a context and what sanitizers must know of it ------------------------------------ */
typedef struct weft__fiber {
    weft__ctx ctx;
#ifdef WEFT__ASAN
    void *asan_fake;
    const void *asan_low;
    size_t asan_bytes;
#endif
#ifdef WEFT__TSAN
    void *tsan;
#endif
} weft__fiber;

/* ---- the wait word ----------------------------------------------------------------------------- */
/* generation << 6 | cause << 4 | held << 3 | cancellable << 2 | state. See park.c. */
enum {
    WEFT__RUNNING = 0,
    WEFT__ARMING = 1, /* waiting, but still on its stack: a claimer does not ready it */
    WEFT__ARMED = 2,  /* off its stack: the claimer readies it */
    WEFT__CLAIMED = 3,
    WEFT__STATE = 3,
    WEFT__CANCELLABLE = 1 << 2,
    WEFT__HELD = 1 << 3,
    WEFT__CAUSE_SHIFT = 4,
    WEFT__GEN_SHIFT = 6,
};
/* weft__g.cancel but 0 */
enum { WEFT__CANCEL_STOP = 1, WEFT__CANCEL_FORKED = 2 };
/* Who claimed. */
typedef enum weft__cause {
    WEFT__BY_SOURCE = 0,
    WEFT__BY_DEADLINE = 1,
    WEFT__BY_CANCEL = 2,
    WEFT__BY_NOMEM = 3, /* itself: the deadline could not be armed */
} weft__cause;

/* Why a G waits; weft__reason_text has the words. */
typedef enum weft__reason {
    WEFT__WAIT_NONE,
    WEFT__WAIT_SLEEP,
    WEFT__WAIT_TIMER,
    WEFT__WAIT_SEND,
    WEFT__WAIT_RECV,
    WEFT__WAIT_NULL_CHAN,
    WEFT__WAIT_MUTEX,
    WEFT__WAIT_WAITGROUP,
    WEFT__WAIT_EVENT,
    WEFT__WAIT_READ,
    WEFT__WAIT_WRITE,
    WEFT__WAIT_ACCEPT,
    WEFT__WAIT_CONNECT,
    WEFT__WAIT_WRITE_TURN,
    WEFT__WAIT_CALL,
    WEFT__WAIT_TRIGGER,
    WEFT__WAIT_PROCS,
    WEFT__WAIT_OFFLOAD,
    WEFT__REASONS
} weft__reason;
extern const char *const weft__reason_text[WEFT__REASONS];

enum weft__g_status { WEFT__G_DEAD, WEFT__G_RUNNABLE, WEFT__G_RUNNING, WEFT__G_WAITING };

/* ---- G ----------------------------------------------------------------------------------------- */
struct weft__g {
    /* switched, woken, queued: one line */
    weft__fiber fiber;
    _Atomic uint64_t word;  /* the wait word; its generation never goes back */
    weft__g *next;          /* in a global queue, the injection list, a cache of dead Gs, a batch */
    weft__r *r;             /* NULL: a stand-in */
    _Atomic uint8_t status; /* enum weft__g_status: for reports only */
    uint8_t reason;         /* enum weft__reason */
    _Atomic uint8_t taken;  /* held park: a waker has it. See weft__waiter_claim */
    _Atomic uint8_t cancel; /* set once by a stop: every cancellable wait ends */
    bool standin;
    bool timer_armed; /* the deadline of the present wait is in a heap */
    bool is_main;
    bool by_exit;    /* ended by weft_exit */
    uint32_t locked; /* to its thread: how deep. locked.c */
    int exit_result;

    /* born, parked: one line */
    weft_fn fn;
    void *arg;
    weft_deferred *deferred; /* newest first: defer.c */
    const void *created_at;  /* return address of the call that made it */
    uint64_t id;
    long thread; /* which thread ran it last; its complement: how long it waits is taken. wait.c */
    const void *object; /* what it waits on */
    const void *site;   /* the public call's return address */
    int64_t since; /* ns, of the P's last look at the clock: may be early by a look. Or wait.c's */

    /* timed, named */
    weft__timer timer;  /* deadline or sleep */
    uint64_t timer_gen; /* the wait that it was armed for; guarded by the heap's lock */
    weft__m *m;         /* a stand-in's M, or that of the thread it is locked to */
    char *name;         /* 64 bytes of memory, or NULL */
    weft__stack stack;
    struct weft__locals *locals; /* NULL: none was set. local.c */
};
#if !defined(WEFT__ASAN) && !defined(WEFT__TSAN)
_Static_assert(sizeof(weft__g) <= 256, "a G and its first frames must fit one page");
#endif

/* ---- lists of Gs, first in first out ----------------------------------------------------------- */
typedef struct weft__glist {
    weft__g *head, *tail;
    uint32_t len;
} weft__glist;
WEFT__ALWAYS_INLINE void weft__glist_push(weft__glist *l, weft__g *g) {
    g->next = NULL;
    if (l->tail != NULL) {
        l->tail->next = g;
    } else {
        l->head = g;
    }
    l->tail = g;
    l->len++;
}
WEFT__ALWAYS_INLINE weft__g *weft__glist_pop(weft__glist *l) {
    weft__g *g = l->head;
    if (g != NULL) {
        l->head = g->next;
        if (l->head == NULL) {
            l->tail = NULL;
        }
        l->len--;
    }
    return g;
}

/* ---- timer sets -------------------------------------------------------------------------------- */
/* A heap, its lock and the published head. Outlives its P while a timer of a user is homed in it. */
typedef struct weft__tset {
    weft__heap heap; /* first: a timer's home points here */
    weft__lock lock;
    _Atomic int64_t
        min_key;   /* a lower bound of the earliest time; INT64_MAX: none. Stored at unlock */
    uint32_t refs; /* the runtime and each user's timer homed here; guarded by lock */
    bool closed;   /* the runtime has gone: nothing is armed any more */
    weft__r *r;
} weft__tset;

/* What a fired timer leaves to be done once no lock is held. */
typedef struct weft__fired {
    void (*run)(weft__m *m, void *arg, uint64_t num); /* NULL: nothing */
    void *arg;
    uint64_t num;
    weft__g *start;              /* a new G, to be readied */
    struct weft__waiter *waiter; /* a waiter claimed and unlinked under the lock, to be woken */
    int won;                     /* its claim: weft__won */
} weft__fired;
/* A timer that is not a G's own. `fire` runs under the set's lock and only copies, claims, re-arms. */
typedef struct weft__ktimer {
    weft__timer t;
    void (*fire)(struct weft__ktimer *k, weft__m *m, weft__tset *ts, int64_t now, weft__fired *out);
    /* Its runtime has gone before it was due; under the lock, out of the heap. Gives those who wait
       for it, claimed, as a chain to wake. NULL: nothing to do. */
    struct weft__waiter *(*gone)(struct weft__ktimer *k, weft__tset *ts);
} weft__ktimer;
enum { WEFT__TIMER_G = 0, WEFT__TIMER_K = 1 }; /* weft__timer.kind */

/* ---- P ----------------------------------------------------------------------------------------- */
enum {
    WEFT__RING = 256,
    WEFT__MOST_PROCS = 1024,
    WEFT__PICKS = 16,       /* direct picks between two looks from g0 */
    WEFT__GFREE_CHAIN = 64, /* dead Gs that move together between a P and the runtime */
    WEFT__GLOBAL_EVERY = 61,
    WEFT__RESCUE_EVERY = 1000, /* picks between two looks at what lies with computing Ps */
};

/* As weft_hist, but its holder alone writes it. */
typedef struct weft__phist {
    _Atomic uint64_t count, sum, max, bucket[48];
} weft__phist;

/* Counters of a P: written by its holder alone, read by anybody. */
typedef struct weft__pstats {
    _Atomic uint64_t created, ended, injected, steals, migrations, timers_fired, polls;
    _Atomic uint64_t wake_work, wake_timer, wake_poll;
    weft__phist timer_late, queue_wait;
} weft__pstats;
WEFT__ALWAYS_INLINE void weft__count(_Atomic uint64_t *c, uint64_t n) {
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_release);
}

void weft__phist_add(weft__phist *h, int64_t ns);

/* weft__p.change but 0 */
enum weft__p_change { WEFT__P_RETIRE = 1, WEFT__P_SOLO, WEFT__P_SHARED };

/* In which orders all Ps may be visited: for as many Ps as there were records when it was made. */
typedef struct weft__order {
    struct weft__order *older;
    uint32_t n, nstrides;
    uint32_t strides[]; /* the numbers coprime to n */
} weft__order;

struct weft__p {
    /* the holder's line */
    _Atomic(weft__g *) runnext; /* the holder's alone; others only look */
    _Atomic(weft__m *) m;       /* whose it is; NULL: idle, or in somebody's hands */
    _Atomic uint8_t owes;       /* what a put in runnext owes (of WEFT__OWED_*): sysmon.c */
    _Atomic uint32_t tail;      /* the holder's; release */
    _Atomic uint32_t tick;      /* picks so far; thieves watch it move */
    uint32_t picks;             /* picks since the ring came first; at WEFT__PICKS g0 looks */
    uint32_t turns;             /* picks for which the ring comes first: see look in proc.c */
    uint32_t looks;             /* from g0, so far */
    bool sample;                /* how long the next that is put waits is taken: wait.c has these */
    uint32_t sample_tick;       /* tick when that was asked for last */
    uint32_t sample_gap;        /* picks from there to the next time */
    uint32_t global_tick;       /* tick at the last look at the global queue */
    uint32_t rescue_tick;       /* tick at the last look at what lies with computing Ps */
    weft__g *gfree;             /* dead Gs, last in first out */
    uint32_t gfree_len;
    weft__g *gfree_spare; /* a chain of them in reserve, or NULL */
    uint32_t index;
    uint64_t id_next, id_end; /* numbers for new Gs */
    uint64_t rand;
    int64_t now; /* the clock at the last look; never the base of a duration */
    weft__r *r;
    weft__tset *tset;

    _Atomic(weft__g *) offered __attribute__((aligned(WEFT__LINE))); /* what was in runnext when its
        holder went back to user code: whoever exchanges it out has it */
    _Atomic uint32_t head __attribute__((aligned(WEFT__LINE))); /* taken from by compare-and-swap */
    _Atomic(weft__g *) ring[WEFT__RING];

    _Atomic bool solo;      /* the runtime has one P: nobody steals here, and taking needs no locked
        operation. Written by the holder, or by who has it in his hands; others only look */
    _Atomic uint8_t change; /* enum weft__p_change: asked of whoever has it. resize.c */
    bool gone;              /* in no list, run by nobody; under sched.lock */
    weft__p *link;          /* idle list, maker's list; under sched.lock */
    uint32_t *seen_ticks;   /* of every other P, at the holder's last try to steal its runnext */
    bool make_spinning;     /* in the maker's list: the M to be made begins as a spinner */
    weft__pstats stats;
} __attribute__((aligned(WEFT__LINE)));

/* ---- M ----------------------------------------------------------------------------------------- */
/* weft__m.owed: wakes put off to the end of the call. */
enum {
    WEFT__OWED_NEXT = 1,  /* a G was put in runnext: forgiven if this M runs it at once */
    WEFT__OWED_WORK = 2,  /* Gs in the ring: paid before anything else runs */
    WEFT__OWED_TIMER = 4, /* an earlier timer and nobody in the poller: paid before a G runs */
};
/* weft__m.commit: what the far side of a switch does first. Cannot fail, allocate or sleep. */
enum {
    WEFT__COMMIT_NONE,
    WEFT__COMMIT_HELD,  /* word = armed; drop commit_lock */
    WEFT__COMMIT_FREE,  /* arming -> armed; claimed already: ready it */
    WEFT__COMMIT_YIELD, /* put it at the tail of the ring */
    WEFT__COMMIT_EXIT,  /* push the dead G on the P's cache */
    WEFT__COMMIT_QUEUE, /* no P was to be had: it goes to the injection queue; on g0 only */
};

/* weft__m.ticket: see handoff.c. */
enum {
    WEFT__PEACE = 1,  /* always up; 0: a forked child, whose copy of the word was wiped */
    WEFT__REVOKE = 2, /* this M shall let its P go; stays up while it runs user code without one */
    WEFT__LOCKED = 4  /* its G is locked to it: parks go by g0. No request */
};

struct weft__m {
    /* what every call touches */
    _Atomic uint32_t incall; /* depth of calls; written by this thread alone */
    _Atomic uint32_t ticket; /* WEFT__PEACE, and requests */
    weft__g *g;              /* the G that runs here */
    weft__p *p; /* NULL: none. Written inside by this M, else under settle: handoff.c */
    weft__r *r; /* NULL: a plain thread */
    uint8_t owed;
    uint8_t commit;
    bool spinning;
    weft__g *commit_g;
    weft__lock *commit_lock;
    uint64_t commit_word;

    weft__fiber g0;
    weft__note note; /* idle, or a stand-in's park */
    weft__note nap;  /* a spinner's nap */
    weft__p *nextp;  /* the P it is woken with */
    weft__m *idle_link, *all_link;
    weft__eh *eh;                /* this thread's, or weft__eh_none: eh.h */
    weft__eh eh_before;          /* what the thread had when it became an M */
    struct weft__attach *attach; /* a plain thread's: attach.c */
    bool main;                   /* the thread that called weft_run */
    _Atomic bool exit;           /* set before a wake: leave the scheduler */
    bool parked;                 /* on the idle list; sched.lock */
    bool waits_locked;           /* for the P of the G that is locked to it; sched.lock */
    _Atomic bool asleep;         /* either; written under sched.lock, false before the wake */
    bool fresh;                  /* made, and has not looked for a P yet */
    bool tainted;                /* a G has ended while locked to it: it runs no other */
    weft__g *locked;             /* the G that is locked to this thread */
    weft__g *aside;              /* picked for a direct switch, but locked to its thread */
    long thread;
    pthread_t pthread;
    bool joined; /* its thread has ended; the record waits for another */

    struct weft__stay { /* sysmon's, for the watchdog: of a G on this thread, without a wait */
        weft__p *p;
        uint32_t tick;
        bool said;
        uint32_t hints;
        uint32_t asleep; /* looks in a row that found it so, behind the limit */
        uint64_t id;     /* of the G; 0: not looked at yet */
        int64_t since;
        int64_t cpu; /* of the thread, at the second look; 0: not read yet */
    } stay;

    weft__lock settle;
    weft__p *lost;          /* the P that was taken from it last */
    int64_t lost_at;        /* when; 0: it gave it up itself */
    _Atomic uint32_t hints; /* how often it gave one up by weft_block_begin; by its own thread */
    weft__m *gone_link;     /* lists of those that end, and of records to use again */
};

/* ---- R ----------------------------------------------------------------------------------------- */
typedef struct weft__waitq {
    struct weft__waiter *head, *tail; /* park.h */
} weft__waitq;
/* What WEFT_DEBUG and weft_debug have switched on: debug.c. */
typedef struct weft__debug {
    _Atomic int64_t schedtrace, watchdog; /* ns; 0: off */
    _Atomic int64_t scheddetail;          /* 0 or 1 */
} weft__debug;

struct weft_runtime {
    weft_config cfg; /* a copy; name points to `name` */
    char name[16];
    _Atomic int nprocs; /* Ps that run Gs: ps[0] to ps[nprocs - 1]. Changed by resize.c alone */
    _Atomic int nps;    /* records of Ps: only grows. What looks at all Ps looks at these */
    weft__p **ps;       /* room for WEFT__MOST_PROCS */
    _Atomic(weft__order *) order;
    int default_procs; /* what WEFT_PROCS asked for; 0: count the CPUs */
    weft__tset *tset;  /* of adders without a P; owned by nobody, in every scan */
    weft__stacks *stacks;
    weft__poller *poller;
    bool started; /* weft_start, not weft_run */

    /* sched */
    weft__lock lock __attribute__((aligned(WEFT__LINE)));
    weft__glist globq;          /* lock */
    _Atomic uint32_t globq_len; /* lock to write */
    weft__p *pidle;             /* lock */
    weft__m *midle;             /* lock */
    uint32_t nmidle;            /* lock */
    uint32_t nmlocked;          /* lock: Ms that wait for the P of the G that is locked to them */
    uint32_t nm;                /* lock: Ms alive or ordered from the maker */
    weft__m *allm;              /* lock; never shrinks before the stop */
    weft__p *make_list;         /* lock: Ps that wait for any M to come */
    uint32_t make_len;          /* lock: of make_list; never more than ncoming */
    uint32_t ncoming;           /* lock: Ms ordered that have not come yet */
    bool make_stop;             /* lock */
    uint32_t make_count;        /* lock: Ms ordered from the maker, who has not begun with them */
    weft__m *mgone;             /* lock: their threads end, the maker joins them */
    weft__m *mfree;             /* lock: records whose threads are no more */
    _Atomic bool m_wanted;      /* lock to write: a wake found no M: who would park looks again */
    uint64_t threads_created;   /* lock: of Ms */
    uint64_t threads_ended;     /* lock: told to end, at least */
    _Atomic bool dead;  /* lock to write: the program is stuck for ever and has been told so */
    weft__r *dead_link; /* of the runtimes that died so */

    _Atomic uint32_t npidle __attribute__((aligned(WEFT__LINE))); /* lock to write */
    _Atomic uint32_t nmspinning;                                  /* lock to raise with an idle P */
    _Atomic(weft__m *) napper;                                    /* a spinner that naps */
    _Atomic(uint64_t) *idle_mask;                                 /* a bit a P; lock to write */
    _Atomic(weft__g *) inject __attribute__((aligned(WEFT__LINE))); /* push list, newest first */

    /* poller */
    _Atomic uint32_t polling
        __attribute__((aligned(WEFT__LINE))); /* an M waits, or is about to, in it */
    _Atomic int64_t poll_until;               /* valid while it waits; 0: not known, break it */
    _Atomic int64_t last_poll;                /* when somebody looked last */
    _Atomic uint32_t poll_look;               /* one look at a time */
    _Atomic int32_t poll_waiters;             /* Gs parked on descriptors */
    /* of room net, set when the first descriptor comes */
    void (*_Atomic net_event)(weft__r *r, uint64_t tag, unsigned events, weft__glist *ready);
    void (*_Atomic net_stop)(weft__r *r);
    _Atomic bool net_closed; /* no descriptor is taken any more */

    weft__lock resize_lock;
    struct weft__resize_request *resize_q; /* resize_lock: who waits in weft_set_procs */
    struct weft__resize_request *resize;   /* sysmon's: the one under way */
    _Atomic uint32_t resizes;              /* of both */
    /* the default is followed: resize.c */
    _Atomic bool follows;
    _Atomic int follow_to;               /* 0: as it is */
    int64_t follow_looked;               /* sysmon's */
    struct weft__resize_request *follow; /* the maker thread's */

    _Atomic uint32_t sysmon_sleep
        __attribute__((aligned(WEFT__LINE))); /* enum weft__sysmon_sleep; seldom written */

    weft__lock gfree_lock __attribute__((aligned(WEFT__LINE)));
    weft__g *gfree; /* chains of dead Gs: see g.c */
    _Atomic uint64_t next_id;
    _Atomic int64_t gcount; /* kept only with cfg.max_gs */
    weft__pstats stats;     /* of callers without a P; under stats_lock */
    weft__lock stats_lock;
    _Atomic int64_t conns_open; /* records in use: whoever holds one may touch the runtime */

    /* life */
    _Atomic uint32_t *life;      /* 1; wiped on fork */
    _Atomic uint32_t stopping;   /* spawns are refused; waits end */
    _Atomic uint32_t draining;   /* somebody waits for the last G to end */
    _Atomic uint32_t leave_main; /* the M of weft_run shall leave the scheduler */
    weft__m *main_m;
    bool main_exited; /* by weft_exit: the rest runs on */
    int main_result;
    weft__note drained; /* wakes the one who stops: perhaps no G is left, or stuck */
    pthread_t maker;
    weft__note maker_note;
    pthread_t sysmon;
    weft__note sysmon_note;
    _Atomic bool sysmon_stop;
    _Atomic uint32_t nlocked;  /* Gs that are locked to their threads */
    _Atomic int32_t nstrays;   /* Ms in user code without a P */
    _Atomic uint32_t retaking; /* a P is in the hands of a retaker: the program is not dead */
    _Atomic uint64_t handoff_blocked, handoff_computing, handoff_hint, handoff_false;
    _Atomic uint64_t handoff_late, handoff_gave_up; /* of handoff_computing */
    _Atomic uint64_t wake_sysmon; /* threads woken or made for a P that was taken */
    bool catches_overflow;
    _Atomic uint32_t
        users; /* threads inside that hold no G of it: submitters, wakers from outside */

    /* offload.c */
    weft__lock offload_lock;
    weft__waitq offload_q;             /* offload_lock */
    uint32_t offloads, offload_queued; /* offload_lock: slots taken; who waits for one */

    /* what is said aloud: debug.c, watchdog.c */
    weft__debug debug;
    int64_t started_at;
    int64_t trace_due; /* the maker thread's */
    bool keeps_stays;  /* sysmon's: by its last round */
    weft__lock overlong_lock;
    /* found by sysmon, said by the maker's thread; overlong_lock, as the two figures below */
    struct weft__overlong {
        weft__g *g;
        uint64_t id;
        long thread;
        int64_t ns;
        bool blocked;
    } overlong[16];
    uint32_t noverlong, overlong_lost;

    /* from outside: outside.c */
    _Atomic uint32_t cancelling;     /* a stop: every G has its cancel flag, or is about to */
    _Atomic uint32_t cancel_settled; /* no G is in, or on its way to, a wait that a stop can end */
    _Atomic uint32_t externals; /* who may wake a G though weft cannot see him; holds the runtime */
    _Atomic uint32_t abroad;    /* Gs that wait for something of another runtime */
    _Atomic uint32_t look_stuck;          /* something that spoke against being stuck has gone */
    _Atomic(struct weft_trigger *) fired; /* push list, newest first; trigger.c has these three */
    struct weft_trigger *triggers;
    _Atomic uint32_t ntriggers;
    struct weft__attach *attached; /* attach.c */
    uint32_t rescans;              /* these three are the maker thread's */
    int64_t rescan_at;
    int64_t helper_due; /* when it is to look again if nobody wakes it; INT64_MAX: not */
};

/* ---- enter and leave --------------------------------------------------------------------------- */
/* The M of this thread, or NULL on a thread that weft has not seen. Never inlined and opaque to the
   optimiser: a thread-local address must not be kept over a switch. Once a call. */
weft__m *weft__m_self(void);
void weft__m_set_self(weft__m *m);
weft__m *weft__enter_slow(weft__m *m,
                          bool may_park); /* first call of a thread, or a request is up */
void weft__pay(weft__m *m);

WEFT__ALWAYS_INLINE weft__m *weft__enter_as(bool may_park) {
    weft__m *m = weft__m_self();
    if (weft__unlikely(m == NULL)) {
        return weft__enter_slow(NULL, may_park);
    }
#ifdef WEFT_CANARY_RETAKE_WITHOUT_FENCE
    /* The store below is seen late, as by a CPU that no fence of the retaker stops. The window of a real
       one is too short for a test to count on. */
    if (m->r != NULL && atomic_load_explicit(&m->incall, memory_order_relaxed) == 0 &&
        atomic_load_explicit(&m->ticket, memory_order_relaxed) == WEFT__PEACE) {
        weft__thread_nap(200 * WEFT_MICROSECOND);
        atomic_store_explicit(&m->incall, 1, memory_order_relaxed);
        return m;
    }
#endif
    atomic_store_explicit(&m->incall, atomic_load_explicit(&m->incall, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    weft__fence_light();
    if (weft__unlikely(atomic_load_explicit(&m->ticket, memory_order_acquire) != WEFT__PEACE)) {
        return weft__enter_slow(m, may_park);
    }
    return m;
}
/* Begins a public call that may park: from here to leave this thread holds its P (if it is one of
   ours). The light fence pairs with the heavy fence of whoever raises a request and then reads incall. */
WEFT__ALWAYS_INLINE weft__m *weft__enter(void) { return weft__enter_as(true); }
/* Begins a call that never parks. The G stays on its thread; m->p may be NULL. */
WEFT__ALWAYS_INLINE weft__m *weft__enter_nopark(void) { return weft__enter_as(false); }
/* Ends a public call, on the M that the last switch returned. */
WEFT__ALWAYS_INLINE void weft__leave(weft__m *m) {
    if (weft__unlikely(m->owed != 0)) {
        weft__pay(m);
    }
    weft__assert(m->commit == WEFT__COMMIT_NONE, "a call ends with a commit pending");
    atomic_store_explicit(&m->incall, atomic_load_explicit(&m->incall, memory_order_relaxed) - 1,
                          memory_order_release);
}

/* ---- queues (runq.c) --------------------------------------------------------------------------- */
void weft__runqput(weft__p *p, weft__g *g); /* at the tail; overflow goes to the global queue */
void weft__runqput_list(weft__p *p, weft__glist *l); /* all, in order; empties the list */
weft__g *weft__runqget_ring(weft__p *p);
weft__g *weft__runqsteal(weft__p *thief, weft__p *victim, bool next_too, uint32_t *seen_tick);
bool weft__runq_has_ring(weft__p *p);
WEFT__ALWAYS_INLINE uint32_t weft__runq_len(weft__p *p) { /* of the ring; for its holder */
    return atomic_load_explicit(&p->tail, memory_order_relaxed) -
           atomic_load_explicit(&p->head, memory_order_acquire);
}
void weft__globq_put_list(weft__r *r, weft__glist *l);
/* The G next in line: from the private slot by plain stores, or back from the offered one, where
   thieves may be before us. */
WEFT__ALWAYS_INLINE weft__g *weft__runnext_take(weft__p *p) {
    weft__g *g = atomic_load_explicit(&p->runnext, memory_order_relaxed);
    if (weft__likely(g != NULL)) {
        atomic_store_explicit(&p->runnext, NULL, memory_order_relaxed);
        return g;
    }
    if (weft__likely(atomic_load_explicit(&p->offered, memory_order_relaxed) == NULL)) {
        return NULL; /* only its holder fills it */
    }
    return atomic_exchange_explicit(&p->offered, NULL, memory_order_acq_rel);
}
/* The next G of this P, in the order that look in proc.c sets. */
WEFT__ALWAYS_INLINE weft__g *weft__pick_local(weft__p *p) {
    if (weft__unlikely(p->turns != 0)) {
        weft__g *g = weft__runqget_ring(p);
        p->turns = g != NULL ? p->turns - 1 : 0;
        return g != NULL ? g : weft__runnext_take(p);
    }
    weft__g *g = weft__runnext_take(p);
    return g != NULL ? g : weft__runqget_ring(p);
}
/* Puts g next in line; what was there goes to the ring's tail. */
WEFT__ALWAYS_INLINE void weft__runqput_next(weft__m *m, weft__p *p, weft__g *g) {
    weft__g *old = weft__runnext_take(p);
    atomic_store_explicit(&p->runnext, g, memory_order_relaxed);
    if (weft__unlikely(old != NULL)) {
        weft__runqput(p, old);
        m->owed |= WEFT__OWED_WORK & atomic_load_explicit(&p->owes, memory_order_relaxed);
    }
    if (atomic_load_explicit(&p->solo, memory_order_relaxed)) {
        weft__fence_light(); /* with one P there is nobody to wake, but perhaps sysmon: see there */
    }
    m->owed |= WEFT__OWED_NEXT & atomic_load_explicit(&p->owes, memory_order_relaxed);
}

/* ---- how many Ps (resize.c) ---------------------------------------------------------------------- */
WEFT__ALWAYS_INLINE int weft__nprocs(weft__r *r) {
    return atomic_load_explicit(&r->nprocs, memory_order_relaxed);
}
WEFT__ALWAYS_INLINE int weft__nps(weft__r *r) {
    return atomic_load_explicit(&r->nps, memory_order_acquire);
}
WEFT__ALWAYS_INLINE bool weft__solo(weft__p *p) {
    return atomic_load_explicit(&p->solo, memory_order_relaxed);
}
WEFT__ALWAYS_INLINE uint8_t weft__change_of(weft__p *p) {
    return atomic_load_explicit(&p->change, memory_order_acquire);
}

/* ---- finding work, idle and wake (proc.c) ------------------------------------------------------ */
typedef enum weft__verdict { WEFT__ALIVE, WEFT__DEAD, WEFT__UNSURE } weft__verdict;
void weft__schedule(
    weft__m *m); /* g0's loop; returns when the M shall leave the scheduler, without a P */
void weft__wakep(weft__r *r, _Atomic uint64_t *cause);
void weft__not_made(weft__r *r); /* the maker has failed to make an M that was ordered */
void weft__startm(weft__r *r, weft__p *p, bool spinning); /* lock held, dropped */
void weft__order_m(weft__r *r);                           /* lock held: then wake the maker */
bool weft__regain(weft__m *m);             /* an idle P, the one it lost before others */
bool weft__work_waits(weft__r *r);         /* in any queue */
void weft__flush_queue(weft__p *p);        /* an idle P's queue is empty */
void weft__pidle_look_again(weft__r *r);   /* a P has been put on the idle list: I2 */
void weft__inject(weft__r *r, weft__g *g); /* from outside a P of r */
void weft__ready_far(weft__m *m, weft__g *g);
void weft__pidleput(weft__r *r, weft__p *p); /* lock held */
void weft__releasep(weft__m *m); /* gives the P up; somebody takes it if there is work for it */
void weft__acquirep(weft__m *m, weft__p *p);
void weft__drop_p(weft__m *m); /* what is in its queue stays */
/* While m->asleep, which another clears before he wakes its note; who wakes it for less does no harm. */
void weft__m_sleep(weft__m *m, weft__verdict v);
void weft__takep(weft__m *m); /* any idle P; the thread of weft_run takes its first */
bool weft__poll_wanted(weft__r *r);
/* Around a park that an event of the poller ends. */
void weft__poll_wait_begin(weft__m *m, weft__r *r);
WEFT__ALWAYS_INLINE void weft__poll_wait_end(weft__r *r) {
    atomic_fetch_sub_explicit(&r->poll_waiters, 1, memory_order_relaxed);
}

/* Makes a G that the caller has claimed runnable: next in line here, or through its runtime. Not
   under a source's lock. g may run elsewhere before this returns. */
WEFT__ALWAYS_INLINE void weft__ready(weft__m *m, weft__g *g) {
    if (weft__likely(m->p != NULL && g->r == m->r)) {
        atomic_store_explicit(&g->status, WEFT__G_RUNNABLE, memory_order_relaxed);
        weft__runqput_next(m, m->p, g);
    } else {
        weft__ready_far(m, g);
    }
}

/* ---- how long they wait (wait.c) ----------------------------------------------------------------- */
void weft__wait_look(weft__p *p);               /* by its holder, on g0: is it time for a sample? */
void weft__wait_sample(weft__p *p, weft__g *g); /* p->sample is up, and g is put in a queue now */
void weft__wait_injected(weft__g *g, uint64_t nth); /* the nth that comes from outside, now */
/* g runs on m from here, and ran on another thread last, or is sampled. */
void weft__g_comes(weft__m *m, weft__g *g);

/* ---- Gs (g.c) ---------------------------------------------------------------------------------- */
uint64_t *weft__g_canary(weft__g *g); /* the word right above the first frame */
void weft__g_entry(weft__m *m);       /* where every G begins */
/* A dead G of this runtime's default stack size, or NULL with *err. m may be NULL or without a P. */
weft__g *weft__g_new(weft__m *m, weft__r *r, weft_fn fn, void *arg, const void *site, int *err);
int weft__g_start(weft__m *m, weft__r *r, weft_fn fn, void *arg,
                  const void *site); /* new, then ready */
void weft__g_exit(weft__m *m, int result) WEFT__NORETURN;
int weft__g_start_copy(weft__m *m, weft__r *r, weft_fn fn, const void *arg, size_t bytes,
                       const void *site);
void weft__gfree_rotate(weft__p *p);
void weft__gfree_give(weft__p *p);         /* all of its cache goes to the runtime */
void weft__g_reap(weft__m *m, weft__g *g); /* the far side's part of an end */
void weft__each_g(weft__r *r, void (*fn)(weft__g *g, void *arg), void *arg);
void weft__g_free_all(weft__r *r); /* names and fibers, before the stacks go */

/* ---- what belongs to a G (local.c, defer.c) ------------------------------------------------------ */
weft__g *weft__g_self_slow(void);
/* The G that calls, or the stand-in of a plain thread. For calls that touch nothing but it, and so need
   no enter: no P, no lock. */
WEFT__ALWAYS_INLINE weft__g *weft__g_self(void) {
    weft__m *m = weft__m_self();
    return weft__likely(m != NULL && m->g != NULL) ? m->g : weft__g_self_slow();
}
void weft__locals_end(weft__g *g); /* destroys them; user code: outside */
void weft__deferred_add(weft__g *g, weft_deferred *d, weft_cb fn, void *arg);
/* All of them, newest first; user code: outside. What lies on the stack below `frame` has gone. */
void weft__deferred_run(weft__g *g, const void *frame);

/* ---- what the host is told, what its threads are spared (hooks.c, eh.c, serve.c) ------------------- */
void weft__hook_thread(weft__r *r, bool starts); /* on the thread, which is no M then */
void weft__hook_stack(weft__r *r, const weft__stack *st, bool live);
void weft__hook_stacks_go(weft__r *r);
void weft__eh_begin(weft__m *m); /* the thread becomes an M */
void weft__eh_end(weft__m *m);
void weft__serve(weft__m *m); /* weft__schedule, and a message if the thread ends in it */

/* ---- timers (timers.c) ------------------------------------------------------------------------- */
weft__tset *weft__tset_new(weft__r *r);
void weft__tset_close(weft__tset *ts); /* the runtime goes: empties the heap, gives up its hold */
weft__tset *weft__tset_of(weft__m *m, weft__r *r); /* where a timer that m arms now belongs */
weft__tset *weft__timer_lock(weft__timer *t);      /* the set that t is homed in, locked */
void weft__tset_unlock(weft__tset *ts);            /* publishes min_key */
uint32_t weft__tset_len(weft__tset *ts);
/* A user's timer is homed in ts: the set outlives it. Unhome: ts is locked, and dropped here. */
void weft__timer_home(weft__timer *t, weft__tset *ts);
void weft__timer_unhome(weft__timer *t, weft__tset *ts);
/* Drops ts; sees to it that nobody sleeps past `when` if it is earlier than all before. The caller may
   be of another runtime, and r may be stopped meanwhile. */
void weft__tset_unlock_earlier(weft__m *m, weft__tset *ts, weft__r *r, int64_t when, bool earlier);
/* Moves the home of a timer that is in no heap to `to`; returns the locked set it is homed in then. */
weft__tset *weft__timer_rehome(weft__timer *t, weft__tset *ts, weft__tset *to);
/* ts locked: puts t in, or moves it. Sets *earlier if somebody may sleep too long now: then call
   weft__timers_earlier once ts is unlocked. 0 or -ENOMEM. */
int weft__timer_put(weft__tset *ts, weft__timer *t, int64_t when, bool *earlier);
/* For timers that one party at a time arms (it sees to that): in the heap it is moved, else it joins
   that of the caller. 0 or -ENOMEM. */
int weft__timer_arm(weft__m *m, weft__r *r, weft__timer *t, int64_t when);
int weft__timer_arm_g(weft__m *m, weft__g *g, uint64_t gen, int64_t when);
bool weft__timer_stop(weft__timer *t);                           /* true: it was in a heap */
void weft__timers_earlier(weft__m *m, weft__r *r, int64_t when); /* wake_netpoller */
void weft__timers_run(weft__m *m, weft__tset *ts, int64_t now);  /* runs what is due */
/* A deadline with the default slack: the roundest time in [when, when + slack], slack being 1/256 of
   the length up to 100 us, none below 1 ms. So close deadlines meet on one value. */
int64_t weft__round_time(int64_t when, int64_t now);
int64_t weft__round_within(int64_t when, int64_t slack);
int64_t weft__timers_next(weft__r *r); /* the earliest of all sets, re-keyed; INT64_MAX: none */
WEFT__ALWAYS_INLINE int64_t weft__tset_min(weft__tset *ts) {
    return atomic_load_explicit(&ts->min_key, memory_order_acquire);
}

/* ---- from outside (outside.c) ------------------------------------------------------------------ */
/* By the maker's thread, when its note was woken or helper_due has come: triggers, passes of a stop, a
   look for a deadlock. */
void weft__outside_look(weft__r *r);
/* The runtime that a call without one means: the G's, else what the thread is attached to, held till
   it is given back (attach.c). NULL: none. Inside a call or not. */
weft__r *weft__r_take(void);
void weft__r_give(weft__r *r);            /* by the same caller; NULL is fine */
weft__r *weft__attached_take(weft__m *m); /* of a caller that is known to be no G */
void weft__attach_thread_ends(weft__m *m);
void weft__attach_detach_all(weft__r *r); /* a stop: no attached thread gets at r from here on */
int64_t weft__triggers_run(weft__r *r);   /* by the maker's thread; when it is to look again */
void weft__triggers_stop(weft__r *r);     /* that thread has ended, and no G is left */
void weft__look_again(weft__r *r); /* a reason not to be stuck has gone: the maker's thread looks */
/* Around a wait of a G of m->r whose end is due to runtime r (compared only): r may be another. */
WEFT__ALWAYS_INLINE void weft__abroad_begin(weft__m *m, const weft__r *r) {
#ifdef WEFT_CANARY_WAITS_ABROAD_UNCOUNTED
    r = m->r;
#endif
    if (weft__unlikely(m->r != NULL && m->r != r)) {
        atomic_fetch_add(&m->r->abroad, 1);
    }
}
WEFT__ALWAYS_INLINE void weft__abroad_end(weft__m *m, const weft__r *r) {
#ifdef WEFT_CANARY_WAITS_ABROAD_UNCOUNTED
    r = m->r;
#endif
    if (weft__unlikely(m->r != NULL && m->r != r)) {
        atomic_fetch_sub(&m->r->abroad, 1); /* by its own G: whose M looks when it parks */
    }
}

/* ---- threads (maker.c), life (runtime.c), the dead (stuck.c), reports (report.c) ---------------- */
extern weft__lock weft__standin_lock, weft__tset_pool_lock, weft__trigger_lock, weft__attach_lock;
int weft__no_runtime(
    void); /* the error of a caller that has none: WEFT_ENORUNTIME, in a forked child -EPERM */
bool weft__forked(const weft__r *r); /* r is that of a parent: its threads are not here */
void weft__process_init(void);       /* what is done once a process, before the first runtime */
/* sysmon.c */
enum weft__sysmon_sleep {
    WEFT__SYSMON_SHORT,   /* it will be back in a moment */
    WEFT__SYSMON_LONG,    /* nothing waited for a P: who makes something wait wakes it */
    WEFT__SYSMON_FOR_EVER /* every P was idle: who takes one wakes it */
};
int weft__sysmon_start(weft__r *r);
void weft__sysmon_stop(weft__r *r); /* and joins it */
void weft__sysmon_wake(weft__r *r);
/* Work waits and no P is idle, or the watch over the poller has been left; behind a fence. */
WEFT__ALWAYS_INLINE void weft__sysmon_poke(weft__r *r) {
    if (weft__unlikely(atomic_load_explicit(&r->sysmon_sleep, memory_order_relaxed) !=
                       WEFT__SYSMON_SHORT)) {
        weft__sysmon_wake(r);
    }
}
void weft__watch_dropped(weft__r *r);
bool weft__watch_empty(weft__r *r);
/* handoff.c */
enum weft__handoff {
    WEFT__HANDOFF_NONE,
    WEFT__HANDOFF_BLOCKED,
    WEFT__HANDOFF_COMPUTING,
    WEFT__HANDOFF_LATE
};
weft__m *weft__answer(weft__m *m, bool may_park); /* the slow way, of an M of a runtime */
void weft__lower(weft__m *m);                     /* in the scheduler: whatever was asked is done */
bool weft__retake(weft__r *r, weft__p *p, weft__m *m); /* REVOKE is up, fence crossed: is p ours? */
/* p, in the caller's hands, goes to who runs it. True: a thread comes for it. */
bool weft__handoffp(weft__r *r, weft__p *p);
void weft__handoff_now(weft__m *m); /* this M, inside, gives its P away and goes on */
/* locked.c */
void weft__locked_ends(weft__m *m, weft__g *g); /* g ends while locked to m */
void weft__locked_wait(
    weft__m *m); /* on g0: without a P, until its G has one; then, or at the end, back */
void weft__locked_hand(weft__m *m,
                       weft__g *g);  /* g, picked by m, is locked to another M: gets m's P */
void weft__locked_rouse(weft__m *m); /* it shall look again */
void weft__tainted_ends(weft__m *m); /* its thread runs nothing any more */
/* proc.c and resize.c: how many Ps */
enum weft__p_was { WEFT__P_ELSEWHERE, WEFT__P_WAS_IDLE, WEFT__P_WAITED };
enum weft__p_was weft__p_fetch(weft__r *r, weft__p *p); /* lock held: into the caller's hands */
void weft__p_retires(weft__r *r, weft__p *p); /* lock held; in the caller's hands, queue empty */
int weft__default_procs(weft__r *r);
weft__p *weft__p_new(weft__r *r); /* NULL: no memory */
void weft__p_free(weft__p *p);
weft__order *weft__order_new(uint32_t n);
void weft__order_free(weft__order *o);           /* and all older ones */
void weft__p_heed(weft__m *m);                   /* m's P is to change */
void weft__p_changes(weft__p *p);                /* in the caller's hands: all but RETIRE is done */
void weft__p_set_aside(weft__p *p);              /* in the caller's hands: RETIRE */
bool weft__resize_step(weft__r *r);              /* by sysmon. True: one is under way */
void weft__follow_look(weft__r *r, int64_t now); /* by sysmon */
void weft__follow(weft__r *r);                   /* by the maker's thread */
void weft__follow_end(weft__r *r);
int64_t weft__timers_of(weft__r *r, weft__p *p); /* the earliest time that p is to look after */
int weft__maker_start(weft__r *r);
void weft__maker_stop(weft__r *r); /* and joins it; no M is made any more */
weft__m *weft__m_new(weft__r *r);
void weft__m_begin(weft__m *m); /* on its own thread: from here it is the thread's M */
void weft__m_end(weft__m *m);
void weft__m_gone(weft__r *r);  /* the thread of weft_run is no M any more */
void weft__ms_stop(weft__r *r); /* tells all Ms to leave, joins their threads but the main one */
void weft__main_ends(weft__r *r, int result, bool by_exit);
void weft__main_out(weft__r *r);
bool weft__no_g_left(weft__r *r);
void weft__teardown(weft__r *r); /* no G is left, or it is dead: ends its threads, frees all */
void weft__shell_leave(
    weft__r *r); /* Gs outlive weft_run: freed when the last has ended. shell.c */
/* Wakes who waits for the last G, if that was it. By who puts a P to rest: the last to end had one. */
WEFT__ALWAYS_INLINE void weft__tell_drained(weft__r *r) {
    if (weft__unlikely(atomic_load(&r->draining) != 0) && weft__no_g_left(r)) {
        weft__note_wake(&r->drained);
    }
}
/* Lock held, an M goes idle. Dead: report it. Unsure: somebody is just inside, look again soon. */
weft__verdict weft__checkdead(weft__r *r);
void weft__stuck_report(weft__r *r);
/* Lock held: Ms that run a G, or look for one. */
WEFT__ALWAYS_INLINE uint32_t weft__busy_ms(weft__r *r) { return r->nm - r->nmidle - r->nmlocked; }
bool weft__cancel_claim(weft__g *g);
uint32_t weft__cancel_all(weft__r *r); /* how many it woke. Not inside a call, and on no lock */
/* debug.c, watchdog.c */
void weft__debug_env(weft__r *r, const char *text);
int64_t weft__schedtrace_look(weft__r *r); /* by the maker's thread; when it is to look again */
void weft__watchdog_look(weft__r *r, int64_t now); /* by sysmon */
void weft__watchdog_say(weft__r *r);               /* by the maker's thread */
void weft__say(weft__r *r, int level,
               const char *line); /* to the hook or stderr, whatever the level */
void weft__log(weft__r *r, int level, const char *fmt, ...) WEFT_PRINTF(3, 4);
void weft__describe_g(const weft__g *g, char *buf, size_t bytes);
void weft__describe_g_start(const weft__g *g, char *buf, size_t bytes); /* and what it runs */
enum { WEFT__REPORT_MOST = 100 }; /* Gs in a report that nobody asked for */
int weft__dump(weft__r *r, int fd, uint32_t most);
uint64_t weft__sum(weft__r *r,
                   size_t offset); /* a counter of weft__pstats over all Ps and the rest */

#include "sched/park.h"

#endif
