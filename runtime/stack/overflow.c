/* stack/overflow.c: says whose stack was run over, and gets out of the way.

   A fault in the guard of a watched pool is reported in one line on stderr. Then, as after any other
   fault, what would have happened without us happens: the handler that the host had before is
   called, or the signal takes its default effect.

   The handlers take no lock. Pools are watched through a list whose nodes are never freed and used
   again; `readers` counts the handlers that look at pools right now, and unwatch waits for them.
   `lock` is for install, remove, watch and unwatch; nothing else is taken under it. */
#define _GNU_SOURCE 1
#include "stack/stack.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "stack/guard.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum {
    WHO_BYTES = 256,           /* of the text that sched describes a stack's user with */
    SIGSTACK_BYTES = 64 << 10, /* of an alternate stack, unless the kernel's frame is very large */
    SIGSTACK_ROOM = 8 << 10    /* what a handler has beyond the kernel's frame, at least */
};

struct watch {
    struct watch *next;             /* constant once published */
    _Atomic(weft__stacks *) stacks; /* NULL: to be used again */
};

/* One of the signals we take. */
struct taken {
    int sig;
    bool ours;               /* our handler has been installed; lock */
    struct sigaction before; /* the disposition that we replaced */
};

void (*_Atomic weft__overflow_describe)(const weft__stack *st, char *buf, size_t n);

static _Atomic(struct watch *) watches;
static _Atomic int readers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int installs; /* lock */
static struct taken taken[] = {{.sig = SIGSEGV}, {.sig = SIGBUS}};

static void on_fault(int sig, siginfo_t *info, void *context);

/* What is watched. */

