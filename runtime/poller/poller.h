/*
 * Room poller: where descriptor events come from, behind one small interface. Knows no scheduler and
 * no connection: an event is a tag that its adder chose, handed to a sink.
 *
 * At most one thread is inside a poll that may wait; others may look (until == 0) beside it. add,
 * remove and break may be called by any thread at any time. Registrations are edge-triggered, for
 * all events, once for the descriptor's life. An event may come for a descriptor just removed: the
 * tag must say whose it was.
 */
#ifndef WEFT__POLLER_H
#define WEFT__POLLER_H

#include "base/base.h"

typedef struct weft__poller weft__poller;

enum {
    WEFT__POLL_IN = 1,  /* reading may get on */
    WEFT__POLL_OUT = 2, /* writing may get on */
    WEFT__POLL_STICKY =
        4, /* end, hang-up, error or urgent data: a short transfer proves nothing any more */
};

typedef void (*weft__poll_sink)(void *arg, uint64_t tag, unsigned events);

int weft__poller_open(weft__poller **out); /* -ENOMEM or the system's error */
void weft__poller_close(weft__poller *p);  /* nobody may be inside */
const char *weft__poller_name(void);
bool weft__poller_takes_fds(void); /* false: only sleep and break (stub) */
int weft__poller_add(weft__poller *p, int fd,
                     uint64_t tag); /* -EPERM: such a file cannot be polled */
void weft__poller_remove(weft__poller *p, int fd);

/* Hands what has happened to the sink. until: 0 looks only; a monotonic time in ns waits to it at
   most and never returns before it without an event or a break; INT64_MAX waits without limit. How
   many events were handed over. */
int weft__poller_poll(weft__poller *p, int64_t until, weft__poll_sink sink, void *arg);
/* Ends a waiting poll; one that has not begun to wait yet returns at once. */
void weft__poller_break(weft__poller *p);
/* The descriptor that a break writes to; -1: none. */
int weft__poller_break_fd(const weft__poller *p);

#endif
