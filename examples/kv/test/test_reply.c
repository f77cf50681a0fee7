/* test_reply.c: answers, their bound and their failure. */
#include "check.h"
#include "reply.h"
#include <stdlib.h>

struct sink {
    char *data;
    size_t n, writes, largest;
    bool broken;
};

static int take(void *arg, const char *data, size_t n) {
    struct sink *s = arg;
    s->writes++;
    if (s->broken) return -1;
    s->data = realloc(s->data, s->n + n);
    memcpy(s->data + s->n, data, n);
    s->n += n;
    if (n > s->largest) s->largest = n;
    return 0;
}

static bool sent(const struct sink *s, const char *text) {
    return bytes_equal((struct bytes){s->data, s->n}, bytes_of(text));
}

static void forms(void) {
    struct sink s = {0};
    struct reply r;
    reply_init(&r, take, &s);
    reply_status(&r, "OK");
    reply_error(&r, "ERR no '%s'\r\nat all", "x");
    reply_integer(&r, 0);
    reply_integer(&r, -12);
    reply_integer(&r, INT64_MIN);
    reply_bulk(&r, bytes_of("hello"));
    reply_bulk(&r, bytes_of(""));
    reply_null(&r);
    reply_array(&r, 2);
    CHECK(s.writes == 0);
    reply_flush(&r);
    CHECK(s.writes == 1); /* however many answers, one write */
    CHECK(sent(
        &s,
        "+OK\r\n-ERR no 'x'  at "
        "all\r\n:0\r\n:-12\r\n:-9223372036854775808\r\n$5\r\nhello\r\n$0\r\n\r\n$-1\r\n*2\r\n"));
    reply_flush(&r);
    CHECK(s.writes == 1); /* nothing to say, nothing said */
    reply_free(&r);
    free(s.data);
}

static void bound(void) {
    struct sink s = {0};
    struct reply r;
    reply_init(&r, take, &s);
    for (int i = 0; i < 100000; i++) reply_status(&r, "PONG");
    CHECK(r.room <= REPLY_BOUND);
    CHECK(s.writes >= 10 && s.largest <= REPLY_BOUND && s.largest > REPLY_BOUND / 2);
    reply_flush(&r);
    CHECK(s.n == 700000);
    bool right = true;
    for (size_t i = 0; i < s.n; i++) right = right && s.data[i] == "+PONG\r\n"[i % 7];
    CHECK(right);
    reply_trim(&r);
    CHECK(r.room <= REPLY_FIRST);
    reply_free(&r);
    free(s.data);
}

static void large(void) {
    struct sink s = {0};
    struct reply r;
    size_t n = 5 * 1000 * 1000;
    char *text = malloc(n);
    memset(text, 'v', n);
    reply_init(&r, take, &s);
    reply_status(&r, "before");
    reply_bulk(&r, (struct bytes){text, n});
    reply_status(&r, "after");
    reply_flush(&r);
    CHECK(r.room <= REPLY_BOUND); /* not copied */
    CHECK(s.n == 9 + 10 + n + 2 + 8);
    CHECK(memcmp(s.data, "+before\r\n$5000000\r\nvvv", 22) == 0);
    CHECK(memcmp(s.data + s.n - 11, "v\r\n+after\r\n", 11) == 0);
    reply_free(&r);
    free(s.data);
    free(text);
}

static void failure(void) {
    struct sink s = {.broken = true};
    struct reply r;
    reply_init(&r, take, &s);
    reply_status(&r, "OK");
    reply_flush(&r);
    CHECK(r.failed && s.writes == 1);
    for (int i = 0; i < 100000; i++) reply_status(&r, "PONG");
    reply_flush(&r);
    CHECK(s.writes == 1); /* never tried again */
    CHECK(r.room <= REPLY_BOUND);
    reply_free(&r);
}

int main(void) {
    forms();
    bound();
    large();
    failure();
    return check_end();
}
