/*
 * memory.c: what a parked green thread, a runtime and the library take. Counterpart: go/memory.go.
 */
#include "bench.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#include <weft.h>

/* ---- Bytes a parked green thread ------------------------------------------------------------- */

/* Resident memory and page tables of this process, bytes. */
static int64_t resident(void) {
    FILE *f = fopen("/proc/self/status", "r");
    bench_check(f != NULL, "no /proc/self/status");
    char line[256];
    long long total = 0, kib;
    int found = 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmRSS: %lld kB", &kib) == 1 ||
            sscanf(line, "VmPTE: %lld kB", &kib) == 1) {
            total += kib * 1024;
            found++;
        }
    }
    fclose(f);
    bench_check(found == 2, "no VmRSS and VmPTE in /proc/self/status");
    return total;
}

static void parked_bytes(const char *row, int count) {
    int64_t before = resident();
    struct bench_parked *p = bench_park(count);
    int64_t bytes = resident() - before;
    bench_unpark(p);
    bench_emit(row, (double)bytes / count);
}

static void parked_bytes_100k(void) { parked_bytes("ParkedBytes100k", 100000); }

static void parked_bytes_1m(void) { parked_bytes("ParkedBytes1M", 1000000); }

/* ---- Start and stop of a runtime, in a process with one thread ------------------------------- */

enum { STARTS = 51 };

static int64_t start_and_stop(void) {
    weft_config cfg = weft_config_default();
    cfg.procs = bench_procs();
    weft_runtime *rt;
    int64_t start = bench_now();
    WEFT_MUST(weft_start(&rt, &cfg));
    WEFT_MUST(weft_stop(rt, WEFT_FOREVER));
    return bench_now() - start;
}

static void runtime_start_stop(void) {
    int64_t took[STARTS];
    for (int i = 0; i < STARTS; i++) {
        took[i] = start_and_stop();
    }
    bench_emit("RuntimeFirst", (double)took[0] / 1e6);
    bench_sort(took, STARTS);
    bench_emit("RuntimeStartStop", (double)bench_percentile(took, STARTS, 50) / 1e6);
}

/* ---- The shared library ---------------------------------------------------------------------- */

/* What the loader needs of the file, KiB: its size without symbols and debug information, which a
   package strips. */
static double loaded_kib(FILE *f) {
    Elf64_Ehdr head;
    bench_check(fread(&head, sizeof head, 1, f) == 1 &&
                    memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
                    head.e_ident[EI_CLASS] == ELFCLASS64,
                "not a 64-bit ELF file");
    uint64_t end = 0;
    for (int i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr part;
        bench_check(fseek(f, (long)(head.e_phoff + (uint64_t)i * head.e_phentsize), SEEK_SET) ==
                            0 &&
                        fread(&part, sizeof part, 1, f) == 1,
                    "a broken ELF file");
        uint64_t part_end = part.p_offset + part.p_filesz;
        end = part.p_type == PT_LOAD && part_end > end ? part_end : end;
    }
    return (double)end / 1024;
}

static void library_size(void) {
    FILE *f = fopen(BENCH_LIBWEFT_SO, "r");
    bench_check(f != NULL, "no %s", BENCH_LIBWEFT_SO);
    bench_emit("LibrarySize", loaded_kib(f));
    fclose(f);
}

static const struct bench benches[] = {
    {.name = "ParkedBytes100k",
     .rows = {{"ParkedBytes100k", "B", BOUND_NONE, 0, 0, 0}},
     .inside = parked_bytes_100k,
     .once = true},
    {.name = "ParkedBytes1M",
     .rows = {{"ParkedBytes1M", "B", BOUND_VALUE, 5120, 0, 0}},
     .inside = parked_bytes_1m,
     .once = true},
    {.name = "RuntimeStartStop",
     .rows = {{"RuntimeFirst", "ms", BOUND_VALUE, 1, 0, 0},
              {"RuntimeStartStop", "ms", BOUND_VALUE, 1, 0, 0}},
     .outside = runtime_start_stop,
     .weft_only = true},
    {.name = "LibrarySize",
     .rows = {{"LibrarySize", "KiB", BOUND_VALUE, 400, 0, 0}},
     .outside = library_size,
     .once = true,
     .weft_only = true},
};

BENCH_AREA(memory, benches);
