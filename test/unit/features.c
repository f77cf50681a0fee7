/* unit/features.c: what weft_features says, on any thread and at any time. */
#include "world.h"

#include <ctype.h>

static bool has(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += n) {
        if ((at == text || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) {
            return true;
        }
    }
    return false;
}

static void *ask(void *arg) {
    *(const char **)arg = weft_features();
    return NULL;
}

/* The first calls come at once, from several threads, with no runtime about. */
TEST(features, the_same_for_all) {
    const char *said[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, ask, &said[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        CHECK(said[i] == weft_features());
    }
}

static void well_formed(const char *text) {
    CHECK_GT(strlen(text), 0);
    for (const char *c = text; *c; c++) {
        CHECK(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-' || *c == ' ');
        CHECK(*c != ' ' || (c > text && c[1] != ' ' && c[1] != 0));
    }
}

PLAYED(features, words) {
    const char *text = weft_features();
    well_formed(text);
#ifdef WEFT_POLLER_EPOLL
    CHECK(has(text, "epoll"));
#endif
    CHECK_EQ(has(text, "membarrier") + has(text, "full-fences"), 1);
    CHECK_EQ(has(text, "membarrier"), weft__fence_asymmetric);
    CHECK_EQ(has(text, "thread-state") + has(text, "thread-clock") + has(text, "traced"), 1);
    CHECK_EQ(has(text, "thread-state"), weft__thread_state(weft__thread_id()) == 'R');
    CHECK_EQ(has(text, "guard-install") + has(text, "guard-mprotect"), 1);
    CHECK_EQ(has(text, "asm-switch") + has(text, "ucontext"), 1);
#ifdef WEFT_SWITCH_ASM
    CHECK(has(text, "asm-switch"));
#endif
#ifdef WEFT__TSAN
    CHECK(has(text, "tsan"));
    CHECK(has(text, "full-fences"));
#endif
#ifdef WEFT__ASAN
    CHECK(has(text, "asan"));
#endif
#ifdef WEFT_DEBUG_CHECKS
    CHECK(has(text, "debug-checks"));
#else
    CHECK(!has(text, "debug-checks"));
#endif
}
