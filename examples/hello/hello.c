/* The program of the README: three workers, one channel, every core. */
#include <stdio.h>
#include <weft.h>

WEFT_CHAN_TYPE(results, long);

static results done;
static const long limits[] = {3000, 2000, 1000};

static int count_primes(void *arg) {
    long found = 0, limit = *(const long *)arg;
    for (long n = 2; n < limit; n++) {
        long d = 2;
        while (d * d <= n && n % d != 0) {
            d++;
        }
        found += d * d > n;
    }
    weft_sleep(limit * WEFT_MICROSECOND); /* only this green thread waits */
    return results_send(done, found);
}

static int app(int argc, char **argv) {
    (void)argc, (void)argv;
    WEFT_MUST(results_new(&done, 0));
    for (size_t i = 0; i < WEFT_COUNT(limits); i++) {
        WEFT_MUST(weft_go(count_primes, (void *)&limits[i]));
    }
    for (size_t i = 0; i < WEFT_COUNT(limits); i++) {
        long primes;
        WEFT_MUST(results_recv(done, &primes));
        printf("%ld primes\n", primes);
    }
    results_unref(done);
    return 0;
}

int main(int argc, char **argv) { return weft_main(argc, argv, app); }
