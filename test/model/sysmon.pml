/* When sysmon may sleep. Two Ms, two Ps (with SOLO one); Gs make work wait, block outside for ever or
   until they have lost their P; a plain thread submits. Sysmon takes Ps from those that block (ticket.pml
   has how). When nothing moves any more nothing waits but for want of an M, and if sysmon sleeps without
   limit, every P is idle. That its long sleep ends by itself in 10 ms does not count.
   Words of TSO memory. What is moved by locked instructions, or under sched.lock, has none. */
#define THREADS 4 /* 0 and 1 the Ms, 2 sysmon, 3 the plain thread */
#define WORDS 5
#define TAIL(p) (p) /* 1, 2: of the P's ring, stored by its holder; head is moved by compare-and-swap */
#define SLEEP 3     /* sysmon_sleep */
#define OWES 4      /* with SOLO: a put owes a look at SLEEP */
#include "tso.h"
#define SHORT 0
#define LONG 1
#define FOR_EVER 2
#ifdef SOLO
#define PS 1
#define SUBMITS 1
#else
#define PS 2
#ifndef SUBMITS
#define SUBMITS 1
#endif
#endif

byte head[3], tail[3]; /* tail as its holder knows it */
byte inj;
byte npidle, nmspinning;
bool idlep[3], parked[2], note[2], spins[2], wanted;
byte pof[2], nextp[2]; /* m->p; the P that it is woken with */
bool blocked[2];       /* outside, perhaps for ever */
#ifndef RETURNS
#define RETURNS 1
#endif
byte puts = 1, returns = RETURNS;
bool snote; /* sysmon's */
byte asleep; /* in which of its sleeps it is */

#ifdef SOLO
#define WORK (inj > 0 || head[1] < mem[TAIL(1)])
#else
#define WORK (inj > 0 || head[1] < mem[TAIL(1)] || head[2] < mem[TAIL(2)])
#endif
#define KEPT(m) (blocked[m] && pof[m] != 0) /* a P that its M does not use */

inline sysmon_wake(t) {
    atomic {
        FENCE(t);
        if
        :: mem[SLEEP] != SHORT -> mem[SLEEP] = SHORT; snote = true
        :: else
        fi
    }
}
inline poke(t) {
    if
    :: mem[SLEEP] != SHORT -> sysmon_wake(t)
    :: else
    fi
}

inline put(t, n) {
    atomic {
        tail[pof[t]] = tail[pof[t]] + n;
        STORE(t, TAIL(pof[t]), tail[pof[t]])
    }
}

/* Under sched.lock, as one step: an idle P for a parked M; none: `wanted`, for whoever parks next. */
inline startm(spin) {
    x = (idlep[1] -> 1 : 2);
    if
    :: parked[0] || parked[1] ->
        y = (parked[0] -> 0 : 1);
        idlep[x] = false;
        npidle--;
        nmspinning = nmspinning + spin;
        spins[y] = spin;
        parked[y] = false;
        nextp[y] = x;
        note[y] = true
    :: else -> wanted = true
    fi;
    x = 0;
    y = 0
}
inline pop_idle(t) {
    x = (idlep[1] -> 1 : 2);
    idlep[x] = false;
    npidle--;
    pof[t] = x;
    x = 0
}

inline wakep(t) {
    if
    :: nmspinning != 0 -> skip
    :: else ->
        if
        :: npidle == 0 ->
#ifndef NO_POKE
            poke(t)
#else
            skip
#endif
        :: else ->
            atomic {
                FENCE(t);
                if
                :: nmspinning == 0 && npidle > 0 -> startm(1); told = false
                :: else -> told = true
                fi
            };
            if
            :: told ->
                told = false;
#ifndef NO_POKE
                poke(t)
#else
                skip
#endif
            :: else
            fi
        fi
    fi
}

/* I2, I5 */
inline look_again(t) {
    FENCE(t);
    if
    :: WORK -> wakep(t)
    :: else
    fi
}

