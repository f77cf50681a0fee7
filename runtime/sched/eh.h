/*
 * Exceptions of C++ that are being handled, and switches.
 *
 * The C++ runtime keeps, for each thread, a stack of the exceptions whose handlers run, and a count of
 * those under way (its ABI fixes the layout). It thinks of a thread; a G that switches inside a handler, or
 * in a destructor while an exception passes, wakes on another thread, where another G may be in a handler
 * of its own. So what is there goes with the G:
 *
 *   - a switch that leaves a G in a handler keeps the thread's record in its own frame, clears it, and puts
 *     it back on the thread where the G wakes;
 *   - so the record is clear whenever a G begins or wakes, and whenever the scheduler's stack runs.
 *
 * The record's address is looked up once an M, by a weak symbol: a program without C++ links none, and all
 * that a switch does is to see that a record is clear. A C++ runtime that is loaded later into a C program
 * is not seen.
 */
#ifndef WEFT__EH_H
#define WEFT__EH_H

#include "base/base.h"

typedef struct weft__eh {
    void *caught;      /* innermost first */
    unsigned uncaught; /* how many are under way */
#ifdef __ARM_EABI_UNWINDER__
    void *propagating;
#endif
} weft__eh;

extern weft__eh weft__eh_none; /* always clear */

WEFT__ALWAYS_INLINE bool weft__eh_busy(const weft__eh *eh) {
    return ((uintptr_t)eh->caught | eh->uncaught) != 0;
}

#endif
