/* field/stack.c: what went wrong with stacks elsewhere. Cases C45 and C46. */
#include "field/field.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "stack/guard.h"

/* ---- C45: overflow is caught and named ------------------------------------------------------- */

enum { C45_PARKED = 100, C45_RUNS = 50 };

/* What a child left behind. */
struct ending {
    int status;
    int64_t took;
    char text[8192]; /* its stderr */
};

static void run_child(struct ending *e, void (*fn)(int), int arg) {
    int ends[2];
    size_t len = 0;
    ssize_t n;
    CHECK_EQ(pipe(ends), 0);
    int64_t start = now();
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's would make an exit status of it */
        signal(SIGBUS, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        fn(arg);
        _exit(0);
    }
    close(ends[1]);
    while (len < sizeof e->text - 1 &&
           (n = read(ends[0], e->text + len, sizeof e->text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    e->text[len] = 0;
    close(ends[0]);
    CHECK_EQ(waitpid(child, &e->status, 0), child);
    e->took = now() - start;
}

static int recurse(int depth) {
    volatile char frame[256];
    frame[0] = (char)depth;
    int below = depth < 0 ? 0 : recurse(depth + 1);
    return below + frame[0];
}

static int dive(void *arg) {
    (void)arg;
    fprintf(stderr, "diver %llu\n", (unsigned long long)weft_self());
    return recurse(0);
}

static int park(void *chan) { return weft_chan_recv(chan, NULL); }

static int overflow_among_parked(void *arg) {
    weft_chan *c;
    weft_stats s;
    WEFT_MUST(weft_chan_new(&c, 0, 0));
    for (int i = 0; i < C45_PARKED; i++) {
        WEFT_MUST(weft_go(park, c));
        if (i == C45_PARKED / 2) {
            weft_yield();
        }
    }
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting < C45_PARKED);
    WEFT_MUST(weft_go(dive, arg));
    return weft_chan_recv(c, NULL);
}

static void dive_on_first_thread(int procs) {
    weft_config cfg = config_of(procs);
    cfg.flags = WEFT_CATCH_OVERFLOW;
    int err = weft_run(overflow_among_parked, NULL, &cfg, NULL);
    fprintf(stderr, "weft_run: %d\n", err);
}

static void dive_elsewhere(int procs) {
    weft_runtime *rt;
    weft_config cfg = config_of(procs);
    cfg.flags = WEFT_CATCH_OVERFLOW;
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, overflow_among_parked, NULL), 0);
    for (;;) {
        pause();
    }
}

/* How a report names a function: by its symbol, or, where none is exported, by file and offset. */
static void name_of(char *out, size_t bytes, weft_fn fn) {
    Dl_info info;
    const char *at = (const char *)(uintptr_t)fn;
    CHECK(dladdr(at, &info) != 0);
    if (info.dli_sname) {
        snprintf(out, bytes, "%s+0x%zx", info.dli_sname, (size_t)(at - (char *)info.dli_saddr));
    } else {
        const char *slash = strrchr(info.dli_fname, '/');
        snprintf(out, bytes, "%s+0x%zx", slash ? slash + 1 : info.dli_fname,
                 (size_t)(at - (char *)info.dli_fbase));
    }
}

static void check_report(const char *text) {
    char name[256], expected[512];
    unsigned long long id = 0;
    const char *line = strstr(text, "diver ");
    CHECK(line && sscanf(line, "diver %llu", &id) == 1 && id != 0);
    name_of(name, sizeof name, dive);
    snprintf(expected, sizeof expected,
             "weft: stack overflow in green thread %llu, started at %s, stack of 256 KiB\n", id,
             name);
    if (!strstr(text, expected)) {
        test_fail(__FILE__, __LINE__, "no \"%.200s\" in what it wrote:\n%.600s", expected, text);
    }
    const char *first = strstr(text, "stack overflow");
    CHECK(!strstr(first + 1, "stack overflow"));
}

static int64_t overflow_often(void (*fn)(int), int procs) {
    static struct ending e;
    int64_t longest = 0;
    for (int i = 0; i < C45_RUNS; i++) {
        run_child(&e, fn, procs);
        CHECK(WIFSIGNALED(e.status));
        CHECK_EQ(WTERMSIG(e.status), SIGSEGV);
        check_report(e.text);
        longest = most(longest, e.took);
    }
    return longest;
}

