/*
 * facts.c: what a table of figures must say about where it comes from.
 */
#include "drive.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char go_source[] = BENCH_SOURCE_DIR "/go";

enum { OLDEST_GO = 23 }; /* of 1.x: the first with today's timers */

/* The first line that a command prints. Its whole output must be short. */
static bool first_line(char *const argv[], char *line, size_t bytes) {
    struct process p;
    if (!process_start_quiet(&p, argv)) {
        return false;
    }
    bool got = process_line(&p, line, bytes, deadline_in(30));
    return process_end(&p, deadline_in(5)) == 0 && got;
}

static void find_processor(char *model, size_t bytes) {
    snprintf(model, bytes, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && value) {
            value[strcspn(value, "\n")] = '\0';
            snprintf(model, bytes, "%s", value + 2);
            break;
        }
    }
    if (f) {
        fclose(f);
    }
}

static void find_machine(struct facts *f) {
    char model[128];
    find_processor(model, sizeof model);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    f->cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    struct utsname u;
    uname(&u);
    snprintf(f->machine, sizeof f->machine, "%s, %d core%s, %.16s %.64s %.16s", model, f->cores,
             f->cores == 1 ? "" : "s", u.sysname, u.release, u.machine);
}

static void find_commit(struct facts *f) {
    char *argv[] = {"git", "-C", BENCH_SOURCE_DIR, "rev-parse", "HEAD", NULL};
    if (!first_line(argv, f->commit, sizeof f->commit)) {
        f->commit[0] = '\0';
    }
}

bool facts_find(struct facts *f) {
    ssize_t bytes = readlink("/proc/self/exe", f->self, sizeof f->self - 1);
    if (bytes <= 0) {
        fprintf(stderr, "weft-bench: /proc is needed\n");
        return false;
    }
    f->self[bytes] = '\0';
    find_machine(f);
    find_commit(f);
    return true;
}

/* Offline, with the toolchain that is there, without the C compiler: the module has no
   dependencies. */
static void set_go_environment(void) {
    setenv("GOFLAGS", "-mod=mod", 1);
    setenv("GOPROXY", "off", 1);
    setenv("GOTOOLCHAIN", "local", 1);
    setenv("GOWORK", "off", 1);
    setenv("CGO_ENABLED", "0", 1);
}

static bool find_go(char *version, size_t bytes) {
    char *argv[] = {"go", "env", "GOVERSION", NULL};
    int minor = 0;
    if (!first_line(argv, version, bytes)) {
        fprintf(stderr, "weft-bench: no go on the PATH: weft is measured alone\n");
        return false;
    }
    if (sscanf(version, "go1.%d", &minor) == 1 && minor < OLDEST_GO) {
        fprintf(stderr, "weft-bench: %s is older than go1.%d: weft is measured alone\n", version,
                OLDEST_GO);
        return false;
    }
    return true;
}

/* Builds it as `name`, of `bytes`. */
static bool build_go(const struct facts *f, const char *suffix, char *name, size_t bytes) {
    int length = snprintf(name, bytes, "%s%s", f->self, suffix);
    char *build[] = {"go", "build", "-C", (char *)go_source, "-buildvcs=false", "-o",
                     name, ".",     NULL};
    struct process p;
    return length < (int)bytes && process_start(&p, build) &&
           process_end(&p, deadline_in(300)) == 0;
}

bool facts_build_go(struct facts *f) {
    set_go_environment();
    char line[256];
    if (!find_go(line, sizeof line)) {
        return false;
    }
    if (!build_go(f, "-go", f->go_self, sizeof f->go_self)) {
        fprintf(stderr, "weft-bench: go build failed: weft is measured alone\n");
        return false;
    }
    snprintf(f->go_version, sizeof f->go_version, "%.63s", line);
    return true;
}

/* A program of its own, so that the other rows compare with a Go that has no C in it. */
bool facts_build_cgo(struct facts *f) {
    setenv("CGO_ENABLED", "1", 1);
    bool built = build_go(f, "-cgo", f->cgo_self, sizeof f->cgo_self);
    setenv("CGO_ENABLED", "0", 1);
    if (!built) {
        fprintf(stderr,
                "weft-bench: Go cannot build with a C compiler: its rows by cgo are left out\n");
    }
    return built;
}
