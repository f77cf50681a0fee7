/* installed.c: the program of a stranger who has just installed weft: two green threads and a channel. */
#include <weft.h>

#include <stdio.h>

enum { LAST = 1000 };

WEFT_CHAN_TYPE(numbers, int);

static int count(void *chan) {
    numbers ch = {(weft_chan *)chan};
    int i, err = 0;
    for (i = 1; i <= LAST && err == 0; i++) err = numbers_send(ch, i);
    numbers_close(ch);
    return err;
}

static int app(int argc, char **argv) {
    numbers ch;
    int major, minor, patch, i, sum = 0;
    if (sscanf(weft_version(), "%d.%d.%d", &major, &minor, &patch) != 3 ||
        major != WEFT_VERSION_MAJOR || minor != WEFT_VERSION_MINOR || patch != WEFT_VERSION_PATCH) {
        fprintf(stderr, "the headers are not those of weft %s\n", weft_version());
        return 1;
    }
    WEFT_MUST(numbers_new(&ch, 0));
    WEFT_MUST(weft_go(count, ch.chan));
    while (numbers_recv(ch, &i) == 0) sum += i;
    numbers_unref(ch);
    if (sum != LAST * (LAST + 1) / 2) {
        fprintf(stderr, "the sum is %d\n", sum);
        return 1;
    }
    printf("try: a program with weft %s (%s library) ran\n", weft_version(),
           argc > 1 ? argv[1] : "?");
    return 0;
}

int main(int argc, char **argv) { return weft_main(argc, argv, app); }
