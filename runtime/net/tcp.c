/* TCP: listening, accepting, dialling. */
#include "net/net.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const weft_time NEVER = {INT64_MAX};
static const int64_t BACKOFF_FIRST = 5 * WEFT_MILLISECOND, BACKOFF_LONGEST = WEFT_SECOND;
static const weft_duration KEEPALIVE = 15 * WEFT_SECOND;

/* Which families a network name allows: bit 0 IPv4, bit 1 IPv6; 0: not a network of ours. */
static unsigned families_of(const char *network) {
    return network == NULL                ? 0
           : strcmp(network, "tcp") == 0  ? 3
           : strcmp(network, "tcp4") == 0 ? 1
           : strcmp(network, "tcp6") == 0 ? 2
                                          : 0;
}

/* ":80" parses as the wildcard of IPv6; where only IPv4 is wanted it is that of IPv4. */
static void to_wildcard4(weft_addr *a) {
    struct sockaddr_in in;
    memset(&in, 0, sizeof in);
    in.sin_family = AF_INET;
    in.sin_port = htons((uint16_t)weft_addr_port(a));
    int err = weft_addr_from(a, (struct sockaddr *)&in, sizeof in);
    (void)err; /* a sockaddr_in always fits */
}

static int parse(weft_addr *out, const char *network, const char *address) {
    unsigned families = families_of(network);
    if (families == 0 || address == NULL) {
        return -EINVAL;
    }
    int err = weft_addr_parse(out, address);
    if (err != 0) {
        return err;
    }
    if (families == 1 && address[0] == ':') {
        to_wildcard4(out);
    }
    int family = weft_addr_sockaddr(out)->sa_family;
    bool ok =
        (family == AF_INET && (families & 1) != 0) || (family == AF_INET6 && (families & 2) != 0);
    return ok ? 0 : -EINVAL;
}

/* ---- listening --------------------------------------------------------------------------------- */

static int open_listener(weft_listener *out, weft__r *r, int fd) {
    weft__rec *rec;
    uint64_t id;
    unsigned tcp = weft__sys_is_tcp(fd) ? WEFT__REC_TCP : 0; /* what it accepts is one of ours */
    int err = weft__rec_open(&rec, &id, r, fd, WEFT__LISTENER, WEFT__REC_SOCKET | tcp);
    if (err == 0) {
        out->id = id;
    }
    return err;
}

static int listen_at(int *fd, weft_addr *at, const weft_listen_options *o) {
    *fd = weft__sys_socket(weft_addr_sockaddr(at)->sa_family, SOCK_STREAM);
    if (*fd < 0) {
        return *fd;
    }
    int err = weft__sys_bind_listen(*fd, at, o);
    if (err != 0) {
        weft__sys_close(*fd);
    }
    return err;
}

WEFT_API int weft_listen(weft_listener *out, const char *network, const char *address,
                         const weft_listen_options *options) {
    weft_listen_options o = weft_listen_options_default();
    weft_addr at;
    int fd, err = weft__options_read(&o, sizeof o, sizeof o.size, options);
    if (err == 0) {
        err = parse(&at, network, address);
    }
    if (err != 0) {
        return err;
    }
    weft__r *r = weft__r_take();
    if (r == NULL) {
        return weft__no_runtime();
    }
    err = listen_at(&fd, &at, &o);
    if (err == -EAFNOSUPPORT && address[0] == ':' && families_of(network) == 3) {
        to_wildcard4(&at); /* a host without IPv6 */
        err = listen_at(&fd, &at, &o);
    }
    if (err == 0) {
        err = open_listener(out, r, fd);
        if (err != 0) {
            weft__sys_close(fd);
        }
    }
    weft__r_give(r);
    return err;
}

