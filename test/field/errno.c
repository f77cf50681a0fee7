/* field/errno.c: errno after a move to another thread. Case C64 as far as one compiler and one
   level of optimisation show it: those of this build. field/errno.sh does it for all four. */
#include "field/field.h"

#include <errno.h>
#include <sys/socket.h>

enum { READERS = 100, ROUNDS = 2000, A_PHASE = 50, MOST_PHASES = 2000, JUNKERS = 4 };
enum { MIGRATIONS = 1000, NAP = UNDER_TSAN ? 2000 * US : 50 * US };

static struct {
    weft_conn open[READERS]; /* nobody ever writes to these */
    weft_conn closed;
    weft_waitgroup arrived[MOST_PHASES]; /* at the end of a phase */
    weft_event next[MOST_PHASES];        /* and on to the next one, or the end */
    bool last[MOST_PHASES];
    atomic_bool over;
    atomic_long reads, moved_in_read, junk_seen;
    weft_waitgroup all;
} e;

/* errno as this thread has it now: called through a pointer that the compiler cannot see through,
   so that it finds the address anew. */
static int *(*volatile errno_here)(void) = __errno_location;

static void read_once(weft_conn mine, int round) {
    char byte;
    int *before = errno_here();
    if (round % 2 == 0) {
        CHECK_EQ(weft_conn_read_until(mine, &byte, 1, weft_in(US)), -ETIMEDOUT);
    } else {
        CHECK_EQ(weft_conn_read(e.closed, &byte, 1), -EBADF);
    }
    atomic_fetch_add(&e.moved_in_read, before != errno_here());
}

static int reader(void *arg) {
    for (int phase = 0; phase == 0 || !e.last[phase - 1]; phase++) {
        for (int round = 0; round < A_PHASE; round++) {
            read_once(*(weft_conn *)arg, round);
        }
        atomic_fetch_add(&e.reads, A_PHASE);
        weft_waitgroup_done(&e.arrived[phase]);
        weft_event_wait(&e.next[phase]);
    }
    return 0;
}

static uint64_t migrations(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s.migrations;
}

/* Wakes all readers at once, on one P, and the other P steals half of them: so there are moves
   even where everything is so slow that a deadline of 1 us is past before a read can park. Goes on
   after the last round until there have been enough moves for the rounds to mean something. */
static void conduct(void) {
    bool last = false;
    for (int phase = 0; !last; phase++) {
        CHECK_LT(phase, MOST_PHASES);
        weft_waitgroup_wait(&e.arrived[phase]);
        last = phase >= ROUNDS / A_PHASE - 1 && migrations() >= MIGRATIONS;
        e.last[phase] = last;
        weft_event_set(&e.next[phase]);
    }
    atomic_store(&e.over, true);
}

/* Every few rounds junkers and the safe reader sleep, so that a P runs dry and steals. */
static void step(int round) {
    if (round % 8 == 0) {
        weft_sleep(NAP);
    } else {
        weft_yield();
    }
}

/* Errors no call of weft reports; on every thread, at any time. */
static int junker(void *arg) {
    int junk = 1000 + *(int *)arg;
    for (int i = 0; !atomic_load(&e.over); i++) {
        *errno_here() = junk;
        step(i);
    }
    return 0;
}

/* The safe reader's answer is that of the thread the caller is on by then. */
static int safe_reader(void *arg) {
    (void)arg;
    for (int i = 0; !atomic_load(&e.over); i++) {
        *errno_here() = 5; /* `errno = 5` may write to that of a thread we have left */
        step(i);
        int x = weft_errno();
        CHECK_EQ(x, *errno_here());
        atomic_fetch_add(&e.junk_seen, x != 5);
        weft_set_errno(77);
        CHECK_EQ(*errno_here(), 77);
    }
    return 0;
}

static int read_with_junk(void *arg) {
    (void)arg;
    static int numbers[JUNKERS];
    int pair[2];
    for (int i = 0; i < READERS; i++) {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        CHECK_EQ(weft_conn_from_fd(&e.open[i], pair[0]), 0);
    }
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_EQ(weft_conn_from_fd(&e.closed, pair[0]), 0);
    CHECK_EQ(weft_conn_close(e.closed), 0);
    for (int i = 0; i < MOST_PHASES; i++) {
        weft_waitgroup_add(&e.arrived[i], READERS);
    }
    for (int i = 0; i < READERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&e.all, reader, &e.open[i]));
    }
    for (int i = 0; i < JUNKERS; i++) {
        numbers[i] = i;
        WEFT_MUST(weft_waitgroup_go(&e.all, junker, &numbers[i]));
    }
    WEFT_MUST(weft_waitgroup_go(&e.all, safe_reader, NULL));
    conduct();
    weft_waitgroup_wait(&e.all);
    CHECK_GE(atomic_load(&e.reads), READERS * ROUNDS);
    printf(
        "C64: %ld reads, %llu migrations, %ld of them in a read; another's errno seen %ld times\n",
        atomic_load(&e.reads), (unsigned long long)migrations(), atomic_load(&e.moved_in_read),
        atomic_load(&e.junk_seen));
    CHECK_GE(migrations(), MIGRATIONS);
    return 0;
}

TEST_IN(field, C64a, 60) { run_at(2, read_with_junk, NULL); }
