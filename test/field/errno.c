/* field/errno.c: errno after a move to another thread. Case C64 as far as one compiler and one level
   of optimisation show it: those of this build. field/errno.sh does it for all four. */
#include "field/field.h"

#include <errno.h>
#include <sys/socket.h>

enum { READERS = 100, ROUNDS = 2000, MIGRATIONS = 1000, JUNKERS = 4 };

static struct {
    weft_conn open[READERS]; /* nobody ever writes to these */
    weft_conn closed;
    atomic_int readers;
    atomic_long reads, moved_in_read, junk_seen;
    weft_waitgroup all;
} e;

/* errno as this thread has it now: called through a pointer that the compiler cannot see through, so
   that it finds the address anew. */
static int *(*volatile errno_here)(void) = __errno_location;

static bool moved_enough(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s.migrations >= MIGRATIONS;
}

/* So many rounds, and on until there have been enough moves for the rounds to mean something. */
static int reader(void *arg) {
    weft_conn mine = *(weft_conn *)arg;
    char byte;
    for (int i = 0; i < ROUNDS || (i % 100 != 0 || !moved_enough()); i++) {
        int *before = errno_here();
        if (i % 2 == 0) {
            CHECK_EQ(weft_conn_read_until(mine, &byte, 1, weft_in(US)), -ETIMEDOUT);
        } else {
            CHECK_EQ(weft_conn_read(e.closed, &byte, 1), -EBADF);
        }
        atomic_fetch_add(&e.reads, 1);
        atomic_fetch_add(&e.moved_in_read, before != errno_here());
    }
    atomic_fetch_sub(&e.readers, 1);
    return 0;
}

/* Errors no call of weft reports; on every thread, at any time. The sleep lets a P run dry now and
   then, so that it steals. */
static int junker(void *arg) {
    int junk = 1000 + *(int *)arg;
    for (int i = 0; atomic_load(&e.readers) > 0; i++) {
        *errno_here() = junk;
        if (i % 8 == 0) {
            weft_sleep(US);
        } else {
            weft_yield();
        }
    }
    return 0;
}

/* The safe reader's answer is that of the thread the caller is on by then. */
static int safe_reader(void *arg) {
    (void)arg;
    while (atomic_load(&e.readers) > 0) {
        errno = 5;
        weft_yield();
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
    weft_stats s;
    for (int i = 0; i < READERS; i++) {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        CHECK_EQ(weft_conn_from_fd(&e.open[i], pair[0]), 0);
    }
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_EQ(weft_conn_from_fd(&e.closed, pair[0]), 0);
    CHECK_EQ(weft_conn_close(e.closed), 0);
    atomic_store(&e.readers, READERS);
    for (int i = 0; i < READERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&e.all, reader, &e.open[i]));
    }
    for (int i = 0; i < JUNKERS; i++) {
        numbers[i] = i;
        WEFT_MUST(weft_waitgroup_go(&e.all, junker, &numbers[i]));
    }
    WEFT_MUST(weft_waitgroup_go(&e.all, safe_reader, NULL));
    weft_waitgroup_wait(&e.all);

    CHECK_GE(atomic_load(&e.reads), READERS * ROUNDS);
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    printf("C64: %ld reads, %llu migrations, %ld of them in a read; another's errno seen %ld times\n",
           atomic_load(&e.reads), (unsigned long long)s.migrations, atomic_load(&e.moved_in_read),
           atomic_load(&e.junk_seen));
    CHECK_GE(s.migrations, MIGRATIONS);
    return 0;
}

TEST_IN(field, C64a, 60) { run_at(2, read_with_junk, NULL); }
