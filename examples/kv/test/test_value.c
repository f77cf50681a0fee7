/* test_value.c: counted strings. */
#include "check.h"
#include "value.h"

static void counting(void) {
    struct value *v = value_new(bytes_of("hello"), 0);
    CHECK(bytes_equal(value_bytes(v), bytes_of("hello")));
    struct value *same = value_ref(v);
    value_unref(v);
    CHECK(bytes_equal(value_bytes(same), bytes_of("hello")));
    value_unref(same); /* the address sanitizer build sees whether that was the last */
    value_unref(NULL);
}

static void overwriting(void) {
    struct value *v = value_new(bytes_of("7"), 20);
    CHECK(value_overwrite(v, bytes_of("12345")));
    CHECK(bytes_equal(value_bytes(v), bytes_of("12345")));
    CHECK(!value_overwrite(v, bytes_of("123456789012345678901")));
    struct value *other = value_ref(v);
    CHECK(!value_overwrite(v, bytes_of("8")));
    CHECK(bytes_equal(value_bytes(other), bytes_of("12345")));
    value_unref(other);
    CHECK(value_overwrite(v, bytes_of("8")));
    value_unref(v);
}

static void appending(void) {
    struct value *v = value_new(bytes_of("a"), 0);
    struct value *reader = value_ref(v);
    CHECK(value_append(&v, bytes_of("b")));
    CHECK(v != reader); /* somebody reads the old one */
    CHECK(bytes_equal(value_bytes(reader), bytes_of("a")));
    CHECK(bytes_equal(value_bytes(v), bytes_of("ab")));
    value_unref(reader);

    int moves = 0;
    for (int i = 0; i < 10000; i++) {
        struct value *before = v;
        value_append(&v, bytes_of("x"));
        moves += v != before;
    }
    CHECK(v->n == 10002);
    CHECK(moves < 20);
    CHECK(v->data[0] == 'a' && v->data[1] == 'b' && v->data[10001] == 'x');
    CHECK(value_append(&v, (struct bytes){"", 0}));
    CHECK(v->n == 10002);
    value_unref(v);
}

int main(void) {
    counting();
    overwriting();
    appending();
    return check_end();
}
