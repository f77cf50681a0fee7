/* Option structs that grow: each begins with its own size, as its maker's compiler saw it. */
#include "base/base.h"

#include <string.h>

/* Shorter ones are filled up with what `out` holds; of longer ones what we do not know must be zero. */
int weft__options_read(void *out, size_t bytes, size_t least, const void *in) {
    if (in == NULL) {
        return 0;
    }
    size_t given = *(const size_t *)in;
    if (given < least) {
        return -EINVAL;
    }
    for (size_t i = bytes; i < given; i++) {
        if (((const char *)in)[i] != 0) {
            return -EINVAL;
        }
    }
    memcpy(out, in, given < bytes ? given : bytes);
    *(size_t *)out = bytes;
    return 0;
}
