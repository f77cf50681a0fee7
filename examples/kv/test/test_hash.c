/* test_hash.c: SipHash against its authors' vectors, and the spread of what we use. */
#include "check.h"
#include "hash.h"

/* Key 00 01 .. 0f; inputs of 0, 1, 8 and 15 bytes 00 01 ..: from the paper and its reference
   program. */
static void published(void) {
    static const struct {
        size_t n;
        uint64_t hash;
    } vectors[] = {
        {0, UINT64_C(0x726fdb47dd0e0e31)},
        {1, UINT64_C(0x74f839c593dc67fd)},
        {8, UINT64_C(0x93f5f5799a932462)},
        {15, UINT64_C(0xa129ca6149be45e5)},
    };
    struct hash_secret secret = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    char input[16];
    for (int i = 0; i < 16; i++) input[i] = (char)i;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        CHECK(hash_siphash(&secret, (struct bytes){input, vectors[i].n}, 2, 4) == vectors[i].hash);
}

/* Keys that people use must spread evenly over the tables, by the high bits. */
static void spread(void) {
    struct hash_secret secret = {1, 2};
    unsigned count[64] = {0};
    for (int i = 0; i < 64000; i++) {
        char key[32];
        int n = snprintf(key, sizeof key, "key:%012d", i);
        count[hash_key(&secret, (struct bytes){key, (size_t)n}) >> 58]++;
    }
    unsigned least = count[0], most = count[0];
    for (int i = 1; i < 64; i++) {
        if (count[i] < least) least = count[i];
        if (count[i] > most) most = count[i];
    }
    CHECK(least > 850);
    CHECK(most < 1150);
}

static void secret_matters(void) {
    struct hash_secret a = {1, 2}, b = {1, 3}, c = {2, 2};
    struct bytes key = bytes_of("key");
    CHECK(hash_key(&a, key) == hash_key(&a, key));
    CHECK(hash_key(&a, key) != hash_key(&b, key));
    CHECK(hash_key(&a, key) != hash_key(&c, key));
    CHECK(hash_key(&a, LITERAL("k\0")) != hash_key(&a, LITERAL("k")));
}

int main(void) {
    published();
    spread();
    secret_matters();
    return check_end();
}
