/*
 * drive.c: the rounds of one benchmark. Each run is a fresh process; weft and Go alternate within a
 * round, and who begins alternates between rounds.
 */
#include "drive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { CHILD_SECONDS = 60 };

void drive_fail(struct result *r, enum side side, const char *why) {
    if (r->why[side][0] == '\0') {
        snprintf(r->why[side], sizeof r->why[side], "%s", why);
    }
}

/* ---- One child ------------------------------------------------------------------------------- */

struct run {
    struct result *results; /* the rows of one benchmark at one number of Ps */
    size_t count;
    enum side side;
    int round;
};

static void fail_all(const struct run *run, const char *why) {
    for (size_t i = 0; i < run->count; i++) {
        run->results[i].value[run->side][run->round] = NAN;
        drive_fail(&run->results[i], run->side, why);
    }
}

static void take_figure(const struct run *run, const char *name, double value) {
    for (size_t i = 0; i < run->count; i++) {
        if (strcmp(run->results[i].row->name, name) == 0) {
            run->results[i].value[run->side][run->round] = value;
        }
    }
}

/* False: the child said that it failed. */
static bool take_line(const struct run *run, const char *line) {
    char name[64];
    double value;
    if (sscanf(line, "figure %63s %lf", name, &value) == 2) {
        take_figure(run, name, value);
        return true;
    }
    fail_all(run, strncmp(line, "fail ", 5) == 0 ? line + 5 : line);
    return false;
}

static void describe_end(char *why, size_t bytes, int status, bool overdue) {
    if (overdue) {
        snprintf(why, bytes, "no end after %d s", CHILD_SECONDS);
    } else if (WIFSIGNALED(status)) {
        snprintf(why, bytes, "died of signal %d, %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(why, bytes, "ended with status %d", WEXITSTATUS(status));
    }
}

static void run_child(const struct run *run, char *const argv[]) {
    struct process p;
    if (!process_start(&p, argv)) {
        fail_all(run, "cannot be started");
        return;
    }
    int64_t deadline = deadline_in(CHILD_SECONDS);
    char line[256];
    bool good = true;
    while (process_line(&p, line, sizeof line, deadline)) {
        good &= take_line(run, line);
    }
    bool overdue = bench_now() >= deadline;
    int status = process_end(&p, deadline);
    if (good && status != 0) {
        char why[64];
        describe_end(why, sizeof why, status, overdue);
        fail_all(run, why);
    }
}

static void run_side(const struct session *s, const struct run *run, const struct bench *b,
                     int procs) {
    char number[16];
    snprintf(number, sizeof number, "%d", procs);
    char *weft[] = {(char *)s->facts.self, "--child", (char *)b->name, number, NULL};
    const char *go_self = b->cgo ? s->facts.cgo_self : s->facts.go_self;
    char *go[] = {(char *)go_self, (char *)b->name, number, NULL};
    run_child(run, run->side == WEFT ? weft : go);
    for (size_t i = 0; i < run->count; i++) {
        if (isnan(run->results[i].value[run->side][run->round])) {
            drive_fail(&run->results[i], run->side, "no such figure came");
        }
    }
}

/* ---- All rounds ------------------------------------------------------------------------------ */

static struct result *append_results(struct session *s, const char *area, const struct bench *b,
                                     int procs) {
    size_t first = s->count;
    for (int i = 0; i < BENCH_MAX_ROWS && b->rows[i].name; i++) {
        if (procs < b->rows[i].min_procs) {
            continue;
        }
        s->results = realloc(s->results, (s->count + 1) * sizeof *s->results);
        bench_check(s->results != NULL, "no memory");
        struct result *r = &s->results[s->count++];
        *r = (struct result){.area = area, .row = &b->rows[i], .procs = procs};
        for (int k = 0; k < BENCH_MAX_ROUNDS; k++) {
            r->value[WEFT][k] = r->value[GO][k] = NAN;
        }
    }
    return s->results + first;
}

static void drive_rounds(const struct session *s, struct result *results, size_t count,
                         const struct bench *b, int procs) {
    bool both = (b->cgo ? s->with_cgo : s->with_go) && !b->weft_only;
    for (int round = 0; round < s->rounds; round++) {
        enum side first = both && round % 2 == 1 ? GO : WEFT;
        struct run run = {results, count, first, round};
        run_side(s, &run, b, procs);
        if (both) {
            run.side = first == WEFT ? GO : WEFT;
            run_side(s, &run, b, procs);
        }
    }
}

void drive_bench(struct session *s, const char *area, const struct bench *b, int procs, char *note,
                 size_t note_bytes) {
    size_t before = s->count;
    struct result *results = append_results(s, area, b, procs);
    note[0] = '\0';
    if (b->connections) {
        drive_echo(s, results, b, procs, note, note_bytes);
    } else {
        drive_rounds(s, results, s->count - before, b, procs);
    }
}
