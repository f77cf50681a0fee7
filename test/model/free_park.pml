/* The free park: one G waits twice, and a source, a deadline and a stop race to end each wait.
   Words of TSO memory; the word of the G is generation << 4 | cause << 2 | state. */
#define THREADS 4 /* 0 the G and the far side of its switch, 1 source, 2 timers, 3 stop */
#define WORDS 5
#define WORD 0
#define CANCEL 1
#define LOCK 2  /* of the source */
#define TLOCK 3 /* of the timer set */
#define DONE 4  /* the round whose node its winner has let go of */
#include "tso.h"

#define ARMING 1
#define ARMED 2
#define CLAIMED 3
#define STATE(w) ((w) & 3)
#define CAUSE(w) (((w) >> 2) & 3)
#define GEN(w) ((w) >> 4)
#define BY_SOURCE 0
#define BY_DEADLINE 1
#define BY_CANCEL 2

#define WAITS(w) (STATE(w) == ARMING || STATE(w) == ARMED)
#ifdef NO_GENERATION
#define SAME(w, gen) true
#else
#define SAME(w, gen) (GEN(w) == gen)
#endif

bool linked[3], alive[3]; /* the node of each round: in the queue; its frame exists */
byte timer_on;            /* the round for which the timer is in the heap; 0: in none */
bool onstack = true;      /* the G stands on its stack */
byte rdy;                 /* it is in a run queue */

inline take(t, l) { FENCE(t); atomic { mem[l] == 0 -> mem[l] = 1 } }
inline drop(t, l) { STORE(t, l, 0) }
inline ready(t) {
    FENCE(t);
    atomic {
        assert(!onstack);
        assert(rdy == 0);
        rdy++
    }
}
/* won: 0 lost, 1 won, 2 won and to be readied. A compare-and-swap in a loop is one step. */
inline claim(t, gen, cause, won) {
    FENCE(t);
    atomic {
        won = 0;
        if
        :: WAITS(mem[WORD]) && SAME(mem[WORD], gen) ->
            won = (STATE(mem[WORD]) == ARMED -> 2 : 1);
            mem[WORD] = (mem[WORD] & 240) | (cause << 2) | CLAIMED
        :: else
        fi
    }
#ifdef READY_ARMING
    won = (won != 0 -> 2 : 0)
#endif
}

proctype green() {
    byte gen = 0, won, cause;
    bool source, timed;
    do
    :: gen == 2 -> break
    :: else ->
        gen++;
        alive[gen] = true;
        if
        :: source = true
        :: source = false /* a sleep, a NULL channel: no lock on the way */
        fi;
        if
        :: gen == 1 -> timed = true
        :: timed = false
        fi;
#ifdef FLAG_BEFORE
        cause = mem[CANCEL];
#endif
        STORE(0, WORD, (gen << 4) | ARMING);
        if
        :: source ->
            take(0, LOCK);
            linked[gen] = true;
            drop(0, LOCK)
        :: else
        fi;
        if
        :: timed ->
            take(0, TLOCK);
            timer_on = gen;
            drop(0, TLOCK)
        :: else
        fi;
        /* light fence: nothing for the machine */
#ifndef FLAG_BEFORE
        cause = mem[CANCEL];
#endif
        if
        :: cause != 0 -> claim(0, gen, BY_CANCEL, won)
        :: else
        fi;
        if
        :: !buf[0] ?? [WORD, eval((gen << 4) | ARMING)] && STATE(mem[WORD]) == CLAIMED -> skip
        :: else ->
            onstack = false; /* the switch; what follows is the far side */
            FENCE(0);
            atomic {
                if
                :: mem[WORD] == ((gen << 4) | ARMING) -> mem[WORD] = (gen << 4) | ARMED; won = 0
                :: else -> won = 2
                fi
            }
#ifndef NO_COMMIT_READY
            if
            :: won == 2 -> ready(0)
            :: else
            fi;
#endif
            atomic { rdy > 0 -> rdy--; onstack = true }
        fi;
        cause = CAUSE(mem[WORD]);
        assert(STATE(mem[WORD]) == CLAIMED && GEN(mem[WORD]) == gen);
        assert(cause != BY_DEADLINE || timed);
        assert(cause != BY_SOURCE || source);
        if
        :: timed && cause != BY_DEADLINE ->
            take(0, TLOCK);
            timer_on = 0;
            drop(0, TLOCK)
        :: else
        fi;
        if
        :: cause == BY_SOURCE ->
#ifndef NO_AWAIT
            mem[DONE] == gen
#endif
        :: cause != BY_SOURCE && source ->
#ifndef NO_UNLINK
            take(0, LOCK);
            linked[gen] = false;
            drop(0, LOCK)
#endif
        :: else
        fi;
        alive[gen] = false
    od
}

proctype waker() {
    byte gen, won, turns;
    do
    :: turns == 2 -> break
    :: break
    :: turns < 2 ->
        turns++;
        take(1, LOCK);
        gen = (linked[1] -> 1 : (linked[2] -> 2 : 0));
        won = 0;
        if
        :: gen != 0 ->
            assert(alive[gen]);
            claim(1, gen, BY_SOURCE, won);
            if
            :: won != 0 -> linked[gen] = false
            :: else
            fi
        :: else
        fi;
        drop(1, LOCK);
        if
        :: won != 0 ->
            assert(alive[gen]); /* the last touch of the node */
            STORE(1, DONE, gen)
        :: else
        fi;
        if
        :: won == 2 -> ready(1)
        :: else
        fi
    od
}

proctype timers() {
    byte gen, won;
    if
    :: skip
    :: take(2, TLOCK);
        gen = timer_on;
        timer_on = 0;
        won = 0;
#ifdef LATE_FIRE /* as if the round were copied out and claimed with no lock held */
        drop(2, TLOCK);
#endif
        if
        :: gen != 0 -> claim(2, gen, BY_DEADLINE, won)
        :: else
        fi;
#ifndef LATE_FIRE
        drop(2, TLOCK);
#endif
        if
        :: won == 2 -> ready(2)
        :: else
        fi
    fi
}

/* One look: it must be enough, whatever the G is just doing. */
proctype stop() {
    byte w, won;
    STORE(3, CANCEL, 1);
    FENCE(3);
#ifndef NO_HEAVY
    FENCE(0);
    FENCE(1);
    FENCE(2);
#endif
    w = mem[WORD];
    if
    :: WAITS(w) -> claim(3, GEN(w), BY_CANCEL, won)
    :: else -> won = 0
    fi;
    if
    :: won == 2 -> ready(3)
    :: else
    fi
}

init {
    atomic {
        run machine();
        run green();
        run waker();
        run timers();
        run stop()
    }
}
