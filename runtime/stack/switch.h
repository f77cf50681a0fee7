/*
 * The register switch: leave one stack, go on on another. One header a processor; this one chooses.
 *
 * Each offers:
 *   weft__ctx                          what is saved of a context that does not run
 *   weft__ctx_init(ctx, top)           a new context that will call weft__stack_entry(m) on the stack
 *                                      below `top` (16-aligned), with the default float environment
 *   m = weft__ctx_switch(from, to, m)  save here, go on there; `m` is handed over in a register, and
 *                                      what comes back is the `m` of whoever switched back to us
 *
 * The switch is inlined at the park site and leaves by an indirect jump: a `ret` would mispredict
 * whenever the two sides differ. It pushes nothing, so a red zone stays whole, and the stack pointer
 * at the label where it resumes is that of the enclosing frame: the compiler's unwind information
 * holds there. All callee-saved registers are declared clobbered, so the compiler itself spills what
 * it needs; only frame pointer, stack pointer, resume address and the floating-point control words
 * are kept in the context. No thread-local address may be kept over it: the thread may be another.
 */
#ifndef WEFT__SWITCH_H
#define WEFT__SWITCH_H

#include "base/base.h"

struct weft__m;
/* Where a new context begins; set by the scheduler before the first one is made. Never returns. */
extern void (*weft__stack_entry)(struct weft__m *m);

#if defined(WEFT_SWITCH_UCONTEXT)
#include "stack/switch_ucontext.h"
#elif defined(__x86_64__) && !defined(__ILP32__)
#include "stack/switch_x86_64.h"
#elif defined(__aarch64__)
#include "stack/switch_aarch64.h"
#else
#include "stack/switch_ucontext.h"
#endif

#endif
