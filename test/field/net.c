/* field/net.c: what went wrong with sockets elsewhere. Cases C24 and C26. */
#include "field/field.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- C24: ghost events from a duplicated descriptor ------------------------------------------ */

static struct {
    weft_conn conn, next;
    weft_event returned, next_returned;
    int64_t returned_at;
} ghost;

static int parked_reader(void *arg) {
    (void)arg;
    char byte;
    CHECK_EQ(weft_conn_read(ghost.conn, &byte, 1), -EBADF);
    ghost.returned_at = now();
    weft_event_set(&ghost.returned);
    return 0;
}

static int next_reader(void *arg) {
    (void)arg;
    char text[8] = "";
    CHECK_EQ(weft_conn_read(ghost.next, text, sizeof text), 3);
    CHECK_MEM(text, "own", 3);
    weft_event_set(&ghost.next_returned);
    return 0;
}

static uint64_t polls(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s.polls;
}

static void wait_until_waiting(uint64_t gs) {
    weft_stats s;
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting != gs);
}

/* Until nobody looks at the poller any more; with ghosts about, that is never. */
static void wait_for_quiet(void) {
    uint64_t before;
    do {
        before = polls();
        thread_sleep(50 * MS);
    } while (polls() != before);
}

/* One second of nothing but ghosts, if there are any. A plain call on purpose: weft has no part in
   it. */
static void write_and_watch_a_second(int fd) {
    wait_for_quiet();
    uint64_t polls_before = polls();
    int64_t cpu_before = cpu();
    long long switches_before = switches();
    CHECK_EQ(write(fd, "ghost", 5), 5);
    thread_sleep(SEC);
    int64_t used = cpu() - cpu_before;
    printf("C24: %.2f ms of CPU, %lld switches, %llu polls in a second\n", (double)used / MS,
           switches() - switches_before, (unsigned long long)(polls() - polls_before));
    CHECK_LE(used, (int64_t)(20 * MS * test_slack()));
    CHECK_EQ(polls() - polls_before, 0);
    CHECK(!weft_event_is_set(&ghost.next_returned));
}

static int close_under_a_duplicate(void *arg) {
    (void)arg;
    int old[2], fresh[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, old), 0);
    CHECK_EQ(weft_conn_from_fd(&ghost.conn, old[0]), 0);
    WEFT_MUST(weft_go(parked_reader, NULL));
    wait_until_waiting(1);
    int duplicate = dup(old[0]);
    CHECK_GE(duplicate, 0);
    int64_t closed = now();
    CHECK_EQ(weft_conn_close(ghost.conn), 0);
    weft_event_wait(&ghost.returned);
    write_and_watch_a_second(old[1]);

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fresh), 0);
    CHECK_EQ(fresh[0], old[0]); /* the number again */
    CHECK_EQ(weft_conn_from_fd(&ghost.next, fresh[0]), 0);
    WEFT_MUST(weft_go(next_reader, NULL));
    wait_until_waiting(1);
    write_and_watch_a_second(old[1]);
    CHECK_EQ(write(fresh[1], "own", 3), 3);
    weft_event_wait(&ghost.next_returned);
    CHECK_EQ(weft_conn_close(ghost.next), 0);
    close(duplicate);
    close(old[1]);
    close(fresh[1]);
    int64_t took = ghost.returned_at - closed;
    test_clock(within(took, 20 * MS),
               "the parked read returned %.1f us after the close, bound 20 ms", (double)took / US);
    return 0;
}

TEST_IN(field, C24, 60) { run_at(2, close_under_a_duplicate, NULL); }

/* ---- C26: accept when descriptors run out ---------------------------------------------------- */

enum { FREE_FDS = 10, CLIENTS = 13 };

/* The harness's shim: it stands in for the C library's accept4, counts, and once so many have got
   through it fails with the error that it was told; 0: it never does. */
static atomic_int accepts, accepted, may_pass, then_fails;

int accept4(int fd, struct sockaddr *addr, socklen_t *bytes, int flags) {
    static int (*real)(int, struct sockaddr *, socklen_t *, int);
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "accept4");
        memcpy(&real, &found, sizeof real);
    }
    atomic_fetch_add(&accepts, 1);
    int err = atomic_load(&then_fails);
    if (err != 0 && atomic_load(&accepted) >= atomic_load(&may_pass)) {
        errno = err;
        return -1;
    }
    int n = real(fd, addr, bytes, flags);
    if (n >= 0) {
        atomic_fetch_add(&accepted, 1);
    }
    return n;
}

/* The other process: reads the port, connects so many clients, and writes a byte for each that has
   been served. */
static void clients_live(int in, int out) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd served[CLIENTS];
    int port;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQ(read(in, &port, sizeof port), sizeof port);
    at.sin_port = htons((uint16_t)port);
    for (int i = 0; i < CLIENTS; i++) {
        served[i] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
        CHECK_EQ(connect(served[i].fd, (struct sockaddr *)&at, sizeof at), 0);
    }
    for (int count = 0; count < CLIENTS;) {
        CHECK_GT(poll(served, CLIENTS, -1), 0);
        for (int i = 0; i < CLIENTS; i++) {
            if (served[i].fd >= 0 && served[i].revents != 0) {
                CHECK_EQ(write(out, "s", 1), 1);
                count++;
                served[i].fd = -served[i].fd - 1; /* poll passes it over; it stays open */
            }
        }
    }
    pause();
}