proctype mach(byte t; bool spinning) {
    byte x, y;
    byte owed; /* of a batch: so many come into the ring */
    bool told;
    if
    :: pof[t] == 0 -> goto end_m
    :: else
    fi;
search:
    atomic {
        FENCE(t);
        if
        :: inj > 0 -> /* all of it: one runs here, the others lie nowhere until they are in the ring */
            owed = inj - 1;
            inj = 0;
            goto found
        :: inj == 0 && head[1] < mem[TAIL(1)] -> head[1]++; goto found
#ifndef SOLO
        :: inj == 0 && head[1] == mem[TAIL(1)] && head[2] < mem[TAIL(2)] -> head[2]++; goto found
#endif
        :: else
        fi
    };
    /* go_idle */
    atomic {
        idlep[pof[t]] = true;
        npidle++;
        pof[t] = 0;
        nmspinning = nmspinning - spinning;
        spinning = false
    };
    if
    :: WORK ->
        atomic {
            if
            :: npidle > 0 -> pop_idle(t); nmspinning++; spinning = true; wanted = false; goto search
            :: else -> wanted = false
            fi
        }
    :: else
    fi;
park:
    atomic {
        FENCE(t);
        if
        :: wanted && npidle > 0 -> pop_idle(t); nmspinning++; spinning = true; wanted = false; goto search
        :: else -> wanted = false; parked[t] = true; spinning = false
        fi
    };
end_m:
    atomic {
        note[t] -> note[t] = false;
        pof[t] = nextp[t];
        nextp[t] = 0;
        spinning = spins[t];
        goto search
    };
found: /* before the G runs */
    if
    :: owed > 0 -> put(t, owed)
    :: else
    fi;
#ifndef NO_WAKE_BY_TAKER
    if
    :: mem[SLEEP] == FOR_EVER -> sysmon_wake(t)
    :: else
    fi;
#endif
    if
    :: spinning ->
        atomic { spinning = false; nmspinning-- };
        look_again(t)
    :: else
    fi;
    if
    :: owed > 0 ->
        owed = 0;
#ifndef NO_OWE
#ifdef SOLO
        poke(t)
#else
        FENCE(t);
        wakep(t)
#endif
#endif
    :: else
    fi;
runs:
    if
    :: atomic { puts > 0 -> puts-- };
        put(t, 1);
#ifdef SOLO
        /* light fence: nothing for the machine */
        if
        :: mem[OWES] == 1 -> poke(t)
        :: else
        fi;
#else
        FENCE(t);
        wakep(t);
#endif
        goto runs
    :: goto search
    :: blocked[t] = true
    fi;
end_blocked:
    atomic { pof[t] == 0 && returns > 0 -> returns--; blocked[t] = false };
    /* back: an idle P, or the queue */
    atomic {
        if
        :: npidle > 0 -> pop_idle(t)
        :: else
        fi
    };
    if
    :: pof[t] != 0 ->
#ifndef NO_WAKE_BY_REGAIN
        poke(t);
#endif
        goto runs
    :: else
    fi;
    inj++;
    wakep(t);
    goto park
}

proctype sysmon() {
    byte x, y;
    bool told;
round:
end_round:
    if
    :: KEPT(0) -> x = 1
    :: KEPT(1) -> x = 2
    :: !WORK -> goto sleeps
    fi;
    /* A P that is not used, whether or not something waits: to the idle list, from where it is given to
       an M if so. Behind the heavy fence. */
    atomic {
        FENCE(0);
        FENCE(1);
        y = pof[x - 1];
        pof[x - 1] = 0;
        idlep[y] = true;
        npidle++;
        x = 0;
        y = 0
    };
    look_again(2);
    goto round;
sleeps:
    atomic {
#ifndef CLEAR_LATE
        snote = false;
#endif
        if
        :: npidle == PS -> STORE(2, SLEEP, FOR_EVER)
        :: else ->
#ifdef SOLO
            STORE(2, OWES, 1);
#endif
            STORE(2, SLEEP, LONG);
            goto long_sleep
        fi
    };
#ifndef NO_FULL
    FENCE(2);
#endif
#ifdef CLEAR_LATE
    snote = false;
#endif
#ifndef NO_LOOK_AT_PS
    if
    :: npidle != PS -> goto up
    :: else
    fi;
#endif
    atomic {
        if
        :: WORK -> goto up
        :: else -> asleep = FOR_EVER; goto end_asleep
        fi
    };
long_sleep:
#ifndef NO_HEAVY
    FENCE(2);
    FENCE(0);
    FENCE(1);
#endif
#ifdef CLEAR_LATE
    snote = false;
#endif
#ifndef NO_LOOK_AT_WORK
    if
    :: WORK -> goto up
    :: else
    fi;
#endif
    asleep = LONG;
end_asleep:
    atomic { snote -> asleep = 0 };
up:
    atomic {
#ifdef SOLO
        STORE(2, OWES, 0);
#endif
        STORE(2, SLEEP, SHORT);
        goto round
    }
}

proctype submitter() {
    byte x, y, n;
    bool told;
    do
    :: atomic { n < SUBMITS -> n++; inj++ };
        wakep(3)
    :: break
    od
}

proctype judge() {
end:
    timeout;
    /* with an idle P it wants for an M */
    assert(!WORK || (blocked[0] && blocked[1] && (npidle > 0 || (!KEPT(0) && !KEPT(1)))));
    assert(asleep != FOR_EVER || npidle == PS)
}

init {
    atomic {
        pof[0] = 1;
        if
#ifndef SOLO
        :: pof[1] = 2; run mach(1, true); nmspinning = 1
        :: pof[1] = 2; run mach(1, false)
#endif
        :: parked[1] = true;
            run mach(1, false);
#ifndef SOLO
            idlep[2] = true;
            npidle = 1
#endif
        fi;
        run mach(0, false);
        run sysmon();
        run submitter();
        run machine();
        run judge()
    }
}
