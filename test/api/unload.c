/* Hosts that load the library and unload it again, each in a process of its own. Argument: the shared
   library. Threads that have called weft take leave of it when they end, so its code must still be there;
   a library that nobody has used goes.

     unused        loaded, asked for its version, closed: gone. Loading starts no thread, opens nothing,
                   changes no signal
     ended         each thread loads, starts, stops, closes, and ends only then
     living        threads that have used it, and wait in it, outlive the closing
     running       closed while a runtime runs; stopped by whoever still has its functions
     again         closed and loaded again, as often as there are thread-specific keys */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

static const char *library;

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static struct {
    void *handle;
    int (*start)(weft_runtime **, const weft_config *);
    int (*submit)(weft_runtime *, weft_fn, void *);
    int (*stop)(weft_runtime *, weft_duration);
    const char *(*version)(void);
    void (*event_set)(weft_event *);
    void (*event_wait)(weft_event *);
    int (*local_set)(weft_local *, void *);
    void (*yield)(void);
} weft;

static void *symbol(const char *name) {
    void *f = dlsym(weft.handle, name);
    MUST(f != NULL);
    return f;
}

static void load(void) {
    weft.handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (weft.handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    *(void **)&weft.start = symbol("weft_start");
    *(void **)&weft.submit = symbol("weft_submit");
    *(void **)&weft.stop = symbol("weft_stop");
    *(void **)&weft.version = symbol("weft_version");
    *(void **)&weft.event_set = symbol("weft_event_set");
    *(void **)&weft.event_wait = symbol("weft_event_wait");
    *(void **)&weft.local_set = symbol("weft_local_set");
    *(void **)&weft.yield = symbol("weft_yield");
}

static bool is_loaded(void) {
    void *again = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (again != NULL) {
        dlclose(again);
    }
    return again != NULL;
}

static int entries_of(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    MUST(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static int count(void *arg) {
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
    return 0;
}

static void start_and_stop(void) {
    weft_runtime *rt;
    int ran = 0;
    MUST(weft.start(&rt, NULL) == 0 && weft.submit(rt, count, &ran) == 0 &&
         weft.stop(rt, 10 * WEFT_SECOND) == 0);
    MUST(ran == 1);
}

/* ---- the cases ---- */

static void unused(void) {
    struct sigaction before[NSIG], after;
    int threads = entries_of("/proc/self/task"), fds = entries_of("/proc/self/fd");
    memset(before, 0, sizeof before);
    for (int s = 1; s < NSIG; s++) {
        sigaction(s, NULL, &before[s]);
    }
    load();
    MUST(is_loaded());
    MUST(strlen(weft.version()) > 0);
    MUST(entries_of("/proc/self/task") == threads && entries_of("/proc/self/fd") == fds);
    for (int s = 1; s < NSIG; s++) {
        memset(&after, 0, sizeof after);
        sigaction(s, NULL, &after);
        MUST(after.sa_handler == before[s].sa_handler && after.sa_flags == before[s].sa_flags);
    }
    dlclose(weft.handle);
    MUST(!is_loaded());
}

static void *loads_and_unloads(void *arg) {
    load();
    start_and_stop();
    dlclose(weft.handle);
    return arg;
}

static void ended(void) {
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, loads_and_unloads, NULL) == 0);
        pthread_join(thread, NULL);
    }
    MUST(is_loaded()); /* threads have called it: it stays */
}

enum { LIVING = 8 };
static weft_event never_set_yet = WEFT_EVENT_INIT;
static int used, gone;

static void goes(void *value) { __atomic_fetch_add((int *)value, 1, __ATOMIC_RELAXED); }
static weft_local key = WEFT_LOCAL_INIT(goes);

/* Those with an argument wait in the library while it is closed, the others between two calls. */
static void *uses(void *arg) {
    weft.yield();
    MUST(weft.local_set(&key, &gone) == 0);
    __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
    if (arg != NULL) {
        weft.event_wait(&never_set_yet);
    } else {
        while (__atomic_load_n(&used, __ATOMIC_RELAXED) < 2 * LIVING) {
            usleep(100);
        }
    }
    return NULL;
}

static void living(void) {
    pthread_t t[LIVING];
    load();
    for (int i = 0; i < LIVING; i++) {
        MUST(pthread_create(&t[i], NULL, uses, i % 2 ? &used : NULL) == 0);
    }
    while (__atomic_load_n(&used, __ATOMIC_RELAXED) < LIVING) {
        usleep(100);
    }
    void (*set)(weft_event *) = weft.event_set;
    dlclose(weft.handle);
    MUST(is_loaded());
    set(&never_set_yet);
    __atomic_fetch_add(&used, LIVING, __ATOMIC_RELAXED);
    for (int i = 0; i < LIVING; i++) {
        pthread_join(t[i], NULL);
    }
    MUST(gone == LIVING);
}

static void running(void) {
    weft_runtime *rt;
    int ran = 0;
    load();
    MUST(weft.start(&rt, NULL) == 0);
    dlclose(weft.handle);
    MUST(is_loaded());
    for (int i = 0; i < 100; i++) {
        MUST(weft.submit(rt, count, &ran) == 0);
    }
    MUST(weft.stop(rt, 10 * WEFT_SECOND) == 0);
    MUST(ran == 100);
}

static void again(void) {
    int threads = 0, fds = 0; /* as after the first round: a sanitizer has a thread of its own */
    for (int i = 0; i < PTHREAD_KEYS_MAX + 10; i++) {
        load();
        if (i % 64 == 0) {
            start_and_stop();
        }
        weft.yield();
        dlclose(weft.handle);
        fds = fds != 0 ? fds : entries_of("/proc/self/fd");
        threads = threads != 0 ? threads : entries_of("/proc/self/task");
    }
    MUST(entries_of("/proc/self/task") == threads && entries_of("/proc/self/fd") == fds);
}

static int failed;

static void in_a_child(const char *name, void (*fn)(void)) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        fn();
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "FAIL unload %s: status %#x\n", name, status);
        failed = 1;
    }
}

int main(int argc, char **argv) {
    library = argc > 1 ? argv[1] : "libweft.so.0";
    in_a_child("unused", unused);
    in_a_child("ended", ended);
    in_a_child("living", living);
    in_a_child("running", running);
    in_a_child("again", again);
    return failed;
}