static int listener_of(weft__r *r, weft_listener *out, int fd) {
    bool was_blocking = false;
    if (!weft__sys_is_listener(fd)) {
        return -EINVAL;
    }
    int err = weft__sys_set_nonblock(fd, true, &was_blocking);
    if (err != 0) {
        return err;
    }
    err = open_listener(out, r, fd);
    if (err != 0 && was_blocking) {
        bool unused;
        weft__sys_set_nonblock(fd, false, &unused); /* it stays the caller's, as it was */
    }
    return err;
}

WEFT_API int weft_listener_from_fd(weft_listener *out, int fd) {
    weft__r *r = weft__r_take();
    int err = r != NULL ? listener_of(r, out, fd) : weft__no_runtime();
    weft__r_give(r);
    return err;
}

/* ---- accepting --------------------------------------------------------------------------------- */

static int adopt(weft_conn *out, weft__rec *listener, int fd) {
    weft__rec *rec;
    uint64_t id;
    if (listener->tcp) {
        weft__sys_tcp_defaults(fd, KEEPALIVE);
    }
    unsigned tcp = listener->tcp ? WEFT__REC_TCP : 0;
    int err = weft__rec_open(&rec, &id, listener->r, fd, WEFT__CONN, WEFT__REC_SOCKET | tcp);
    if (err != 0) {
        weft__sys_close(fd);
        return err;
    }
    out->id = id;
    return 0;
}

static bool is_shortage(int err) {
    return err == -EMFILE || err == -ENFILE || err == -ENOBUFS || err == -ENOMEM;
}

/* One attempt, READY consumed before. 0; -EAGAIN: nobody there; or the error. */
static int try_accept(weft__io *io, weft_conn *out) {
    weft__leave(io->m);
    int fd;
    do {
        fd = weft__sys_accept(io->rec->fd);
    } while (fd == -ECONNABORTED || fd == -EPROTO);
    int err = fd >= 0 ? adopt(out, io->rec, fd) : fd;
    io->m = weft__enter();
    return err;
}

static int accept_on(weft__io *io, weft_conn *out) {
    weft__side *s = &io->rec->side[WEFT__READ];
    int64_t backoff = 0;
    bool last = false;
    for (bool asked = false;;) {
        int err = 0;
        if (weft__side_consume(s) || last) {
            err = try_accept(io, out);
            asked = true;
#ifndef WEFT_CANARY_ACCEPT_PASSES_NO_READY
            if (err != -EAGAIN) {
                weft__io_pass_ready(io); /* perhaps there are more, for others */
            }
#endif
            if (is_shortage(err)) {
                if (!atomic_exchange(&io->rec->starved, true)) {
                    weft__log(io->rec->r, WEFT_LOG_WARNING,
                              "accept: %s; trying again until it ends", weft_strerror(err));
                }
                backoff = backoff == 0                    ? BACKOFF_FIRST
                          : backoff * 2 < BACKOFF_LONGEST ? backoff * 2
                                                          : BACKOFF_LONGEST;
                err = weft__io_pause(io, backoff);
                if (err != 0) {
                    return err;
                }
                continue;
            }
            if (err != -EAGAIN) {
                return err;
            }
            atomic_store_explicit(&io->rec->starved, false, memory_order_relaxed);
        }
        err = last ? -ETIMEDOUT : weft__io_wait(io);
        last = err == -ETIMEDOUT && weft__io_is_try(io, asked);
        if (err != 0 && !last) {
            return err;
        }
    }
}

static int do_accept(weft_conn *out, weft_listener l, weft_time until, const void *site) {
    weft__rec *rec = weft__rec_get(l.id, WEFT__LISTENER);
    if (rec == NULL) {
        return -EBADF;
    }
    weft__io io = {.m = weft__enter(),
                   .rec = rec,
                   .side = WEFT__READ,
                   .until = until,
                   .why = WEFT__WAIT_ACCEPT,
                   .site = site};
    int err = weft__io_check(&io);
    if (err == 0) {
        err = accept_on(&io, out);
    }
    weft__leave(io.m);
    weft__rec_put(rec);
    return err;
}

WEFT_API int weft_accept(weft_conn *out, weft_listener l) {
    return do_accept(out, l, NEVER, weft__caller());
}

