/* handlers.h: the commands, one function each. Called with an argc that fits the command's arity;
   answers exactly once. */
#ifndef KV_HANDLERS_H
#define KV_HANDLERS_H
#include "command.h"

typedef void handler_fn(struct client *c);

/* command_string.c */
handler_fn command_get, command_set, command_mget, command_mset, command_incr, command_decr,
    command_incrby;
handler_fn command_append, command_strlen;
/* command_key.c */
handler_fn command_del, command_exists, command_expire, command_pexpire, command_ttl, command_pttl,
    command_persist;
handler_fn command_keys, command_dbsize, command_flushall;
/* command_server.c */
handler_fn command_ping, command_echo, command_quit, command_select, command_shutdown;
handler_fn command_info, command_config, command_client, command_command;

/* Texts that several of them say. */
void reply_syntax_error(struct client *c);
void reply_not_integer(struct client *c);
void reply_no_memory(struct client *c);
void reply_wrong_arity(struct client *c, const char *name);

/* `count` units of `unit` microseconds from now, as a time of db_now. False: it does not fit, and
   the client has been told, with the name of the command. */
bool time_from_now(struct client *c, int64_t count, int64_t unit, const char *name, int64_t *at);
#endif
