/* fatal/guest.c: a thread that ends under a green thread is said aloud. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <weft.h>

static int exits_its_thread(void *arg) { pthread_exit(arg); }

static int exits_in_another(void *arg) {
    weft_event never = WEFT_EVENT_INIT;
    WEFT_MUST(weft_go(exits_its_thread, arg));
    weft_event_wait(&never);
    return 0;
}

static int exits_after_a_park(void *arg) {
    for (int i = 0; i < 10; i++) {
        weft_yield();
        WEFT_MUST(weft_sleep(20 * WEFT_MICROSECOND));
    }
    pthread_exit(arg);
}

static int is_cancelled(void *arg) {
    (void)arg;
    pthread_cancel(pthread_self());
    for (int i = 0; i < 10; i++) {
        pthread_testcancel();
    }
    return 0;
}

/* On the thread of weft_run, whether that is the program's first or not. */
static void run(void *arg) {
    int err = weft_run(*(weft_fn *)arg, NULL, NULL, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

static void *run_on_thread(void *arg) {
    run(arg);
    return NULL;
}

static void run_elsewhere(void *arg) {
    pthread_t t;
    WEFT_MUST(-pthread_create(&t, NULL, run_on_thread, arg));
    pthread_join(t, NULL);
    fprintf(stderr, "the thread has ended\n");
}

static void start(void *arg) {
    weft_runtime *rt;
    WEFT_MUST(weft_start(&rt, NULL));
    WEFT_MUST(weft_submit(rt, *(weft_fn *)arg, NULL));
    sleep(10);
    fprintf(stderr, "nothing happened\n");
}

#ifdef __SANITIZE_THREAD__
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif

/* TSan itself refuses pthread_exit on a fiber. */
static void skip_under_tsan(void) {
#ifdef HAS_TSAN
    test_skip("no pthread_exit on a fiber of TSan's");
#endif
}

#define ENDS_ITS_THREAD(name, fn)                                                                  \
    TEST(fatal, name) {                                                                            \
        skip_under_tsan();                                                                         \
        weft_fn f = fn;                                                                            \
        const char *said = "weft: fatal: pthread_exit in a green thread, or its thread was "       \
                           "cancelled: a green thread ends by return or weft_exit [green thread "; \
        CHECK_FAILS(SIGABRT, said, run, &f);                                                       \
        CHECK_FAILS(SIGABRT, said, run_elsewhere, &f);                                             \
        CHECK_FAILS(SIGABRT, said, start, &f);                                                     \
    }
ENDS_ITS_THREAD(pthread_exit_in_main, exits_its_thread)
ENDS_ITS_THREAD(pthread_exit_in_another, exits_in_another)
ENDS_ITS_THREAD(pthread_exit_after_a_park, exits_after_a_park)
ENDS_ITS_THREAD(thread_cancelled, is_cancelled)
