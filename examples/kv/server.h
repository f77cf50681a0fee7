/*
 * server.h: what all connections share, and how it starts and ends.
 *
 * The end: a signal or SHUTDOWN sets the stop event, the main G wakes and sets `stopping`; from
 * then on nobody is accepted, each connection answers what has arrived and closes when nothing more
 * has come for a moment, and whoever has not finished by `drain_end` is cut off.
 */
#ifndef KV_SERVER_H
#define KV_SERVER_H
#include "options.h"
#include "stats.h"
#include <weft.h>

struct connection;

struct server {
    const struct options *options;
    struct db *db;
    struct stats stats;
    int port; /* that it listens on */
    weft_time started;

    weft_listener listener;
    weft_event stop;
    atomic_bool stop_asked;
    atomic_bool stopping;
    _Atomic int64_t drain_end; /* ns; set before stopping */

    weft_mutex lock; /* of the list */
    struct connection *connections;
    weft_waitgroup running; /* one for each of them */
};

#define SERVER_DRAIN (3 * WEFT_SECOND)       /* at most, all together */
#define SERVER_QUIET (50 * WEFT_MILLISECOND) /* a connection has nothing more to say */

/* In a G: serves until it is stopped; 0, or a negative error if it could not start. */
int server_run(struct server *s, const struct options *o);
void server_free(struct server *s); /* after the runtime has ended */

/* From any thread, any number of times; before server_run too */
void server_stop(struct server *s);

static inline bool server_is_stopping(struct server *s) { return atomic_load(&s->stopping); }
#endif
