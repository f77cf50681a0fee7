/*
 * echo_client.c: the one client of all echo servers: a bare epoll loop on one thread, N
 * connections, one 64-byte message in flight on each.
 *
 * After the warm-up it writes `begin`, counts and times replies for the length of the window,
 * writes `end` and then sends nothing more. Each reply is compared with its request, whose first
 * bytes change every time.
 */
#include "bench.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = 64, EVENTS = 256 };

/* Round trips: 16 buckets an octave, 6 % wide at most. The longest is kept exactly. */
enum { SUB = 16, BUCKETS = 64 * SUB };

struct connection {
    int fd;
    int got; /* bytes of the reply so far */
    int64_t sent;
    char request[MESSAGE], reply[MESSAGE];
};

struct tally {
    int64_t count, longest;
    int64_t bucket[BUCKETS];
};

static int epoll_fd;
static struct tally tally;

static int bucket_of(int64_t ns) {
    uint64_t v = ns < SUB ? SUB : (uint64_t)ns;
    int octave = 63 - __builtin_clzll(v);
    return (octave - 4) * SUB + (int)((v >> (octave - 4)) & (SUB - 1));
}

static int64_t bucket_top(int i) {
    int octave = i / SUB + 4;
    return (int64_t)((uint64_t)(SUB + i % SUB + 1) << (octave - 4)) - 1;
}

static void tally_add(int64_t ns) {
    tally.count++;
    tally.bucket[bucket_of(ns)]++;
    tally.longest = ns > tally.longest ? ns : tally.longest;
}

static int64_t tally_percentile(double percent) {
    int64_t rank = (int64_t)((double)tally.count * percent / 100), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += tally.bucket[i];
        if (seen > rank) {
            return bucket_top(i);
        }
    }
    return tally.longest;
}

static void connect_one(struct connection *c, int port, int index) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench_check(c->fd >= 0 && connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0,
                "connect: errno %d", errno);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    bench_check(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e) == 0, "epoll_ctl: errno %d", errno);
    for (int i = 0; i < MESSAGE; i++) {
        c->request[i] = (char)(index + i);
    }
}

static void send_request(struct connection *c, uint64_t number) {
    memcpy(c->request, &number, sizeof number);
    c->got = 0;
    c->sent = bench_now();
    bench_check(send(c->fd, c->request, MESSAGE, MSG_DONTWAIT | MSG_NOSIGNAL) == MESSAGE,
                "send: errno %d", errno);
}

/* True when the whole reply is there. */
static bool take_reply(struct connection *c) {
    ssize_t got = recv(c->fd, c->reply + c->got, (size_t)(MESSAGE - c->got), MSG_DONTWAIT);
    bench_check(got > 0 || (got < 0 && errno == EAGAIN), "recv: %zd, errno %d", got, errno);
    c->got += got > 0 ? (int)got : 0;
    if (c->got < MESSAGE) {
        return false;
    }
    bench_check(memcmp(c->request, c->reply, MESSAGE) == 0, "a reply is not its request");
    return true;
}

/* Takes replies and sends the next requests until the time has come. */
static void run_until(int64_t end) {
    static uint64_t number;
    for (int64_t now = bench_now(); now < end;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll_fd, events, EVENTS, 5000);
        bench_check(count > 0 || (count < 0 && errno == EINTR), "no reply for five seconds");
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (take_reply(c)) {
                now = bench_now();
                tally_add(now - c->sent);
                send_request(c, ++number);
            }
        }
    }
}

/* A request that has no reply yet has waited at least so long. */
static void tally_waiting(const struct connection *c, int connections) {
    int64_t now = bench_now();
    for (int i = 0; i < connections; i++) {
        int64_t waited = now - c[i].sent;
        tally.longest = waited > tally.longest ? waited : tally.longest;
    }
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

int echo_client(int port, int connections, int warm_ms, int window_ms) {
    struct connection *c = calloc((size_t)connections, sizeof *c);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bench_check(c != NULL && epoll_fd >= 0, "no memory, or no epoll");
    for (int i = 0; i < connections; i++) {
        connect_one(&c[i], port, i);
    }
    for (int i = 0; i < connections; i++) {
        send_request(&c[i], 0);
    }
    run_until(bench_now() + warm_ms * INT64_C(1000000));
    say("begin");
    memset(&tally, 0, sizeof tally);
    int64_t start = bench_now();
    run_until(start + window_ms * INT64_C(1000000));
    int64_t took = bench_now() - start;
    tally_waiting(c, connections);
    say("end");
    printf("requests %lld\nper_second %.0f\nlongest_ns %lld\np50_ns %lld\np99_ns %lld\n",
           (long long)tally.count, (double)tally.count * 1e9 / (double)took,
           (long long)tally.longest, (long long)tally_percentile(50),
           (long long)tally_percentile(99));
    fflush(stdout);
    free(c);
    return 0;
}
