/* number.c: strict decimal, both ways, without the C library's locale and blanks. */
#include "number.h"

bool number_parse(struct bytes text, int64_t *out) {
    const char *p = text.at;
    const char *end = p + text.n;
    bool negative = p < end && *p == '-';

    if (negative) p++;
    if (p == end) return false;
    if (*p == '0') { /* alone, or not a number we would have written */
        if (end - p != 1 || negative) return false;
        *out = 0;
        return true;
    }
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t v = 0;
    for (; p < end; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (digit > 9) return false;
        if (v > (limit - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

size_t number_format_unsigned(char *out, uint64_t v) {
    char back[NUMBER_TEXT_MAX];
    size_t n = 0;

    do {
        back[n++] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    for (size_t i = 0; i < n; i++) out[i] = back[n - 1 - i];
    return n;
}

size_t number_format(char *out, int64_t v) {
    if (v >= 0) return number_format_unsigned(out, (uint64_t)v);
    out[0] = '-';
    return 1 + number_format_unsigned(out + 1, 0 - (uint64_t)v);
}
