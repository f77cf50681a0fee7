/* The ticket: a thread keeps its G and may lose its P. Two Ms, two Gs, one P or two; a G computes, makes
   calls of both classes, hands its P over by a hint, ends, or blocks outside for ever. Two retakers,
   sysmon and a stop of the world, want a P from an M that is outside. No further M may be made.
   Held: who works on a P is its one owner (an M inside, a retaker, the idle list, an M that is woken with
   it); no P is lost; a call that may park has a P; a G that was queued for want of a P runs in the end; a
   request is settled: answered, or the P taken, or the P no more with that M.
   Words of TSO memory; only the Ms' stores wait in a buffer. A retaker's two, of m->p and of the settle
   lock, are seen together by whoever may look: under that lock. A step is what others can see: what a
   thread does to itself and to its own buffer goes with the step before or behind. */
#define THREADS 2 /* 0 and 1 the Ms; as owners also 2, sysmon, and 3, the stop */
#define WORDS 8
#define INCALL(m) (m)
#define MP(m) (2 + (m))     /* m->p: the P's number, 0 none */
#define TICKET(m) (4 + (m)) /* 1: REVOKE is up */
#define SETTLE(m) (6 + (m)) /* the lock */
#include "tso.h"

#ifndef CALLS
#define CALLS 1 /* that both Gs together make */
#endif
#define ROUNDS 1 /* of each retaker, at any time; sysmon makes more while work waits */

#define IDLE 4 /* owner: the idle list */
#define NO_P 9 /* there is no such P */
byte owner[3];
bool idle[3]; /* in the idle list */
byte calls = CALLS;
bool queued[3], begun[3], blocked[2];
bool parked[2], note[2], wanted;
byte nextp[2];
bool retake; /* the lock */
#ifdef TWO_RETAKERS
#define LOCK_RETAKE skip
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

/* What an M reads of its own words: its youngest store, be it still in the buffer. There is never more
   than one store of m->p in it. */
#define STORED(t, v, x) buf[t] ?? [eval(v), x]
#ifdef TICKET_BY_OWNER
#define PEACE(t) (STORED(t, TICKET(t), 0) || mem[TICKET(t)] == 0)
#else
#define PEACE(t) (mem[TICKET(t)] == 0)
#endif
#define OWN_P(t)                                                                                    \
    (STORED(t, MP(t), 0) -> 0 : (STORED(t, MP(t), 1) -> 1 : (STORED(t, MP(t), 2) -> 2 : mem[MP(t)])))

