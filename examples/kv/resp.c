/* resp.c: the request side of RESP2, and inline requests. Errors are worded as Redis does. */
#include "resp.h"
#include "number.h"
#include <stdio.h>
#include <stdlib.h>

void resp_init(struct resp_parser *p) {
    memset(p, 0, sizeof *p);
    p->args = p->first;
    p->room = sizeof p->first / sizeof p->first[0];
}

void resp_free(struct resp_parser *p) {
    if (p->args != p->first) free(p->args);
    resp_init(p);
}

void resp_next(struct resp_parser *p) {
    if (p->room > 1024) { /* one large request is no reason to hold that much for ever */
        resp_free(p);
        return;
    }
    p->state = RESP_START;
    p->pos = p->scanned = p->missing = p->bulk = p->argc = p->used = 0;
}

static enum resp_result fail(struct resp_parser *p, const char *why) {
    snprintf(p->error, sizeof p->error, "ERR Protocol error: %s", why);
    return RESP_ERROR;
}

/* The buffer will not move before the request has been served, so offsets become addresses. */
static enum resp_result finish(struct resp_parser *p, const char *data) {
    for (size_t i = 0; i < p->argc; i++) p->args[i].at = data + (uintptr_t)p->args[i].at;
    p->used = p->pos;
    return RESP_REQUEST;
}

/* `at` is an offset, and is kept where its address will be: the buffer may still move. */
static bool add_arg(struct resp_parser *p, size_t at, size_t n) {
    if (p->argc == p->room) {
        size_t room = p->room * 2;
        bool inside = p->args == p->first;
        struct bytes *args = realloc(inside ? NULL : p->args, room * sizeof *args);
        if (args == NULL) return false;
        if (inside) memcpy(args, p->first, sizeof p->first);
        p->args = args;
        p->room = room;
    }
    p->args[p->argc++] = (struct bytes){(const char *)(uintptr_t)at, n};
    return true;
}

/* Finds the end of the line that begins at pos. `line` is without its newline; p->pos is moved
   behind it. */
static enum resp_result take_line(struct resp_parser *p, const char *data, size_t n,
                                  const char *too_long, struct bytes *line) {
    if (p->scanned < p->pos) p->scanned = p->pos;
    const char *newline = n > p->scanned ? memchr(data + p->scanned, '\n', n - p->scanned) : NULL;
    size_t end = newline != NULL ? (size_t)(newline - data) : n;

    if (end - p->pos > RESP_MAX_LINE) return fail(p, too_long);
    if (newline == NULL) {
        p->scanned = n;
        return RESP_MORE;
    }
    *line = (struct bytes){data + p->pos, end - p->pos};
    p->pos = end + 1;
    return RESP_REQUEST;
}

/* The number of a header's line, which ends in CR LF. */
static bool header_number(struct bytes line, int64_t *out) {
    if (line.n == 0 || line.at[line.n - 1] != '\r') return false;
    return number_parse((struct bytes){line.at, line.n - 1}, out);
}

static enum resp_result parse_count(struct resp_parser *p, const char *data, size_t n) {
    struct bytes line;
    int64_t count;
    enum resp_result r = take_line(p, data, n, "too big mbulk count string", &line);

    if (r != RESP_REQUEST) return r;
    if (!header_number(line, &count) || count > RESP_MAX_COUNT)
        return fail(p, "invalid multibulk length");
    if (count <= 0) return finish(p, data);
    p->missing = (size_t)count;
    p->state = RESP_BULK_LINE;
    return RESP_MORE;
}

static enum resp_result parse_bulk_line(struct resp_parser *p, const char *data, size_t n) {
    struct bytes line;
    int64_t length;

    if (n > p->pos && data[p->pos] != '$') {
        char why[32];
        unsigned char c = (unsigned char)data[p->pos];
        snprintf(why, sizeof why, "expected '$', got '%c'", c < ' ' || c > '~' ? ' ' : c);
        return fail(p, why);
    }
    enum resp_result r = take_line(p, data, n, "too big bulk count string", &line);
    if (r != RESP_REQUEST) return r;
    struct bytes digits = {line.at + 1, line.n - 1};
    if (!header_number(digits, &length) || length < 0 || length > RESP_MAX_BULK)
        return fail(p, "invalid bulk length");
    if (p->pos > RESP_MAX_REQUEST || (size_t)length > RESP_MAX_REQUEST - p->pos)
        return fail(p, "too big request");
    p->bulk = (size_t)length;
    p->state = RESP_BULK;
    return RESP_MORE;
}

