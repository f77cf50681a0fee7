/*
 * drive_echo.c: the rounds of TCP echo: three servers (weft, Go, the bare epoll loop), each a
 * process of its own, and one client for all.
 *
 * The client says when its window begins and ends; at both moments the server is asked for the CPU
 * time it has used. Client and server share the machine, so requests a second are a note below the
 * table and CPU time a request is the figure.
 */
#include "drive.h"

#include <math.h>
#include <string.h>

enum { WARM_MS = 500, WINDOW_MS = 2000, STEP_SECONDS = 20 };
enum { EPOLL = SIDES, SERVERS };

struct echo {
    double cpu_us; /* of the server, a request */
    double longest_ms;
    double per_second;
    const char *why; /* NULL: good */
};

/* The next line must be `word NUMBER`, or only the word when value is NULL. */
static bool expect(struct process *p, const char *word, double *value) {
    char line[256], got[64];
    double number;
    if (!process_line(p, line, sizeof line, deadline_in(STEP_SECONDS))) {
        return false;
    }
    int parts = sscanf(line, "%63s %lf", got, &number);
    if (parts < 1 || strcmp(got, word) != 0 || (value && parts != 2)) {
        fprintf(stderr, "weft-bench: echo: '%s' where '%s' was expected\n", line, word);
        return false;
    }
    if (value) {
        *value = number;
    }
    return true;
}

static bool ask_cpu(struct process *server, double *ns) {
    process_say(server, "cpu\n");
    return expect(server, "cpu", ns);
}

static const char *window(struct process *server, struct process *client, struct echo *e) {
    double before, after, requests, longest, p50, p99;
    if (!expect(client, "begin", NULL)) {
        return "the client did not begin";
    }
    if (!ask_cpu(server, &before)) {
        return "the server did not answer";
    }
    if (!expect(client, "end", NULL)) {
        return "the client did not come to its end";
    }
    if (!ask_cpu(server, &after)) {
        return "the server did not answer";
    }
    if (!expect(client, "requests", &requests) || !expect(client, "per_second", &e->per_second) ||
        !expect(client, "longest_ns", &longest) || !expect(client, "p50_ns", &p50) ||
        !expect(client, "p99_ns", &p99)) {
        return "the client did not report";
    }
    e->cpu_us = (after - before) / 1e3 / requests;
    e->longest_ms = longest / 1e6;
    return NULL;
}

static const char *with_client(const struct session *s, struct process *server, int connections,
                               struct echo *e) {
    double port;
    if (!expect(server, "listening", &port)) {
        return "the server does not listen";
    }
    char port_text[16], connections_text[16], warm[16], length[16];
    snprintf(port_text, sizeof port_text, "%d", (int)port);
    snprintf(connections_text, sizeof connections_text, "%d", connections);
    snprintf(warm, sizeof warm, "%d", WARM_MS);
    snprintf(length, sizeof length, "%d", WINDOW_MS);
    char *argv[] = {(char *)s->facts.self, "--child", "EchoClient", port_text,
                    connections_text,      warm,      length,       NULL};
    struct process client;
    if (!process_start(&client, argv)) {
        return "the client cannot be started";
    }
    const char *why = window(server, &client, e);
    bool ended = process_end(&client, deadline_in(why ? 0 : 5)) == 0;
    return why ? why : ended ? NULL : "the client ended badly";
}

static struct echo run_echo(const struct session *s, int who, int connections, int procs) {
    struct echo e = {NAN, NAN, NAN, NULL};
    char number[16];
    snprintf(number, sizeof number, "%d", procs);
    char *weft[] = {(char *)s->facts.self, "--child", "EchoServer", number, NULL};
    char *go[] = {(char *)s->facts.go_self, "EchoServer", number, NULL};
    char *epoll[] = {(char *)s->facts.self, "--child", "EpollServer", number, NULL};
    struct process server;
    if (!process_start(&server, who == WEFT ? weft : who == GO ? go : epoll)) {
        e.why = "the server cannot be started";
        return e;
    }
    e.why = with_client(s, &server, connections, &e);
    if (process_end(&server, deadline_in(e.why ? 0 : 10)) != 0 && !e.why) {
        e.why = "the server ended badly";
    }
    return e;
}

enum { ROW_CPU, ROW_OF_EPOLL, ROW_LONGEST, ROWS };

static void take(struct result *results, enum side side, int round, const struct echo *e,
                 const struct echo *epoll) {
    if (e->why) {
        for (int i = 0; i < ROWS; i++) {
            drive_fail(&results[i], side, e->why);
        }
        return;
    }
    results[ROW_CPU].value[side][round] = e->cpu_us;
    results[ROW_LONGEST].value[side][round] = e->longest_ms;
    if (epoll->why) {
        drive_fail(&results[ROW_OF_EPOLL], side, epoll->why);
    } else {
        results[ROW_OF_EPOLL].value[side][round] = e->cpu_us / epoll->cpu_us;
    }
}

static double median(const double *values, int rounds) { return summarize(values, rounds).median; }

void drive_echo(struct session *s, struct result *results, const struct bench *b, int procs,
                char *note, size_t note_bytes) {
    double per_second[SERVERS][BENCH_MAX_ROUNDS], cpu[BENCH_MAX_ROUNDS], longest[BENCH_MAX_ROUNDS];
    for (int round = 0; round < s->rounds; round++) {
        struct echo e[SERVERS] = {{.per_second = NAN}, {.per_second = NAN}, {.per_second = NAN}};
        for (int k = 0; k < SERVERS; k++) {
            int who = (k + round) % SERVERS;
            if (who != GO || s->with_go) {
                e[who] = run_echo(s, who, b->connections, procs);
            }
            per_second[who][round] = e[who].per_second;
        }
        take(results, WEFT, round, &e[WEFT], &e[EPOLL]);
        if (s->with_go) {
            take(results, GO, round, &e[GO], &e[EPOLL]);
        }
        cpu[round] = e[EPOLL].cpu_us;
        longest[round] = e[EPOLL].longest_ms;
    }
    int used = snprintf(note, note_bytes,
                        "the bare epoll loop: %.2f us, longest %.1f ms. "
                        "Thousand requests a second: weft %.0f, bare loop %.0f",
                        median(cpu, s->rounds), median(longest, s->rounds),
                        median(per_second[WEFT], s->rounds) / 1e3,
                        median(per_second[EPOLL], s->rounds) / 1e3);
    if (s->with_go && used > 0 && (size_t)used < note_bytes) {
        snprintf(note + used, note_bytes - (size_t)used, ", Go %.0f",
                 median(per_second[GO], s->rounds) / 1e3);
    }
}
