/*
 * Keeping our own code where it is. A thread that has called weft runs code of ours when it ends, however
 * late, and threads of weft run nothing else; so from the first of these on dlclose returns, but the
 * library stays. A library that was loaded and never used goes.
 *
 * The calls are weak: a program linked statically has none of them and nothing to unload.
 */
#include "os/os.h"

#ifdef __GLIBC__

#include <dlfcn.h>
#include <link.h>

#pragma weak dladdr1
#pragma weak dlopen
#pragma weak dlerror

void weft__library_pin(void) {
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1 == NULL || dlopen == NULL ||
        dladdr1((const void *)weft__library_pin, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 ||
        map == NULL || map->l_name[0] == '\0') { /* in the program itself */
        return;
    }
    if (dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == NULL) {
        dlerror(); /* what we have asked is nobody's business */
    }
}

#else /* musl never unloads; elsewhere who unloads us does so when no thread that called weft lives */

void weft__library_pin(void) {}

#endif
