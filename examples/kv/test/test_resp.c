/* test_resp.c: the parser, whole, in pieces, wrong and hostile. */
#include "check.h"
#include "resp.h"
#include <stdlib.h>

/* Feeds `input` in pieces of `step` bytes, from a buffer that moves each time. */
static enum resp_result feed(struct resp_parser *p, struct bytes input, size_t step, char **kept) {
    enum resp_result r = RESP_MORE;
    char *data = NULL;
    for (size_t n = 0; n < input.n && r == RESP_MORE;) {
        n = n + step < input.n ? n + step : input.n;
        char *moved = malloc(n);
        memcpy(moved, input.at, n);
        free(data);
        data = moved;
        r = resp_parse(p, data, n);
    }
    *kept = data;
    return r;
}

static bool parses_to(struct bytes input, size_t argc, const struct bytes *argv, size_t step) {
    struct resp_parser p;
    char *data;
    resp_init(&p);
    bool good = feed(&p, input, step, &data) == RESP_REQUEST && p.argc == argc && p.used == input.n;
    for (size_t i = 0; good && i < argc; i++) good = bytes_equal(p.args[i], argv[i]);
    resp_free(&p);
    free(data);
    return good;
}

#define PARSES(input, ...)                                                                         \
    do {                                                                                           \
        struct bytes want_[] = {__VA_ARGS__};                                                      \
        size_t n_ = sizeof want_ / sizeof want_[0];                                                \
        CHECK(parses_to(LITERAL(input), n_, want_, sizeof(input)));                                \
        CHECK(parses_to(LITERAL(input), n_, want_, 1));                                            \
        CHECK(parses_to(LITERAL(input), n_, want_, 3));                                            \
    } while (0)

/* In pieces of many sizes; not the smallest for what is long, since each piece costs a copy. */
static bool fails_with(struct bytes input, const char *why) {
    char want[128];
    snprintf(want, sizeof want, "ERR Protocol error: %s", why);
    for (size_t step = 1 + input.n / 100; step <= input.n; step = step * 2 + 1) {
        struct resp_parser p;
        char *data;
        resp_init(&p);
        bool good = feed(&p, input, step, &data) == RESP_ERROR && strcmp(p.error, want) == 0;
        if (!good) printf("got: %s\n", p.error);
        resp_free(&p);
        free(data);
        if (!good) return false;
    }
    return true;
}

#define B(text) LITERAL(text)

static void requests(void) {
    PARSES("*1\r\n$4\r\nPING\r\n", B("PING"));
    PARSES("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nv\r\n\0x\r\n", B("SET"), B("k"), B("v\r\n\0x"));
    PARSES("*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", B("ECHO"), B(""));
    PARSES("*9\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n$1\r\ng\r\n$"
           "1\r\nh\r\n$1\r\ni\r\n",
           B("a"), B("b"), B("c"), B("d"), B("e"), B("f"), B("g"), B("h"), B("i"));
    CHECK(parses_to(B("*0\r\n"), 0, NULL, 1));
    CHECK(parses_to(B("*-1\r\n"), 0, NULL, 4));
}

static void inline_requests(void) {
    PARSES("PING\r\n", B("PING"));
    PARSES("PING\n", B("PING"));
    PARSES("  set \t k   v  \r\n", B("set"), B("k"), B("v"));
    PARSES("set k \"a b\"\r\n", B("set"), B("k"), B("a b"));
    PARSES("set k \"\\x41\\n\\r\\t\\b\\a\\\"\\\\\\q\"\r\n", B("set"), B("k"),
           B("A\n\r\t\b\a\"\\q"));
    PARSES("set k \"\\x00\\xff\\xg1\"\r\n", B("set"), B("k"), B("\0\xffxg1"));
    PARSES("set k 'it\\'s \\n'\r\n", B("set"), B("k"), B("it's \\n"));
    PARSES("set k \"\"\r\n", B("set"), B("k"), B(""));
    PARSES("set k pre\"fix\"\r\n", B("set"), B("k"), B("prefix"));
    CHECK(parses_to(B("\r\n"), 0, NULL, 1));
    CHECK(parses_to(B("   \n"), 0, NULL, 2));
}

static void errors(void) {
    CHECK(fails_with(B("*x\r\n"), "invalid multibulk length"));
    CHECK(fails_with(B("*\r\n"), "invalid multibulk length"));
    CHECK(fails_with(B("*1\n"), "invalid multibulk length"));
    CHECK(fails_with(B("*1048577\r\n"), "invalid multibulk length"));
    CHECK(fails_with(B("*99999999999999999999\r\n"), "invalid multibulk length"));
    CHECK(fails_with(B("*1\r\nPING\r\n"), "expected '$', got 'P'"));
    CHECK(fails_with(B("*1\r\n\r\n"), "expected '$', got ' '"));
    CHECK(fails_with(B("*1\r\n$-1\r\n"), "invalid bulk length"));
    CHECK(fails_with(B("*1\r\n$x\r\n"), "invalid bulk length"));
    CHECK(fails_with(B("*1\r\n$\r\n"), "invalid bulk length"));
    CHECK(fails_with(B("*1\r\n$536870913\r\n"), "invalid bulk length"));
    CHECK(fails_with(B("*1\r\n$4\r\nPINGPONG"), "expected CRLF after bulk"));
    CHECK(fails_with(B("set k \"open\r\n"), "unbalanced quotes in request"));
    CHECK(fails_with(B("set k 'open\r\n"), "unbalanced quotes in request"));
    CHECK(fails_with(B("set k \"a\"b\r\n"), "unbalanced quotes in request"));
}