static enum resp_result parse_bulk(struct resp_parser *p, const char *data, size_t n) {
    if (n - p->pos < p->bulk + 2) return RESP_MORE;
    const char *end = data + p->pos + p->bulk;
    if (end[0] != '\r' || end[1] != '\n') return fail(p, "expected CRLF after bulk");
    if (!add_arg(p, p->pos, p->bulk)) return fail(p, "out of memory");
    p->pos += p->bulk + 2;
    if (--p->missing == 0) return finish(p, data);
    p->state = RESP_BULK_LINE;
    return RESP_MORE;
}

/* One word of an inline request is read at `from` and written at `to`, never behind it: unquoting
   only shortens. */
struct word {
    char *from, *to, *end;
};

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What stands behind a backslash inside double quotes. */
static void take_escape(struct word *w) {
    static const char names[] = "nrtba";
    static const char bytes[] = "\n\r\t\b\a";
    char c = *w->from++;

    if (c == 'x' && w->end - w->from >= 2 && hex_digit(w->from[0]) >= 0 &&
        hex_digit(w->from[1]) >= 0) {
        *w->to++ = (char)(hex_digit(w->from[0]) * 16 + hex_digit(w->from[1]));
        w->from += 2;
        return;
    }
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    *w->to++ = name != NULL ? bytes[name - names] : c;
}

/* w->from stands behind the opening quote. False if it is never closed, or closed in the middle of
   a word. */
static bool take_quoted(struct word *w, char quote) {
    while (w->from < w->end) {
        char c = *w->from++;
        if (c == quote) return w->from == w->end || is_blank(*w->from);
        if (c == '\\' && quote == '"' && w->from < w->end) {
            take_escape(w);
        } else if (c == '\\' && quote == '\'' && w->from < w->end && *w->from == '\'') {
            *w->to++ = *w->from++;
        } else {
            *w->to++ = c;
        }
    }
    return false;
}

static bool take_word(struct word *w) {
    while (w->from < w->end && !is_blank(*w->from)) {
        char c = *w->from++;
        if (c != '"' && c != '\'') {
            *w->to++ = c;
        } else {
            return take_quoted(w, c);
        }
    }
    return true;
}

static enum resp_result parse_inline(struct resp_parser *p, char *data, size_t n) {
    struct bytes line;
    size_t start = p->pos;
    enum resp_result r = take_line(p, data, n, "too big inline request", &line);

    if (r != RESP_REQUEST) return r;
    if (line.n > 0 && line.at[line.n - 1] == '\r') line.n--;
    struct word w = {data + start, data + start, data + start + line.n};
    for (;;) {
        while (w.from < w.end && is_blank(*w.from)) w.from++;
        if (w.from == w.end) return finish(p, data);
        char *word = w.to = w.from;
        if (!take_word(&w)) return fail(p, "unbalanced quotes in request");
        if (!add_arg(p, (size_t)(word - data), (size_t)(w.to - word)))
            return fail(p, "out of memory");
    }
}

/* A parsing function answers RESP_MORE both when it needs more and when it has gone on to the next
   state. */
enum resp_result resp_parse(struct resp_parser *p, char *data, size_t n) {
    for (;;) {
        enum resp_state before = p->state;
        enum resp_result r = RESP_MORE;

        switch (before) {
        case RESP_START:
            if (n == 0) return RESP_MORE;
            p->state = data[0] == '*' ? RESP_COUNT : RESP_INLINE;
            p->pos = data[0] == '*' ? 1 : 0;
            break;
        case RESP_INLINE:
            r = parse_inline(p, data, n);
            break;
        case RESP_COUNT:
            r = parse_count(p, data, n);
            break;
        case RESP_BULK_LINE:
            r = parse_bulk_line(p, data, n);
            break;
        case RESP_BULK:
            r = parse_bulk(p, data, n);
            break;
        }
        if (r != RESP_MORE) return r;
        if (p->state == before) return RESP_MORE;
    }
}