/* What is done under sched.lock is one step: what it touches is touched there alone. */
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
    fi;
    if
    :: first == 0 || p == 0 -> wanted = false
    :: else
    fi
}
/* An idle P for a parked M; none: whoever is about to park looks again. */
inline wakep() {
    if
    :: idle[1] || idle[2] ->
        if
        :: parked[0] || parked[1] ->
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
        :: else -> wanted = true
        fi
    :: else
    fi
}
inline put_idle(t) {
    assert(owner[p] == t && !idle[p]);
    owner[p] = IDLE;
    idle[p] = true;
    p = 0
}
/* A P in one's hands: to an M if work was seen, else to the idle list. Behind that, I2 and I5. */
inline place(t) {
    put_idle(t);
    if
    :: seen -> wakep(); seen = false
    :: else
    fi
}
inline look_again() {
#ifdef NO_RECHECK
    skip
#else
    atomic {
        if
        :: WORK -> wakep()
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
inline lock_settle(t) { atomic { FENCE(t); mem[SETTLE(t)] == 0 -> mem[SETTLE(t)] = 1 } }

proctype mach(byte t; byte g; byte p) {
    byte oldp, wm, wp;
    bool may, seen;
    if
    :: g == 0 -> goto end_m
    :: else -> oldp = p; p = 0
    fi;
user:
    atomic {
        if
        :: calls > 0 -> calls--; may = true
        :: calls > 0 -> calls--; may = false
        :: begun[g] = false; may = true /* it ends: that, too, takes a P */
        :: blocked[t] = true; goto end_blocked
        fi;
        /* enter */
#ifdef LEAVE_WRONG
        entered[g] = t;
#endif
        STORE(t, INCALL(t), 1)
    };
    /* light fence: nothing for the machine */
    if
    :: PEACE(t) -> p = OWN_P(t); goto inside
    :: else
    fi;
    /* the slow way */
    lock_settle(t);
    if
    :: atomic { may ->
            mem[TICKET(t)] = 0;
            p = mem[MP(t)];
            STORE(t, SETTLE(t), 0);
            if
            :: p != 0 -> assert(owner[p] == t); goto yield
            :: else
            fi
        }
    :: atomic { !may ->
            p = mem[MP(t)];
            STORE(t, MP(t), 0);
#ifdef NO_STAY_UP
            mem[TICKET(t)] = 0;
#endif
            STORE(t, SETTLE(t), 0);
            if
            :: p != 0 -> seen = WORK; goto hand_over
            :: else -> goto inside
            fi
        }
    fi;
    /* a P: its old one, if that is idle, or any; none: the G is queued */
    atomic {
        FENCE(t);
        pop_idle(t, oldp);
        if
        :: p != 0 -> acquire(t); goto inside
        :: else
        fi
    };
    atomic { FENCE(t); queued[g] = true; g = 0 };
    atomic { wakep() };
park:
    atomic {
        FENCE(t);
        if
        :: wanted -> pop_idle(t, 0)
        :: else
        fi;
        if
        :: p != 0 -> acquire(t); goto search
        :: else -> parked[t] = true; oldp = 0
        fi
    };
end_m:
    atomic { note[t] -> note[t] = false; p = nextp[t]; nextp[t] = 0; acquire(t); goto search };
hand_over:
    atomic { FENCE(t); place(t) };
    look_again();
    goto inside;
yield:
    atomic { FENCE(t); queued[g] = true; g = 0 };
schedule:
    if
    :: PEACE(t) -> skip
    :: else -> /* what was asked is done: no G is held up here */
        lock_settle(t);
        atomic { mem[TICKET(t)] = 0; STORE(t, SETTLE(t), 0) }
    fi;
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
    atomic { FENCE(t); put_idle(t) };
    look_again();
    goto park;
inside: /* works on its P, if it has one: twice, so that one that is taken meanwhile is seen */
    assert((p != 0 || !may) && (p == 0 || owner[p] == t));
    atomic {
        assert(p == 0 || owner[p] == t);
        if
        :: !begun[g] -> g = 0; goto schedule
        :: begun[g] -> p = 0; STORE(t, INCALL(LEFT(t)), 0); goto user
        :: begun[g] && !may && p != 0 -> skip /* block_begin */
        fi
    };
    lock_settle(t);
    atomic {
        mem[TICKET(t)] = 1;
        STORE(t, MP(t), 0);
        STORE(t, SETTLE(t), 0);
        seen = WORK;
        goto hand_over
    };
end_blocked:
    false
}

proctype retaker(byte t) {
    byte rounds = ROUNDS, m, meant, p, wm, wp;
    bool seen;
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
    atomic { LOCK_RETAKE; mem[TICKET(m)] = 1 };
#ifndef NO_HEAVY
    FENCE(0);
    FENCE(1);
#endif
look:
    atomic {
        mem[SETTLE(m)] == 0;
        if
        :: mem[TICKET(m)] == 0 -> retake = false; goto over /* answered */
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
            goto look
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
        :: else -> assert(owner[p] == m); owner[p] = t; mem[MP(m)] = 0; seen = WORK
        fi
    };
    /* in its hands, until it is placed */
    atomic { place(t) };
    look_again();
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
        assert(owner[p] == NO_P || idle[p] + (mem[MP(0)] == p) + (mem[MP(1)] == p) == 1);
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
#ifdef TWO_PS
        owner[2] = 1;
        mem[MP(1)] = 2;
        run mach(1, 2, 2);
#else
        owner[2] = NO_P;
        queued[2] = true;
        mem[INCALL(1)] = 1;
        parked[1] = true;
        run mach(1, 0, 0);
#endif
        run retaker(2);
#ifndef ONE_RETAKER
        run retaker(3);
#endif
        run machine();
        run judge()
    }
}
