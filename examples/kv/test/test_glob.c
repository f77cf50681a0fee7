/* test_glob.c: patterns. */
#include "check.h"
#include "glob.h"
#include <stdlib.h>
#include <time.h>

static bool yes(const char *pattern, const char *text) {
    return glob_match(bytes_of(pattern), bytes_of(text));
}

static bool no(const char *pattern, const char *text) { return !yes(pattern, text); }

static void plain_and_stars(void) {
    CHECK(yes("", ""));
    CHECK(no("", "a"));
    CHECK(yes("abc", "abc"));
    CHECK(no("abc", "ab"));
    CHECK(no("ab", "abc"));
    CHECK(no("abc", "ABC"));
    CHECK(yes("*", ""));
    CHECK(yes("*", "anything"));
    CHECK(yes("**", "anything"));
    CHECK(yes("a*", "a"));
    CHECK(yes("a*c", "abbbc"));
    CHECK(no("a*c", "abbb"));
    CHECK(yes("*ab", "aab"));
    CHECK(yes("*a*b*c*", "xxaxxbxxcxx"));
    CHECK(no("*a*b*c*", "xxcxxbxxaxx"));
    CHECK(yes("user:*:name", "user:17:name"));
    CHECK(yes("*aab", "aaaab"));
    CHECK(yes("h?llo", "hello"));
    CHECK(no("h?llo", "hllo"));
    CHECK(no("?", ""));
    CHECK(yes("??", "ab"));
}

static void sets(void) {
    CHECK(yes("h[ae]llo", "hallo"));
    CHECK(no("h[ae]llo", "hillo"));
    CHECK(yes("h[^e]llo", "hallo"));
    CHECK(no("h[^e]llo", "hello"));
    CHECK(yes("[a-c]", "b"));
    CHECK(yes("[c-a]", "b"));
    CHECK(no("[a-c]", "d"));
    CHECK(yes("[a-cx]", "x"));
    CHECK(yes("[\\]]", "]"));
    CHECK(yes("[\\-a]", "-"));
    CHECK(no("[]", "a"));
    CHECK(yes("[^]", "a"));
    CHECK(yes("[abc", "c"));
    CHECK(no("[abc", "d"));
    CHECK(no("[", "a"));
    CHECK(yes("*[0-9]", "key7"));
    CHECK(no("*[0-9]", "key7x"));
    CHECK(no("[a-c]", ""));
}

static void escapes(void) {
    CHECK(yes("\\*", "*"));
    CHECK(no("\\*", "a"));
    CHECK(yes("a\\?c", "a?c"));
    CHECK(no("a\\?c", "abc"));
    CHECK(yes("\\", "\\"));
    CHECK(yes("\\\\", "\\"));
}

static void binary_and_case(void) {
    CHECK(glob_match(LITERAL("a*\0"), LITERAL("a\0\0")));
    CHECK(!glob_match(LITERAL("a\0b"), LITERAL("a\0c")));
    CHECK(glob_match(LITERAL("[\x80-\xff]"), LITERAL("\xc3")));
    CHECK(!glob_match(LITERAL("[\x80-\xff]"), LITERAL("a")));
    CHECK(glob_match_nocase(bytes_of("SA[U-W]e"), bytes_of("save")));
    CHECK(!glob_match_nocase(bytes_of("SAVE?"), bytes_of("save")));
}

/* With a way back for every star this would take longer than the sun has. */
static void hostile(void) {
    char text[4000];
    char pattern[201];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < 200; i += 2) memcpy(pattern + i, "a*", 2);
    pattern[200] = 'b';
    clock_t start = clock();
    CHECK(!glob_match((struct bytes){pattern, 201}, (struct bytes){text, sizeof text}));
    CHECK(clock() - start < 5 * CLOCKS_PER_SEC);
}

/* The textbook definition, slow and plainly right, for patterns without sets. */
static bool reference(const char *p, const char *t) {
    if (*p == '\0') return *t == '\0';
    if (*p == '*') return reference(p + 1, t) || (*t != '\0' && reference(p, t + 1));
    return *t != '\0' && (*p == '?' || *p == *t) && reference(p + 1, t + 1);
}

static void against_reference(void) {
    int wrong = 0;
    int matched = 0;
    srand(1);
    for (int round = 0; round < 200000; round++) {
        char p[9] = "", t[9] = "";
        int p_n = rand() % 8, t_n = rand() % 8;
        for (int i = 0; i < p_n; i++) p[i] = "ab*?"[rand() % 4];
        for (int i = 0; i < t_n; i++) t[i] = "ab"[rand() % 2];
        bool want = reference(p, t);
        matched += want;
        wrong += yes(p, t) != want;
    }
    CHECK(wrong == 0);
    CHECK(matched > 1000);
}

int main(void) {
    plain_and_stars();
    sets();
    escapes();
    binary_and_case();
    hostile();
    against_reference();
    return check_end();
}
