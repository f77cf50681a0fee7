/*
 * main.c: weft-bench: reads the command line, is the orchestrator or one of its child processes.
 */
#include "drive.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static const struct bench_area *const areas[] = {
    &bench_sched, &bench_chan, &bench_sync, &bench_timer, &bench_net, &bench_memory, &bench_handoff,
};

enum { AREAS = sizeof areas / sizeof areas[0], MAX_PROCS = 8, MAX_WORDS = 64 };

static const char usage[] =
    "usage: weft-bench [area or name]... [--vs go] [--json FILE] [--procs 1,2,4] [--rounds N]\n"
    "       weft-bench --list\n"
    "areas: sched chan sync timer net memory handoff; names as in --list. Nothing named: "
    "everything.\n"
    "Status 1: a benchmark failed; 2: usage. A missed budget is shown and changes no status.\n";

/* ---- Child processes ------------------------------------------------------------------------- */

static const struct bench *find_bench(const char *name) {
    for (size_t a = 0; a < AREAS; a++) {
        for (size_t i = 0; i < areas[a]->count; i++) {
            if (strcmp(areas[a]->benches[i].name, name) == 0) {
                return &areas[a]->benches[i];
            }
        }
    }
    return NULL;
}

/* --child NAME NUMBER...: ends with its orchestrator, whatever ends that. */
static int child_main(int argc, char **argv) {
    int n[4] = {0};
    for (int i = 0; i < 4 && i + 3 < argc; i++) {
        n[i] = atoi(argv[i + 3]);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *name = argc > 3 ? argv[2] : "";
    if (strcmp(name, "EchoServer") == 0) {
        return echo_serve_weft(n[0]);
    }
    if (strcmp(name, "EpollServer") == 0) {
        return echo_serve_epoll();
    }
    if (strcmp(name, "EchoClient") == 0) {
        return echo_client(n[0], n[1], n[2], n[3]);
    }
    const struct bench *b = find_bench(name);
    if (!b || b->connections || n[0] < 1) {
        fputs(usage, stderr);
        return 2;
    }
    return child_bench(b, n[0]);
}

/* ---- The command line ------------------------------------------------------------------------ */

struct options {
    const char *words[MAX_WORDS]; /* areas and names */
    int word_count;
    int procs[MAX_PROCS];
    int procs_count; /* 0: not said */
    int rounds;
    bool vs_go, list;
    const char *json;
};

static bool parse_procs(struct options *o, const char *text) {
    o->procs_count = 0;
    for (;;) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || value < 1 || value > 256 || o->procs_count == MAX_PROCS) {
            return false;
        }
        o->procs[o->procs_count++] = (int)value;
        if (*end == '\0') {
            return true;
        }
        if (*end != ',') {
            return false;
        }
        text = end + 1;
    }
}

static bool parse_valued(struct options *o, const char *option, const char *value) {
    if (strcmp(option, "--vs") == 0) {
        o->vs_go = true;
        return strcmp(value, "go") == 0;
    }
    if (strcmp(option, "--json") == 0) {
        o->json = value;
        return true;
    }
    if (strcmp(option, "--procs") == 0) {
        return parse_procs(o, value);
    }
    if (strcmp(option, "--rounds") == 0) {
        o->rounds = atoi(value);
        return o->rounds >= 1 && o->rounds <= BENCH_MAX_ROUNDS;
    }
    return false;
}

/* True if the word is the area, the benchmark or one of its rows. */
static bool word_means(const char *word, const struct bench_area *area, const struct bench *b) {
    if (strcmp(word, area->name) == 0 || strcmp(word, b->name) == 0) {
        return true;
    }
    for (int i = 0; i < BENCH_MAX_ROWS && b->rows[i].name; i++) {
        if (strcmp(word, b->rows[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static bool word_known(const char *word) {
    for (size_t a = 0; a < AREAS; a++) {
        for (size_t i = 0; i < areas[a]->count; i++) {
            if (word_means(word, areas[a], &areas[a]->benches[i])) {
                return true;
            }
        }
    }
    return false;
}

static bool parse(struct options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            o->list = true;
        } else if (argv[i][0] == '-') {
            if (i + 1 == argc || !parse_valued(o, argv[i], argv[i + 1])) {
                return false;
            }
            i++;
        } else if (word_known(argv[i]) && o->word_count < MAX_WORDS) {
            o->words[o->word_count++] = argv[i];
        } else {
            fprintf(stderr, "weft-bench: no area and no benchmark is called '%s'\n", argv[i]);
            return false;
        }
    }
    return true;
}

/* ---- The orchestrator ------------------------------------------------------------------------ */

static bool wanted(const struct options *o, const struct bench_area *area, const struct bench *b) {
    for (int i = 0; i < o->word_count; i++) {
        if (word_means(o->words[i], area, b)) {
            return true;
        }
    }
    return o->word_count == 0;
}

static void run_at(struct session *s, const struct bench_area *area, const struct bench *b,
                   int procs) {
    char note[256];
    size_t first = s->count;
    drive_bench(s, area->name, b, procs, note, sizeof note);
    for (size_t i = first; i < s->count; i++) {
        report_row(s, &s->results[i]);
    }
    if (note[0]) {
        printf("        %s\n", note);
        fflush(stdout);
    }
}

static void run_wanted(struct session *s, const struct options *o) {
    for (size_t a = 0; a < AREAS; a++) {
        for (size_t i = 0; i < areas[a]->count; i++) {
            const struct bench *b = &areas[a]->benches[i];
            int times = b->once || b->only_procs ? 1 : o->procs_count;
            for (int k = 0; k < times && wanted(o, areas[a], b); k++) {
                int procs = b->only_procs ? b->only_procs : o->procs[k];
                if (procs >= b->min_procs) {
                    run_at(s, areas[a], b, procs);
                }
            }
        }
    }
}

static bool wants_cgo(const struct options *o) {
    for (size_t a = 0; a < AREAS; a++) {
        for (size_t i = 0; i < areas[a]->count; i++) {
            if (areas[a]->benches[i].cgo && wanted(o, areas[a], &areas[a]->benches[i])) {
                return true;
            }
        }
    }
    return false;
}

static int orchestrate(struct options *o) {
    struct session s = {.rounds = o->rounds};
    if (!facts_find(&s.facts)) {
        return 1;
    }
    signal(SIGPIPE, SIG_IGN); /* a child that is gone shows by its missing answer */
    if (o->procs_count == 0) {
        o->procs[0] = 1;
        o->procs[1] = 2;
        o->procs_count = s.facts.cores > 1 ? 2 : 1;
    }
    s.with_go = o->vs_go && facts_build_go(&s.facts);
    s.with_cgo = s.with_go && wants_cgo(o) && facts_build_cgo(&s.facts);
    report_head(&s);
    run_wanted(&s, o);
    report_foot(&s);
    bool written = !o->json || report_json(&s, o->json);
    bool failed = report_failed(&s);
    free(s.results);
    return failed || !written;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--child") == 0) {
        return child_main(argc, argv);
    }
    struct options o = {.rounds = 3};
    if (!parse(&o, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (o.list) {
        report_list(areas, AREAS);
        return 0;
    }
    return orchestrate(&o);
}