int weft__overflow_watch(weft__stacks *s) {
    int err = 0;
    pthread_mutex_lock(&lock);
    struct watch *w = atomic_load_explicit(&watches, memory_order_relaxed);
    while (w && atomic_load_explicit(&w->stacks, memory_order_relaxed)) w = w->next;
    if (w) {
        atomic_store(&w->stacks, s);
    } else if ((w = weft__mem_alloc(sizeof *w))) {
        w->next = atomic_load_explicit(&watches, memory_order_relaxed);
        atomic_init(&w->stacks, s);
        /* Pairs with the acquire in find_guard: a handler sees the node whole. */
        atomic_store_explicit(&watches, w, memory_order_release);
    } else {
        err = -ENOMEM;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* Store, then read `readers`; a handler raises `readers`, then reads the store. Both are
   sequentially consistent, so either the handler finds NULL or we wait for it. Its part is short
   and runs no user code. */
void weft__overflow_unwatch(weft__stacks *s) {
    pthread_mutex_lock(&lock);
    struct watch *w = atomic_load_explicit(&watches, memory_order_relaxed);
    while (w && atomic_load_explicit(&w->stacks, memory_order_relaxed) != s) w = w->next;
    if (w) {
        atomic_store(&w->stacks, NULL);
        while (atomic_load(&readers) > 0) sched_yield();
    }
    pthread_mutex_unlock(&lock);
}

/* The report. Signal-safe: no allocation, no lock, no stdio. */

static bool find_guard(const void *addr, weft__stack *st) {
    struct watch *w = atomic_load_explicit(&watches, memory_order_acquire);
    for (; w; w = w->next) {
        weft__stacks *s = atomic_load(&w->stacks);
        bool in_guard;
        if (s && weft__stacks_find(s, addr, st, &in_guard)) return in_guard;
    }
    return false;
}

struct line {
    size_t bytes;
    char text[WHO_BYTES + 128];
};

static void put_text(struct line *l, const char *text) {
    while (*text && l->bytes < sizeof l->text) l->text[l->bytes++] = *text++;
}

static void put_number(struct line *l, size_t number) {
    char digits[24] = "";
    size_t first = sizeof digits - 1;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    put_text(l, digits + first);
}

/* Writes `weft: stack overflow in green thread 17 (name), started at main, stack of 256 KiB`. */
static void report(const char *who, size_t stack_bytes) {
    struct line l = {0};
    put_text(&l, "weft: stack overflow in ");
    put_text(&l, who);
    put_text(&l, ", stack of ");
    put_number(&l, stack_bytes >> 10);
    put_text(&l, " KiB\n");
    /* The process is about to end; there is nobody to tell that stderr is full or closed. */
    ssize_t written = write(STDERR_FILENO, l.text, l.bytes);
    (void)written;
}

static void report_overflow(const void *addr) {
    weft__stack st;
    char who[WHO_BYTES];
    atomic_fetch_add(&readers, 1);
    bool found = find_guard(addr, &st);
    if (found) {
        void (*describe)(const weft__stack *, char *, size_t) =
            atomic_load_explicit(&weft__overflow_describe, memory_order_acquire);
        memcpy(who, "a green thread", sizeof "a green thread");
        if (describe) describe(&st, who, sizeof who);
        who[sizeof who - 1] = 0;
    }
    atomic_fetch_sub(&readers, 1);
    /* Outside of the count, since stderr may be a full pipe. */
    if (found) report(who, st.bytes);
}

/* Passing on. */

/* True for a signal that does not come back by itself when the handler returns: one that somebody
   sent, or a memory error found in advance. */
static bool came_from_elsewhere(int sig, const siginfo_t *info) {
#ifdef BUS_MCEERR_AO
    if (sig == SIGBUS && info->si_code == BUS_MCEERR_AO) return true;
#endif
    (void)sig;
    return info->si_code <= 0;
}

static void default_effect(int sig, const siginfo_t *info) {
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(sig, &dfl, NULL);
    /* Blocked while this handler runs, so it takes effect on return. A fault repeats on return: the
       core file then shows its address. */
    if (came_from_elsewhere(sig, info)) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
}

static void pass_on(const struct sigaction *before, int sig, siginfo_t *info, void *context) {
    bool by_info = before->sa_flags & SA_SIGINFO;
    if (!by_info && before->sa_handler == SIG_IGN && came_from_elsewhere(sig, info)) return;
    /* The kernel does not let a fault be ignored either. */
    if (!by_info && (before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN)) {
        default_effect(sig, info);
        return;
    }
    if (before->sa_flags & (int)SA_RESETHAND) {
        struct sigaction dfl = {.sa_handler = SIG_DFL};
        sigaction(sig, &dfl, NULL);
    }
    if (by_info) {
        before->sa_sigaction(sig, info, context);
    } else {
        before->sa_handler(sig);
    }
}

static void on_fault(int sig, siginfo_t *info, void *context) {
    int saved = errno;
    const struct taken *t = sig == SIGSEGV ? &taken[0] : &taken[1];
    if (!came_from_elsewhere(sig, info)) report_overflow(info->si_addr);
    pass_on(&t->before, sig, info, context);
    errno = saved;
}

/* Install and remove. The lock is held. */

static bool is_ours(const struct sigaction *a) {
    return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_fault;
}

static bool is_handler(const struct sigaction *a) {
    return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

/* The host's handler sees the mask and the nesting that it asked for, since it may leave by
   siglongjmp. */
static struct sigaction our_action(const struct sigaction *before) {
    struct sigaction a = {.sa_mask = before->sa_mask};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK | (before->sa_flags & (int)(SA_NODEFER | SA_RESTART));
    return a;
}

static int take(struct taken *t) {
    struct sigaction before;
    if (sigaction(t->sig, NULL, &before) != 0) return -errno;
    /* Ours is there from before: the host has put its handler over it and may call it from there.
       To go over that one in turn would make a ring of the two. */
    if (t->ours && is_handler(&before)) return 0;
    t->before = before; /* before the handler can run */
    struct sigaction a = our_action(&before);
    if (sigaction(t->sig, &a, NULL) != 0) return -errno;
    t->ours = true;
    return 0;
}

static void give_back(struct taken *t) {
    struct sigaction now;
    if (!t->ours || sigaction(t->sig, NULL, &now) != 0 || !is_ours(&now)) return;
    sigaction(t->sig, &t->before, NULL);
    t->ours = false;
}

int weft__overflow_install(void) {
    int err = 0;
    pthread_mutex_lock(&lock);
    if (installs == 0) {
        err = take(&taken[0]);
        if (!err) err = take(&taken[1]);
        if (err) give_back(&taken[0]);
    }
    if (!err) installs++;
    pthread_mutex_unlock(&lock);
    return err;
}

void weft__overflow_remove(void) {
    pthread_mutex_lock(&lock);
    if (installs > 0 && --installs == 0) {
        give_back(&taken[0]);
        give_back(&taken[1]);
    }
    pthread_mutex_unlock(&lock);
}

/* Only the calling thread lives on. Its parent's other threads may have been anywhere in here. */
void weft__overflow_forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&readers, 0);
}

/* The alternate stack. */

static size_t sigstack_bytes(size_t page) {
    size_t need = getauxval(AT_MINSIGSTKSZ) + SIGSTACK_ROOM;
    size_t bytes = need > SIGSTACK_BYTES ? need : SIGSTACK_BYTES;
    return (bytes + page - 1) / page * page;
}

int weft__sigstack_setup(weft__sigstack *out) {
    stack_t now;
    *out = (weft__sigstack){0};
    if (sigaltstack(NULL, &now) != 0) return -errno;
    if (!(now.ss_flags & SS_DISABLE)) return 0;
    size_t page = weft__page_bytes();
    size_t bytes = sigstack_bytes(page);
    char *map = mmap(NULL, page + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) return -ENOMEM;
    stack_t ours = {.ss_sp = map + page, .ss_size = bytes};
    if (mprotect(map + page, bytes, PROT_READ | PROT_WRITE) != 0 || sigaltstack(&ours, NULL) != 0) {
        int err = -errno;
        munmap(map, page + bytes);
        return err;
    }
    *out = (weft__sigstack){.map = map, .bytes = page + bytes};
    return 0;
}

void weft__sigstack_teardown(weft__sigstack *s) {
    if (!s->map) return;
    stack_t now;
    /* The host may have set another one on this thread meanwhile: that one stays. */
    if (sigaltstack(NULL, &now) == 0 && (char *)now.ss_sp == (char *)s->map + weft__page_bytes()) {
        stack_t none = {.ss_flags = SS_DISABLE};
        sigaltstack(&none, NULL);
    }
    munmap(s->map, s->bytes);
    *s = (weft__sigstack){0};
}
