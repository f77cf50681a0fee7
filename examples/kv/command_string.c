/* command_string.c: commands on values. */
#include "db.h"
#include "handlers.h"
#include "number.h"
#include <stdlib.h>

#define FEW 16

static void reply_value(struct client *c, struct value *v) {
    if (v == NULL) {
        reply_null(c->reply);
        return;
    }
    reply_bulk(c->reply, value_bytes(v));
    value_unref(v);
}

static void reply_failure(struct client *c, int result) {
    switch (result) {
    case DB_NOT_NUMBER:
        reply_not_integer(c);
        break;
    case DB_OVERFLOW:
        reply_error(c->reply, "ERR increment or decrement would overflow");
        break;
    case DB_TOO_LONG:
        reply_error(c->reply, "ERR string exceeds maximum allowed size (512MB)");
        break;
    default:
        reply_no_memory(c);
        break;
    }
}

void command_get(struct client *c) { reply_value(c, db_get(c->db, c->argv[1])); }

struct set_options {
    enum db_rule rule;
    int64_t unit; /* of `ttl` in microseconds; 0: no end */
    struct bytes ttl;
};

static bool take_rule(struct set_options *o, enum db_rule rule) {
    if (o->rule != DB_ALWAYS && o->rule != rule) return false;
    o->rule = rule;
    return true;
}

/* The same option twice is allowed, and the last one counts: so says Redis. */
static bool take_end(struct set_options *o, int64_t unit, struct bytes ttl) {
    if (o->unit != 0 && o->unit != unit) return false;
    o->unit = unit;
    o->ttl = ttl;
    return true;
}

static bool take_set_options(struct client *c, struct set_options *o) {
    *o = (struct set_options){.rule = DB_ALWAYS};
    for (size_t i = 3; i < c->argc; i++) {
        struct bytes word = c->argv[i];
        bool seconds = bytes_is(word, "ex");
        if (bytes_is(word, "nx")) {
            if (!take_rule(o, DB_IF_ABSENT)) return false;
        } else if (bytes_is(word, "xx")) {
            if (!take_rule(o, DB_IF_PRESENT)) return false;
        } else if ((seconds || bytes_is(word, "px")) && i + 1 < c->argc) {
            if (!take_end(o, seconds ? 1000000 : 1000, c->argv[++i])) return false;
        } else {
            return false;
        }
    }
    return true;
}

static bool set_end(struct client *c, const struct set_options *o, int64_t *at) {
    int64_t count;

    *at = DUE_NEVER;
    if (o->unit == 0) return true;
    if (!number_parse(o->ttl, &count)) {
        reply_not_integer(c);
        return false;
    }
    if (count <= 0) {
        reply_error(c->reply, "ERR invalid expire time in 'set' command");
        return false;
    }
    return time_from_now(c, count, o->unit, "set", at);
}

void command_set(struct client *c) {
    struct set_options o;
    int64_t at;

    if (!take_set_options(c, &o)) {
        reply_syntax_error(c);
        return;
    }
    if (!set_end(c, &o, &at)) return;
    switch (db_set(c->db, c->argv[1], c->argv[2], o.rule, at)) {
    case DB_OK:
        reply_status(c->reply, "OK");
        break;
    case DB_NOT_MET:
        reply_null(c->reply);
        break;
    default:
        reply_no_memory(c);
        break;
    }
}

void command_mget(struct client *c) {
    size_t n = c->argc - 1;
    struct value *few[FEW];
    struct value **values = n <= FEW ? few : malloc(n * sizeof *values);

    if (values == NULL || db_get_many(c->db, c->argv + 1, n, values) != DB_OK) {
        reply_no_memory(c);
    } else {
        reply_array(c->reply, n);
        for (size_t i = 0; i < n; i++) reply_value(c, values[i]);
    }
    if (values != few) free(values);
}

void command_mset(struct client *c) {
    if (c->argc % 2 == 0) {
        reply_wrong_arity(c, "mset");
        return;
    }
    if (db_set_many(c->db, c->argv + 1, c->argc / 2) == DB_OK)
        reply_status(c->reply, "OK");
    else
        reply_no_memory(c);
}

static void add(struct client *c, int64_t by) {
    int64_t sum;
    int result = db_add(c->db, c->argv[1], by, &sum);

    if (result == DB_OK)
        reply_integer(c->reply, sum);
    else
        reply_failure(c, result);
}

void command_incr(struct client *c) { add(c, 1); }

void command_decr(struct client *c) { add(c, -1); }

void command_incrby(struct client *c) {
    int64_t by;

    if (number_parse(c->argv[2], &by))
        add(c, by);
    else
        reply_not_integer(c);
}

void command_append(struct client *c) {
    size_t length;
    int result = db_append(c->db, c->argv[1], c->argv[2], &length);

    if (result == DB_OK)
        reply_integer(c->reply, (int64_t)length);
    else
        reply_failure(c, result);
}

void command_strlen(struct client *c) {
    reply_integer(c->reply, (int64_t)db_length(c->db, c->argv[1]));
}
