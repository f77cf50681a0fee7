/* api/exceptions.cc: a C++ host. Exceptions thrown and caught inside green threads; waits inside handlers
   and inside destructors while an exception passes, with others doing the same on every thread; rethrow
   after the wait. Prints one line and ends with 1 when a green thread meets an exception that is not its
   own. */
#include <weft.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

int alive; /* exceptions; atomic by hand: C++11's would do, but so it is seen that none leaks */

struct failure {
    weft_id who;
    int round;
    failure(weft_id w, int r) : who(w), round(r) {
        __atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    }
    failure(const failure &o) : who(o.who), round(o.round) {
        __atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
    }
    ~failure() { __atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED); }
};

[[noreturn]] void wrong(const char *what) {
    std::fprintf(stderr, "green thread %llu: %s\n", (unsigned long long)weft_self(), what);
    std::_Exit(1);
}

void wait_somehow(int round) {
    weft_yield();
    if (round % 4 == 0 && weft_sleep(20 * WEFT_MICROSECOND) != 0) wrong("a sleep failed");
}

bool passing() {
#if __cplusplus >= 201703L
    return std::uncaught_exceptions() == 1;
#else
    return std::uncaught_exception();
#endif
}

/* Waits while the exception of its own thread passes. */
struct waits_at_its_end {
    int round;
    bool expected;
    ~waits_at_its_end() {
        if (passing() != expected) wrong("an exception under way that is not its own");
        wait_somehow(round);
        if (passing() != expected) wrong("an exception under way has changed over a wait");
    }
};

void throws(int round) {
    waits_at_its_end w{round, true};
    (void)w;
    throw failure(weft_self(), round);
}

void handles(int round) {
    try {
        throws(round);
        wrong("nothing was thrown");
    } catch (failure &f) {
        if (f.who != weft_self() || f.round != round) wrong("caught another's exception");
        wait_somehow(round);
        try { /* one inside the other */
            wait_somehow(round + 1);
            throw std::runtime_error(std::to_string(weft_self()));
        } catch (const std::exception &e) {
            wait_somehow(round + 2);
            if (e.what() != std::to_string(weft_self())) wrong("the inner exception is another's");
        }
        wait_somehow(round);
        throw; /* the one that this green thread handles */
    }
}

int body(void *) {
    for (int round = 0; round < 40; round++) {
        waits_at_its_end w{round, false};
        (void)w;
        if (std::current_exception()) wrong("an exception is current before one was thrown");
        try {
            handles(round);
            wrong("nothing was thrown again");
        } catch (const failure &f) {
            std::exception_ptr mine = std::current_exception();
            wait_somehow(round);
            if (f.who != weft_self() || f.round != round)
                wrong("a throw; threw another's exception");
            if (std::current_exception() != mine) wrong("the current exception has changed");
        }
        if (std::current_exception()) wrong("an exception is current after its handler");
    }
    return 0;
}

int app(void *) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 100; i++) {
        if (weft_waitgroup_go(&wg, body, nullptr) != 0) wrong("could not start");
    }
    weft_waitgroup_wait(&wg);
    weft_stats s;
    if (weft_stats_read(nullptr, &s, sizeof s) != 0) wrong("no statistics");
    std::printf("%llu migrations\n", (unsigned long long)s.migrations);
    return s.migrations > 0 ? 0 : 2;
}

} // namespace

int main() {
    weft_config c = weft_config_default();
    int status = 3, err = 0;
    c.procs = 2;
    c.flags = WEFT_IGNORE_ENV;
    try { /* weft_run in a handler */
        throw failure(0, 0);
    } catch (const failure &) {
        err = weft_run(app, nullptr, &c, &status);
        if (!std::current_exception()) wrong("the host's own exception is gone");
    }
    if (alive != 0) wrong("exceptions were not destroyed");
    if (err != 0) std::fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
    return err != 0 ? 4 : status;
}
