/*
 * resp.h: requests out of bytes. No input or output here: the caller has a buffer that begins with
 * the first byte of the request, and asks again when it holds more.
 *
 * What was looked at once is not looked at again, however small the pieces are that a request comes
 * in. Places are kept as offsets, so the buffer may move between two calls. Nothing is allocated
 * for what a header announces, only for what has arrived.
 */
#ifndef KV_RESP_H
#define KV_RESP_H
#include "bytes.h"
#include <stdint.h>

#define RESP_MAX_LINE (64 * 1024)                  /* an inline request, or the line of a header */
#define RESP_MAX_BULK (INT64_C(512) * 1024 * 1024) /* one argument */
#define RESP_MAX_COUNT (1024 * 1024)               /* arguments of a request */
#define RESP_MAX_REQUEST ((size_t)1024 * 1024 * 1024) /* all of a request */

enum resp_result {
    RESP_MORE,    /* not all of it is there yet */
    RESP_REQUEST, /* argc, args and used tell what it is */
    RESP_ERROR    /* error says why: the connection cannot go on */
};

enum resp_state { RESP_START, RESP_INLINE, RESP_COUNT, RESP_BULK_LINE, RESP_BULK };

struct resp_parser {
    enum resp_state state;
    size_t pos;     /* up to here it has been understood */
    size_t scanned; /* up to here there is no end of line */
    size_t missing; /* arguments still to come */
    size_t bulk;    /* bytes of the argument that is being read */

    size_t argc;
    size_t room; /* of args */
    struct bytes
        *args; /* first[] or from malloc. Points into the buffer once the request is whole */
    struct bytes first[8]; /* enough for most requests */
    size_t used;           /* bytes of the request, once it is whole */
    char error[80];
};

void resp_init(struct resp_parser *p);
void resp_free(struct resp_parser *p);

/* `data` holds the `n` bytes from the request's first on. An inline request is unquoted in place. A
   request with no argument (an empty line, a count of 0) is one too: it is skipped and not
   answered. */
enum resp_result resp_parse(struct resp_parser *p, char *data, size_t n);

/* After RESP_REQUEST: what follows is the next one. */
void resp_next(struct resp_parser *p);

/* Whether some of a request has been seen. */
static inline bool resp_begun(const struct resp_parser *p) { return p->state != RESP_START; }
#endif
