/* unit/defer.c: deferred calls: their order, that each runs once, by whom, and at which of a green
 * thread's ends.
 */
#include "world.h"

/* ---- what was called, in order ---- */

static struct {
    int n;
    int calls[64];
} log_of;

static void note(void *arg) {
    CHECK_LT(log_of.n, 64);
    log_of.calls[log_of.n++] = (int)(intptr_t)arg;
}

#define NUMBER(n) ((void *)(intptr_t)(n))

static void noted(const int *expected, int n) {
    CHECK_EQ(log_of.n, n);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(log_of.calls[i], expected[i]);
    }
    log_of.n = 0;
}
#define NOTED(...) noted((const int[]){__VA_ARGS__}, (int)WEFT_COUNT(((const int[]){__VA_ARGS__})))

static void nothing_noted(void) { CHECK_EQ(log_of.n, 0); }

static weft_waitgroup ended;

static int run_and_tell(void *arg) {
    weft_fn fn = *(weft_fn *)arg;
    return fn(NULL);
}

/* Runs fn as a green thread beside us, until it has ended whole: its own deferred calls too. */
static void in_a_g(weft_fn fn) {
    CHECK_EQ(weft_waitgroup_go(&ended, run_and_tell, &fn), 0);
    weft_waitgroup_wait(&ended);
}

/* ---- by hand, on any thread ---- */

PLAYED(defer, run_drop_and_order) {
    weft_deferred a, b, c;
    weft_defer(&a, note, NUMBER(1));
    weft_defer(&b, note, NUMBER(2));
    weft_defer(&c, note, NUMBER(3));
    nothing_noted();
    weft_defer_run(&b); /* the newer first */
    NOTED(3, 2);
    weft_defer_run(&b);
    weft_defer_run(&c);
    nothing_noted();
    weft_defer(&c, note, NUMBER(4)); /* a node that has run may serve again */
    weft_defer(&b, note, NUMBER(5));
    weft_defer_drop(&c); /* from between */
    weft_defer_run(&c);
    weft_defer_drop(&c);
    nothing_noted();
    weft_defer_run(&a);
    NOTED(5, 1);
    weft_defer(&a, note, NUMBER(6));
    weft_defer_drop(&a); /* the only one */
    weft_defer(&b, note, NUMBER(7));
    weft_defer_run(&b);
    NOTED(7);
    weft_defer(&b, NULL, NUMBER(8));
    weft_defer_run(&b);
    nothing_noted();
}

/* ---- by block ---- */

static int leaves_early(int where) {
    WEFT_DEFER(note, NUMBER(1));
    if (where == 1) {
        return 1;
    }
    WEFT_DEFER(note, NUMBER(2));
    for (int i = 0; i < 3; i++) {
        WEFT_DEFER(note, NUMBER(10 + i));
        if (where == 2 && i == 1) {
            break;
        }
    }
    if (where == 3) {
        return 3;
    }
    note(NUMBER(3));
    return 0;
}

PLAYED(defer, at_the_end_of_the_block) {
    CHECK_EQ(leaves_early(1), 1);
    NOTED(1);
    CHECK_EQ(leaves_early(2), 0);
    NOTED(10, 11, 3, 2, 1);
    CHECK_EQ(leaves_early(3), 3);
    NOTED(10, 11, 12, 2, 1);
    CHECK_EQ(leaves_early(0), 0);
    NOTED(10, 11, 12, 3, 2, 1);
}

/* ---- at the end of a green thread ---- */

/* Big, so that the nodes lie far below the frame that the body returns to. */
static WEFT__NOINLINE int body_returns(void *arg) {
    (void)arg;
    weft_deferred a;
    volatile char between[3000];
    weft_deferred b, c;
    between[0] = 1;
    between[2999] = between[0];
    weft_defer(&a, note, NUMBER(1));
    weft_defer(&b, note, NUMBER(2));
    weft_defer(&c, note, NUMBER(3));
    return 0;
}

static int small_body_returns(void *arg) {
    (void)arg;
    weft_deferred a;
    weft_defer(&a, note, NUMBER(1));
    return 0;
}

static int waits_for_the_body(void *arg) {
    CHECK_EQ(weft_waitgroup_go(arg, body_returns, NULL), 0);
    weft_waitgroup_wait(arg);
    NOTED(3, 2, 1);
    return 0;
}

/* What runs at the end does not write over the nodes that are still to run. */
TEST(defer, nodes_in_the_bodys_frame) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(waits_for_the_body, &ended, &c, NULL), 0);
}

static weft_deferred node_outside;

static int node_is_elsewhere(void *arg) {
    (void)arg;
    weft_defer(&node_outside, note, NUMBER(1));
    return 0;
}

PLAYED_GREEN(defer, at_the_return_of_the_body) {
    for (int i = 0; i < rounds(100); i++) {
        in_a_g(body_returns);
        NOTED(3, 2, 1);
        in_a_g(small_body_returns);
        NOTED(1);
        in_a_g(node_is_elsewhere);
        NOTED(1);
    }
}

static WEFT__NOINLINE void exits_from(int depth) {
    weft_deferred d;
    weft_defer(&d, note, NUMBER(depth));
    if (depth == 0) {
        WEFT_DEFER(note, NUMBER(100));
        weft_exit(0);
    }
    if (weft_self() != 0) { /* always; the compiler shall not see that nobody comes back */
        exits_from(depth - 1);
    }
    weft_defer_run(&d);
}