static struct {
    weft_runtime *rt;
    weft_listener listener;
    weft_conn kept[CLIENTS];
    int count;
    atomic_int warnings;
    weft_event up, down;
    int port;
    pid_t clients;
    int to_clients, from_clients; /* ends of pipes */
} server;

static void count_warnings(void *arg, int level, const char *line) {
    (void)arg, (void)line;
    atomic_fetch_add(&server.warnings, level == WEFT_LOG_WARNING);
}

static int serve(void *arg) {
    (void)arg;
    weft_addr at;
    int err;
    CHECK_EQ(weft_listen(&server.listener, "tcp", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(server.listener, &at), 0);
    server.port = weft_addr_port(&at);
    weft_event_set(&server.up);
    for (server.count = 0; server.count < CLIENTS; server.count++) {
        err = weft_accept(&server.kept[server.count], server.listener);
        CHECK_EQ(err, 0);
        CHECK_EQ(weft_conn_write_all(server.kept[server.count], "s", 1, NULL), 0);
    }
    CHECK_EQ(weft_listener_close(server.listener), 0);
    weft_event_set(&server.down);
    return 0;
}

static void start_clients(void) {
    int to[2], from[2];
    CHECK_EQ(pipe2(to, O_CLOEXEC), 0);
    CHECK_EQ(pipe2(from, O_CLOEXEC), 0);
    server.clients = fork();
    CHECK_GE(server.clients, 0);
    if (server.clients == 0) {
        close(to[1]);
        close(from[0]);
        clients_live(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    server.to_clients = to[1];
    server.from_clients = from[0];
}

static void start_server(void) {
    weft_config cfg = config_of(2);
    cfg.log = count_warnings;
    atomic_store(&server.warnings, 0);
    weft_event_reset(&server.up);
    weft_event_reset(&server.down);
    CHECK_EQ(weft_start(&server.rt, &cfg), 0);
    CHECK_EQ(weft_submit(server.rt, serve, NULL), 0);
    weft_event_wait(&server.up);
}

/* So many descriptors are free, and no more. Numbers below the highest are taken until there is no
   gap. */
static void leave_free(int n) {
    int fd, highest = 0;
    for (fd = 0; fd < 1024; fd++) {
        highest = fcntl(fd, F_GETFD) >= 0 ? fd : highest;
    }
    while ((fd = dup(server.from_clients)) < highest) {
        CHECK_GE(fd, 0);
    }
    close(fd);
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)highest + 1 + (rlim_t)n;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void wait_for_served(int n) {
    char byte;
    while (n-- > 0) {
        CHECK_EQ(read(server.from_clients, &byte, 1), 1);
    }
}

static bool another_served(void) {
    struct pollfd p = {.fd = server.from_clients, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

/* What the shortage costs while it lasts. */
static void hold(const char *name) {
    int64_t cpu_before = cpu();
    int accepts_before = atomic_load(&accepts);
    thread_sleep(2 * SEC);
    int64_t used = cpu() - cpu_before;
    int calls = atomic_load(&accepts) - accepts_before;
    printf("C26 %s: %.2f ms of CPU, %d calls of accept in 2 s\n", name, (double)used / MS, calls);
    CHECK_LE(used, (int64_t)(100 * MS * test_slack()));
    CHECK_LE(calls, 400);
    CHECK_GE(calls, 1); /* it has not given up */
    CHECK(!another_served());
    CHECK_EQ(atomic_load(&server.warnings), 1);
}

static void run_short(const char *name, int shim_error) {
    rlim_t files = 1024;
    atomic_store(&accepted, 0);
    atomic_store(&may_pass, FREE_FDS);
    atomic_store(&then_fails, shim_error);
    start_clients();
    start_server();
    if (shim_error == 0) {
        leave_free(FREE_FDS);
    }
    CHECK_EQ(write(server.to_clients, &server.port, sizeof server.port), sizeof server.port);
    wait_for_served(FREE_FDS);
    hold(name);

    int64_t start = now();
    CHECK_EQ(weft_conn_close(server.kept[3]), 0);
    atomic_store(&may_pass, FREE_FDS + 1);
    wait_for_served(1);
    int64_t took = now() - start;
    CHECK(!another_served());

    atomic_store(&may_pass, CLIENTS);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files}), 0);
    test_clock(within(took, 1100 * MS),
               "%s: the 11th client was served %.0f ms after the close, bound 1100", name,
               (double)took / MS);
    wait_for_served(CLIENTS - FREE_FDS - 1);
    weft_event_wait(&server.down);
    CHECK_EQ(weft_stop(server.rt, 5 * SEC), 0);
    kill(server.clients, SIGKILL);
    CHECK_EQ(waitpid(server.clients, NULL, 0), server.clients);
    close(server.to_clients);
    close(server.from_clients);
}

TEST_IN(field, C26, 60) {
    int fds = nfd();
    run_short("ENFILE", ENFILE);
    run_short("ENOMEM", ENOMEM);
    CHECK_EQ(nfd(), fds);
    run_short("EMFILE", 0); /* last: it fills the table */
}
