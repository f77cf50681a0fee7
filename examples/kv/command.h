/* command.h: from a request to its answer. */
#ifndef KV_COMMAND_H
#define KV_COMMAND_H
#include "bytes.h"
#include "reply.h"

struct server;

/* What the commands see of a connection. */
struct client {
    struct server *server;
    struct db *db;
    struct reply *reply;
    const struct bytes *argv; /* of the request being served; argv[0] is the command */
    size_t argc;
    char *name;   /* CLIENT SETNAME; NULL: none */
    bool closing; /* this answer is the last */
};

void command_client_init(struct client *c, struct server *s, struct reply *r);
void command_client_free(struct client *c);

/* Answers one request (argc > 0). May park. */
void command_run(struct client *c, const struct bytes *argv, size_t argc);
#endif
