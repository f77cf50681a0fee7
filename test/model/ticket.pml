/* The ticket: a thread keeps its G and may lose its P. Two Ms, two Gs, one or two Ps; a G computes,
   enters (calls that may park, calls that never do), leaves, ends, or blocks for ever outside. Two
   retakers, sysmon and a stop of the world, take Ps from Ms that are outside.
   Held: whoever works on a P is its only owner (an M inside, a retaker, the idle list, an M that is just
   woken with it); no P is lost; a G that was queued for want of a P runs in the end; a request that was
   raised is settled: served by the M, or the P taken, or the P no more with this M.
   Words of TSO memory; only the Ms' stores wait in a buffer. A retaker's two, of m->p and of the settle
   lock, are seen together by whoever may look: under that lock. A step is what others can see: what a
   thread does to itself and to its own buffer goes with the step before or behind. */
#define THREADS 2 /* 0 and 1 the Ms; as owners also 2, sysmon, and 3, the stop */
#define WORDS 8
#define INCALL(m) (m)
#define MP(m) (2 + (m)) /* m->p: 0 none, else the P's number */
#define TICKET(m) (4 + (m))
#define SETTLE(m) (6 + (m))
#include "tso.h"

#ifndef CALLS
#define CALLS 2 /* that both Gs together make */
#endif
#ifndef ROUNDS
#define ROUNDS 1 /* of each retaker, at any time; sysmon makes more while work waits */
#endif

#define IDLE 4 /* who owns a P: a thread, or the idle list */
byte owner[3];
bool idle[3];              /* in the idle list */
byte calls = CALLS;
bool queued[3], begun[3], blocked[2];
bool parked[2], note[2];
byte nextp[2];
bool retake; /* the lock */
#ifdef TWO_RETAKERS
#define LOCK_RETAKE
#else
#define LOCK_RETAKE !retake -> retake = true
#endif
#ifdef LEAVE_WRONG
byte entered[3]; /* the M that a G entered on */
#define LEFT(t) entered[g]
#else
#define LEFT(t) t
#endif
#define WORK (queued[1] || queued[2])
#define ANY_IDLE (idle[1] || idle[2])

/* What a thread reads of its own words: its youngest store, be it still in the buffer. There is never
   more than one store of m->p in it. */
#define STORED(t, v, x) buf[t] ?? [eval(v), x]
#define OWN_P(t)                                                                                    \
    (STORED(t, MP(t), 0) -> 0 : (STORED(t, MP(t), 1) -> 1 : (STORED(t, MP(t), 2) -> 2 : mem[MP(t)])))
#ifdef TICKET_BY_OWNER
#define PEACE(t) (STORED(t, TICKET(t), 0) || mem[TICKET(t)] == 0)
#else
#define PEACE(t) (mem[TICKET(t)] == 0)
#endif

/* The sections of sched.lock: one step each, since what they touch is touched under it alone. */
inline pop_idle(t, first) {
    if
    :: first != 0 && idle[first] -> p = first
    :: (first == 0 || !idle[first]) && idle[1] -> p = 1
    :: (first == 0 || !idle[first]) && !idle[1] && idle[2] -> p = 2
    :: else -> p = 0
    fi;
    if
    :: p != 0 -> assert(owner[p] == IDLE); idle[p] = false; owner[p] = t
    :: else
    fi
}
/* An idle P for a parked M, if there are both. */
inline startm() {
    if
    :: ANY_IDLE && (parked[0] || parked[1]) ->
        wm = (parked[0] -> 0 : 1);
        wp = (idle[1] -> 1 : 2);
        assert(owner[wp] == IDLE);
        idle[wp] = false;
        owner[wp] = wm;
        parked[wm] = false;
        nextp[wm] = wp;
        note[wm] = true;
        wm = 0;
        wp = 0
    :: else
    fi
}
/* To the idle list, then (I5) a look at the queue behind it. Inside an atomic, which ends here. */
inline give_up(t, q) {
    assert(owner[q] == t && !idle[q]);
    owner[q] = IDLE;
    idle[q] = true;
    q = 0
}
inline look_behind() {
#ifndef NO_RECHECK
    atomic {
        if
        :: WORK -> startm()
        :: else
        fi
    }
#endif
}

inline acquire(t) {
    STORE(t, MP(t), p);
#ifdef TICKET_BY_OWNER
    STORE(t, TICKET(t), 0);
#endif
    oldp = p
}

