/* value.c: counted strings. */
#include "value.h"
#include <stdlib.h>

struct value *value_new(struct bytes content, size_t room) {
    if (room < content.n) room = content.n;
    struct value *v = malloc(sizeof *v + room);
    if (v == NULL) return NULL;
    atomic_init(&v->refs, 1);
    v->n = (uint32_t)content.n;
    v->room = (uint32_t)room;
    memcpy(v->data, content.at, content.n);
    return v;
}

struct value *value_ref(struct value *v) {
    /* relaxed: the caller holds the lock under which the table's own reference stands, so v cannot
       go meanwhile */
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    return v;
}

void value_unref(struct value *v) {
    if (v == NULL) return;
    /* release: what we read came before; pairs with the acquire of whoever comes last (here) or
       changes it (append) */
    if (atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1) free(v);
}

static bool is_alone(const struct value *v) {
    return atomic_load_explicit(&v->refs, memory_order_acquire) ==
           1; /* pairs with the release in unref */
}

bool value_overwrite(struct value *v, struct bytes content) {
    if (v->room < content.n || !is_alone(v)) return false;
    memcpy(v->data, content.at, content.n);
    v->n = (uint32_t)content.n;
    return true;
}

bool value_append(struct value **v, struct bytes tail) {
    struct value *old = *v;

    if (!is_alone(old) || old->room - old->n < tail.n) {
        /* twice the length, so that many appends copy each byte a bounded number of times */
        size_t room = ((size_t)old->n + tail.n) * 2;
        struct value *wider = value_new(value_bytes(old), room < VALUE_MAX ? room : VALUE_MAX);
        if (wider == NULL) return false;
        value_unref(old);
        *v = wider;
    }
    memcpy((*v)->data + (*v)->n, tail.at, tail.n);
    (*v)->n += (uint32_t)tail.n;
    return true;
}