static void long_lines(void) {
    size_t n = RESP_MAX_LINE + 10;
    char *text = malloc(n);
    memset(text, '1', n);
    CHECK(fails_with((struct bytes){text, n}, "too big inline request"));
    text[0] = '*';
    CHECK(fails_with((struct bytes){text, n}, "too big mbulk count string"));
    memcpy(text, "*1\r\n$", 5);
    CHECK(fails_with((struct bytes){text, n}, "too big bulk count string"));
    free(text);
}

/* What a header announces is not made room for. */
static void headers_cost_nothing(void) {
    struct resp_parser p;
    char header[] = "*1048576\r\n$536870912\r\nabc";
    resp_init(&p);
    CHECK(resp_parse(&p, header, sizeof header - 1) == RESP_MORE);
    CHECK(p.args == p.first && p.argc == 0);
    CHECK(resp_begun(&p));
    resp_free(&p);
    CHECK(!resp_begun(&p));
}

/* A request that is a gigabyte in all is refused by a header, before its bytes come. */
static void whole_request(void) {
    struct resp_parser p;
    resp_init(&p);
    p.state = RESP_BULK_LINE; /* as if so much had been taken already */
    p.missing = 3;
    size_t before = RESP_MAX_REQUEST - 1000;
    char *data = calloc(1, RESP_MAX_REQUEST); /* pages that nobody touches cost nothing */
    if (data == NULL) return;
    p.pos = p.scanned = before;
    memcpy(data + before, "$1001\r\n", 7);
    CHECK(resp_parse(&p, data, before + 7) == RESP_ERROR);
    CHECK(strcmp(p.error, "ERR Protocol error: too big request") == 0);
    free(data);
    resp_free(&p);
}

static void one_after_another(void) {
    char input[] = "PING\r\n*1\r\n$4\r\nQUIT\r\n\r\nset a b\r\n*1\r\n$3\r\nge";
    size_t argc[] = {1, 1, 0, 3};
    size_t at = 0, n = sizeof input - 1;
    struct resp_parser p;
    resp_init(&p);
    for (int i = 0; i < 4; i++) {
        CHECK(resp_parse(&p, input + at, n - at) == RESP_REQUEST);
        CHECK(p.argc == argc[i]);
        at += p.used;
        resp_next(&p);
    }
    CHECK(resp_parse(&p, input + at, n - at) == RESP_MORE);
    CHECK(strcmp(input + at, "*1\r\n$3\r\nge") == 0);
    resp_free(&p);
}

/* 100,000 arguments, a few bytes at a time: looked at once each, or this would take minutes. */
static void many_arguments(void) {
    size_t count = 100000;
    char *text = malloc(count * 9 + 20);
    size_t n = (size_t)sprintf(text, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) n += (size_t)sprintf(text + n, "$2\r\n%02zu\r\n", i % 100);
    struct resp_parser p;
    resp_init(&p);
    enum resp_result r = RESP_MORE;
    for (size_t have = 0; have < n && r == RESP_MORE;) {
        have = have + 5 < n ? have + 5 : n;
        r = resp_parse(&p, text, have);
    }
    CHECK(r == RESP_REQUEST && p.argc == count);
    bool right = true;
    for (size_t i = 0; i < p.argc; i++)
        right = right && p.args[i].n == 2 && p.args[i].at[1] == (char)('0' + i % 10);
    CHECK(right);
    resp_next(&p);
    CHECK(p.args == p.first); /* and the room for them is gone */
    resp_free(&p);
    free(text);
}

/* Noise never reads past what it was given (the sanitizer builds watch), never says more than one
   of the three. */
static void noise(void) {
    static const char alphabet[] = "*$\r\n0123456789-aP\"'\\ x";
    int results[3] = {0};
    srand(3);
    for (int round = 0; round < 50000; round++) {
        size_t n = (size_t)(rand() % 60) + 1;
        char *data = malloc(n); /* exactly n: one byte further is a report */
        for (size_t i = 0; i < n; i++) data[i] = alphabet[(size_t)rand() % (sizeof alphabet - 1)];
        struct resp_parser p;
        resp_init(&p);
        size_t at = 0;
        enum resp_result r;
        while ((r = resp_parse(&p, data + at, n - at)) == RESP_REQUEST) {
            results[r]++;
            at += p.used;
            resp_next(&p);
        }
        results[r]++;
        resp_free(&p);
        free(data);
    }
    CHECK(results[RESP_MORE] > 1000 && results[RESP_REQUEST] > 1000 && results[RESP_ERROR] > 1000);
}

int main(void) {
    requests();
    inline_requests();
    errors();
    long_lines();
    headers_cost_nothing();
    whole_request();
    one_after_another();
    many_arguments();
    noise();
    return check_end();
}
