/* The portable switch, on ucontext: two system calls a switch, for processors without one of ours.
   See switch.h. The saved context is large, so it lies on the heap of the C library. */
#ifndef WEFT__SWITCH_UCONTEXT_H
#define WEFT__SWITCH_UCONTEXT_H

typedef struct weft__ctx {
    struct weft__uctx *u; /* made at the first init or switch; kept for the context's life */
    struct weft__m *m;    /* handed over by the switch that comes here */
    void *top;
    void *pad;
} weft__ctx;

void weft__ctx_prepare(weft__ctx *c); /* what else the first switch would allocate */
void weft__ctx_init(weft__ctx *c, void *top);
struct weft__m *weft__ctx_switch(weft__ctx *from, weft__ctx *to, struct weft__m *m);
void weft__ctx_fini(weft__ctx *c);
#define WEFT__CTX_HAS_FINI 1

#endif
