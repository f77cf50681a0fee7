/*
 * The fatal path: says in one line what went wrong, tells the host's hook, aborts. It may run with
 * any lock held, on a signal stack and in a forked child, so it formats into a local buffer and
 * writes with write(2) only. A second fatal on the way to abort ends the process at once.
 */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void (*weft__fatal_who)(char *buf, size_t bytes);
static void (*fatal_hook)(void *arg, const char *text);
static void *fatal_hook_arg;
static atomic_int fatal_entered;

void weft__fatal_set_hook(void (*hook)(void *arg, const char *text), void *arg) {
    fatal_hook = hook;
    fatal_hook_arg = arg;
}

void weft__fatal_drop_hook(void (*hook)(void *arg, const char *text), void *arg) {
    if (fatal_hook == hook && fatal_hook_arg == arg) {
        weft__fatal_set_hook(NULL, NULL);
    }
}

static void write_all(const char *text, size_t n) {
    while (n > 0) {
        ssize_t w = write(STDERR_FILENO, text, n);
        if (w <= 0) {
            return;
        }
        text += w;
        n -= (size_t)w;
    }
}

void weft__fatal(const char *fmt, ...) {
    char text[512], who[96] = "";
    if (atomic_fetch_add(&fatal_entered, 1) != 0) {
        _exit(134);
    }
    if (weft__fatal_who != NULL) {
        weft__fatal_who(who, sizeof who);
    }
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(text, sizeof text, "weft: fatal: ");
    n += vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof text - 2) {
        n = (int)sizeof text - 2;
    }
    if (who[0] != '\0' && n < (int)sizeof text - 2) {
        n += snprintf(text + n, sizeof text - (size_t)n - 1, " [%s]", who);
        if (n > (int)sizeof text - 2) {
            n = (int)sizeof text - 2;
        }
    }
    text[n] = '\n';
    write_all(text, (size_t)n + 1);
    if (fatal_hook != NULL) {
        text[n] = '\0';
        fatal_hook(fatal_hook_arg, text);
    }
    abort();
}
