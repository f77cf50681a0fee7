/*
 * value.h: a counted string. What a table holds may at the same time be on its way to a client that
 * reads slowly; so whoever writes an answer holds a reference of his own and no lock.
 *
 * A value may be changed only under the lock of its table, and only while nobody else holds it:
 * others can let go without the lock, but a new reference is made under it.
 */
#ifndef KV_VALUE_H
#define KV_VALUE_H
#include "bytes.h"
#include <stdatomic.h>
#include <stdint.h>

#define VALUE_MAX (512u * 1024 * 1024)

struct value {
    atomic_uint refs;
    uint32_t n;
    uint32_t room; /* of data */
    char data[];
};

/* `room` bytes of which the first content.n are set; one reference. NULL: no memory. */
struct value *value_new(struct bytes content, size_t room);
struct value *value_ref(struct value *v);
void value_unref(struct value *v); /* NULL is fine */

/* Puts `content` in place of what v holds. False: it does not fit, or somebody else holds v;
   nothing changed. */
bool value_overwrite(struct value *v, struct bytes content);

/* Adds at the end: to *v itself if nobody else holds it and there is room, else to a new value that
   takes its place and its reference. False: no memory, nothing changed. */
bool value_append(struct value **v, struct bytes tail);

static inline struct bytes value_bytes(const struct value *v) {
    return (struct bytes){v->data, v->n};
}
#endif
