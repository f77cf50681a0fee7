/* weft/chan.h: channels. */
#ifndef WEFT_CHAN_H
#define WEFT_CHAN_H
#include <weft/base.h>
WEFT_BEGIN
/* Counted: new gives one reference, the last unref frees it and what it still holds. */
typedef struct weft_chan weft_chan;
/* No runtime needed; any thread; across runtimes. A NULL channel waits for ever in send and recv,
   which is why weft_chan_new reports failure by its result and not by NULL. FIFO on both sides. */
WEFT_API WEFT_CHECK int weft_chan_new(weft_chan **out, size_t elem_bytes, size_t capacity);
/* - any: -EINVAL on overflow, -ENOMEM */
WEFT_API weft_chan *weft_chan_ref(weft_chan *c); /* - any: returns c */
WEFT_API void weft_chan_unref(weft_chan *c);
/* - any: NULL is fine. A parked user counts as a holder */
WEFT_API int weft_chan_close(weft_chan *c);
/* - any: wakes both sides with -EPIPE; -EPIPE if closed already */
WEFT_API size_t weft_chan_len(const weft_chan *c); /* - any */
WEFT_API size_t weft_chan_cap(const weft_chan *c); /* - any */

/* 0 | -EPIPE closed | -ECANCELED, -ETIMEDOUT. A failed send did not happen. -EPIPE from recv:
   closed and drained, *elem zeroed. */
WEFT_API WEFT_CHECK int weft_chan_send(weft_chan *c, const void *elem); /* P any ctx */
WEFT_API WEFT_CHECK int weft_chan_send_until(weft_chan *c, const void *elem, weft_time until);
/* P any ctx */
WEFT_API WEFT_CHECK int weft_chan_try_send(weft_chan *c, const void *elem); /* - any: -EAGAIN */
WEFT_API WEFT_CHECK int weft_chan_recv(weft_chan *c, void *elem); /* P any ctx: elem may be NULL */
WEFT_API WEFT_CHECK int weft_chan_recv_until(weft_chan *c, void *elem, weft_time until);
/* P any ctx */
WEFT_API WEFT_CHECK int weft_chan_try_recv(weft_chan *c, void *elem); /* - any: -EAGAIN */

/* Typed channels: WEFT_CHAN_TYPE(jobs, struct job) at file scope makes the type `jobs` and
   jobs_new, _ref, _unref, _close, _len, _send, _send_until, _try_send, _recv, _recv_until,
   _try_recv. */
#define WEFT_CHAN_TYPE(name, T)                                                                    \
    typedef struct name {                                                                          \
        weft_chan *chan;                                                                           \
    } name;                                                                                        \
    WEFT_INLINE int name##_new(name *out, size_t capacity) {                                       \
        return weft_chan_new(&out->chan, sizeof(T), capacity);                                     \
    }                                                                                              \
    WEFT_INLINE name name##_ref(name c) {                                                          \
        weft_chan_ref(c.chan);                                                                     \
        return c;                                                                                  \
    }                                                                                              \
    WEFT_INLINE void name##_unref(name c) { weft_chan_unref(c.chan); }                             \
    WEFT_INLINE int name##_close(name c) { return weft_chan_close(c.chan); }                       \
    WEFT_INLINE size_t name##_len(name c) { return weft_chan_len(c.chan); }                        \
    WEFT_INLINE WEFT_CHECK int name##_send(name c, T v) { return weft_chan_send(c.chan, &v); }     \
    WEFT_INLINE WEFT_CHECK int name##_send_until(name c, T v, weft_time t) {                       \
        return weft_chan_send_until(c.chan, &v, t);                                                \
    }                                                                                              \
    WEFT_INLINE WEFT_CHECK int name##_try_send(name c, T v) {                                      \
        return weft_chan_try_send(c.chan, &v);                                                     \
    }                                                                                              \
    WEFT_INLINE WEFT_CHECK int name##_recv(name c, T *v) { return weft_chan_recv(c.chan, v); }     \
    WEFT_INLINE WEFT_CHECK int name##_recv_until(name c, T *v, weft_time t) {                      \
        return weft_chan_recv_until(c.chan, v, t);                                                 \
    }                                                                                              \
    WEFT_INLINE WEFT_CHECK int name##_try_recv(name c, T *v) {                                     \
        return weft_chan_try_recv(c.chan, v);                                                      \
    }                                                                                              \
    typedef int name##_needs_a_semicolon
WEFT_END
#endif
