/* stats.c: counters and percentiles. */
#include "stats.h"
#include <stdlib.h>
#include <string.h>

int stats_init(struct stats *s, int procs) {
    size_t bytes = sizeof *s->proc * ((size_t)procs + 1);

    memset(s, 0, sizeof *s);
    s->procs = procs;
    s->proc = aligned_alloc(_Alignof(struct stats_proc), bytes);
    if (s->proc == NULL) return -ENOMEM;
    memset(s->proc, 0, bytes);
    return 0;
}

void stats_free(struct stats *s) {
    free(s->proc);
    s->proc = NULL;
}

struct stats_sum stats_total(struct stats *s) {
    struct stats_sum sum = {0};

    for (int i = 0; i <= s->procs; i++) {
        sum.requests += stats_read(&s->proc[i].requests);
        sum.bytes_in += stats_read(&s->proc[i].bytes_in);
        sum.bytes_out += stats_read(&s->proc[i].bytes_out);
    }
    return sum;
}

uint64_t stats_percentile(const weft_hist *h, double share) {
    uint64_t count = 0;

    for (size_t i = 0; i < WEFT_COUNT(h->bucket); i++)
        count += h->bucket[i]; /* h->count may be a little ahead */
    double rank = share * (double)count;
    double below = 0;
    for (size_t i = 0; i < WEFT_COUNT(h->bucket); i++) {
        double in = (double)h->bucket[i];
        if (in == 0 || below + in < rank) {
            below += in;
            continue;
        }
        double low = i == 0 ? 0 : (double)(UINT64_C(1) << i);
        double high = (double)(UINT64_C(2) << i);
        if (i == WEFT_COUNT(h->bucket) - 1 || high > (double)h->max) high = (double)h->max;
        if (high < low) high = low;
        return (uint64_t)(low + (high - low) * (rank - below) / in);
    }
    return 0;
}
