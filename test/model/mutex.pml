/* The mutex: three threads lock it once; the third has a deadline at first and then tries again without.
   Each holds a reference, given up under the lock; who gives up the last one frees the mutex when its
   unlock has returned, and asks nobody. Whichever waiter can be claimed may be the first of the queue.
   All words are changed by locked instructions, or under the inner lock. */
#define N 3
bool locked, waiters, woken; /* one word */
bool lock;                   /* the inner one */
bool inq[N];
byte wait[N]; /* 1 waits, 2 claimed by an unlocker, 3 by its deadline */
byte wake[N]; /* 1 to compete, 2 with the mutex */
byte inside, refs = N;
bool freed;

#define touch() assert(!freed)
#define NOBODY (!inq[0] && !inq[1] && !inq[2])
inline take() { atomic { !lock -> touch(); lock = true } }
inline drop() { atomic { touch(); lock = false } }

/* Under the inner lock: claims a waiter that can be, whatever its place. w == N: none. */
inline claim() {
    if
    :: atomic { inq[0] && wait[0] == 1 -> wait[0] = 2; inq[0] = false; w = 0 }
    :: atomic { inq[1] && wait[1] == 1 -> wait[1] = 2; inq[1] = false; w = 1 }
    :: atomic { inq[2] && wait[2] == 1 -> wait[2] = 2; inq[2] = false; w = 2 }
    :: else -> w = N
    fi
}

inline leave(was_woken) {
    atomic {
        touch();
#ifndef LEAVER_KEEPS_WOKEN
        if
        :: was_woken -> woken = false
        :: else
        fi;
#endif
        if
        :: NOBODY -> waiters = false
        :: else
        fi
    };
    drop()
}

proctype thread(byte t; bool timed) {
    bool was_woken, got, hand, s;
    byte w;
again:
    was_woken = false;
    if
    :: atomic { !locked && !waiters && !woken -> touch(); locked = true }; goto critical
    :: atomic { !locked -> touch(); locked = true }; goto critical /* watched for a while */
    :: skip
    fi;
slow:
    take();
    if
    :: timed && locked -> leave(was_woken); timed = false; goto again
    :: skip
    fi;
#ifdef BLIND_MARK
    atomic { touch(); got = !locked };
#endif
    atomic {
        touch();
#ifndef BLIND_MARK
        got = !locked;
#endif
#ifndef TAKER_KEEPS_WOKEN
        if
        :: was_woken -> woken = false
        :: else
        fi;
#endif
        if
        :: got -> locked = true
        :: else -> waiters = true
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
        goto again
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
    :: atomic { locked && !waiters && !woken -> touch(); locked = false }; goto out
    :: else
    fi;
    take();
    if
    :: !waiters && !woken ->
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
    w = N;
    if
    :: hand = true /* the first has waited for long */
    :: hand = false
    fi;
    if
    :: !NOBODY && (hand || !woken) ->
        claim();
        atomic {
            touch();
            if
            :: NOBODY -> waiters = false
            :: else
            fi;
#ifdef HAND_TO_NOBODY
            if
            :: !hand -> locked = false; woken = (woken || w != N)
#else
            if
            :: !hand || w == N -> locked = false; woken = (woken || w != N)
#endif
            :: else
            fi
        }
    :: else -> atomic { touch(); locked = false }
    fi;
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
    fi
}

init {
    atomic {
        run thread(0, false);
        run thread(1, false);
        run thread(2, true)
    }
}
