/* The switch for aarch64, AAPCS64. See switch.h. On Linux x18 is a scratch register like others (where
   a platform keeps it for itself the compiler does not use it, and the clobber costs nothing). The resume
   point is a landing pad for branch-target identification (a hint, nothing elsewhere). */
#ifndef WEFT__SWITCH_AARCH64_H
#define WEFT__SWITCH_AARCH64_H

typedef struct weft__ctx {
    void *pc;      /* 0 */
    void *sp;      /* 8 */
    void *fp;      /* 16 */
    uint64_t fpcr; /* 24 */
} weft__ctx;

void weft__entry_aarch64(void); /* switch_entry.c: calls weft__stack_entry(x2) */

static inline void weft__ctx_init(weft__ctx *c, void *top) {
    c->pc = (void *)weft__entry_aarch64;
    c->sp = top;
    c->fp = NULL;
    c->fpcr = 0;
}

WEFT__ALWAYS_INLINE struct weft__m *weft__ctx_switch(weft__ctx *from, weft__ctx *to,
                                                     struct weft__m *m) {
    register weft__ctx *x0 __asm__("x0") = from;
    register weft__ctx *x1 __asm__("x1") = to;
    register struct weft__m *x2 __asm__("x2") = m;
    /* clang-format off */
    __asm__ volatile(
        "adr x9, 1f\n\t"
        "mov x10, sp\n\t"
        "stp x9, x10, [x0]\n\t"
        "mrs x11, fpcr\n\t"
        "stp x29, x11, [x0, #16]\n\t"
        "ldp x16, x10, [x1]\n\t"
        "ldp x29, x12, [x1, #16]\n\t"
        "cmp x11, x12\n\t"
        "b.eq 2f\n\t"
        "msr fpcr, x12\n\t"
        "2:\n\t"
        "mov sp, x10\n\t"
        "br x16\n\t"
        "1:\n\t"
        "hint #36\n\t" /* bti j */
        : "+r"(x0), "+r"(x1), "+r"(x2)
        :
        : "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
          "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0",
          "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
          "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",
          "v28", "v29", "v30", "v31", "memory", "cc");
    /* clang-format on */
    return x2;
}

#endif
