/* weft/net.h: addresses, connections, listeners. */
#ifndef WEFT_NET_H
#define WEFT_NET_H
#include <sys/socket.h>
#include <sys/types.h>
#include <weft/runtime.h>
WEFT_BEGIN
/* Handles are numbers in a struct, not pointers: copy them, keep them anywhere. Use after close, by
   any thread, however late and though the descriptor's number is in use again, is -EBADF: never
   another's connection, never freed memory. {0} is no connection. Conns and listeners belong to the
   runtime of the G that made them and end with it. */
typedef struct weft_conn {
    uint64_t id;
} weft_conn;
typedef struct weft_listener {
    uint64_t id;
} weft_listener;

/* A sockaddr as a value. */
typedef struct weft_addr {
    uint32_t bytes;
    uint32_t reserved;
    uint64_t storage[16];
} weft_addr;
WEFT_API WEFT_CHECK int weft_addr_parse(weft_addr *out, const char *text);
/* - any: "127.0.0.1:80" "[::1%lo]:80" ":80" "unix:/path" "@abstract" (a zero byte in the name is
   \0, a backslash \\); no look-up. -EINVAL, -ENAMETOOLONG */
WEFT_API WEFT_CHECK int weft_addr_unix(weft_addr *out, const void *path, size_t bytes);
/* - any: abstract if it begins with 0; -ENAMETOOLONG, never cut. -EINVAL: a 0 within a path */
WEFT_API WEFT_CHECK int weft_addr_from(weft_addr *out, const struct sockaddr *sa, socklen_t bytes);
/* - any: -EINVAL -EAFNOSUPPORT -ENAMETOOLONG */
WEFT_API const struct sockaddr *weft_addr_sockaddr(const weft_addr *a);
/* - any: its length is a->bytes */
WEFT_API size_t weft_addr_text(const weft_addr *a, char *buf, size_t bytes);
/* - any: as snprintf; parse reads it back, but for the "unix:" of a socket without a name */
WEFT_API int weft_addr_port(const weft_addr *a);         /* - any: -EINVAL if it has none */
WEFT_API int weft_addr_set_port(weft_addr *a, int port); /* - any */
WEFT_API bool weft_addr_equal(const weft_addr *a, const weft_addr *b); /* - any */

/* network: "tcp" "tcp4" "tcp6". address: as weft_addr_parse; names are not looked up in this
   version (-EINVAL). */
typedef struct weft_listen_options {
    size_t size;
    int backlog; /* 0: SOMAXCONN */
    bool reuse_port, v6only, no_reuse_addr;
    void *reserved[8];
} weft_listen_options;
WEFT_INLINE weft_listen_options weft_listen_options_default(void) {
    weft_listen_options o = WEFT_ZERO;
    o.size = sizeof o;
    return o;
}
typedef struct weft_dial_options {
    size_t size;
    const weft_addr *local;
    weft_duration keepalive; /* 0: 15 s; negative: off */
    void *reserved[6];
} weft_dial_options;
WEFT_INLINE weft_dial_options weft_dial_options_default(void) {
    weft_dial_options o = WEFT_ZERO;
    o.size = sizeof o;
    return o;
}
WEFT_API WEFT_CHECK int weft_listen(weft_listener *out, const char *network, const char *address,
                                    const weft_listen_options *o);
/* - G: errors of socket, bind, listen */
WEFT_API WEFT_CHECK int weft_listener_from_fd(weft_listener *out, int fd);
/* - G: takes fd (socket activation); on error it stays the caller's */
WEFT_API WEFT_CHECK int weft_accept(weft_conn *out, weft_listener l);
/* P any ctx: rides out ECONNABORTED, EPROTO and, with back-off and one log line, EMFILE, ENFILE,
   ENOBUFS, ENOMEM. The new conn belongs to the listener's runtime; another error is returned and
   the listener stays usable. -EBADF closed */
WEFT_API WEFT_CHECK int weft_accept_until(weft_conn *out, weft_listener l, weft_time until);
/* P any ctx */
WEFT_API int weft_listener_close(weft_listener l);
/* - any: wakes accepts with -EBADF; -EBADF if closed */
WEFT_API int weft_listener_addr(weft_listener l, weft_addr *out); /* - any */
WEFT_API WEFT_CHECK int weft_dial(weft_conn *out, const char *network, const char *address,
                                  const weft_dial_options *o);
/* P G ctx */
WEFT_API WEFT_CHECK int weft_dial_until(weft_conn *out, const char *network, const char *address,
                                        const weft_dial_options *o, weft_time until);
/* P G ctx */
WEFT_API WEFT_CHECK int weft_conn_from_fd(weft_conn *out, int fd);
/* - G: takes fd: socket, pipe, tty, made non-blocking (put back at close if it was blocking).
   -EPERM if it cannot be polled; on error it stays the caller's */

/* No call of weft raises SIGPIPE. Streams: one reader and one writer at a time: a second gets
   -EBUSY. Deadlines of the conn and the caller's `_until` hold both; the earlier wins. A past
   deadline fails at once even with data ready, and goes on failing until moved. */
WEFT_API WEFT_CHECK ssize_t weft_conn_read(weft_conn c, void *buf, size_t bytes);
/* P any ctx: 1..bytes; 0 end of stream (or bytes == 0) */
WEFT_API WEFT_CHECK ssize_t weft_conn_read_until(weft_conn c, void *buf, size_t bytes,
                                                 weft_time until);
/* P any ctx */
WEFT_API WEFT_CHECK int weft_conn_read_full(weft_conn c, void *buf, size_t bytes, size_t *done);
/* P any ctx: 0 all; WEFT_EOF; *done (may be NULL) always tells how many */
WEFT_API WEFT_CHECK ssize_t weft_conn_write(weft_conn c, const void *buf, size_t bytes);
/* P any ctx: 1..bytes, perhaps short, as write(2) */
WEFT_API WEFT_CHECK ssize_t weft_conn_write_until(weft_conn c, const void *buf, size_t bytes,
                                                  weft_time until);
/* P any ctx */
WEFT_API WEFT_CHECK int weft_conn_write_all(weft_conn c, const void *buf, size_t bytes,
                                            size_t *done);
/* P any ctx: Go's Write */

WEFT_API int weft_conn_set_deadline(weft_conn c, weft_time t);
/* - any: both ways. WEFT_NEVER clears. -ENOMEM (the first time of a conn): try again */
WEFT_API int weft_conn_set_read_deadline(weft_conn c, weft_time t);
/* - any: moves a parked read's deadline too */
WEFT_API int weft_conn_set_write_deadline(weft_conn c, weft_time t); /* - any */
WEFT_API int weft_conn_close_write(weft_conn c);                     /* - any */
WEFT_API int weft_conn_close(weft_conn c);
/* - any: both parked sides get -EBADF; -EBADF if closed. The descriptor goes when the last call has
   left */
WEFT_API int weft_conn_local(weft_conn c, weft_addr *out);  /* - any */
WEFT_API int weft_conn_remote(weft_conn c, weft_addr *out); /* - any */
WEFT_END
#endif
