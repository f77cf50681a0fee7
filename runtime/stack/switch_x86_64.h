/* The switch for x86-64, System V. See switch.h. With indirect-branch tracking the resume point is a
   landing pad; shadow stacks are refused at build (the library is not marked for them). */
#ifndef WEFT__SWITCH_X86_64_H
#define WEFT__SWITCH_X86_64_H

#if defined(__CET__) && (__CET__ & 2)
#error "weft's switch cannot run on shadow stacks: build with -fcf-protection=branch or none"
#endif
#if defined(__CET__) && (__CET__ & 1)
#define WEFT__LANDING "endbr64\n\t"
#else
#define WEFT__LANDING ""
#endif

/* Registers that the compiler may use only if it was told to: then they are lost at a switch too. */
#ifdef __AVX512F__
#define WEFT__CLOBBER_AVX512                                                                       \
    , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",    \
        "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k1", "k2", "k3", "k4", "k5", "k6",  \
        "k7"
#else
#define WEFT__CLOBBER_AVX512
#endif

typedef struct weft__ctx {
    void *pc;       /* 0 */
    void *sp;       /* 8 */
    void *bp;       /* 16 */
    uint32_t mxcsr; /* 24 */
    uint16_t fpucw; /* 28 */
    uint16_t pad;
} weft__ctx;

void weft__entry_x86_64(void); /* switch_entry.c: calls weft__stack_entry(rax) */

static inline void weft__ctx_init(weft__ctx *c, void *top) {
    c->pc = (void *)weft__entry_x86_64;
    c->sp = top;
    c->bp = NULL;
    c->mxcsr = 0x1f80;
    c->fpucw = 0x37f;
}

WEFT__ALWAYS_INLINE struct weft__m *weft__ctx_switch(weft__ctx *from, weft__ctx *to,
                                                     struct weft__m *m) {
    /* clang-format off */
    __asm__ volatile(
        "leaq 1f(%%rip), %%rdx\n\t"
        "movq %%rdx, 0(%%rdi)\n\t"
        "movq %%rsp, 8(%%rdi)\n\t"
        "movq %%rbp, 16(%%rdi)\n\t"
        "stmxcsr 24(%%rdi)\n\t"
        "fnstcw 28(%%rdi)\n\t"
        "movl 24(%%rdi), %%ecx\n\t"
        "xorl 24(%%rsi), %%ecx\n\t"
        "movzwl 28(%%rdi), %%edx\n\t"
        "testl $0xffc0, %%ecx\n\t" /* the status bits below are nobody's to keep */
        "jne 2f\n\t"
        "cmpw 28(%%rsi), %%dx\n\t"
        "jne 2f\n\t"
        "3:\n\t"
        "movq 8(%%rsi), %%rsp\n\t"
        "movq 16(%%rsi), %%rbp\n\t"
        "jmpq *0(%%rsi)\n\t"
        "2:\n\t"
        "ldmxcsr 24(%%rsi)\n\t"
        "fldcw 28(%%rsi)\n\t"
        "jmp 3b\n\t"
        "1:\n\t" WEFT__LANDING
        : "+a"(m), "+D"(from), "+S"(to)
        :
        : "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15" WEFT__CLOBBER_AVX512);
    /* clang-format on */
    return m;
}

#endif
