/* test_stats.c: percentiles out of powers of two. */
#include "check.h"
#include "stats.h"

int main(void) {
    weft_hist h = {0};
    CHECK(stats_percentile(&h, 0.5) == 0);

    h = (weft_hist){.count = 100, .max = 1500};
    h.bucket[10] = 100; /* 1024..2047, but none above 1500 */
    CHECK(stats_percentile(&h, 0.0) == 1024);
    CHECK(stats_percentile(&h, 0.5) == 1262);
    CHECK(stats_percentile(&h, 1.0) == 1500);

    h = (weft_hist){.count = 100, .max = 100000};
    h.bucket[6] = 98; /* 64..127 */
    h.bucket[16] = 2; /* 65536..131071 */
    CHECK(stats_percentile(&h, 0.5) >= 64 && stats_percentile(&h, 0.5) < 128);
    CHECK(stats_percentile(&h, 0.98) <= 128);
    CHECK(stats_percentile(&h, 0.99) > 65536 && stats_percentile(&h, 0.99) <= 100000);
    CHECK(stats_percentile(&h, 1.0) == 100000);

    h = (weft_hist){.count = 1, .max = 1};
    h.bucket[0] = 1;
    CHECK(stats_percentile(&h, 0.5) <= 1);

    h = (weft_hist){.count = 1, .max = UINT64_MAX / 4};
    h.bucket[47] = 1;
    CHECK(stats_percentile(&h, 1.0) >= UINT64_C(1) << 47);
    return check_end();
}
