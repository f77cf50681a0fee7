/*
 * net.c: TCP echo, one green thread a connection, a deadline before every read. Counterpart:
 * go/net.go; drive_echo.c runs the servers and the client.
 */
#include "bench.h"

#include <weft.h>

enum { BUFFER = 512 };

static int serve_connection(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    char buffer[BUFFER];
    for (;;) {
        if (weft_conn_set_read_deadline(c, weft_in(5 * WEFT_SECOND)) != 0) {
            break;
        }
        ssize_t got = weft_conn_read(c, buffer, sizeof buffer);
        if (got <= 0 || weft_conn_write_all(c, buffer, (size_t)got, NULL) != 0) {
            break;
        }
    }
    weft_conn_close(c);
    return 0;
}

static void close_listener(void *arg) { weft_listener_close(*(weft_listener *)arg); }

static int serve(void *unused) {
    (void)unused;
    static weft_listener l; /* the control thread closes it */
    weft_addr at;
    WEFT_MUST(weft_listen(&l, "tcp", "127.0.0.1:0", NULL));
    WEFT_MUST(weft_listener_addr(l, &at));
    bench_check(echo_listening(weft_addr_port(&at), close_listener, &l) == 0, "no thread");
    int err;
    weft_conn c;
    while ((err = weft_accept(&c, l)) == 0) {
        WEFT_MUST(WEFT_GO_COPY(serve_connection, &c));
    }
    bench_check(err == -EBADF, "accept: %s", weft_strerror(err));
    return 0;
}

int echo_serve_weft(int procs) {
    bench_in_runtime(procs, serve, NULL);
    return 0;
}

#define ECHO(count)                                                                                \
    {                                                                                              \
        .name = "Echo" #count,                                                                     \
        .rows = {{"Echo" #count "Cpu", "us", BOUND_RATIO, 0.75, 0, 0},                             \
                 {"Echo" #count "CpuOfEpoll", "of epoll", BOUND_VALUE, 1.05, 0, 0},                \
                 {"Echo" #count "Longest", "ms", BOUND_RATIO, 0.50, 0, 0}},                        \
        .connections = count                                                                       \
    }

static const struct bench benches[] = {ECHO(64), ECHO(1000)};

BENCH_AREA(net, benches);
