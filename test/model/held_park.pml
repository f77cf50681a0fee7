/* The held park: the source's lock is kept over the switch, so a waker needs no claim, but for a stop.
   One G waits twice, each time in a queue of its own; a waker comes to each; a stop looks twice.
   Words of TSO memory; the word of the G is generation << 4 | cancelled << 2 | state. */
#define THREADS 3 /* 0 the G and the far side, 1 the waker, 2 the stop */
#define WORDS 7
#define WORD 0
#define TAKEN 1
#define CANCEL 2
#define LOCK(k) (2 + (k)) /* 3, 4: of the sources */
#define WOKEN 5           /* put in a run queue by the waker: rounds so far */
#define CALLED 6          /* by the stop */
#include "tso.h"

#define RUNNING 0
#define ARMED 2
#define CLAIMED 3
#define STATE(w) ((w) & 3)
#define GEN(w) ((w) >> 4)

bool linked[3];
byte wakes, calls; /* that the G has answered */
bool parked;       /* the G is off its stack, nobody has made it runnable yet */
bool over;

inline take(t, l) { FENCE(t); atomic { mem[l] == 0 -> mem[l] = 1 } }

/* The store that makes it runnable comes behind all that the readier has stored: a place in its
   buffer. Here only the check that nobody else does the same. */
inline runnable() { atomic { assert(parked); parked = false } }

proctype green() {
    byte gen = 0;
    do
    :: gen == 2 -> break
    :: mem[CANCEL] == 1 -> break /* the flag is looked at when a call begins */
    :: gen < 2 && mem[CANCEL] == 0 ->
        gen++;
        take(0, LOCK(gen));
        linked[gen] = true;
#ifndef NO_RESET
        STORE(0, TAKEN, 0);
#endif
        atomic { parked = true; STORE(0, WORD, (gen << 4) | ARMED) } /* behind the switch */
        STORE(0, LOCK(gen), 0);
        if
        :: mem[WOKEN] > wakes -> wakes++
        :: mem[CALLED] > calls ->
            calls++;
            assert(mem[WORD] == ((gen << 4) | 4 | CLAIMED))
        fi;
        if
        :: mem[WORD] == ((gen << 4) | 4 | CLAIMED) ->
            STORE(0, WORD, (gen << 4) | RUNNING);
            take(0, LOCK(gen));
            assert(linked[gen]);
            linked[gen] = false;
            STORE(0, LOCK(gen), 0)
        :: else ->
#ifndef NO_RUNNING
            STORE(0, WORD, (gen << 4) | RUNNING);
#endif
            assert(!linked[gen])
        fi
    od;
    over = true
}

proctype waker() {
    byte k, n;
    bool won;
    do
    :: k == 2 -> break
    :: k < 2 ->
        k++;
        if
        :: skip /* nothing comes: then the stop must end the wait */
        :: take(1, LOCK(k));
            won = false;
            if
            :: linked[k] ->
#ifdef CANCEL_FIRST
                won = (mem[CANCEL] == 0);
                STORE(1, TAKEN, 1);
#else
                STORE(1, TAKEN, 1);
                /* light fence: nothing for the machine */
                won = (mem[CANCEL] == 0);
#endif
#ifdef NO_WORD
                won = true;
#else
                if
                :: !won ->
                    FENCE(1);
                    atomic {
                        if
                        :: STATE(mem[WORD]) == ARMED -> mem[WORD] = mem[WORD] | CLAIMED; won = true
                        :: else
                        fi
                    }
                :: else
                fi;
#endif
                if
                :: won -> linked[k] = false
                :: else
                fi
            :: else
            fi;
            STORE(1, LOCK(k), 0);
            if
            :: won ->
                n++;
                runnable();
                STORE(1, WOKEN, n)
            :: else
            fi
        fi
    od
}

/* A stop looks again and again until no G is left. Two looks here; before the second the G has parked,
   or is at an end: a G that was called between the flag and its park is found then. */
proctype stop() {
    byte w, n, looks;
    bool taken;
    STORE(2, CANCEL, 1);
    do
    :: looks == 2 -> break
    :: looks < 2 ->
        looks++;
        FENCE(2);
#ifndef NO_HEAVY
        FENCE(0);
        FENCE(1);
#endif
        taken = mem[TAKEN] == 1;
        w = mem[WORD];
        if
        :: !taken && STATE(w) == ARMED ->
            FENCE(2);
            atomic {
                if
                :: mem[WORD] == w -> mem[WORD] = w | 4 | CLAIMED; n++
                :: else -> w = 0
                fi
            }
            if
            :: w != 0 ->
                runnable();
                STORE(2, CALLED, n)
            :: else
            fi
        :: else
        fi;
        over || (parked && STATE(mem[WORD]) == ARMED)
    od
}

init {
    atomic {
        run machine();
        run green();
        run waker();
        run stop()
    }
}
