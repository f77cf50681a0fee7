/* options.h: the command line. */
#ifndef KV_OPTIONS_H
#define KV_OPTIONS_H
#include <weft/base.h>

struct options {
    const char *addr;
    int port;                   /* 0: any free one */
    int procs;                  /* 0: weft's own choice */
    weft_duration idle_timeout; /* 0: none */
};

enum options_result { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_WRONG };

/* OPTIONS_DONE: help was asked for and given. OPTIONS_WRONG: stderr says why. */
enum options_result options_read(struct options *o, int argc, char **argv);
#endif
