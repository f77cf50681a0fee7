/* test_number.c: numbers in and out. */
#include "check.h"
#include "number.h"

static bool reads(const char *text, int64_t v) {
    int64_t got = 4711;
    return number_parse(bytes_of(text), &got) && got == v;
}

static bool refuses(const char *text) {
    int64_t got = 4711;
    return !number_parse(bytes_of(text), &got) && got == 4711;
}

static void round_trip(int64_t v, const char *text) {
    char out[NUMBER_TEXT_MAX];
    struct bytes b = {out, number_format(out, v)};
    CHECK(bytes_equal(b, bytes_of(text)));
    CHECK(reads(text, v));
}

int main(void) {
    char out[NUMBER_TEXT_MAX];

    round_trip(0, "0");
    round_trip(7, "7");
    round_trip(-7, "-7");
    round_trip(10, "10");
    round_trip(INT64_MAX, "9223372036854775807");
    round_trip(INT64_MIN, "-9223372036854775808");
    CHECK(refuses(""));
    CHECK(refuses("-"));
    CHECK(refuses("+1"));
    CHECK(refuses(" 1"));
    CHECK(refuses("1 "));
    CHECK(refuses("01"));
    CHECK(refuses("-0"));
    CHECK(refuses("-01"));
    CHECK(refuses("1.0"));
    CHECK(refuses("0x1"));
    CHECK(refuses("9223372036854775808"));
    CHECK(refuses("-9223372036854775809"));
    CHECK(refuses("92233720368547758070"));
    CHECK(refuses("99999999999999999999999999"));
    int64_t got;
    CHECK(!number_parse((struct bytes){"1\0", 2}, &got));
    CHECK(number_parse((struct bytes){"12345", 3}, &got) && got == 123);
    struct bytes b = {out, number_format_unsigned(out, UINT64_MAX)};
    CHECK(bytes_equal(b, bytes_of("18446744073709551615")));
    return check_end();
}
