/* Work against idlers. M0 makes two Gs runnable on its P and computes for ever; M1 and M2, each with a
   P of its own, search, give their P up, look once more, park. No further M may be made. When nothing
   moves any more, no G may be left while an M is parked and a P is idle.
   Words of TSO memory: what M0 stores plainly. The counters are changed by locked instructions. */
#define THREADS 3
#define WORDS 2
#define TAIL 0    /* of M0's ring; head is moved by compare-and-swap */
#define OFFERED 1 /* its runnext, as M0 left it going back to user code; taken by an exchange */
#include "tso.h"

byte head, globq;
bool batch; /* the two Gs are in the global queue to begin with */
byte npidle, nmspinning;
bool lock, wanted;
bool idle[3];  /* parked: in the list of idle Ms */
bool note[3];

inline take(t) { FENCE(t); atomic { !lock -> lock = true } }

/* The retry that startm, refused, leaves to whoever is about to park. */
inline refused() {
    npidle++;
    nmspinning--;
#ifndef NO_WANTED
    wanted = true;
#endif
}

inline wakep(t) {
    if
    :: nmspinning != 0 -> skip
    :: else ->
        if
        :: npidle == 0 -> skip
        :: else ->
            take(t);
            if
            :: nmspinning == 0 && npidle > 0 ->
                npidle--;
                nmspinning++;
                if
                :: idle[1] -> idle[1] = false; lock = false; note[1] = true
                :: !idle[1] && idle[2] -> idle[2] = false; lock = false; note[2] = true
                :: else -> refused(); lock = false
                fi
            :: else -> lock = false
            fi
        fi
    fi
}

/* work_anywhere: source by source, not at one moment. */
inline look(seen) {
    seen = (globq > 0);
    seen = (seen || head < mem[TAIL]);
#ifndef NO_OFFERED
    seen = (seen || mem[OFFERED] == 1);
#endif
}

proctype submitter() {
    if
    :: !batch -> /* two calls, each pays for its own */
        STORE(0, TAIL, 1);
#ifndef NO_FENCE
        FENCE(0);
#endif
        wakep(0);
        STORE(0, OFFERED, 1);
#ifndef NO_FENCE
        FENCE(0);
#endif
        wakep(0)
    :: !batch -> /* one call, one wake: the first who comes wakes the second */
        STORE(0, TAIL, 1);
        STORE(0, OFFERED, 1);
#ifndef NO_FENCE
        FENCE(0);
#endif
        wakep(0)
    :: batch -> /* on its way from the global queue to the ring; one of it runs here */
        take(0);
        if
        :: globq == 2 ->
            globq = 0;
            lock = false; /* the other lies nowhere now */
            STORE(0, TAIL, 1);
#ifndef NO_OWE
            FENCE(0);
            wakep(0)
#endif
        :: else -> globq = globq - (globq > 0 -> 1 : 0); lock = false
        fi
    fi
}

inline retire() {
    if
    :: spinning -> spinning = false; nmspinning--
    :: else
    fi
}

proctype thief(byte t; bool spinning) {
    bool seen, got, was;
search:
    FENCE(t);
    got = false;
    atomic {
        if
        :: globq > 0 && !lock -> globq--; got = true
        :: else
        fi
    };
    if
    :: !got ->
        atomic {
            if
            :: head < mem[TAIL] -> head++; got = true
            :: else
            fi
        }
    :: else
    fi;
    if
    :: !got && mem[OFFERED] == 1 ->
        atomic {
            if
            :: mem[OFFERED] == 1 -> mem[OFFERED] = 0; got = true
            :: else
            fi
        }
    :: else
    fi;
    if
    :: got -> goto found
    :: else
    fi;
    /* go_idle */
    take(t);
    if
    :: globq > 0 -> lock = false; goto search
    :: else
    fi;
#ifdef LOOK_FIRST
    look(seen);
#endif
    npidle++;
    lock = false;
    was = spinning;
    retire();
#ifdef NO_RECHECK
    seen = false;
#else
#ifndef LOOK_FIRST
    look(seen);
#endif
#endif
#ifdef SPINNERS_RECHECK
    seen = (seen && was);
#endif
    if
    :: seen ->
        take(t);
        if
        :: npidle > 0 -> npidle--; nmspinning++; spinning = true; lock = false; goto search
        :: else -> lock = false
        fi
    :: else
    fi;
park:
    take(t);
    if
    :: wanted && npidle > 0 ->
        wanted = false;
        npidle--;
        nmspinning++;
        spinning = true;
        lock = false;
        goto search
    :: else -> wanted = false
    fi;
    idle[t] = true;
    lock = false;
end:
    note[t];
    note[t] = false;
    spinning = true;
    goto search;
found:
    if
    :: spinning ->
        retire();
#ifndef NO_CHAIN
        look(seen);
        if
        :: seen -> wakep(t)
        :: else
        fi
#endif
    :: else
    fi
}

proctype judge() {
end:
    timeout;
    assert(npidle == 0 || (globq == 0 && head == mem[TAIL] && mem[OFFERED] == 0));
    assert(!lock && nmspinning == 0)
}

init {
    atomic {
        if
        :: globq = 2; batch = true
        :: skip
        fi;
        if
        :: run thief(1, true); run thief(2, true); nmspinning = 2
        :: run thief(1, true); run thief(2, false); nmspinning = 1
        :: run thief(1, false); run thief(2, false)
        fi;
        run machine();
        run submitter();
        run judge()
    }
}
