/* trim.h: memory back to the system after much of it has been freed at once. */
#ifndef KV_TRIM_H
#define KV_TRIM_H
#include <stddef.h>

/* From a G. Without a start nothing is trimmed. 0, or a negative error. */
int trim_start(void);
void trim_stop(void);

/* So many bytes have been freed. When it has become much, the allocator is asked to return what it
   holds, a moment later and at most ten times a second. Allocators keep freed pages for the next
   request; jemalloc hands them back by and by, but only while somebody allocates, and a store whose
   keys have all expired may be idle for hours. */
void trim_after(size_t bytes);
#endif
