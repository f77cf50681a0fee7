/* Who watches the timers. M0 has a P, arms two timers, each earlier than all before, and computes for
   ever; M1 and M2 search, give their P up, sleep in the poller (one of them: the token) or park. When
   nothing moves any more and a P is idle, somebody must sleep in the poller, and no longer than until
   the earliest timer. With LEAVE nothing is armed, all are called out and must go.
   Only M0 stores plainly (the key), so only it needs a buffer. Times are small numbers; 9 is never. */
#define THREADS 1
#define WORDS 3
#define KEY 0   /* the earliest time in the heap of M0's P, published at unlock */
#define UNTIL 1 /* poll_until */
#define LEAVING 2
#include "tso.h"
#define NEVER 9

bool polling, broken, eventfd, event; /* event: a descriptor is ready, once */
byte npidle, nmspinning, gone;
byte asleep_until; /* of the sleeper in the poller; 0: nobody sleeps */
bool lock, wanted, idle[3], note[3];

inline take() { atomic { !lock -> lock = true } }

/* In two steps: the exchange, and the write of whoever found 0. */
inline break_poll() {
    if
    :: atomic { !broken -> broken = true }; eventfd = true
    :: broken
    fi
}

inline wakep() {
    if
    :: nmspinning != 0 -> skip
    :: else ->
        if
        :: npidle == 0 -> skip
        :: else ->
            take();
            if
            :: nmspinning == 0 && npidle > 0 ->
                npidle--;
                nmspinning++;
                if
                :: idle[1] -> idle[1] = false; lock = false; note[1] = true
                :: !idle[1] && idle[2] -> idle[2] = false; lock = false; note[2] = true
                :: else ->
                    npidle++;
                    nmspinning--;
                    wanted = true;
                    lock = false;
                    if
                    :: polling -> break_poll()
                    :: else
                    fi
                fi
            :: else -> lock = false
            fi
        fi
    fi
}

proctype adder() {
    byte when = 5, until;
    do
    :: when == 1 -> break
    :: when > 1 ->
        STORE(0, KEY, when);
#ifndef NO_FENCE
        FENCE(0);
#endif
        if
        :: polling ->
            until = mem[UNTIL];
            if
#ifdef ZERO_IS_SOON
            :: until > when -> FENCE(0); break_poll()
#else
            :: until == 0 || until > when -> FENCE(0); break_poll()
#endif
            :: else
            fi
        :: !polling -> /* owed: paid at the end of the call, or by g0, which forgives it if somebody
                          watches by then */
#ifndef NO_TELL
            if
            :: FENCE(0); wakep()
            :: polling
            :: !polling -> FENCE(0); wakep()
            fi
#endif
        fi;
        when = when - 2
    od
}

proctype mach(byte t; bool spinning) {
    byte when, until;
    bool found;
search:
    if
    :: mem[LEAVING] == 1 -> goto leave
    :: else
    fi;
    /* nothing is found; go_idle */
    take();
    npidle++;
    lock = false;
    if
    :: spinning -> spinning = false; nmspinning--
    :: else
    fi;
#ifdef TOKEN_LATE
    when = mem[KEY];
#endif
    if
    :: mem[KEY] == NEVER -> goto park
    :: else
    fi;
    if
    :: atomic { !polling -> polling = true }
    :: polling ->
        when = mem[KEY];
        until = mem[UNTIL];
        if
        :: (until == 0 && when != NEVER) || when < until -> break_poll()
        :: else
        fi;
        goto park
    fi;
#ifndef TOKEN_LATE
    when = mem[KEY];
#endif
    found = false;
#ifndef NO_LOOK_BEHIND
    if
    :: mem[LEAVING] == 1 || wanted -> goto back
    :: else
    fi;
#endif
    atomic { mem[UNTIL] = when; asleep_until = when }
end_poll:
    if
    :: eventfd ->
#ifdef DRAIN_FLIPPED
        broken = false;
        eventfd = false
#else
        eventfd = false;
        broken = false
#endif
    :: event -> event = false; found = true
    fi;
    atomic { asleep_until = 0; mem[UNTIL] = 0 }
back:
    polling = false;
    take();
    if
    :: npidle > 0 ->
        npidle--;
        if
        :: found -> skip
        :: else -> wanted = false; nmspinning++; spinning = true
        fi;
        lock = false;
        if
        :: found -> goto runs
        :: else -> goto search
        fi
    :: else -> wanted = false; lock = false
    fi;
park:
    take();
#ifndef NO_LOOK_AT_PARK
    if
    :: mem[LEAVING] == 1 -> lock = false; goto leave
    :: else
    fi;
#endif
    if
    :: wanted && npidle > 0 ->
        wanted = false;
        npidle--;
        nmspinning++;
        spinning = true;
        lock = false;
        goto search
    :: else
    fi;
    idle[t] = true;
    lock = false;
end_park:
    note[t];
    note[t] = false;
    if
    :: mem[LEAVING] == 1 -> goto leave
    :: else -> spinning = true; goto search
    fi;
runs: /* what the poll brought, for ever: somebody else must watch */
#ifndef NO_WATCH
    if
    :: !polling -> wakep()
    :: else
    fi;
#endif
    mem[LEAVING] == 1 || timeout;
leave:
    gone++
}

#ifdef LEAVE
proctype caller() {
    mem[LEAVING] = 1;
    take();
    if
    :: idle[1] -> idle[1] = false; note[1] = true
    :: else
    fi;
    if
    :: idle[2] -> idle[2] = false; note[2] = true
    :: else
    fi;
    lock = false;
    break_poll()
}
#endif

proctype judge() {
end:
    timeout;
#ifdef LEAVE
    assert(gone == 2)
#else
    assert(npidle == 0 || mem[KEY] == NEVER || (asleep_until != 0 && asleep_until <= mem[KEY]))
#endif
}

init {
    atomic {
        mem[KEY] = NEVER;
        if
        :: mem[KEY] = 7
        :: skip
        fi;
        if
        :: run mach(1, true); run mach(2, true); nmspinning = 2
        :: run mach(1, true); run mach(2, false); nmspinning = 1
        fi;
        if
        :: event = true
        :: skip
        fi;
        run machine();
#ifdef LEAVE
        mem[KEY] = 7;
        run caller();
#else
        run adder();
#endif
        run judge()
    }
}
