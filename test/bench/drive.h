/*
 * drive.h: inside the orchestrator: child processes, what is known about this run, results, report.
 */
#ifndef WEFT_BENCH_DRIVE_H
#define WEFT_BENCH_DRIVE_H

#include "bench.h"

#include <stdio.h>
#include <sys/types.h>

/* ---- process.c: a child with a pipe to its input and one from its output --------------------- */

struct process {
    pid_t pid;
    int in, out;
    size_t have;
    char buffer[1024];
};

/* argv[0] is looked up on the PATH. False: it could not be started. */
bool process_start(struct process *p, char *const argv[]);
bool process_start_quiet(struct process *p, char *const argv[]); /* its complaints go nowhere */
/* The next line without its newline. False: end of output, or nothing until the deadline. */
bool process_line(struct process *p, char *line, size_t bytes, int64_t deadline);
void process_say(struct process *p, const char *line);
/* Closes its input, waits, kills it at the deadline. 0: it ended by itself with status 0. */
int process_end(struct process *p, int64_t deadline);

int64_t deadline_in(int seconds);

/* ---- facts.c: this machine, this commit, this Go --------------------------------------------- */

struct facts {
    char self[4096];     /* this program */
    char machine[256];   /* processor, cores, kernel */
    char commit[64];     /* empty: not in a git tree */
    char go_version[64]; /* empty: Go was not asked for, or is not there */
    char go_self[4096];  /* the Go program */
    char cgo_self[4096]; /* the same with what calls C */
    int cores;
};

bool facts_find(struct facts *f);
/* Builds the Go program beside this one. False, with a message: there is no Go, or it does not
   build. */
bool facts_build_go(struct facts *f);
bool facts_build_cgo(struct facts *f); /* false, with a message: no C compiler for Go */

/* ---- drive.c, drive_echo.c: run the rounds --------------------------------------------------- */

enum side { WEFT, GO, SIDES };

struct result {
    const char *area;
    const struct bench_row *row;
    int procs;
    double value[SIDES][BENCH_MAX_ROUNDS]; /* NAN: that round failed */
    char why[SIDES][256];                  /* the first failure of a side; empty: none */
};

struct session {
    struct facts facts;
    int rounds;
    bool with_go, with_cgo;
    struct result *results;
    size_t count;
};

/* Runs all rounds of one benchmark and appends its results. `note` gets a line to print below them,
   or is left empty. */
void drive_bench(struct session *s, const char *area, const struct bench *b, int procs, char *note,
                 size_t note_bytes);
void drive_echo(struct session *s, struct result *results, const struct bench *b, int procs,
                char *note, size_t note_bytes);
void drive_fail(struct result *r, enum side side, const char *why);

/* ---- report.c -------------------------------------------------------------------------------- */

struct summary {
    double median, min, max;
    bool good; /* all rounds gave a figure */
};

struct summary summarize(const double *values, int rounds);
void report_list(const struct bench_area *const *areas, size_t count);
void report_head(const struct session *s);
void report_row(const struct session *s, const struct result *r);
void report_foot(const struct session *s);
bool report_failed(const struct session *s);
bool report_json(const struct session *s, const char *path);

#endif
