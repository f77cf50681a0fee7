/* A host that loads the library, uses it on a thread, unloads it, and only then ends the thread. Argument:
   the shared library. Threads that have called weft take leave of it when they end, so its code must
   still be there. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft.h>

static const char *library;
static int ran;

static int runs(void *arg) {
    *(int *)arg = 1;
    return 0;
}

static void *symbol(void *lib, const char *name) {
    void *f = dlsym(lib, name);
    if (f == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return f;
}

static void *loads_and_unloads(void *arg) {
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    int (*start)(weft_runtime **, const weft_config *);
    int (*submit)(weft_runtime *, weft_fn, void *);
    int (*stop)(weft_runtime *, weft_duration);
    *(void **)&start = symbol(lib, "weft_start");
    *(void **)&submit = symbol(lib, "weft_submit");
    *(void **)&stop = symbol(lib, "weft_stop");
    weft_runtime *rt;
    if (start(&rt, NULL) != 0 || submit(rt, runs, &ran) != 0 || stop(rt, 10 * WEFT_SECOND) != 0) {
        fprintf(stderr, "start, submit or stop failed\n");
        exit(1);
    }
    dlclose(lib);
    return arg;
}

int main(int argc, char **argv) {
    library = argc > 1 ? argv[1] : "libweft.so.0";
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, loads_and_unloads, NULL) != 0) {
            return 1;
        }
        pthread_join(thread, NULL);
    }
    return ran ? 0 : 1;
}