WEFT_API int weft_accept_until(weft_conn *out, weft_listener l, weft_time until) {
    return do_accept(out, l, until, weft__caller());
}

/* ---- dialling ---------------------------------------------------------------------------------- */

/* Waits for a connect in progress. The first edge of the writing side says that it has ended. */
static int finish_connect(weft__io *io) {
    weft__side *s = &io->rec->side[WEFT__WRITE];
    for (;;) {
        if (weft__side_consume(s)) {
            weft_addr unused;
            int err = weft__sys_error(io->rec->fd);
            if (err != 0) {
                return err;
            }
            if (weft__sys_name(io->rec->fd, true, &unused) == 0) {
                weft__side_put_back(s);
                return 0;
            }
        }
        int err = weft__io_wait(io);
        if (err != 0) {
            return err;
        }
    }
}

/* A socket on its way to `to` and its record: 0, connected; -EINPROGRESS; else nothing was opened. */
static int begin_dial(uint64_t *id, weft__r *r, const weft_addr *to, const weft_dial_options *o) {
    weft__rec *rec;
    int fd = weft__sys_socket(weft_addr_sockaddr(to)->sa_family, SOCK_STREAM);
    if (fd < 0) {
        return fd;
    }
    weft__sys_tcp_defaults(fd, o->keepalive == 0 ? KEEPALIVE : o->keepalive);
    int err = o->local != NULL ? weft__sys_bind(fd, o->local) : 0;
    int connecting = err == 0 ? weft__sys_connect(fd, to) : err;
    if (connecting == 0 || connecting == -EINPROGRESS) {
        err = weft__rec_open(&rec, id, r, fd, WEFT__CONN, WEFT__REC_SOCKET | WEFT__REC_TCP);
    } else {
        err = connecting;
    }
    if (err != 0) {
        weft__sys_close(fd);
        return err;
    }
    return connecting;
}

/* The record holds the runtime by now: a stop may close it under an attached thread. */
static int end_dial(weft_conn *out, uint64_t id, bool connected, weft_time until,
                    const void *site) {
    weft__rec *rec = weft__rec_get(id, WEFT__CONN), *closed;
    if (rec == NULL) {
        return -EBADF;
    }
    weft__io io = {.m = weft__enter(),
                   .rec = rec,
                   .side = WEFT__WRITE,
                   .until = until,
                   .why = WEFT__WAIT_CONNECT,
                   .site = site};
    int err = 0;
    if (!connected) {
        err = weft__cancelled(io.m->g) ? weft__cancel_error(io.m->g) : finish_connect(&io);
    }
    int gone = err != 0 ? weft__rec_close(io.m, id, WEFT__CONN, &closed) : -EBADF;
    weft__leave(io.m);
    if (gone == 0) {
        weft__rec_put(closed);
    }
    if (err == 0) {
        out->id = id;
    }
    weft__rec_put(rec);
    return err;
}

static int dial(weft_conn *out, const char *network, const char *address,
                const weft_dial_options *options, weft_time until, const void *site) {
    weft_dial_options o = weft_dial_options_default();
    weft_addr to;
    uint64_t id;
    int err = weft__options_read(&o, sizeof o, sizeof o.size, options);
    if (err == 0) {
        err = parse(&to, network, address);
    }
    if (err != 0) {
        return err;
    }
    weft__r *r = weft__r_take();
    err = r != NULL ? begin_dial(&id, r, &to, &o) : weft__no_runtime();
    weft__r_give(r);
    return err == 0 || err == -EINPROGRESS ? end_dial(out, id, err == 0, until, site) : err;
}

WEFT_API int weft_dial(weft_conn *out, const char *network, const char *address,
                       const weft_dial_options *o) {
    return dial(out, network, address, o, NEVER, weft__caller());
}

WEFT_API int weft_dial_until(weft_conn *out, const char *network, const char *address,
                             const weft_dial_options *o, weft_time until) {
    return dial(out, network, address, o, until, weft__caller());
}
