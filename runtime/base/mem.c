/* Memory for the runtime's own records. The C library's allocator, or whatever the process has put
   in its place. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

void *weft__mem_alloc(size_t bytes) { return malloc(bytes ? bytes : 1); }

void *weft__mem_zalloc(size_t bytes) { return calloc(1, bytes ? bytes : 1); }

void *weft__mem_alloc_aligned(size_t bytes, size_t align) {
    void *p = NULL;
    return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

void weft__mem_free(void *ptr, size_t bytes) {
    (void)bytes;
    free(ptr);
}
