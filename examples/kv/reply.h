/*
 * reply.h: answers into bytes. Answers gather in a buffer and leave by a function that the
 * connection gives, all together when it says so (reply_flush), or earlier when the buffer has
 * reached its bound: however much a client asks for at once, and however slowly it reads, it costs
 * no more memory than that. Large strings are not copied into the buffer.
 *
 * After a failed write everything is dropped; `failed` says so.
 */
#ifndef KV_REPLY_H
#define KV_REPLY_H
#include "bytes.h"
#include <stdint.h>

#define REPLY_FIRST                                                                                \
    1024 /* a buffer begins with this, and goes back to it when the connection is idle */
#define REPLY_BOUND (64 * 1024) /* and does not grow past this */

/* All of it: 0, or a negative error. */
typedef int reply_write_fn(void *arg, const char *data, size_t n);

struct reply {
    char *data; /* NULL until something is put in */
    size_t n, room;
    reply_write_fn *write;
    void *arg;
    bool failed;
};

void reply_init(struct reply *r, reply_write_fn *write, void *arg);
void reply_free(struct reply *r);
void reply_flush(struct reply *r);
void reply_trim(struct reply *r); /* nothing waits in it: give memory back */

void reply_status(struct reply *r, const char *text);
/* The first word is the kind: ERR. Ends of line inside become blanks, since they end the answer. */
void reply_error(struct reply *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void reply_integer(struct reply *r, int64_t v);
void reply_bulk(struct reply *r, struct bytes b);
void reply_null(struct reply *r);
void reply_array(struct reply *r, size_t n); /* n answers follow */
#endif
