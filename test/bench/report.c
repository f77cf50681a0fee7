/*
 * report.c: the table and the JSON file.
 *
 * Medians over the rounds, with the smallest and the largest. The ratio of a row is the median of
 * the rounds' ratios, since the machine changes its speed between rounds. A row that misses its
 * budget carries an exclamation mark and is named again at the end.
 */
#include "drive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Figures --------------------------------------------------------------------------------- */

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct summary summarize(const double *values, int rounds) {
    double sorted[BENCH_MAX_ROUNDS];
    int count = 0;
    for (int i = 0; i < rounds; i++) {
        if (!isnan(values[i])) {
            sorted[count++] = values[i];
        }
    }
    if (count == 0) {
        return (struct summary){NAN, NAN, NAN, false};
    }
    qsort(sorted, (size_t)count, sizeof *sorted, compare_double);
    double median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    return (struct summary){median, sorted[0], sorted[count - 1], count == rounds};
}

/* NAN: there is none, because there is no Go, because a round failed, or because the budget bounds
   the figure itself. */
static double ratio_of(const struct session *s, const struct result *r) {
    double ratios[BENCH_MAX_ROUNDS];
    if (r->row->bound == BOUND_VALUE) {
        return NAN;
    }
    for (int i = 0; i < s->rounds; i++) {
        ratios[i] = r->value[WEFT][i] / r->value[GO][i];
    }
    struct summary sum = summarize(ratios, s->rounds);
    return sum.good && isfinite(sum.median) ? sum.median : NAN;
}

static bool has_budget(const struct result *r) {
    return r->row->bound != BOUND_NONE &&
           (r->row->budget_procs == 0 || r->row->budget_procs == r->procs);
}

enum verdict { NOT_JUDGED, MET, MISSED };

static enum verdict judge(const struct session *s, const struct result *r) {
    struct summary weft = summarize(r->value[WEFT], s->rounds);
    double bounded = r->row->bound == BOUND_VALUE ? weft.median : ratio_of(s, r);
    if (!has_budget(r) || !weft.good || isnan(bounded)) {
        return NOT_JUDGED;
    }
    return bounded <= r->row->budget ? MET : MISSED;
}

/* ---- The table ------------------------------------------------------------------------------- */

struct text {
    char s[64];
};

static struct text number(double v) {
    struct text t;
    snprintf(t.s, sizeof t.s, fabs(v) >= 1000 ? "%.0f" : "%.3g", v);
    return t;
}

static struct text cell(const struct session *s, const struct result *r, enum side side) {
    struct text t;
    struct summary sum = summarize(r->value[side], s->rounds);
    if (r->why[side][0]) {
        snprintf(t.s, sizeof t.s, "FAILED");
    } else if (isnan(sum.median)) {
        snprintf(t.s, sizeof t.s, "-");
    } else {
        snprintf(t.s, sizeof t.s, "%.15s (%.15s-%.15s)", number(sum.median).s, number(sum.min).s,
                 number(sum.max).s);
    }
    return t;
}

static struct text budget_text(const struct bench_row *row) {
    struct text t;
    if (row->bound == BOUND_VALUE) {
        snprintf(t.s, sizeof t.s, "%.15s %.40s", number(row->budget).s, row->unit);
    } else {
        snprintf(t.s, sizeof t.s, "%.2f", row->budget);
    }
    return t;
}

void report_list(const struct bench_area *const *areas, size_t count) {
    for (size_t a = 0; a < count; a++) {
        for (size_t b = 0; b < areas[a]->count; b++) {
            const struct bench_row *rows = areas[a]->benches[b].rows;
            for (int i = 0; i < BENCH_MAX_ROWS && rows[i].name; i++) {
                bool any = rows[i].bound != BOUND_NONE;
                printf("%-7s %-22s %-22s %-10s %s%s\n", areas[a]->name, areas[a]->benches[b].name,
                       rows[i].name, rows[i].unit, any ? budget_text(&rows[i]).s : "-",
                       rows[i].bound == BOUND_RATIO ? " of Go" : "");
            }
        }
    }
}

static const char *const row_format = "%-7s %-22s %5s %-9s %-28s %-28s %6s %1s %s\n";

void report_head(const struct session *s) {
    double load = 0;
    printf("weft-bench   commit %s   %s\n", s->facts.commit[0] ? s->facts.commit : "unknown",
           s->with_go ? s->facts.go_version : "without Go");
    printf("machine      %s\n", s->facts.machine);
    printf("rounds       %d; medians (smallest-largest); ratio weft/Go, ! misses its budget\n",
           s->rounds);
    if (getloadavg(&load, 1) == 1 && load > 0.5) {
        printf(
            "load         %.1f before the start: other programs are running, trust ratios only\n",
            load);
    }
    putchar('\n');
    printf(row_format, "area", "name", "procs", "unit", "weft", "Go", "ratio", "", "budget");
    fflush(stdout);
}

