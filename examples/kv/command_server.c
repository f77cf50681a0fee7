/* command_server.c: commands on the connection and the server, and what clients ask when they
   start. */
#include "db.h"
#include "glob.h"
#include "handlers.h"
#include "info.h"
#include "number.h"
#include "server.h"

void command_ping(struct client *c) {
    if (c->argc > 2)
        reply_wrong_arity(c, "ping");
    else if (c->argc == 2)
        reply_bulk(c->reply, c->argv[1]);
    else
        reply_status(c->reply, "PONG");
}

void command_echo(struct client *c) { reply_bulk(c->reply, c->argv[1]); }

void command_quit(struct client *c) {
    reply_status(c->reply, "OK");
    c->closing = true;
}

void command_select(struct client *c) {
    int64_t index;

    if (!number_parse(c->argv[1], &index))
        reply_not_integer(c);
    else if (index != 0)
        reply_error(c->reply, "ERR DB index is out of range");
    else
        reply_status(c->reply, "OK");
}

/* As with Redis, a shutdown that goes well is answered by the end of the connection. Nothing is
   ever saved here, so both words for that are the same. */
void command_shutdown(struct client *c) {
    bool known = c->argc == 1 ||
                 (c->argc == 2 && (bytes_is(c->argv[1], "nosave") || bytes_is(c->argv[1], "save")));

    if (!known) {
        reply_syntax_error(c);
        return;
    }
    c->closing = true;
    server_stop(c->server);
}

void command_info(struct client *c) {
    char *text;
    size_t n;

    if (info_text(c->server, c->argv + 1, c->argc - 1, &text, &n) < 0) {
        reply_no_memory(c);
        return;
    }
    reply_bulk(c->reply, (struct bytes){text, n});
    free(text);
}

static void reply_unknown_subcommand(struct client *c, const char *name) {
    struct bytes word = c->argv[1];

    reply_error(c->reply, "ERR unknown subcommand '%.*s'. Try %s HELP.",
                word.n < 128 ? (int)word.n : 128, word.at, name);
}

/* What there is to configure, as far as clients ask: redis-benchmark prints these two. */
static const struct setting {
    const char *name, *value;
} settings[] = {{"save", ""}, {"appendonly", "no"}};

static bool setting_wanted(const struct client *c, const struct setting *s) {
    for (size_t i = 2; i < c->argc; i++)
        if (glob_match_nocase(c->argv[i], bytes_of(s->name))) return true;
    return false;
}

static void config_get(struct client *c) {
    size_t n = 0;

    for (size_t i = 0; i < WEFT_COUNT(settings); i++) n += setting_wanted(c, &settings[i]);
    reply_array(c->reply, 2 * n);
    for (size_t i = 0; i < WEFT_COUNT(settings); i++) {
        if (!setting_wanted(c, &settings[i])) continue;
        reply_bulk(c->reply, bytes_of(settings[i].name));
        reply_bulk(c->reply, bytes_of(settings[i].value));
    }
}

void command_config(struct client *c) {
    if (!bytes_is(c->argv[1], "get"))
        reply_unknown_subcommand(c, "CONFIG");
    else if (c->argc < 3)
        reply_wrong_arity(c, "config|get");
    else
        config_get(c);
}

/* COMMAND, COMMAND COUNT and COMMAND DOCS are how clients learn about commands they do not know.
   They know all of ours. */
void command_command(struct client *c) {
    if (c->argc == 1 || bytes_is(c->argv[1], "docs") ||
        (bytes_is(c->argv[1], "count") && c->argc == 2))
        reply_array(c->reply, 0);
    else if (bytes_is(c->argv[1], "count"))
        reply_wrong_arity(c, "command|count");
    else
        reply_unknown_subcommand(c, "COMMAND");
}

/* Names end up in lists that are separated by blanks. */
static bool is_plain(struct bytes b) {
    for (size_t i = 0; i < b.n; i++)
        if (b.at[i] < '!' || b.at[i] > '~') return false;
    return true;
}

static void client_setname(struct client *c) {
    struct bytes name = c->argv[2];
    char *copy = NULL;

    if (!is_plain(name)) {
        reply_error(c->reply,
                    "ERR Client names cannot contain spaces, newlines or special characters.");
        return;
    }
    if (name.n > 0) {
        copy = strndup(name.at, name.n);
        if (copy == NULL) {
            reply_no_memory(c);
            return;
        }
    }
    free(c->name);
    c->name = copy;
    reply_status(c->reply, "OK");
}

static void client_getname(struct client *c) {
    if (c->name != NULL)
        reply_bulk(c->reply, bytes_of(c->name));
    else
        reply_null(c->reply);
}

/* Taken and forgotten: nothing here lists clients. */
static void client_setinfo(struct client *c) {
    struct bytes what = c->argv[2];
    bool name = bytes_is(what, "lib-name");

    if (!name && !bytes_is(what, "lib-ver"))
        reply_error(c->reply, "ERR Unrecognized option '%.*s'", what.n < 128 ? (int)what.n : 128,
                    what.at);
    else if (!is_plain(c->argv[3]))
        reply_error(c->reply, "ERR %s cannot contain spaces, newlines or special characters.",
                    name ? "lib-name" : "lib-ver");
    else
        reply_status(c->reply, "OK");
}

static const struct subcommand {
    const char *name, *full;
    size_t argc;
    handler_fn *run;
} client_subcommands[] = {
    {"setname", "client|setname", 3, client_setname},
    {"getname", "client|getname", 2, client_getname},
    {"setinfo", "client|setinfo", 4, client_setinfo},
};

void command_client(struct client *c) {
    for (size_t i = 0; i < WEFT_COUNT(client_subcommands); i++) {
        const struct subcommand *s = &client_subcommands[i];
        if (!bytes_is(c->argv[1], s->name)) continue;
        if (c->argc != s->argc)
            reply_wrong_arity(c, s->full);
        else
            s->run(c);
        return;
    }
    reply_unknown_subcommand(c, "CLIENT");
}
