/*
 * connection.c: read, answer, write, in a straight line. Everything that waits does so in its
 * place: for bytes (with a deadline that each request moves), for a slow reader (same), for the
 * lock of a table.
 *
 * All complete requests of one read are answered with one write (or more, if the answers pass
 * REPLY_BOUND: then a client that does not read stops us here, not at the end of our memory).
 *
 * Memory: an idle connection keeps 1 KiB for input and 1 KiB for output. Both grow with what comes;
 * after a second of silence they shrink again.
 */
#include "connection.h"
#include "command.h"
#include "reply.h"
#include "resp.h"
#include "server.h"
#include "trim.h"
#include <stdio.h>
#include <stdlib.h>

#define IN_FIRST 1024
#define IN_BOUND (64 * 1024) /* a buffer grows past it only for a request that needs it */
#define TRIM_AFTER (1 * WEFT_SECOND)
#define LINGER (200 * WEFT_MILLISECOND)
#define LINGER_BYTES (1024 * 1024)

struct connection {
    struct server *server;
    weft_conn conn;
    struct client client;
    struct resp_parser parser;
    struct reply reply;
    char *in; /* bytes in_start to in_end are not served yet */
    size_t in_start, in_end, in_room;
    bool in_filled;                 /* the last read took all the room there was: make more */
    struct connection *prev, *next; /* under server->lock */
};

/* The list of all. */

static void enlist(struct connection *c) {
    struct server *s = c->server;
    WEFT_LOCK_GUARD(&s->lock);

    c->next = s->connections;
    if (c->next != NULL) c->next->prev = c;
    s->connections = c;
    stats_add(&s->stats.connected, 1);
}

static void delist(struct connection *c) {
    struct server *s = c->server;
    WEFT_LOCK_GUARD(&s->lock);

    if (c->next != NULL) c->next->prev = c->prev;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        s->connections = c->next;
    stats_add(&s->stats.connected, (uint64_t)-1);
}

static weft_time quiet_deadline(struct server *s) {
    weft_time end = weft_time_at(atomic_load(&s->drain_end));
    weft_time quiet = weft_in(SERVER_QUIET);

    return weft_time_cmp(quiet, end) < 0 ? quiet : end;
}

void connection_hurry_all(struct server *s) {
    WEFT_LOCK_GUARD(&s->lock);

    for (struct connection *c = s->connections; c != NULL; c = c->next)
        weft_conn_set_read_deadline(c->conn, quiet_deadline(s));
}

void connection_close_all(struct server *s) {
    WEFT_LOCK_GUARD(&s->lock);

    for (struct connection *c = s->connections; c != NULL; c = c->next) weft_conn_close(c->conn);
}

/* Out. */

static weft_time idle_deadline(const struct connection *c, weft_time from) {
    weft_duration idle = c->server->options->idle_timeout;

    return idle > 0 ? weft_time_add(from, idle) : WEFT_NEVER;
}

static int write_out(void *arg, const char *data, size_t n) {
    struct connection *c = arg;

    stats_add(&stats_here(&c->server->stats)->bytes_out, n);
    while (n > 0) {
        ssize_t done = weft_conn_write_until(c->conn, data, n, idle_deadline(c, weft_now()));
        if (done < 0) return (int)done;
        data += done;
        n -= (size_t)done;
    }
    return 0;
}

/* In. */

static bool resize_in(struct connection *c, size_t room) {
    if (room < IN_FIRST) room = IN_FIRST;
    char *in = realloc(c->in, room);

    if (in == NULL) return false;
    c->in = in;
    c->in_room = room;
    return true;
}

/* What has been served goes, and what is left moves to the front, where the parser wants a request
   to begin. */
static bool make_room(struct connection *c) {
    size_t left = c->in_end - c->in_start;

    if (left > 0 && c->in_start > 0) memmove(c->in, c->in + c->in_start, left);
    c->in_start = 0;
    c->in_end = left;
    if (left == 0 && c->in_room > IN_BOUND) { /* that was a large request: the next need not be */
        free(c->in);
        c->in = NULL;
        c->in_room = 0;
    }
    if (c->in == NULL) return resize_in(c, IN_FIRST);
    bool full = left == c->in_room;
    if (full || (c->in_filled && c->in_room < IN_BOUND)) return resize_in(c, c->in_room * 2);
    return true;
}

static bool can_shrink(const struct connection *c) {
    return (c->in_end == 0 && c->in_room > IN_FIRST) || c->reply.room > REPLY_FIRST;
}

static bool shrink(struct connection *c) {
    size_t before = c->in_room + c->reply.room;

    reply_trim(&c->reply);
    if (c->in_end == 0 && c->in_room > IN_FIRST) {
        free(c->in);
        c->in = NULL;
        c->in_room = 0;
        if (!resize_in(c, IN_FIRST)) return false;
    }
    trim_after(before - c->in_room - c->reply.room);
    return true;
}