TEST_IN(field, C45, 180) {
    int64_t longest = overflow_often(dive_elsewhere, 2);
    longest = most(longest, overflow_often(dive_elsewhere, 4));
    longest = most(longest, overflow_often(dive_on_first_thread, 1));
    longest = most(longest, overflow_often(dive_on_first_thread, 4));
    test_clock(within(longest, SEC), "the longest of 200 runs took %.1f ms, bound 1 s",
               (double)longest / MS);
}

/* ---- C46: many stacks against vm.max_map_count ----------------------------------------------- */

enum { C46_GS = 100000, C46_MAPS = 100 };

static struct {
    weft_chan *gate;
    weft_waitgroup live;
    atomic_int ended;
    int started;
    int refused;      /* what weft_go said, 0 if nothing */
    bool stacks_kept; /* each stack has mappings of its own, which go with the runtime */
} many;

static int count_lines_of_maps(void) {
    int c, lines = 0;
    FILE *in = fopen("/proc/self/maps", "re");
    CHECK(in != NULL);
    while ((c = getc(in)) != EOF) {
        lines += c == '\n';
    }
    fclose(in);
    return lines;
}

static int wait_at_gate(void *arg) {
    (void)arg;
    CHECK_EQ(weft_chan_recv(many.gate, NULL), -EPIPE);
    atomic_fetch_add(&many.ended, 1);
    weft_waitgroup_done(&many.live);
    return 0;
}

/* Neighbours of different rights do not merge: each is a mapping. */
static void map_single_pages(void) {
    void *pages[C46_MAPS];
    for (int i = 0; i < C46_MAPS; i++) {
        pages[i] = mmap(NULL, 4096, i % 2 ? PROT_NONE : PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages[i] != MAP_FAILED);
    }
    for (int i = 0; i < C46_MAPS; i++) {
        munmap(pages[i], 4096);
    }
}

static int start_many(void *arg) {
    int lines = *(int *)arg;
    weft_stats s;
    CHECK_EQ(weft_chan_new(&many.gate, 0, 0), 0);
    while (many.started < C46_GS && many.refused == 0) {
        weft_waitgroup_add(&many.live, 1);
        many.refused = weft_go(wait_at_gate, NULL);
        many.started += many.refused == 0;
    }
    if (many.refused != 0) {
        CHECK_EQ(many.refused, -ENOMEM);
        weft_waitgroup_done(&many.live);
    }
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting != (uint64_t)many.started);
    map_single_pages();
    printf("C46: %d live, %d mappings\n", many.started, count_lines_of_maps());

    CHECK_EQ(weft_chan_close(many.gate), 0);
    weft_waitgroup_wait(&many.live);
    CHECK_EQ(atomic_load(&many.ended), many.started);
    if (!many.stacks_kept) {
        CHECK_LE(count_lines_of_maps(), lines + 1000);
    }
    weft_chan_unref(many.gate);
    return 0;
}

static void skip_where_it_cannot_be(void) {
    if (UNDER_TSAN) {
        test_skip("TSan allows 8128 green threads");
    }
}

TEST_IN(field, C46, 120) {
    skip_where_it_cannot_be();
    int lines = count_lines_of_maps();
    many.stacks_kept = !weft__guard_works();
    run_at(2, start_many, &lines);
    CHECK_LE(count_lines_of_maps(), lines + 1000);
    if (weft__guard_works()) {
        CHECK_EQ(many.started, C46_GS);
    }
}

/* The same where the kernel has no guard regions: stacks are rationed, and what is refused is
   told. */
TEST_IN(field, C46_without_guard_regions, 120) {
    skip_where_it_cannot_be();
    int lines = count_lines_of_maps();
    long long limit = proc_value("/proc/sys/vm/max_map_count", "");
    weft__guard_choose(WEFT__GUARD_PROTECT);
    many.stacks_kept = true;
    run_at(2, start_many, &lines);
    CHECK_LE(count_lines_of_maps(), lines + 1000);
    CHECK_GE(many.started, 10000);
    if (limit < 2 * C46_GS) {
        CHECK_EQ(many.refused, -ENOMEM);
    }
}
