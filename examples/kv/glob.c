/*
 * glob.c: matching with one way back.
 *
 * A star first matches nothing. When the rest does not fit, the last star takes one byte more and
 * the rest is tried again. Only the last star ever needs to: what stands before it has been matched
 * as early as can be, so giving an earlier star more could only leave less text for the rest. Hence
 * no recursion, and time at most pattern times text, which matters since a client chooses both.
 */
#include "glob.h"

struct scan {
    const char *p, *p_end;
    const char *t, *t_end;
    bool fold; /* case does not count */
};

static unsigned char folded(const struct scan *s, char c) {
    return (unsigned char)(s->fold ? lower(c) : c);
}

/* One byte of a set, which may be escaped. */
static unsigned char set_byte(struct scan *s) {
    if (*s->p == '\\' && s->p_end - s->p > 1) s->p++;
    return folded(s, *s->p++);
}

/* s->p stands behind the '['; left behind the ']'. */
static bool match_set(struct scan *s, unsigned char c) {
    bool found = false;
    bool negated = s->p < s->p_end && *s->p == '^';

    if (negated) s->p++;
    while (s->p < s->p_end && *s->p != ']') {
        unsigned char low = set_byte(s);
        unsigned char high = low;
        if (s->p_end - s->p >= 2 && *s->p == '-') {
            s->p++;
            high = set_byte(s);
        }
        if (low > high) {
            unsigned char swap = low;
            low = high;
            high = swap;
        }
        if (low <= c && c <= high) found = true;
    }
    if (s->p < s->p_end) s->p++;
    return found != negated;
}

/* One element of the pattern that is no star against one byte of text. */
static bool match_one(struct scan *s) {
    char element = *s->p++;
    unsigned char c = folded(s, *s->t++);

    if (element == '?') return true;
    if (element == '[') return match_set(s, c);
    if (element == '\\' && s->p < s->p_end) element = *s->p++;
    return folded(s, element) == c;
}

static bool match(struct scan s) {
    const char *star = NULL; /* behind the last star seen */
    const char *resume = NULL;

    for (;;) {
        if (s.p < s.p_end && *s.p == '*') {
            star = ++s.p;
            resume = s.t;
            continue;
        }
        if (s.t == s.t_end && s.p == s.p_end) return true;
        if (s.t < s.t_end && s.p < s.p_end && match_one(&s)) continue;
        if (star == NULL || resume == s.t_end) return false;
        s.p = star;
        s.t = ++resume;
    }
}

bool glob_match(struct bytes pattern, struct bytes text) {
    return match(
        (struct scan){pattern.at, pattern.at + pattern.n, text.at, text.at + text.n, false});
}

bool glob_match_nocase(struct bytes pattern, struct bytes text) {
    return match(
        (struct scan){pattern.at, pattern.at + pattern.n, text.at, text.at + text.n, true});
}
