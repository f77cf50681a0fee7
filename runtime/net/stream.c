/*
 * Streams: reading and writing a conn. Each attempt consumes the side's READY first; what the kernel
 * says then decides whether it is put back (net.h). One reader at a time, writers in turn, so that
 * one write is contiguous.
 */
#include "net/net.h"

static const weft_time NEVER = {INT64_MAX};

/* Begins a call: the record with a reference, the side's turn. NULL: *err. */
static weft__rec *begin(weft__io *io, weft_conn c, int *err) {
    weft__rec *rec = weft__rec_get(c.id, WEFT__CONN);
    if (rec == NULL) {
        *err = -EBADF;
        return NULL;
    }
    io->rec = rec;
    *err = weft__io_check(io);
    if (*err == 0) {
        *err = weft__io_take_turn(io);
    }
    return rec;
}

/* Ends it: err_turn is what begin said. */
static void end(weft__io *io, weft__rec *rec, int err_turn) {
    if (rec != NULL && err_turn == 0) {
        weft__io_pass_turn(io);
    }
    weft__leave(io->m);
    if (rec != NULL) {
        weft__rec_put(rec); /* may close the descriptor: outside */
    }
}

/* A transfer of n of `asked` bytes: does it prove that nothing more is to be had without an edge? */
static bool drained(weft__rec *rec, ssize_t n, size_t asked) {
    if (n == -EAGAIN) {
        return true;
    }
#ifdef WEFT_CANARY_DRAINED_AFTER_END
    return n >= 0 && (size_t)n < asked && rec->tcp;
#else
    return n > 0 && (size_t)n < asked && rec->tcp &&
           !atomic_load_explicit(&rec->sticky, memory_order_relaxed);
#endif
}

/* One system call, outside the runtime. */
static ssize_t attempt(weft__io *io, void *buf, size_t bytes) {
    weft__rec *rec = io->rec;
    weft__leave(io->m);
    ssize_t n = io->side == WEFT__READ ? weft__sys_read(rec->fd, buf, bytes)
                                       : weft__sys_write(rec->fd, buf, bytes, rec->socket);
    io->m = weft__enter();
    return n;
}

/* Moves 1..bytes bytes, waiting if need be. */
static ssize_t transfer(weft__io *io, void *buf, size_t bytes) {
    weft__side *s = &io->rec->side[io->side];
    bool last = false;
    bytes = weft__sys_cap(bytes);
    for (bool asked = false;;) {
        if (weft__side_consume(s) || last) {
            ssize_t n = attempt(io, buf, bytes);
            asked = true;
#ifndef WEFT_CANARY_LOST_PUT_BACK
            if (!drained(io->rec, n, bytes)) {
                weft__side_put_back(s);
            }
#endif
            if (n != -EAGAIN) {
                return n;
            }
        }
        int err = last ? -ETIMEDOUT : weft__io_wait(io);
        last = err == -ETIMEDOUT && weft__io_is_try(io, asked);
        if (err != 0 && !last) {
            return err;
        }
    }
}

WEFT__ALWAYS_INLINE weft__io io_for(unsigned side, weft_time until, const void *site) {
    return (weft__io){.m = weft__enter(),
                      .side = side,
                      .until = until,
                      .why = side == WEFT__READ ? WEFT__WAIT_READ : WEFT__WAIT_WRITE,
                      .site = site};
}

static ssize_t one(weft_conn c, unsigned side, void *buf, size_t bytes, weft_time until,
                   const void *site) {
    weft__io io = io_for(side, until, site);
    int err;
    weft__rec *rec = begin(&io, c, &err);
    ssize_t n = err != 0 ? err : bytes == 0 ? 0 : transfer(&io, buf, bytes);
    end(&io, rec, err);
    return n;
}

/* All of it, in one turn. */
static int all(weft_conn c, unsigned side, char *buf, size_t bytes, size_t *done,
               const void *site) {
    weft__io io = io_for(side, NEVER, site);
    int err;
    size_t sum = 0;
    weft__rec *rec = begin(&io, c, &err);
    ssize_t n = err;
    while (n >= 0 && sum < bytes) {
        n = sum > 0 ? weft__io_check(&io) : 0;
        if (n == 0) {
            n = transfer(&io, buf + sum, bytes - sum);
        }
        if (n == 0) {
            n = WEFT_EOF;
        }
        sum += n > 0 ? (size_t)n : 0;
    }
    end(&io, rec, err);
    if (done != NULL) {
        *done = sum;
    }
    return n < 0 ? (int)n : 0;
}

WEFT_API ssize_t weft_conn_read(weft_conn c, void *buf, size_t bytes) {
    return one(c, WEFT__READ, buf, bytes, NEVER, weft__caller());
}

WEFT_API ssize_t weft_conn_read_until(weft_conn c, void *buf, size_t bytes, weft_time until) {
    return one(c, WEFT__READ, buf, bytes, until, weft__caller());
}

WEFT_API int weft_conn_read_full(weft_conn c, void *buf, size_t bytes, size_t *done) {
    return all(c, WEFT__READ, buf, bytes, done, weft__caller());
}

/* The buffer is only read from: one function serves both directions. */
static void *unconst(const void *p) { return (void *)(uintptr_t)p; }

WEFT_API ssize_t weft_conn_write(weft_conn c, const void *buf, size_t bytes) {
    return one(c, WEFT__WRITE, unconst(buf), bytes, NEVER, weft__caller());
}

WEFT_API ssize_t weft_conn_write_until(weft_conn c, const void *buf, size_t bytes,
                                       weft_time until) {
    return one(c, WEFT__WRITE, unconst(buf), bytes, until, weft__caller());
}

WEFT_API int weft_conn_write_all(weft_conn c, const void *buf, size_t bytes, size_t *done) {
    return all(c, WEFT__WRITE, unconst(buf), bytes, done, weft__caller());
}
