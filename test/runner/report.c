/* report.c: the runner's side of the report (see runner.h), and the last line. */
#include "runner.h"

#include "../scratch.h"

#include <stdlib.h>
#include <unistd.h>

static char folder[SCRATCH_BYTES], path[SCRATCH_BYTES + 8];

/* The folder is where the tests' own files lie, too. */
void report_open(void) {
    if (!scratch_dir(folder)) {
        perror(folder);
        exit(2);
    }
    snprintf(path, sizeof path, "%s/report", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        perror(path);
        exit(2);
    }
    close(fd);
    setenv("WEFT_TEST_REPORT", path, 1);
    setenv("WEFT_TEST_SCRATCH", folder, 1);
}

/* The name after the word, if the line starts with that word. */
static const char *after_word(const char *line, const char *word) {
    size_t n = strlen(word);
    return strncmp(line, word, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

bool report_has(const char *word, const char *full_name) {
    FILE *in = fopen(path, "r");
    char line[1024];
    bool found = false;
    size_t n = strlen(full_name);
    while (in && !found && fgets(line, sizeof line, in)) {
        const char *name = after_word(line, word);
        found = name && strncmp(name, full_name, n) == 0 && (name[n] == '\n' || name[n] == ':');
    }
    if (in) {
        fclose(in);
    }
    return found;
}

static void print_notes(void) {
    static const char *const words[][2] = {
        {"skip", "SKIP "}, {"kept", "clock: ok "}, {"missed", "clock: missed "}};
    FILE *in = fopen(path, "r");
    char line[1024];
    while (in && fgets(line, sizeof line, in)) {
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            const char *rest = after_word(line, words[i][0]);
            if (rest) {
                printf("%s%s", words[i][1], rest);
            }
        }
    }
    if (in) {
        fclose(in);
    }
}

int report_finish(struct tally *t) {
    if (t->passed + t->failed + t->skipped == 0) {
        printf("FAIL (no test of that name)\n");
        t->failed++;
    }
    print_notes();
    scratch_remove(folder);
    printf("%d passed, %d failed", t->passed, t->failed);
    if (t->skipped) {
        printf(", %d skipped", t->skipped);
    }
    printf("\n");
    return t->failed ? 1 : 0;
}