static int exits_deep_down(void *arg) {
    (void)arg;
    exits_from(5);
    return 0;
}

static void exits_again(void *arg) {
    note(arg);
    weft_exit(1);
}

static int exits_in_a_deferred_call(void *arg) {
    (void)arg;
    weft_deferred d[4];
    weft_defer(&d[0], note, NUMBER(1));
    weft_defer(&d[1], exits_again, NUMBER(2));
    weft_defer(&d[2], exits_again, NUMBER(3));
    weft_defer(&d[3], note, NUMBER(4));
    weft_exit(0);
}

PLAYED_GREEN(defer, by_exit) {
    in_a_g(exits_deep_down);
    NOTED(100, 0, 1, 2, 3, 4, 5);
    in_a_g(exits_in_a_deferred_call);
    NOTED(4, 3, 2, 1);
}

static weft_deferred newer;

static void defers_another(void *arg) {
    note(arg);
    weft_defer(&newer, note, NUMBER(9));
}

static void drops_an_older(void *arg) {
    weft_defer_drop(arg);
    note(NUMBER(8));
}

static int defers_while_ending(void *arg) {
    (void)arg;
    weft_deferred d[3];
    weft_defer(&d[0], note, NUMBER(1));
    weft_defer(&d[1], defers_another, NUMBER(2));
    return 0;
}

static int drops_while_running(void *arg) {
    (void)arg;
    weft_deferred d[3];
    weft_defer(&d[0], note, NUMBER(1));
    weft_defer(&d[1], note, NUMBER(2));
    weft_defer(&d[2], drops_an_older, &d[1]);
    weft_defer_run(&d[1]);
    NOTED(8);
    return 0;
}

PLAYED_GREEN(defer, calls_that_change_the_list) {
    in_a_g(defers_while_ending);
    NOTED(2, 9, 1);
    in_a_g(drops_while_running);
    NOTED(1);
}

/* ---- deferred calls are ordinary code ---- */

static void parks(void *arg) {
    for (int i = 0; i < 5; i++) {
        weft_yield();
        CHECK_EQ(weft_sleep(20 * WEFT_MICROSECOND), 0);
        CHECK_NE(weft_self(), 0);
    }
    weft__m *m = weft__m_self();
    CHECK_EQ(atomic_load(&m->incall), 0); /* nobody is kept from taking its P meanwhile */
    note(arg);
}

static int parks_at_its_end(void *arg) {
    (void)arg;
    weft_deferred d[2];
    weft_defer(&d[0], parks, NUMBER(1));
    weft_defer(&d[1], parks, NUMBER(2));
    return 0;
}

static int parks_at_its_exit(void *arg) {
    (void)arg;
    weft_deferred d;
    weft_defer(&d, parks, NUMBER(1));
    weft_exit(0);
}

PLAYED_GREEN(defer, may_park) {
    in_a_g(parks_at_its_end);
    NOTED(2, 1);
    in_a_g(parks_at_its_exit);
    NOTED(1);
}

/* ---- whoever waits for a green thread sees what it deferred ---- */

static int lock_and_leave(void *arg) {
    weft_mutex *m = arg;
    weft_deferred d;
    weft_mutex_lock(m);
    weft_defer(&d, (weft_cb)(void (*)(void))weft_mutex_unlock, m);
    weft_exit(0);
}

static void set_event(void *arg) { weft_event_set(arg); }

static int app_defers(void *arg) {
    weft_deferred d;
    weft_defer(&d, set_event, arg);
    return 7;
}

TEST(defer, main_and_waitgroup) {
    weft_event seen = WEFT_EVENT_INIT;
    int status = 0;
    weft_config c = config_of(2);
    CHECK_EQ(weft_run(app_defers, &seen, &c, &status), 0);
    CHECK_EQ(status, 7);
    CHECK(weft_event_is_set(&seen));
}

PLAYED_GREEN(defer, before_the_waitgroup_is_done) {
    weft_mutex m = WEFT_MUTEX_INIT;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_waitgroup_go(&ended, lock_and_leave, &m), 0);
    }
    weft_waitgroup_wait(&ended);
    CHECK(weft_mutex_try_lock(&m));
    weft_mutex_unlock(&m);
}

/* ---- many ends beside many others ---- */

static atomic_int done_calls;

static void count(void *arg) {
    (void)arg;
    atomic_fetch_add(&done_calls, 1);
}

static int many_nodes(void *arg) {
    (void)arg;
    weft_deferred d[16];
    for (int i = 0; i < 16; i++) {
        weft_defer(&d[i], count, &d[i]);
        if (i % 5 == 0) {
            weft_yield();
        }
    }
    if (weft_self() % 3 == 0) {
        weft_exit(0);
    }
    return 0;
}

PLAYED_GREEN(defer, many) {
    int n = rounds(2000);
    atomic_store(&done_calls, 0);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(weft_waitgroup_go(&ended, many_nodes, NULL), 0);
    }
    weft_waitgroup_wait(&ended);
    CHECK_EQ(atomic_load(&done_calls), 16 * n);
}
