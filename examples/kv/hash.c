/* hash.c: SipHash (Aumasson and Bernstein, 2012). */
#include "hash.h"

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

static inline void mix(struct state *s, int rounds) {
    for (int i = 0; i < rounds; i++) {
        s->v0 += s->v1;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

/* Up to eight bytes, least significant first whatever the machine's order is. */
static inline uint64_t load(const char *p, size_t n) {
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) word |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return word;
}

static inline void absorb(struct state *s, uint64_t word, int rounds) {
    s->v3 ^= word;
    mix(s, rounds);
    s->v0 ^= word;
}

uint64_t hash_siphash(const struct hash_secret *secret, struct bytes key, int rounds, int final) {
    struct state s = {
        secret->k0 ^ UINT64_C(0x736f6d6570736575),
        secret->k1 ^ UINT64_C(0x646f72616e646f6d),
        secret->k0 ^ UINT64_C(0x6c7967656e657261),
        secret->k1 ^ UINT64_C(0x7465646279746573),
    };
    const char *p = key.at;
    size_t left = key.n;

    for (; left >= 8; p += 8, left -= 8) absorb(&s, load(p, 8), rounds);
    absorb(&s, load(p, left) | (uint64_t)key.n << 56, rounds);
    s.v2 ^= 0xff;
    mix(&s, final);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
