/* hash.h: where a key lives. */
#ifndef KV_HASH_H
#define KV_HASH_H
#include "bytes.h"
#include <stdint.h>

/* Keyed with a secret, so that a client cannot choose keys that all fall into one place. */
struct hash_secret {
    uint64_t k0, k1;
};

/* SipHash with `rounds` compression rounds a word and `final` at the end. 1 and 3 serve a table;
   the published vectors are those of 2 and 4. */
uint64_t hash_siphash(const struct hash_secret *s, struct bytes key, int rounds, int final);

static inline uint64_t hash_key(const struct hash_secret *s, struct bytes key) {
    return hash_siphash(s, key, 1, 3);
}
#endif
