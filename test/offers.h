/* offers.h: what this machine offers to weft, in weft's own words. Where it offers less weft promises less,
 * and a test holds it to that. */
#ifndef WEFT_TEST_OFFERS_H
#define WEFT_TEST_OFFERS_H

#include <stdbool.h>
#include <string.h>

#include <weft.h>

/* Whether it shows what a thread does. If not, one is blocked when its CPU clock has stood still for
   1 ms in three looks: a call may be shorter than that, and a thread that the system keeps waiting for a
   CPU seems blocked. */
static inline bool offers_thread_state(void) {
    return strstr(weft_features(), "thread-state") != NULL;
}

#endif
