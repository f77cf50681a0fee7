/* A gate (waitgroup, event): one opener, a plain waiter, a waiter with a deadline. Once both waiters
   have returned the gate is freed; nobody asks the opener. All words are changed by locked
   instructions, or under the lock, so the buffers of the machine play no part. */
bool open, waiters; /* one word: each step below reads or changes both at once */
bool lock;
bool plain_in, timed_in; /* in the queue */
byte wait;               /* of the timed one: 1 waits, 2 claimed by the opener, 3 by its deadline */
bool wake_plain, wake_timed;
byte returned;
bool freed;

#define touch() assert(!freed)
inline take() { atomic { !lock -> touch(); lock = true } }
inline drop() { atomic { touch(); lock = false } }

/* Under the lock: marks that somebody waits, unless it is open with nobody to wake. */
inline mark(must) {
#ifdef BLIND_MARK
    atomic { touch(); must = !(open && !waiters) };
    atomic { touch(); waiters = waiters || must }
#else
    atomic { touch(); must = !(open && !waiters); waiters = waiters || must }
#endif
}

inline leave() {
    take();
    timed_in = false;
#ifdef LEAVER_CLEARS_OPEN
    if
    :: !plain_in -> atomic { touch(); waiters = false }
    :: else
    fi;
#else
    if
    :: !plain_in -> atomic { touch(); waiters = waiters && open }
    :: else
    fi;
#endif
    drop()
}

proctype opener() {
    bool saw, wp, wt;
    atomic { touch(); open = true; saw = waiters };
    if
    :: saw ->
#ifdef CLEAR_BEFORE_LOCK
        atomic { touch(); waiters = false };
#endif
        take();
        if
        :: plain_in -> plain_in = false; wp = true
        :: else
        fi;
        if
        :: timed_in ->
            atomic {
                if
                :: wait == 1 -> wait = 2; wt = true; timed_in = false
                :: else /* lost: it unlinks itself */
                fi
            }
        :: else
        fi;
#ifndef CLEAR_BEFORE_LOCK
        atomic { touch(); waiters = false };
#endif
        drop();
        if
        :: wp -> wake_plain = true
        :: else
        fi;
        if
        :: wt -> wake_timed = true
        :: else
        fi
    :: else
    fi
}

inline pass(through) {
    atomic { touch(); through = open && !waiters };
#ifndef PASS_WITHOUT_LOCK
    if
    :: through -> atomic { touch(); through = !lock }
    :: else
    fi
#endif
}

inline returns() {
    atomic {
        returned++;
        if
        :: returned == 2 -> freed = true
        :: else
        fi
    }
}

proctype plain() {
    bool yes;
    pass(yes);
    if
    :: !yes ->
        take();
        mark(yes);
        if
        :: yes ->
            plain_in = true;
            drop(); /* behind the switch */
            wake_plain;
            assert(!plain_in)
        :: else -> drop()
        fi
    :: else
    fi;
    returns()
}

proctype timed() {
    bool yes;
    take();
    mark(yes);
    if
    :: yes ->
        wait = 1;
        timed_in = true;
        drop();
        if
        :: wake_timed
        :: atomic { wait == 1 -> wait = 3 }; leave()
        fi
    :: else -> drop()
    fi;
    returns()
}

init {
    atomic {
        run opener();
        run plain();
        run timed()
    }
}
