/*
 * Room base: what every room needs and that needs nobody: compiler words, memory, random numbers,
 * the fatal path. The lowest floor; read it first.
 */
#ifndef WEFT__BASE_H
#define WEFT__BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

#define WEFT__LINE 64 /* bytes that two writers should not share */

#define weft__likely(x) __builtin_expect(!!(x), 1)
#define weft__unlikely(x) __builtin_expect(!!(x), 0)
#define WEFT__ALWAYS_INLINE static inline __attribute__((always_inline))
#define WEFT__NOINLINE __attribute__((noinline))
#define WEFT__COLD __attribute__((noinline, cold))
#define WEFT__NORETURN __attribute__((noreturn))

/* The address that a public function returns to: where the user stood. */
#define weft__caller() __builtin_return_address(0)

#define weft__container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEFT__TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define WEFT__ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WEFT__TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WEFT__ASAN 1
#endif

/* States an invariant. On in debug builds, where a breach ends the process with the words given. */
#ifdef WEFT_DEBUG_CHECKS
#define weft__assert(cond, words)                                                                  \
    do {                                                                                           \
        if (weft__unlikely(!(cond)))                                                               \
            weft__fatal("internal error: %s (%s:%d)", (words), __FILE__, __LINE__);                \
    } while (0)
#else
#define weft__assert(cond, words) ((void)0)
#endif

/* Ends the process with "weft: fatal: ..." on stderr, after the host's hook. Takes no lock and
   allocates nothing, so it may be called with any lock held and on any stack. */
WEFT__NORETURN void weft__fatal(const char *fmt, ...) WEFT_PRINTF(1, 2);
/* The hook of weft_config.fatal; the last runtime that starts with one sets it. NULL takes it away. */
void weft__fatal_set_hook(void (*hook)(void *arg, const char *text), void *arg);
/* Its runtime has gone: it is not called any more, if it still is the one. */
void weft__fatal_drop_hook(void (*hook)(void *arg, const char *text), void *arg);
/* Tells the fatal message who speaks ("green thread 17"): set by the scheduler, may be NULL. */
extern void (*weft__fatal_who)(char *buf, size_t bytes);

/* Memory. Blocks are 16-aligned and not cleared; free takes the size that was asked for. NULL when
   there is none. Never called on a hot path; with a lock of the runtime held only by the timer heaps,
   the table of conns and the pool of stacks. */
void *weft__mem_alloc(size_t bytes);
void *weft__mem_zalloc(size_t bytes);
void weft__mem_free(void *ptr, size_t bytes);
/* `align` is at least 16; free_aligned is told the same. */
void *weft__mem_alloc_aligned(size_t bytes, size_t align);
void weft__mem_free_aligned(void *ptr, size_t bytes, size_t align);

/* Reads a caller's option struct into `out`, which holds the defaults and is `bytes` long. NULL: they
   stay. 0, or -EINVAL: shorter than any version had it (`least`), or it asks for what we do not know. */
int weft__options_read(void *out, size_t bytes, size_t least, const void *in);

/* A small fast generator (xorshift64*), one state an owner; for choices, not for secrets. */
WEFT__ALWAYS_INLINE uint32_t weft__rand(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (uint32_t)((x * UINT64_C(2685821657736338717)) >> 32);
}

#endif
