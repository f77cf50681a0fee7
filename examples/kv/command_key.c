/* command_key.c: commands on keys, their ends, and the whole store. */
#include "db.h"
#include "handlers.h"
#include "number.h"
#include <stdlib.h>

static void reply_count(struct client *c, int64_t n) {
    if (n < 0)
        reply_no_memory(c);
    else
        reply_integer(c->reply, n);
}

void command_del(struct client *c) { reply_count(c, db_remove(c->db, c->argv + 1, c->argc - 1)); }

void command_exists(struct client *c) {
    reply_count(c, db_exists(c->db, c->argv + 1, c->argc - 1));
}

static void expire(struct client *c, int64_t unit, const char *name) {
    int64_t count, at;

    if (!number_parse(c->argv[2], &count)) {
        reply_not_integer(c);
        return;
    }
    if (!time_from_now(c, count, unit, name, &at)) return;
    reply_integer(c->reply, db_expire(c->db, c->argv[1], at) ? 1 : 0);
}

void command_expire(struct client *c) { expire(c, 1000000, "expire"); }

void command_pexpire(struct client *c) { expire(c, 1000, "pexpire"); }

/* Milliseconds are rounded up, so that what was just given is what is left; seconds to the nearest,
   as Redis does. */
static void time_left(struct client *c, bool seconds) {
    int64_t left = db_left(c->db, c->argv[1]);

    if (left >= 0) {
        left = left / 1000 + (left % 1000 != 0);
        if (seconds) left = left / 1000 + (left % 1000 >= 500);
    }
    reply_integer(c->reply, left);
}

void command_ttl(struct client *c) { time_left(c, true); }

void command_pttl(struct client *c) { time_left(c, false); }

void command_persist(struct client *c) {
    reply_integer(c->reply, db_persist(c->db, c->argv[1]) ? 1 : 0);
}

void command_keys(struct client *c) {
    struct db_keys keys;

    if (db_keys(c->db, c->argv[1], &keys) != DB_OK) {
        reply_no_memory(c);
        return;
    }
    reply_array(c->reply, keys.count);
    for (size_t i = 0; i < keys.n;) {
        size_t n;
        memcpy(&n, keys.data + i, sizeof n);
        i += sizeof n;
        reply_bulk(c->reply, (struct bytes){keys.data + i, n});
        i += n;
    }
    free(keys.data);
}

void command_dbsize(struct client *c) { reply_integer(c->reply, (int64_t)db_count(c->db)); }

void command_flushall(struct client *c) {
    bool known = c->argc == 1 ||
                 (c->argc == 2 && (bytes_is(c->argv[1], "async") || bytes_is(c->argv[1], "sync")));

    if (!known) {
        reply_syntax_error(c);
        return;
    }
    db_clear(c->db);
    reply_status(c->reply, "OK");
}