proctype mach(byte t; byte g; byte p) {
    byte oldp, wm, wp;
    bool may;
    if
    :: g == 0 -> goto end_m
    :: else -> oldp = p; p = 0
    fi;
user:
    atomic {
        if
        :: calls > 0 -> calls--; may = true
        :: calls > 0 -> calls--; may = false
        :: blocked[t] = true; goto end_blocked
        :: begun[g] = false; may = true /* it ends; that is an enter too */
        fi;
        /* enter */
#ifdef LEAVE_WRONG
        entered[g] = t;
#endif
        STORE(t, INCALL(t), 1)
    };
    /* light fence: nothing for the machine */
    if
    :: PEACE(t) -> goto quick
    :: else
    fi;
    /* the slow way */
    atomic { FENCE(t); mem[SETTLE(t)] == 0 -> mem[SETTLE(t)] = 1 };
    atomic {
        mem[TICKET(t)] = 0;
        p = mem[MP(t)];
        STORE(t, SETTLE(t), 0);
        if
        :: p == 0 && may -> goto get_p
        :: p == 0 && !may -> goto inside
        :: p != 0 && may -> /* a yield: the P stays here, for whoever is first in the queue */
            assert(owner[p] == t);
            goto yield
        :: p != 0 -> STORE(t, MP(t), 0) /* the P is handed over: what a stop asks of any call, and a
                                           slice of those that never park */
        fi
    };
    atomic { FENCE(t); give_up(t, p) };
    look_behind();
    if
    :: may -> goto queue_g
    :: else -> goto inside
    fi;
quick:
    atomic {
        p = OWN_P(t);
        if
        :: p != 0 || !may -> goto inside
        :: else
        fi
    };
#ifdef NO_LOOK_AT_P
    goto inside;
#endif
get_p:
    atomic {
        FENCE(t);
        pop_idle(t, oldp);
        if
        :: p != 0 -> acquire(t); goto inside
        :: else
        fi
    };
queue_g:
    atomic { FENCE(t); queued[g] = true; g = 0 };
park:
    /* Before it parks it looks once more, under the lock. */
    atomic {
        FENCE(t);
        if
        :: WORK && ANY_IDLE -> pop_idle(t, 0); acquire(t); goto search
        :: else -> parked[t] = true; oldp = 0
        fi
    };
end_m:
    atomic { note[t] -> note[t] = false; p = nextp[t]; nextp[t] = 0; acquire(t); goto search };
yield:
    atomic { FENCE(t); queued[g] = true; g = 0 };
search:
    atomic {
        FENCE(t);
        assert(owner[p] == t);
        if
        :: queued[1] -> queued[1] = false; g = 1; goto inside
        :: !queued[1] && queued[2] -> queued[2] = false; g = 2; goto inside
        :: else -> STORE(t, MP(t), 0)
        fi
    };
    atomic { FENCE(t); give_up(t, p) };
    look_behind();
    goto park;
inside: /* works on its P, if it has one: twice, so that one that is taken meanwhile is seen */
    assert((p != 0 || !may) && (p == 0 || owner[p] == t));
    atomic {
        assert(p == 0 || owner[p] == t);
        if
        :: begun[g] -> STORE(t, INCALL(LEFT(t)), 0); p = 0; goto user
        :: else -> g = 0; goto search
        fi
    };
end_blocked:
    false
}

proctype retaker(byte t) {
    byte rounds = ROUNDS, m, meant, p, wm, wp;
more:
end_sight: /* p->m, read with no lock: it may be wrong by now */
    atomic {
        if
        :: rounds > 0 && mem[MP(0)] != 0 -> rounds--; m = 0
        :: rounds > 0 && mem[MP(1)] != 0 -> rounds--; m = 1
        :: t == 2 && WORK && blocked[0] && mem[MP(0)] != 0 -> m = 0
        :: t == 2 && WORK && blocked[1] && mem[MP(1)] != 0 -> m = 1
        fi;
        meant = mem[MP(m)]
    };
    atomic {
        LOCK_RETAKE;
        mem[TICKET(m)] = 1
    };
#ifndef NO_HEAVY
    FENCE(0);
    FENCE(1);
#endif
again:
    atomic {
        mem[SETTLE(m)] == 0;
        if
        :: mem[TICKET(m)] == 0 -> retake = false; goto over /* served */
        :: else -> mem[SETTLE(m)] = 1
        fi
    };
    if
    :: mem[INCALL(m)] == 0 -> skip
    :: else -> /* inside: the request stays up */
        atomic {
#ifdef PUT_BACK
            mem[TICKET(m)] = 0;
#endif
            mem[SETTLE(m)] = 0;
            retake = false
        };
        atomic {
            mem[INCALL(m)] == 0 || mem[TICKET(m)] == 0 || mem[MP(m)] != meant;
            LOCK_RETAKE;
#ifdef PUT_BACK
            mem[TICKET(m)] = 1; /* and no new fence: that of the first look is thought to do */
#endif
            goto again
        }
    fi;
    atomic {
#ifdef STALE_PM
        p = meant;
#else
        p = (mem[MP(m)] == meant -> meant : 0);
#endif
        mem[SETTLE(m)] = 0;
        retake = false;
        if
        :: p == 0 -> goto over
        :: else -> assert(owner[p] == m); owner[p] = t; mem[MP(m)] = 0
        fi
    };
    /* ours: a running M until the P is placed */
    atomic { give_up(t, p) };
    look_behind();
over:
    atomic { m = 0; meant = 0; goto more }
}

proctype judge() {
    byte p;
end:
    timeout;
    assert(!WORK);
    p = 1;
    do
    :: p > 2 -> break
    :: p <= 2 ->
        assert(owner[p] == 9 || idle[p] + (mem[MP(0)] == p) + (mem[MP(1)] == p) == 1);
        p++
    od
}

init {
    atomic {
        owner[1] = 0;
        mem[MP(0)] = 1;
        begun[1] = true;
        begun[2] = true;
        run mach(0, 1, 1);
        if
        :: owner[2] = 1; mem[MP(1)] = 2; run mach(1, 2, 2)
        :: owner[2] = 9; queued[2] = true; mem[INCALL(1)] = 1; parked[1] = true; run mach(1, 0, 0)
        fi;
        run retaker(2);
        run retaker(3);
        run machine();
        run judge()
    }
}
