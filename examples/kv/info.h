/* info.h: the text of INFO. */
#ifndef KV_INFO_H
#define KV_INFO_H
#include "bytes.h"
#include <stdlib.h>

struct server;

/* The named sections, or all when none is named; unknown names are nothing. The caller frees *text;
   -ENOMEM if there is none. */
int info_text(struct server *s, const struct bytes *sections, size_t n, char **text, size_t *bytes);
#endif
