/* The mutex: four threads lock it once; the last has a deadline, and when that is past it lets it be, or
   tries again without. Each holds a reference, given up under the lock; who gives up the last one frees
   the mutex when its unlock has returned, and asks nobody. (Who lets it be keeps its reference.)
   Whichever waiter can be claimed may be the first of the queue. All words are changed by locked
   instructions, or under the inner lock. */
#define N 4
bool locked, waiters, woken, starving; /* one word */
bool lock;                   /* the inner one */
bool inq[N];
byte wait[N]; /* 1 waits, 2 claimed by an unlocker, 3 by its deadline */
byte wake[N]; /* 1 to compete, 2 with the mutex */
byte inside, refs = N;
bool freed;

/* When an unlock may go without the inner lock: nobody waits, or one is on his way to compete. */
#ifdef FAST_PAST_WAITERS
#define FAST !starving
#else
#define FAST ((!waiters && !woken && !starving) || (woken && !starving))
#endif
#ifdef HAND_TO_NOBODY
#define NONE_TO_HAND false
#else
#define NONE_TO_HAND (w == N)
#endif

#define touch() assert(!freed)
#define NOBODY (!inq[0] && !inq[1] && !inq[2] && !inq[3])
inline take() { atomic { !lock -> touch(); lock = true } }
inline drop() { atomic { touch(); lock = false } }

/* Under the inner lock: claims a waiter that can be, whatever its place. w == N: none. */
inline claim() {
    if
    :: atomic { inq[0] && wait[0] == 1 -> wait[0] = 2; inq[0] = false; w = 0 }
    :: atomic { inq[1] && wait[1] == 1 -> wait[1] = 2; inq[1] = false; w = 1 }
    :: atomic { inq[2] && wait[2] == 1 -> wait[2] = 2; inq[2] = false; w = 2 }
    :: atomic { inq[3] && wait[3] == 1 -> wait[3] = 2; inq[3] = false; w = 3 }
    :: else -> w = N
    fi
}

/* Under the inner lock, dropped here: goes without the mutex. If nobody is on his way to compete and the
   mutex has become free, the next one is woken. */
inline leave(was_woken) {
    atomic {
        touch();
        starving = false;
#ifndef LEAVER_KEEPS_WOKEN
        if
        :: was_woken -> woken = false
        :: else
        fi;
#endif
        if
        :: NOBODY -> waiters = false
        :: else
        fi;
        got = !locked && !woken && !NOBODY
    };
    w = N;
#ifndef LEAVER_WAKES_NOBODY
    if
    :: got ->
        claim();
        atomic { touch(); woken = (woken || w != N) };
        atomic {
            touch();
            if
            :: NOBODY -> waiters = false
            :: else
            fi
        }
    :: else
    fi;
#endif
    drop();
    if
    :: w != N -> wake[w] = 1
    :: else
    fi
}

proctype thread(byte t; bool timed) {
    bool was_woken, got, hand, s;
    byte w;
again:
    was_woken = false;
    if
    :: atomic { !locked && !starving -> touch(); locked = true }; goto critical
    :: skip
    fi;
slow:
    take();
    if
    :: timed && locked -> leave(was_woken); timed = false; goto expired
    :: skip
    fi;
#ifdef BLIND_MARK
    atomic { touch(); got = !locked && (was_woken || !starving) };
#endif
    atomic {
        touch();
#ifndef BLIND_MARK
        got = !locked && (was_woken || !starving);
#endif
#ifndef TAKER_KEEPS_WOKEN
        if
        :: was_woken -> woken = false
        :: else
        fi;
#endif
        if
        :: got -> locked = true
        :: !got -> waiters = true
        :: !got && was_woken -> waiters = true; starving = true
        fi
    };
    if
    :: got -> drop(); goto critical
    :: else
    fi;
    atomic { wait[t] = 1; inq[t] = true };
    drop(); /* behind the switch */
    if
    :: wake[t] != 0 -> skip
    :: atomic { timed && wait[t] == 1 -> wait[t] = 3 };
        take();
        inq[t] = false;
        leave(false);
        timed = false;
        goto expired
    fi;
    atomic {
        got = (wake[t] == 2);
        wake[t] = 0;
        wait[t] = 0
    };
    if
    :: got -> skip
    :: else -> was_woken = true; goto slow
    fi;
critical:
    inside++;
    assert(inside == 1);
    refs--;
    s = (refs == 0);
    inside--;
unlock:
    if
    :: atomic { locked && FAST -> touch(); locked = false }; goto out
    :: atomic { else -> touch() }
    fi;
    take();
    hand = starving;
    if
    :: NOBODY || (woken && !hand) ->
#ifdef UNLOCK_UNDER_INNER
        atomic { touch(); locked = false };
        drop();
        goto out
#else
        drop();
        goto unlock
#endif
    :: else
    fi;
    claim();
    atomic {
        touch();
        starving = false;
        if
        :: NOBODY -> waiters = false
        :: else
        fi;
        if
        :: !hand || NONE_TO_HAND -> locked = false; woken = (woken || w != N)
        :: else
        fi
    };
#ifdef WAKE_BEFORE_DROP
    if
    :: w != N -> wake[w] = (hand -> 2 : 1)
    :: else
    fi;
    drop();
#else
    drop();
    if
    :: w != N -> wake[w] = (hand -> 2 : 1)
    :: else
    fi;
#endif
out:
    if
    :: s -> freed = true
    :: else
    fi;
    goto over;
expired: /* tries again for ever, or lets it be */
    if
    :: goto again
    :: skip
    fi;
over:
    skip
}

init {
    atomic {
        run thread(0, false);
        run thread(1, false);
        run thread(2, false);
        run thread(3, true)
    }
}
