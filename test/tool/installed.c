/* installed.c: the program of a stranger who has just installed weft. Says what it runs with. */
#include <weft.h>

#include <stdio.h>

int main(int argc, char **argv) {
    int major, minor, patch;
    if (sscanf(weft_version(), "%d.%d.%d", &major, &minor, &patch) != 3 ||
        major != WEFT_VERSION_MAJOR || minor != WEFT_VERSION_MINOR || patch != WEFT_VERSION_PATCH) {
        fprintf(stderr, "the library says %s\n", weft_version());
        return 1;
    }
    printf("try: a program with weft %s (%s library) ran\n", weft_version(),
           argc > 1 ? argv[1] : "?");
    return 0;
}
