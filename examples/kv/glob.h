/* glob.h: the patterns of KEYS and CONFIG GET. */
#ifndef KV_GLOB_H
#define KV_GLOB_H
#include "bytes.h"

/* `*` any run, `?` any byte, `[abc]`, `[a-z]`, `[^a]` one of a set, `\x` the byte x itself. An
   unfinished set ends with the pattern; a lone backslash at the end stands for itself. Binary safe.
   No pattern takes longer than its length times the text's. */
bool glob_match(struct bytes pattern, struct bytes text);
bool glob_match_nocase(struct bytes pattern, struct bytes text);
#endif
