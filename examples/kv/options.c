/* options.c: reads the command line. */
#include "options.h"
#include "number.h"
#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "usage: kv [options]\n"
    "\n"
    "A store that speaks the Redis protocol (RESP2), on weft: one green thread a connection.\n"
    "\n"
    "  --addr ADDRESS         listen on this IPv4 or IPv6 address (default 127.0.0.1)\n"
    "  --port PORT            and this port; 0 takes any free one (default 6379)\n"
    "  --procs N              run on so many cores (default: all that the process may use)\n"
    "  --idle-timeout SECONDS close a connection that has asked nothing for so long (default 300, "
    "0: never)\n"
    "  --help                 this text\n"
    "\n"
    "The first line of output says where it listens. SIGINT, SIGTERM and SHUTDOWN stop it: what "
    "has\n"
    "arrived is answered, then it ends. A second signal ends it at once.\n";

static bool take_number(const char *name, const char *text, int64_t low, int64_t high,
                        int64_t *out) {
    if (number_parse(bytes_of(text), out) && *out >= low && *out <= high) return true;
    fprintf(stderr, "kv: --%s wants a number from %lld to %lld, not \"%s\"\n", name, (long long)low,
            (long long)high, text);
    return false;
}

static bool take_option(struct options *o, int option, const char *text) {
    int64_t v;

    switch (option) {
    case 'a':
        o->addr = text;
        return true;
    case 'p':
        if (!take_number("port", text, 0, 65535, &v)) return false;
        o->port = (int)v;
        return true;
    case 'n':
        if (!take_number("procs", text, 1, 4096, &v)) return false;
        o->procs = (int)v;
        return true;
    case 'i':
        if (!take_number("idle-timeout", text, 0, 1000000000, &v)) return false;
        o->idle_timeout = v * WEFT_SECOND;
        return true;
    default:
        return false; /* getopt has said why */
    }
}

enum options_result options_read(struct options *o, int argc, char **argv) {
    static const struct option names[] = {
        {"addr", required_argument, NULL, 'a'},  {"port", required_argument, NULL, 'p'},
        {"procs", required_argument, NULL, 'n'}, {"idle-timeout", required_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
    };
    int option;

    *o = (struct options){.addr = "127.0.0.1", .port = 6379, .idle_timeout = 300 * WEFT_SECOND};
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return OPTIONS_DONE;
        }
        if (!take_option(o, option, optarg)) {
            fputs("kv: see kv --help\n", stderr);
            return OPTIONS_WRONG;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "kv: \"%s\" is no option; see kv --help\n", argv[optind]);
        return OPTIONS_WRONG;
    }
    return OPTIONS_RUN;
}
