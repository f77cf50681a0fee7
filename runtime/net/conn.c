/* What a conn can do but read and write: begin from a descriptor, deadlines, names, close. */
#include "net/net.h"

static int conn_of(weft__r *r, weft_conn *out, int fd) {
    bool was_blocking = false;
    int err = weft__sys_set_nonblock(fd, true, &was_blocking);
    if (err != 0) {
        return err;
    }
    weft__rec *rec;
    uint64_t id;
    unsigned traits = (was_blocking ? WEFT__REC_WAS_BLOCKING : 0) |
                      (weft__sys_is_socket(fd) ? WEFT__REC_SOCKET : 0);
    err = weft__rec_open(&rec, &id, r, fd, WEFT__CONN, traits);
    if (err != 0) {
        bool unused;
        if (was_blocking) {
            weft__sys_set_nonblock(fd, false, &unused);
        }
        return err;
    }
    out->id = id;
    return 0;
}

WEFT_API int weft_conn_from_fd(weft_conn *out, int fd) {
    weft__r *r = weft__r_take();
    int err = r != NULL ? conn_of(r, out, fd) : weft__no_runtime();
    weft__r_give(r);
    return err;
}

static int set_deadline(weft_conn c, unsigned sides, weft_time t) {
    weft__m *m = weft__enter_nopark();
    int err = weft__rec_set_deadline(m, c.id, sides, t.ns);
    weft__leave(m);
    return err;
}

WEFT_API int weft_conn_set_deadline(weft_conn c, weft_time t) { return set_deadline(c, 3, t); }

WEFT_API int weft_conn_set_read_deadline(weft_conn c, weft_time t) {
    return set_deadline(c, 1u << WEFT__READ, t);
}

WEFT_API int weft_conn_set_write_deadline(weft_conn c, weft_time t) {
    return set_deadline(c, 1u << WEFT__WRITE, t);
}

WEFT_API int weft_conn_close_write(weft_conn c) {
    weft__rec *rec = weft__rec_get(c.id, WEFT__CONN);
    if (rec == NULL) {
        return -EBADF;
    }
    int err = weft__sys_shutdown_write(rec->fd);
    weft__rec_put(rec);
    return err;
}

static int close_as(uint64_t id, enum weft__rec_kind kind) {
    weft__rec *rec;
    weft__m *m = weft__enter_nopark();
    int err = weft__rec_close(m, id, kind, &rec);
    weft__leave(m);
    if (err == 0) {
        weft__rec_put(rec);
    }
    return err;
}

WEFT_API int weft_conn_close(weft_conn c) { return close_as(c.id, WEFT__CONN); }

WEFT_API int weft_listener_close(weft_listener l) { return close_as(l.id, WEFT__LISTENER); }

static int name_of(uint64_t id, enum weft__rec_kind kind, bool remote, weft_addr *out) {
    weft__rec *rec = weft__rec_get(id, kind);
    if (rec == NULL) {
        return -EBADF;
    }
    int err = weft__sys_name(rec->fd, remote, out);
    weft__rec_put(rec);
    return err;
}

WEFT_API int weft_conn_local(weft_conn c, weft_addr *out) {
    return name_of(c.id, WEFT__CONN, false, out);
}

WEFT_API int weft_conn_remote(weft_conn c, weft_addr *out) {
    return name_of(c.id, WEFT__CONN, true, out);
}

WEFT_API int weft_listener_addr(weft_listener l, weft_addr *out) {
    return name_of(l.id, WEFT__LISTENER, false, out);
}