void report_row(const struct session *s, const struct result *r) {
    char procs[16];
    snprintf(procs, sizeof procs, "%d", r->procs);
    double ratio = ratio_of(s, r);
    printf(row_format, r->area, r->row->name, procs, r->row->unit, cell(s, r, WEFT).s,
           cell(s, r, GO).s, isnan(ratio) ? "-" : number(ratio).s, judge(s, r) == MISSED ? "!" : "",
           has_budget(r) ? budget_text(r->row).s : "-");
    for (int side = 0; side < SIDES; side++) {
        if (r->why[side][0]) {
            printf("        %s failed: %s\n", side == WEFT ? "weft" : "Go", r->why[side]);
        }
    }
    fflush(stdout);
}

void report_foot(const struct session *s) {
    int counts[3] = {0};
    for (size_t i = 0; i < s->count; i++) {
        counts[judge(s, &s->results[i])]++;
    }
    printf("\n%zu figures: %d within their budget, %d miss it, %d without a budget or a verdict\n",
           s->count, counts[MET], counts[MISSED], counts[NOT_JUDGED]);
    for (size_t i = 0; i < s->count; i++) {
        const struct result *r = &s->results[i];
        if (judge(s, r) == MISSED) {
            double ratio = ratio_of(s, r);
            double is = isnan(ratio) ? summarize(r->value[WEFT], s->rounds).median : ratio;
            printf("  miss: %s/%s at %d: %s, budget %s\n", r->area, r->row->name, r->procs,
                   number(is).s, budget_text(r->row).s);
        }
    }
}

bool report_failed(const struct session *s) {
    bool failed = false;
    for (size_t i = 0; i < s->count; i++) {
        failed |= s->results[i].why[WEFT][0] || s->results[i].why[GO][0];
    }
    return failed;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_string(FILE *f, const char *s) {
    putc('"', f);
    for (; *s; s++) {
        if ((unsigned char)*s < ' ') {
            fprintf(f, "\\u%04x", (unsigned char)*s);
        } else {
            fprintf(f, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
        }
    }
    putc('"', f);
}

static void json_string_or_null(FILE *f, const char *key, const char *s) {
    fprintf(f, "  \"%s\": ", key);
    if (s[0]) {
        json_string(f, s);
    } else {
        fputs("null", f);
    }
    fputs(",\n", f);
}

static void json_number(FILE *f, double v) {
    if (isfinite(v)) {
        fprintf(f, "%.6g", v);
    } else {
        fputs("null", f);
    }
}

/* Null if a round failed: figures of the rounds that went well would hide it. */
static void json_side(FILE *f, const char *key, const struct session *s, const struct result *r,
                      enum side side) {
    struct summary sum = summarize(r->value[side], s->rounds);
    fprintf(f, ", \"%s\": ", key);
    if (!sum.good || r->why[side][0]) {
        fputs("null", f);
        return;
    }
    fputs("{\"median\": ", f);
    json_number(f, sum.median);
    fputs(", \"min\": ", f);
    json_number(f, sum.min);
    fputs(", \"max\": ", f);
    json_number(f, sum.max);
    putc('}', f);
}

static void json_row(FILE *f, const struct session *s, const struct result *r) {
    fputs("    {\"area\": ", f);
    json_string(f, r->area);
    fputs(", \"name\": ", f);
    json_string(f, r->row->name);
    fprintf(f, ", \"procs\": %d, \"unit\": ", r->procs);
    json_string(f, r->row->unit);
    json_side(f, "weft", s, r, WEFT);
    json_side(f, "go", s, r, GO);
    fputs(", \"ratio\": ", f);
    json_number(f, ratio_of(s, r));
    fputs(", \"budget\": ", f);
    json_number(f, has_budget(r) ? r->row->budget : NAN);
    putc('}', f);
}

bool report_json(const struct session *s, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        return false;
    }
    fputs("{\n", f);
    json_string_or_null(f, "commit", s->facts.commit);
    json_string_or_null(f, "machine", s->facts.machine);
    json_string_or_null(f, "go", s->facts.go_version);
    fputs("  \"rows\": [\n", f);
    for (size_t i = 0; i < s->count; i++) {
        json_row(f, s, &s->results[i]);
        fputs(i + 1 < s->count ? ",\n" : "\n", f);
    }
    fputs("  ]\n}\n", f);
    bool good = !ferror(f);
    good &= fclose(f) == 0;
    if (!good) {
        fprintf(stderr, "weft-bench: %s could not be written\n", path);
    }
    return good;
}
