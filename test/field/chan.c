/* field/chan.c: what went wrong with channels elsewhere. Case C36. */
#include "field/field.h"

#include <errno.h>

/* ---- C36: close wakes both sides ------------------------------------------------------------- */

enum { SENDERS = 3, RECEIVERS = 2 };

static struct {
    weft_chan *unbuffered, *buffered, *empty;
    _Atomic int64_t woken; /* when the last one was */
    weft_waitgroup all;
} side;

static void note_woken(void) {
    int64_t t = now(), last = atomic_load(&side.woken);
    while (t > last && !atomic_compare_exchange_weak(&side.woken, &last, t)) {
    }
}

static int parked_sender(void *arg) {
    CHECK_EQ(weft_chan_send(side.unbuffered, arg), -EPIPE);
    note_woken();
    return 0;
}

static int parked_receiver(void *arg) {
    (void)arg;
    int value = 17;
    CHECK_EQ(weft_chan_recv(side.empty, &value), -EPIPE);
    CHECK_EQ(value, 0);
    note_woken();
    return 0;
}

static void wait_until_parked(uint64_t gs) {
    weft_stats s;
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting != gs);
}

static int close_all(void *arg) {
    int64_t *closed = arg;
    *closed = now();
    CHECK_EQ(weft_chan_close(side.unbuffered), 0);
    CHECK_EQ(weft_chan_close(side.empty), 0);
    CHECK_EQ(weft_chan_close(side.buffered), 0);
    return 0;
}

static int close_both_sides(void *arg) {
    (void)arg;
    int64_t closed = 0;
    static int values[SENDERS] = {1, 2, 3};
    CHECK_EQ(weft_chan_new(&side.unbuffered, sizeof(int), 0), 0);
    CHECK_EQ(weft_chan_new(&side.buffered, sizeof(int), 4), 0);
    CHECK_EQ(weft_chan_new(&side.empty, sizeof(int), 4), 0);
    for (int i = 0; i < SENDERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&side.all, parked_sender, &values[i]));
        CHECK_EQ(weft_chan_send(side.buffered, &values[i]), 0);
    }
    for (int i = 0; i < RECEIVERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&side.all, parked_receiver, NULL));
    }
    wait_until_parked(SENDERS + RECEIVERS);
    WEFT_MUST(weft_waitgroup_go(&side.all, close_all, &closed));
    weft_waitgroup_wait(&side.all);

    int value;
    for (int i = 0; i < SENDERS; i++) {
        CHECK_EQ(weft_chan_recv(side.buffered, &value), 0);
        CHECK_EQ(value, values[i]);
    }
    CHECK_EQ(weft_chan_recv(side.buffered, &value), -EPIPE);
    CHECK_EQ(value, 0);
    weft_chan *const channels[] = {side.unbuffered, side.buffered, side.empty};
    for (size_t i = 0; i < WEFT_COUNT(channels); i++) {
        CHECK_EQ(weft_chan_send(channels[i], &value), -EPIPE);
        CHECK_EQ(weft_chan_close(channels[i]), -EPIPE);
        weft_chan_unref(channels[i]);
    }
    int64_t took = atomic_load(&side.woken) - closed;
    test_clock(within(took, 10 * MS), "all were awake %.1f us after the close, bound 10 ms",
               (double)took / US);
    return 0;
}

TEST_IN(field, C36, 60) { run_at(2, close_both_sides, NULL); }
