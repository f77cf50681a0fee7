/* server.c: listen, accept, drain. */
#include "server.h"
#include "connection.h"
#include "db.h"
#include "trim.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void server_stop(struct server *s) {
    if (atomic_exchange(&s->stop_asked, true)) return;
    weft_event_set(&s->stop);
}

static int listen_on(struct server *s) {
    const struct options *o = s->options;
    char address[128];
    weft_addr where;
    bool v6 = strchr(o->addr, ':') != NULL;

    int n = snprintf(address, sizeof address, v6 ? "[%s]:%d" : "%s:%d", o->addr, o->port);
    if (n >= (int)sizeof address) return -EINVAL;
    int err = weft_listen(&s->listener, "tcp", address, NULL);
    if (err < 0) {
        fprintf(stderr, "kv: cannot listen on %s: %s\n", address, weft_strerror(err));
        return err;
    }
    err = weft_listener_addr(s->listener, &where);
    if (err < 0) return err;
    s->port = weft_addr_port(&where);
    weft_addr_text(&where, address, sizeof address);
    printf("kv: listening on %s, procs %d, pid %ld\n", address, s->stats.procs, (long)getpid());
    fflush(stdout);
    return 0;
}

static int accept_all(void *arg) {
    struct server *s = arg;

    weft_set_name("accept");
    for (;;) {
        weft_conn conn;
        int err = weft_accept(&conn, s->listener);
        if (err == 0) {
            connection_start(s, conn);
        } else if (server_is_stopping(s)) {
            return 0;
        } else {
            fprintf(stderr, "kv: accept: %s\n", weft_strerror(err));
            /* What passes it has ridden out: this one may come again at once, and fill the log. */
            weft_sleep(100 * WEFT_MILLISECOND);
        }
    }
}

/* `stopping` first, then the deadlines: a connection sets its own deadline and looks at `stopping`
   afterwards, so one of the two sees the other. */
static void drain(struct server *s, weft_waitgroup *acceptor) {
    weft_time end = weft_in(SERVER_DRAIN);

    atomic_store(&s->drain_end, end.ns);
    atomic_store(&s->stopping, true);
    weft_listener_close(s->listener);
    weft_waitgroup_wait(acceptor);
    connection_hurry_all(s);
    if (weft_waitgroup_wait_until(&s->running, end) == 0) return;
    connection_close_all(s);
    weft_waitgroup_wait(&s->running);
}

static int serve(struct server *s) {
    weft_waitgroup acceptor = WEFT_WAITGROUP_INIT;
    int err = weft_waitgroup_go(&acceptor, accept_all, s);

    if (err < 0) {
        weft_listener_close(s->listener);
        return err;
    }
    weft_event_wait(&s->stop);
    drain(s, &acceptor);
    return 0;
}

int server_run(struct server *s, const struct options *o) {
    weft_set_name("main");
    s->options = o;
    s->started = weft_now();
    int err = stats_init(&s->stats, weft_procs(NULL));
    if (err < 0) return err;
    err = db_new(&s->db);
    if (err < 0) return err;
    err = listen_on(s);
    if (err == 0) err = trim_start();
    if (err == 0) err = serve(s);
    trim_stop();
    db_stop(s->db);
    return err;
}

void server_free(struct server *s) {
    db_free(s->db);
    stats_free(&s->stats);
}
