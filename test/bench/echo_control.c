/*
 * echo_control.c: how an echo server (of weft, or the bare loop) talks with the orchestrator.
 *
 * It writes `listening PORT`, answers each line on its standard input with `cpu NS`, the CPU time
 * it has used so far, and stops at the end of the input. A plain thread does this, so that the
 * server itself is nothing but a server.
 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>

struct control {
    void (*stop)(void *arg);
    void *arg;
};

static struct control control;

static void *control_main(void *unused) {
    (void)unused;
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        printf("cpu %lld\n", (long long)bench_cpu());
        fflush(stdout);
    }
    control.stop(control.arg);
    return NULL;
}

int echo_listening(int port, void (*stop)(void *arg), void *arg) {
    control = (struct control){stop, arg};
    pthread_t thread;
    int err = pthread_create(&thread, NULL, control_main, NULL);
    if (err == 0) {
        pthread_detach(thread);
        printf("listening %d\n", port);
        fflush(stdout);
    }
    return err;
}
