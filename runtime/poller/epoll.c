/*
 * The Linux poller: one epoll set, edge-triggered; an eventfd to break a wait; a timerfd for long
 * waits, since the kernel adds 0.1 % of a time-out to it (2 ms at 2 s). Waits up to 20 ms go by
 * epoll_pwait2 in nanoseconds, or by the timerfd where the kernel lacks it.
 *
 * Break: `broken` is exchanged to 1 by whoever writes the eventfd. Both descriptors of our own are
 * level-triggered and only a poll that waits takes their readiness away, so a look beside the
 * sleeper does not steal the sleeper's wake-up.
 */
#include "os/os.h"
#include "poller/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { BATCH = 128 };
static const int64_t SHORT_WAIT = 20 * WEFT_MILLISECOND;
static const uint64_t TAG_BREAK = UINT64_MAX, TAG_TIMER = UINT64_MAX - 1;

struct weft__poller {
    int epfd, eventfd, timerfd;
    atomic_int broken;
    bool no_pwait2;
    int64_t timer_when; /* what the timerfd is set to, 0: off; touched by the waiting poll only */
};

static int watch(weft__poller *p, int fd, uint32_t events, uint64_t tag) {
    struct epoll_event ev = {.events = events, .data.u64 = tag};
    return epoll_ctl(p->epfd, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : -errno;
}

int weft__poller_open(weft__poller **out) {
    weft__poller *p = weft__mem_zalloc(sizeof *p);
    if (p == NULL) {
        return -ENOMEM;
    }
    p->epfd = epoll_create1(EPOLL_CLOEXEC);
    p->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int err = p->epfd < 0 || p->eventfd < 0 || p->timerfd < 0 ? -errno : 0;
    if (err == 0) {
        err = watch(p, p->eventfd, EPOLLIN, TAG_BREAK);
    }
    if (err == 0) {
        err = watch(p, p->timerfd, EPOLLIN, TAG_TIMER);
    }
    if (err != 0) {
        weft__poller_close(p);
        return err;
    }
    *out = p;
    return 0;
}

int weft__poller_break_fd(const weft__poller *p) { return p->eventfd; }

void weft__poller_close(weft__poller *p) {
    if (p == NULL) {
        return;
    }
    int fds[] = {p->epfd, p->eventfd, p->timerfd};
    for (size_t i = 0; i < WEFT_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    weft__mem_free(p, sizeof *p);
}

const char *weft__poller_name(void) { return "epoll"; }

bool weft__poller_takes_fds(void) { return true; }

int weft__poller_add(weft__poller *p, int fd, uint64_t tag) {
    return watch(p, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET, tag);
}

void weft__poller_remove(weft__poller *p, int fd) {
    struct epoll_event unused = {0};
    epoll_ctl(p->epfd, EPOLL_CTL_DEL, fd, &unused);
}

void weft__poller_break(weft__poller *p) {
    if (atomic_exchange_explicit(&p->broken, 1, memory_order_seq_cst) == 0) {
        uint64_t one = 1;
        ssize_t n = write(p->eventfd, &one, sizeof one);
        (void)n; /* a full counter is readable as well */
    }
}

static void set_timer(weft__poller *p, int64_t when) {
    if (p->timer_when == when) {
        return;
    }
    p->timer_when = when;
    struct itimerspec its = {.it_value = {.tv_sec = (time_t)(when / WEFT_SECOND),
                                          .tv_nsec = (long)(when % WEFT_SECOND)}};
    timerfd_settime(p->timerfd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* One wait in the kernel: at most to `until`, perhaps shorter. */
static int wait_events(weft__poller *p, struct epoll_event *ev, int64_t until) {
    if (until == 0) {
        return epoll_wait(p->epfd, ev, BATCH, 0);
    }
    if (until == INT64_MAX) {
        return epoll_wait(p->epfd, ev, BATCH, -1);
    }
    int64_t left = until - weft__clock_now();
    if (left <= 0) {
        return epoll_wait(p->epfd, ev, BATCH, 0);
    }
#ifdef SYS_epoll_pwait2
    if (left <= SHORT_WAIT && !p->no_pwait2) {
        struct timespec ts = {.tv_sec = 0, .tv_nsec = (long)left};
        int n = (int)syscall(SYS_epoll_pwait2, p->epfd, ev, BATCH, &ts, NULL, 0);
        if (n >= 0 || errno == EINTR) {
            return n;
        }
        p->no_pwait2 =
            true; /* the kernel lacks it, or a filter forbids it: EPERM, not only ENOSYS */
    }
#endif
    /* Set for earlier, it may stay: deadlines that are pushed on all the time then cost one return
       too many a period, and not a system call a wait. */
    if (p->timer_when == 0 || p->timer_when > until || p->timer_when < until - left) {
        set_timer(p, until);
    }
    return epoll_wait(p->epfd, ev, BATCH, -1);
}

static unsigned events_of(uint32_t ep) {
    unsigned e = 0;
    if (ep & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) {
        e |= WEFT__POLL_IN;
    }
    if (ep & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
        e |= WEFT__POLL_OUT;
    }
    if (ep & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)) {
        e |= WEFT__POLL_STICKY;
    }
    return e;
}

static void drain_break(weft__poller *p) {
    uint64_t count;
    ssize_t n = read(p->eventfd, &count, sizeof count);
    (void)n;
    /* By exchange: a breaker that found 1 here has published before, and we look again behind. */
    atomic_exchange_explicit(&p->broken, 0, memory_order_seq_cst);
}

int weft__poller_poll(weft__poller *p, int64_t until, weft__poll_sink sink, void *arg) {
    struct epoll_event ev[BATCH];
    for (;;) {
        int n = wait_events(p, ev, until);
        int handed = 0;
        bool broke = false, timed = false;
        for (int i = 0; i < n; i++) {
            if (ev[i].data.u64 == TAG_BREAK) {
                broke = true;
            } else if (ev[i].data.u64 == TAG_TIMER) {
                timed = true;
            } else {
                sink(arg, ev[i].data.u64, events_of(ev[i].events));
                handed++;
            }
        }
        if (broke && until != 0) {
            drain_break(p);
        }
        if (timed && until != 0) {
            set_timer(p, 0);
        }
        if (handed > 0 || broke || until == 0 || weft__clock_now() >= until) {
            return handed;
        }
    }
}
