/* command.c: finds the command and checks how many arguments it got. */
#include "command.h"
#include "db.h"
#include "handlers.h"
#include "server.h"
#include <stdio.h>
#include <stdlib.h>

struct command {
    const char *name; /* in small letters, at most 8 of them */
    int arity;        /* counts the name; negative: at least so many */
    handler_fn *run;
};

/* The busiest first: a look-up goes down the list. */
static const struct command commands[] = {
    {"get", 2, command_get},
    {"set", -3, command_set},
    {"incr", 2, command_incr},
    {"ping", -1, command_ping},
    {"mset", -3, command_mset},
    {"mget", -2, command_mget},
    {"del", -2, command_del},
    {"exists", -2, command_exists},
    {"expire", 3, command_expire},
    {"ttl", 2, command_ttl},
    {"incrby", 3, command_incrby},
    {"decr", 2, command_decr},
    {"append", 3, command_append},
    {"strlen", 2, command_strlen},
    {"pexpire", 3, command_pexpire},
    {"pttl", 2, command_pttl},
    {"persist", 2, command_persist},
    {"echo", 2, command_echo},
    {"keys", 2, command_keys},
    {"dbsize", 1, command_dbsize},
    {"flushall", -1, command_flushall},
    {"select", 2, command_select},
    {"info", -1, command_info},
    {"config", -2, command_config},
    {"client", -2, command_client},
    {"command", -1, command_command},
    {"quit", -1, command_quit},
    {"shutdown", -1, command_shutdown},
};

static const struct command *find(struct bytes name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (bytes_is(name, commands[i].name)) return &commands[i];
    return NULL;
}

/* Redis quotes the name and the first arguments, as much of each as fits in 128 bytes. */
static void reply_unknown(struct client *c) {
    char args[192] = "";
    size_t n = 0;

    for (size_t i = 1; i < c->argc && n < 128; i++) {
        int room = 128 - (int)n;
        int length = c->argv[i].n < (size_t)room ? (int)c->argv[i].n : room;
        n += (size_t)snprintf(args + n, sizeof args - n, "'%.*s' ", length, c->argv[i].at);
    }
    int length = c->argv[0].n < 128 ? (int)c->argv[0].n : 128;
    reply_error(c->reply, "ERR unknown command '%.*s', with args beginning with: %s", length,
                c->argv[0].at, args);
}

void command_run(struct client *c, const struct bytes *argv, size_t argc) {
    c->argv = argv;
    c->argc = argc;
    const struct command *command = find(argv[0]);
    if (command == NULL) {
        reply_unknown(c);
    } else if (command->arity >= 0 ? argc != (size_t)command->arity
                                   : argc < (size_t)-command->arity) {
        reply_wrong_arity(c, command->name);
    } else {
        command->run(c);
    }
}

void command_client_init(struct client *c, struct server *s, struct reply *r) {
    *c = (struct client){.server = s, .db = s->db, .reply = r};
}

void command_client_free(struct client *c) {
    free(c->name);
    c->name = NULL;
}

void reply_syntax_error(struct client *c) { reply_error(c->reply, "ERR syntax error"); }

void reply_not_integer(struct client *c) {
    reply_error(c->reply, "ERR value is not an integer or out of range");
}

void reply_no_memory(struct client *c) { reply_error(c->reply, "ERR out of memory"); }

void reply_wrong_arity(struct client *c, const char *name) {
    reply_error(c->reply, "ERR wrong number of arguments for '%s' command", name);
}

bool time_from_now(struct client *c, int64_t count, int64_t unit, const char *name, int64_t *at) {
    int64_t length;

    if (!__builtin_mul_overflow(count, unit, &length) &&
        !__builtin_add_overflow(length, db_now(), at) && *at != DUE_NEVER)
        return true;
    reply_error(c->reply, "ERR invalid expire time in '%s' command", name);
    return false;
}
