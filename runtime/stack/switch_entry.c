/*
 * Where a new context begins: a few instructions that put the M where a C function expects it, mark
 * the end of the stack for unwinders, and call the scheduler's entry. Or the ucontext switch whole.
 */
#include "stack/switch.h"

__attribute__((used)) /* by the assembly below: -flto must not lose it */
void (*weft__stack_entry)(struct weft__m *m);

#if defined(WEFT__SWITCH_X86_64_H)

__asm__(".text\n"
        ".p2align 4\n"
        ".globl weft__entry_x86_64\n"
        ".hidden weft__entry_x86_64\n"
        ".type weft__entry_x86_64, @function\n"
        "weft__entry_x86_64:\n"
        ".cfi_startproc\n"
        ".cfi_undefined rip\n" /* the outermost frame */
        "endbr64\n"
        "xorl %ebp, %ebp\n"
        "movq %rax, %rdi\n"
        "call *weft__stack_entry(%rip)\n"
        "ud2\n"
        ".cfi_endproc\n"
        ".size weft__entry_x86_64, .-weft__entry_x86_64\n");

#elif defined(WEFT__SWITCH_AARCH64_H)

__asm__(".text\n"
        ".p2align 4\n"
        ".globl weft__entry_aarch64\n"
        ".hidden weft__entry_aarch64\n"
        ".type weft__entry_aarch64, %function\n"
        "weft__entry_aarch64:\n"
        ".cfi_startproc\n"
        ".cfi_undefined x30\n"
        "hint #38\n" /* bti jc */
        "mov x29, #0\n"
        "mov x30, #0\n"
        "mov x0, x2\n"
        "adrp x16, weft__stack_entry\n"
        "ldr x16, [x16, :lo12:weft__stack_entry]\n"
        "blr x16\n"
        "brk #1\n"
        ".cfi_endproc\n"
        ".size weft__entry_aarch64, .-weft__entry_aarch64\n");

#else

#include <fenv.h>
#include <ucontext.h>

struct weft__uctx {
    ucontext_t uc;
};

static struct weft__uctx *uctx_of(weft__ctx *c) {
    if (c->u == NULL) {
        c->u = weft__mem_zalloc(sizeof *c->u);
        if (c->u == NULL) {
            weft__fatal("out of memory for a context of the ucontext switch");
        }
    }
    return c->u;
}

void weft__ctx_prepare(weft__ctx *c) { uctx_of(c); }

static void entry(unsigned hi, unsigned lo) {
    weft__ctx *c = (weft__ctx *)(uintptr_t)(((uint64_t)hi << 32) | lo);
    fesetenv(FE_DFL_ENV); /* getcontext took that of whoever made this context */
    weft__stack_entry(c->m);
}

/* makecontext wants the stack's low end; how far down it reaches is the guard's business, so a
   range that surely lies inside is named. */
void weft__ctx_init(weft__ctx *c, void *top) {
    enum { NAMED = 4096 };
    ucontext_t *uc = &uctx_of(c)->uc;
    getcontext(uc);
    uc->uc_stack.ss_sp = (char *)top - NAMED;
    uc->uc_stack.ss_size = NAMED;
    uc->uc_link = NULL;
    uint64_t self = (uint64_t)(uintptr_t)c;
    makecontext(uc, (void (*)(void))entry, 2, (unsigned)(self >> 32), (unsigned)self);
}

WEFT__NOINLINE struct weft__m *weft__ctx_switch(weft__ctx *from, weft__ctx *to, struct weft__m *m) {
    to->m = m;
    swapcontext(&uctx_of(from)->uc, &uctx_of(to)->uc);
    return from->m;
}

void weft__ctx_fini(weft__ctx *c) {
    weft__mem_free(c->u, sizeof *c->u);
    c->u = NULL;
}

#endif
