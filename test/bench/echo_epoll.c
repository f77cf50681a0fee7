/*
 * echo_epoll.c: the third party of the echo rows: a server that is a bare epoll loop on one thread,
 * without deadlines. What the kernel asks for a request, and little else.
 */
#include "bench.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 256, BUFFER = 512 };

static int listen_somewhere(int *port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    bench_check(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
                    listen(fd, SOMAXCONN) == 0 &&
                    getsockname(fd, (struct sockaddr *)&at, &bytes) == 0,
                "cannot listen: errno %d", errno);
    *port = ntohs(at.sin_port);
    return fd;
}

static void accept_all(int epoll, int listener) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        bench_check(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl: errno %d", errno);
    }
}

/* Requests are small and one at a time: a reply that does not fit at once is not expected. */
static void echo(int fd) {
    char buffer[BUFFER];
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got > 0) {
        bench_check(write(fd, buffer, (size_t)got) == got, "a short write");
    } else if (got == 0 || errno != EAGAIN) {
        close(fd);
    }
}

static void stop_now(void *arg) {
    (void)arg;
    _exit(0);
}

int echo_serve_epoll(void) {
    int port;
    int listener = listen_somewhere(&port);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    bench_check(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) == 0, "epoll: errno %d",
                errno);
    bench_check(echo_listening(port, stop_now, NULL) == 0, "no thread");
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        bench_check(count >= 0 || errno == EINTR, "epoll_wait: errno %d", errno);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener) {
                accept_all(epoll, listener);
            } else {
                echo(events[i].data.fd);
            }
        }
    }
}
