/* reply.c: RESP2 answers, gathered and bounded. */
#include "reply.h"
#include "number.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* From this size on a copy costs more than a write of its own. */
#define DIRECT (16 * 1024)

void reply_init(struct reply *r, reply_write_fn *write, void *arg) {
    *r = (struct reply){.write = write, .arg = arg};
}

void reply_free(struct reply *r) {
    free(r->data);
    r->data = NULL;
    r->n = r->room = 0;
}

static void write_out(struct reply *r, const char *data, size_t n) {
    if (!r->failed && n > 0 && r->write(r->arg, data, n) < 0) r->failed = true;
}

void reply_flush(struct reply *r) {
    write_out(r, r->data, r->n);
    r->n = 0;
}

void reply_trim(struct reply *r) {
    if (r->n == 0 && r->room > REPLY_FIRST) reply_free(r);
}

/* Makes the buffer wider, up to its bound; at the bound empties it. False: no memory. */
static bool make_room_slow(struct reply *r, size_t n) {
    if (r->n + n > REPLY_BOUND) reply_flush(r);
    size_t room = r->room != 0 ? r->room : REPLY_FIRST;
    while (room < r->n + n) room *= 2;
    if (room <= r->room) return true;
    char *data = realloc(r->data, room);
    if (data == NULL) {
        r->failed = true;
        return false;
    }
    r->data = data;
    r->room = room;
    return true;
}

/* n is at most DIRECT. */
static bool make_room(struct reply *r, size_t n) {
    return r->room - r->n >= n || make_room_slow(r, n);
}

static void put(struct reply *r, const char *data, size_t n) {
    if (n > DIRECT) {
        reply_flush(r);
        write_out(r, data, n);
    } else if (make_room(r, n)) {
        memcpy(r->data + r->n, data, n);
        r->n += n;
    }
}

static void put_header(struct reply *r, char kind, uint64_t v, bool negative) {
    if (!make_room(r, NUMBER_TEXT_MAX + 4)) return;
    char *p = r->data + r->n;
    *p++ = kind;
    if (negative) *p++ = '-';
    p += number_format_unsigned(p, v);
    *p++ = '\r';
    *p++ = '\n';
    r->n = (size_t)(p - r->data);
}

void reply_status(struct reply *r, const char *text) {
    put(r, "+", 1);
    put(r, text, strlen(text));
    put(r, "\r\n", 2);
}

void reply_error(struct reply *r, const char *format, ...) {
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p != '\0'; p++)
        if (*p == '\r' || *p == '\n') *p = ' ';
    put(r, "-", 1);
    put(r, text, strlen(text));
    put(r, "\r\n", 2);
}

void reply_integer(struct reply *r, int64_t v) {
    put_header(r, ':', v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0);
}

void reply_bulk(struct reply *r, struct bytes b) {
    put_header(r, '$', b.n, false);
    put(r, b.at, b.n);
    put(r, "\r\n", 2);
}

void reply_null(struct reply *r) { put(r, "$-1\r\n", 5); }

void reply_array(struct reply *r, size_t n) { put_header(r, '*', n, false); }
