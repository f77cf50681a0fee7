/* The poller of targets without one: it sleeps and can be broken, and takes no descriptor. */
#include "os/os.h"
#include "poller/poller.h"

#include <errno.h>

struct weft__poller {
    weft__note note;
};

int weft__poller_open(weft__poller **out) {
    weft__poller *p = weft__mem_zalloc(sizeof *p);
    if (p == NULL) {
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

void weft__poller_close(weft__poller *p) { weft__mem_free(p, sizeof *p); }

const char *weft__poller_name(void) { return "stub"; }

bool weft__poller_takes_fds(void) { return false; }

int weft__poller_add(weft__poller *p, int fd, uint64_t tag) {
    (void)p, (void)fd, (void)tag;
    return -ENOTSUP;
}

void weft__poller_remove(weft__poller *p, int fd) { (void)p, (void)fd; }

int weft__poller_poll(weft__poller *p, int64_t until, weft__poll_sink sink, void *arg) {
    (void)sink, (void)arg;
    if (until != 0 && weft__note_sleep_until(&p->note, until)) {
        weft__note_clear(&p->note); /* one waiting poll at a time: nobody else clears it */
        weft__fence_full();         /* and we look behind: a break before this told of something */
    }
    return 0;
}

void weft__poller_break(weft__poller *p) { weft__note_wake(&p->note); }

int weft__poller_break_fd(const weft__poller *p) {
    (void)p;
    return -1;
}
