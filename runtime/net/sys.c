/* The system calls of net, one function each: see net.h. None of them parks, none is inlined. */
#include "net/net.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static WEFT__NOINLINE ssize_t last_error(void) {
    int e = errno;
    return e == ETIMEDOUT ? WEFT_EPEERDEAD : e == EWOULDBLOCK ? -EAGAIN : -e;
}

/* One transfer is bounded, so that its size always fits the result. */
size_t weft__sys_cap(size_t bytes) { return bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30; }

WEFT__NOINLINE ssize_t weft__sys_read(int fd, void *buf, size_t bytes) {
    ssize_t n;
    do {
        n = read(fd, buf, bytes);
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : last_error();
}

/* write(2) on a pipe whose reader is gone raises SIGPIPE for this thread: it is held off, and taken
   back if it came from us. */
static ssize_t write_quietly(int fd, const void *buf, size_t bytes) {
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    ssize_t n = write(fd, buf, bytes);
    int e = errno;
    if (n < 0 && e == EPIPE && !was_pending) {
        struct timespec no_time = {0, 0};
        while (sigtimedwait(&pipe_only, NULL, &no_time) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = e;
    return n;
}

WEFT__NOINLINE ssize_t weft__sys_write(int fd, const void *buf, size_t bytes, bool is_socket) {
    ssize_t n;
    do {
        n = is_socket ? send(fd, buf, bytes, MSG_NOSIGNAL) : write_quietly(fd, buf, bytes);
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : last_error();
}

WEFT__NOINLINE int weft__sys_accept(int fd) {
    int n;
    do {
        n = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : (int)last_error();
}

WEFT__NOINLINE int weft__sys_socket(int family, int type) {
    int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd >= 0 ? fd : (int)last_error();
}

/* -EINPROGRESS: the poller will tell. An interrupted connect goes on all the same. */
WEFT__NOINLINE int weft__sys_connect(int fd, const weft_addr *to) {
    if (connect(fd, weft_addr_sockaddr(to), to->bytes) == 0) {
        return 0;
    }
    return errno == EINTR ? -EINPROGRESS : (int)last_error();
}

static int set_flag(int fd, int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof value);
}

WEFT__NOINLINE int weft__sys_bind_listen(int fd, const weft_addr *at,
                                         const weft_listen_options *o) {
    bool six = weft_addr_sockaddr(at)->sa_family == AF_INET6;
    if ((!o->no_reuse_addr && set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1) != 0) ||
        (o->reuse_port && set_flag(fd, SOL_SOCKET, SO_REUSEPORT, 1) != 0) ||
        (six && set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, o->v6only) != 0) ||
        bind(fd, weft_addr_sockaddr(at), at->bytes) != 0 ||
        listen(fd, o->backlog > 0 ? o->backlog : SOMAXCONN) != 0) {
        return (int)last_error();
    }
    return 0;
}

WEFT__NOINLINE int weft__sys_bind(int fd, const weft_addr *at) {
    return bind(fd, weft_addr_sockaddr(at), at->bytes) == 0 ? 0 : (int)last_error();
}

/* How a connect has ended. */
WEFT__NOINLINE int weft__sys_error(int fd) {
    int err = 0;
    socklen_t bytes = sizeof err;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &bytes) != 0) {
        return (int)last_error();
    }
    return err == ETIMEDOUT ? WEFT_EPEERDEAD : -err;
}

WEFT__NOINLINE int weft__sys_set_nonblock(int fd, bool on, bool *was_blocking) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) {
        return (int)last_error();
    }
    *was_blocking = (flags & O_NONBLOCK) == 0;
    int to = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return to == flags || fcntl(fd, F_SETFL, to) == 0 ? 0 : (int)last_error();
}

WEFT__NOINLINE int weft__sys_name(int fd, bool remote, weft_addr *out) {
    struct sockaddr_storage sa;
    socklen_t bytes = sizeof sa;
    memset(&sa, 0, sizeof sa);
    int n = remote ? getpeername(fd, (struct sockaddr *)&sa, &bytes)
                   : getsockname(fd, (struct sockaddr *)&sa, &bytes);
    return n == 0 ? weft_addr_from(out, (struct sockaddr *)&sa, bytes) : (int)last_error();
}

WEFT__NOINLINE void weft__sys_tcp_defaults(int fd, weft_duration keepalive) {
    set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (keepalive < 0) {
        return;
    }
    int64_t seconds = keepalive / WEFT_SECOND;
    int s = seconds < 1 ? 1 : seconds > 32767 ? 32767 : (int)seconds;
    set_flag(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_flag(fd, IPPROTO_TCP, TCP_KEEPIDLE, s);
    set_flag(fd, IPPROTO_TCP, TCP_KEEPINTVL, s);
}

static int get_flag(int fd, int option) {
    int value = 0;
    socklen_t bytes = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &bytes) == 0 ? value : -1;
}

WEFT__NOINLINE bool weft__sys_is_socket(int fd) { return get_flag(fd, SO_TYPE) >= 0; }

WEFT__NOINLINE bool weft__sys_is_listener(int fd) { return get_flag(fd, SO_ACCEPTCONN) == 1; }

WEFT__NOINLINE bool weft__sys_is_tcp(int fd) { return get_flag(fd, SO_PROTOCOL) == IPPROTO_TCP; }

WEFT__NOINLINE int weft__sys_shutdown_write(int fd) {
    return shutdown(fd, SHUT_WR) == 0 ? 0 : (int)last_error();
}

WEFT__NOINLINE void weft__sys_close(int fd) { close(fd); }
