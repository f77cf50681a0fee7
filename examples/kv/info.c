/* info.c: what the server tells of itself. */
#include "info.h"
#include "db.h"
#include "server.h"
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static void server_section(struct server *s, FILE *f) {
    /* Clients choose by this number what they may send: RESP2 and no HELLO is what Redis 5 speaks.
       */
    fprintf(f, "redis_version:5.0.0\r\n");
    fprintf(f, "redis_mode:standalone\r\n");
    fprintf(f, "server_name:weft-kv\r\n");
    fprintf(f, "weft_version:%s\r\n", weft_version());
    fprintf(f, "multiplexing_api:weft\r\n");
    fprintf(f, "arch_bits:%zu\r\n", sizeof(void *) * 8);
    fprintf(f, "process_id:%ld\r\n", (long)getpid());
    fprintf(f, "tcp_port:%d\r\n", s->port);
    fprintf(f, "uptime_in_seconds:%" PRId64 "\r\n",
            weft_time_sub(weft_now(), s->started) / WEFT_SECOND);
}

static void clients_section(struct server *s, FILE *f) {
    fprintf(f, "connected_clients:%" PRIu64 "\r\n", stats_read(&s->stats.connected));
}

static void stats_section(struct server *s, FILE *f) {
    struct stats_sum sum = stats_total(&s->stats);
    struct db_counts db;

    db_counts(s->db, &db);
    fprintf(f, "total_connections_received:%" PRIu64 "\r\n", stats_read(&s->stats.accepted));
    fprintf(f, "total_commands_processed:%" PRIu64 "\r\n", sum.requests);
    fprintf(f, "total_net_input_bytes:%" PRIu64 "\r\n", sum.bytes_in);
    fprintf(f, "total_net_output_bytes:%" PRIu64 "\r\n", sum.bytes_out);
    fprintf(f, "rejected_connections:%" PRIu64 "\r\n", stats_read(&s->stats.refused));
    fprintf(f, "protocol_errors:%" PRIu64 "\r\n", stats_read(&s->stats.protocol_errors));
    fprintf(f, "idle_connections_closed:%" PRIu64 "\r\n", stats_read(&s->stats.idle_closed));
    fprintf(f, "expired_keys:%" PRIu64 "\r\n", db.expired);
    fprintf(f, "keyspace_hits:%" PRIu64 "\r\n", db.hits);
    fprintf(f, "keyspace_misses:%" PRIu64 "\r\n", db.misses);
}

static void weft_section(struct server *s, FILE *f) {
    weft_stats w;

    fprintf(f, "procs:%d\r\n", s->stats.procs);
    if (weft_stats_read(NULL, &w, sizeof w) == 0) {
        fprintf(f, "green_threads:%" PRIu64 "\r\n",
                w.gs_running + w.gs_blocked + w.gs_runnable + w.gs_waiting);
        fprintf(f, "green_threads_created:%" PRIu64 "\r\n", w.gs_created);
        fprintf(f, "threads:%" PRIu64 "\r\n", w.threads);
        fprintf(f, "steals:%" PRIu64 "\r\n", w.steals);
        fprintf(f, "migrations:%" PRIu64 "\r\n", w.migrations);
        fprintf(f, "timers_pending:%" PRIu64 "\r\n", w.timers_pending);
        fprintf(f, "timers_fired:%" PRIu64 "\r\n", w.timers_fired);
        fprintf(f, "timer_late_p50_us:%.1f\r\n",
                (double)stats_percentile(&w.timer_late, 0.50) / 1000);
        fprintf(f, "timer_late_p99_us:%.1f\r\n",
                (double)stats_percentile(&w.timer_late, 0.99) / 1000);
        fprintf(f, "timer_late_max_us:%.1f\r\n", (double)w.timer_late.max / 1000);
        fprintf(f, "stack_bytes_reserved:%" PRIu64 "\r\n", w.stack_bytes_reserved);
    }
    for (int i = 0; i < s->stats.procs; i++)
        fprintf(f, "requests_p%d:%" PRIu64 "\r\n", i, stats_read(&s->stats.proc[i].requests));
}

static void keyspace_section(struct server *s, FILE *f) {
    struct db_counts db;

    db_counts(s->db, &db);
    if (db.keys > 0)
        fprintf(f, "db0:keys=%zu,expires=%zu,avg_ttl=0\r\n", db.keys, db.keys_with_end);
}

static const struct section {
    const char *name;
    const char *title;
    void (*write)(struct server *s, FILE *f);
} all_sections[] = {
    {"server", "Server", server_section},       {"clients", "Clients", clients_section},
    {"stats", "Stats", stats_section},          {"weft", "Weft", weft_section},
    {"keyspace", "Keyspace", keyspace_section},
};

static bool wanted(const char *name, const struct bytes *sections, size_t n) {
    if (n == 0) return true;
    for (size_t i = 0; i < n; i++) {
        if (bytes_is(sections[i], name) || bytes_is(sections[i], "all") ||
            bytes_is(sections[i], "default") || bytes_is(sections[i], "everything"))
            return true;
    }
    return false;
}

int info_text(struct server *s, const struct bytes *sections, size_t n, char **text,
              size_t *bytes) {
    FILE *f = open_memstream(text, bytes);
    bool first = true;

    if (f == NULL) return -ENOMEM;
    for (size_t i = 0; i < WEFT_COUNT(all_sections); i++) {
        if (!wanted(all_sections[i].name, sections, n)) continue;
        fprintf(f, "%s# %s\r\n", first ? "" : "\r\n", all_sections[i].title);
        all_sections[i].write(s, f);
        first = false;
    }
    if (fclose(f) == 0) return 0;
    free(*text);
    return -ENOMEM;
}
