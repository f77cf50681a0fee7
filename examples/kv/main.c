/*
 * main.c: the process around the server.
 *
 * Signals: SIGINT and SIGTERM are blocked before weft starts, so every thread of the process is
 * born with them blocked, and a plain thread of ours waits for them. It talks to the runtime by
 * setting an event, which any thread may do at any time. A second signal means that somebody is out
 * of patience.
 */
#include "server.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

struct signals {
    sigset_t set;
    struct server *server;
    atomic_bool over; /* the server has ended by itself: the thread shall end */
    pthread_t thread;
};

struct app {
    struct server server;
    struct options options;
    int err;
};

static void *wait_for_signals(void *arg) {
    struct signals *s = arg;
    int which;

    for (int count = 0; sigwait(&s->set, &which) == 0 && !atomic_load(&s->over);) {
        if (which == SIGUSR1) continue;
        if (++count == 2) _exit(128 + which);
        server_stop(s->server);
    }
    return NULL;
}

static int signals_start(struct signals *s, struct server *server) {
    s->server = server;
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    sigaddset(&s->set, SIGUSR1); /* from signals_end only: others are not listened to */
    int err = pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    return err != 0 ? err : pthread_create(&s->thread, NULL, wait_for_signals, s);
}

static void signals_end(struct signals *s) {
    atomic_store(&s->over, true);
    pthread_kill(s->thread, SIGUSR1);
    pthread_join(s->thread, NULL);
}

static int app_main(void *arg) {
    struct app *app = arg;

    app->err = server_run(&app->server, &app->options);
    return app->err < 0;
}

/* Each connection is a descriptor. The usual soft limit of 1024 is there for programs that use
   select. */
static void allow_many_descriptors(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* refused: then it is as many as it was */
}

static int run(struct app *app) {
    weft_config config = weft_config_default();
    int status = 1;

    config.name = "kv";
    config.procs = app->options.procs;
    config.flags = WEFT_CATCH_OVERFLOW;
    int err = weft_run(app_main, app, &config, &status);
    if (err == 0) err = app->err;
    if (err == 0) {
        server_free(&app->server);
        return 0;
    }
    fprintf(stderr, "kv: %s\n", weft_strerror(err));
    return 1;
}

int main(int argc, char **argv) {
    static struct app app;
    static struct signals signals;

    switch (options_read(&app.options, argc, argv)) {
    case OPTIONS_RUN:
        break;
    case OPTIONS_DONE:
        return 0;
    case OPTIONS_WRONG:
        return 2;
    }
    allow_many_descriptors();
    int err = signals_start(&signals, &app.server);
    if (err != 0) {
        fprintf(stderr, "kv: cannot wait for signals: %s\n", weft_strerror(-err));
        return 1;
    }
    int status = run(&app);
    signals_end(&signals);
    return status;
}