/* Sets the deadline first and looks at `stopping` behind it: see drain() in server.c. */
static ssize_t read_by(struct connection *c, weft_time deadline) {
    weft_conn_set_read_deadline(c->conn, deadline);
    if (server_is_stopping(c->server))
        weft_conn_set_read_deadline(c->conn, quiet_deadline(c->server));
    return weft_conn_read(c->conn, c->in + c->in_end, c->in_room - c->in_end);
}

/* More bytes: their number, 0 at the end of the stream, or a negative error. */
static ssize_t fill(struct connection *c) {
    if (!make_room(c)) return -ENOMEM;
    weft_time start = weft_now();
    weft_time idle = idle_deadline(c, start);
    weft_time silence = weft_time_add(start, TRIM_AFTER);
    ssize_t n;

    if (can_shrink(c) && weft_time_cmp(silence, idle) < 0) {
        n = read_by(c, silence);
        if (n == -ETIMEDOUT && !server_is_stopping(c->server))
            n = shrink(c) ? read_by(c, idle) : -ENOMEM;
    } else {
        n = read_by(c, idle);
    }
    if (n == -ETIMEDOUT && !server_is_stopping(c->server))
        stats_add(&c->server->stats.idle_closed, 1);
    if (n > 0) {
        c->in_filled = (size_t)n == c->in_room - c->in_end;
        c->in_end += (size_t)n;
    }
    return n;
}

static void refuse(struct connection *c) {
    stats_add(&c->server->stats.protocol_errors, 1);
    reply_error(&c->reply, "%s", c->parser.error);
    c->client.closing = true;
}

/* Answers every request that is wholly there. */
static void serve(struct connection *c) {
    uint64_t served = 0;

    while (!c->client.closing && !c->reply.failed) {
        char *data = c->in + c->in_start;
        enum resp_result r = resp_parse(&c->parser, data, c->in_end - c->in_start);
        if (r == RESP_MORE) break;
        if (r == RESP_ERROR) {
            refuse(c);
            break;
        }
        if (c->parser.argc > 0) {
            command_run(&c->client, c->parser.args, c->parser.argc);
            served++;
        }
        c->in_start += c->parser.used;
        resp_next(&c->parser);
    }
    reply_flush(&c->reply);
    if (served > 0) stats_add(&stats_here(&c->server->stats)->requests, served);
}

/* A close while bytes of the client lie unread makes the kernel send a reset, and that can overtake
   our last answer. So: say that we are done, and take in for a moment what is still on its way. */
static void linger(struct connection *c) {
    size_t taken = 0;

    if (weft_conn_close_write(c->conn) < 0) return;
    weft_conn_set_read_deadline(c->conn, weft_in(LINGER));
    while (taken < LINGER_BYTES) {
        ssize_t n = weft_conn_read(c->conn, c->in, c->in_room);
        if (n <= 0) return;
        taken += (size_t)n;
    }
}

static void finish(struct connection *c) {
    delist(c);
    weft_conn_close(c->conn);
    trim_after(sizeof *c + c->in_room + c->reply.room);
    command_client_free(&c->client);
    resp_free(&c->parser);
    reply_free(&c->reply);
    free(c->in);
    free(c);
}

static int connection_main(void *arg) {
    struct connection *c = arg;

    while (!c->client.closing && !c->reply.failed) {
        ssize_t n = fill(c);
        if (n <= 0) break;
        stats_add(&stats_here(&c->server->stats)->bytes_in, (uint64_t)n);
        serve(c);
    }
    if (c->client.closing && !c->reply.failed) linger(c);
    finish(c);
    return 0;
}

/* No memory for one more: say so, without a G to say it in. */
static void turn_away(struct server *s, weft_conn conn) {
    static const char text[] = "-ERR max number of clients reached\r\n";
    ssize_t n = weft_conn_write_until(conn, text, sizeof text - 1, weft_in(WEFT_MILLISECOND));

    (void)n; /* it is a courtesy */
    stats_add(&s->stats.refused, 1);
    weft_conn_close(conn);
}

void connection_start(struct server *s, weft_conn conn) {
    struct connection *c = calloc(1, sizeof *c);

    if (c == NULL) {
        turn_away(s, conn);
        return;
    }
    stats_add(&s->stats.accepted, 1);
    c->server = s;
    c->conn = conn;
    resp_init(&c->parser);
    reply_init(&c->reply, write_out, c);
    command_client_init(&c->client, s, &c->reply);
    enlist(c);
    if (weft_waitgroup_go(&s->running, connection_main, c) < 0) {
        delist(c);
        turn_away(s, conn);
        free(c);
    }
}
