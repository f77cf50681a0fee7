/*
 * Room net: descriptors with deadlines. Internal face: records.
 *
 * A record stands for one descriptor. Records are never given back to the allocator; a handle and a
 * poll tag are (generation << 32 | index), and a closed record's generation has moved on: a late
 * user gets -EBADF, a late event is dropped, nobody ever meets another's connection.
 *
 * Each side (reading, writing) has a word:
 *   NOTHING  the kernel has said that nothing is to be had, and no edge has come since
 *   READY    an edge has come, or nobody knows better: ask the kernel
 *   WAITED   NOTHING, and somebody waits in the side's queue
 * A call *consumes* READY (exchange to NOTHING) before its system call, so an edge that comes during
 * the call is kept. It puts READY back after anything that does not prove the side drained. Drained
 * is proved by EAGAIN; and, on a TCP socket that weft made, by a short transfer, unless the record is
 * `sticky`: after an end, a hang-up, an error or urgent data no further edge need come.
 * An edge sets READY and, if somebody waited, claims one under the record's lock; READY stays
 * whether or not the claim won.
 *
 * A record in use holds its runtime (conns_open): a stop closes all of them, then waits until the
 * calls inside, which may be those of plain threads and other runtimes, have left.
 *
 * Locks: record.lock > tset.lock > sched. System calls are made with no lock, outside the runtime
 * (between leave and enter), with a reference on the record; the descriptor is closed by the last.
 */
#ifndef WEFT__NET_H
#define WEFT__NET_H

#include "sched/sched.h"

#include <sys/types.h>
#include <weft/net.h>

enum { WEFT__READ = 0, WEFT__WRITE = 1 };
enum { WEFT__NOTHING, WEFT__READY, WEFT__WAITED };
enum weft__rec_kind { WEFT__FREE, WEFT__CONN, WEFT__LISTENER };

typedef struct weft__rec weft__rec;

typedef struct weft__side {
    _Atomic uint32_t word;
    uint8_t index;      /* WEFT__READ or WEFT__WRITE */
    bool busy;          /* a stream call is inside: its turn. lock */
    weft__waitq q;      /* who waits for the word; lock */
    weft__waitq turns;  /* who waits for his turn to write, or for descriptors; lock */
    int64_t deadline;   /* INT64_MAX: none; lock */
    weft__ktimer timer; /* armed by the holder of lock */
} weft__side;

struct weft__rec {
    weft__lock lock;
    uint32_t gen; /* of the descriptor it has, or will have next; lock */
    uint32_t index;
    enum weft__rec_kind kind; /* lock */
    bool closing;             /* closed by its user; calls are still inside; lock */
    bool registered;          /* in the poller */
    bool tcp;                 /* a TCP socket that weft made */
    bool socket;
    bool was_blocking; /* put back at close */
    _Atomic bool sticky;
    _Atomic bool starved; /* a listener: accept ran out of something and has not caught up since */
    uint32_t refs;        /* calls inside, and one while open; lock */
    int fd;
    weft__r *r;
    weft__side side[2];
    weft__rec *next_free;
};

/* record.c */
enum { WEFT__REC_TCP = 1, WEFT__REC_SOCKET = 2, WEFT__REC_WAS_BLOCKING = 4 };
/* A new record for fd, registered with r's poller; traits: of WEFT__REC_*. The caller is a G of r, or
   holds a record of r. -ENOMEM, -EPERM: it cannot be polled; -EBADF: r is being stopped; then fd stays
   the caller's. Unless the caller is a G of r, *out may be closed by the time this returns. */
int weft__rec_open(weft__rec **out, uint64_t *id, weft__r *r, int fd, enum weft__rec_kind kind,
                   unsigned traits);
/* The record of a handle with a reference, or NULL: -EBADF. */
weft__rec *weft__rec_get(uint64_t id, enum weft__rec_kind kind);
/* Gives a reference back; the last closes the descriptor. Not with the lock held. */
void weft__rec_put(weft__rec *rec);
/* Closed for everybody from here on; *rec is to be put once the caller has left the runtime. */
int weft__rec_close(weft__m *m, uint64_t id, enum weft__rec_kind kind, weft__rec **rec);
int weft__rec_set_deadline(weft__m *m, uint64_t id, unsigned sides, int64_t when);

/* What a call passes along: who calls, on what, until when. */
typedef struct weft__io {
    weft__m *m; /* after each wait the M that the G woke on */
    weft__rec *rec;
    unsigned side;
    weft_time until;
    weft__reason why;
    const void *site;
} weft__io;

/* Looks at what ends a call before it begins: cancelled, closed, past a deadline. 0 or the error. */
int weft__io_check(weft__io *io);
/* Time is up, and in all of the call nobody has asked the kernel? The word may be behind: nobody need
   have polled since. Then a call with a time of its own asks once, as a try would. */
bool weft__io_is_try(const weft__io *io, bool asked);
/* Parks until the side's word is READY: 0; or -EBADF, -ETIMEDOUT, -ECANCELED. */
int weft__io_wait(weft__io *io);
/* The turn of a stream's side: taken at once, or -EBUSY for a second reader; writers queue. */
int weft__io_take_turn(weft__io *io);
void weft__io_pass_turn(weft__io *io);
/* Parks for `ns` unless the record is closed or something else ends the call: 0 when time is up. */
int weft__io_pause(weft__io *io, int64_t ns);
/* Wakes the next of a shared queue, since READY is left for him. */
void weft__io_pass_ready(weft__io *io);

WEFT__ALWAYS_INLINE bool weft__side_consume(weft__side *s) {
    return atomic_load_explicit(&s->word, memory_order_relaxed) == WEFT__READY &&
           atomic_exchange_explicit(&s->word, WEFT__NOTHING, memory_order_acq_rel) == WEFT__READY;
}
WEFT__ALWAYS_INLINE void weft__side_put_back(weft__side *s) {
    atomic_store_explicit(&s->word, WEFT__READY, memory_order_release);
}

/* sys.c: system calls of their own, never inlined, so that no address of errno is kept over a park.
   Each gives a count or a negative error; a peer's silence (ETIMEDOUT) is WEFT_EPEERDEAD. */
size_t weft__sys_cap(size_t bytes); /* what one transfer is asked for at most */
ssize_t weft__sys_read(int fd, void *buf, size_t bytes);
ssize_t weft__sys_write(int fd, const void *buf, size_t bytes, bool is_socket);
int weft__sys_accept(int fd);
int weft__sys_socket(int family, int type);
int weft__sys_connect(int fd, const weft_addr *to);
int weft__sys_bind_listen(int fd, const weft_addr *at, const weft_listen_options *o);
int weft__sys_bind(int fd, const weft_addr *at);
int weft__sys_error(int fd);
int weft__sys_set_nonblock(int fd, bool on, bool *was_blocking);
int weft__sys_name(int fd, bool remote, weft_addr *out);
void weft__sys_tcp_defaults(int fd, weft_duration keepalive);
bool weft__sys_is_socket(int fd);
bool weft__sys_is_listener(int fd);
bool weft__sys_is_tcp(int fd);
int weft__sys_shutdown_write(int fd);
void weft__sys_close(int fd);

#endif
