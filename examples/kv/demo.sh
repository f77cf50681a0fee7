#!/bin/sh
# demo.sh BUILDDIR: what ./dev demo shows after the build.
#
# Starts kv on a free port of the loopback, lets the real redis-benchmark drive it, prints one table, and stops it as an
# operator would: SIGTERM. Fails if the server counted a protocol error, forgot to expire a key, or did not end well.
set -eu

CLIENTS=50
PLAIN=60000      # requests of a row; the whole stays under a minute on two slow cores
PIPELINED=160000
EXPIRING=20000

build=${1:?usage: demo.sh BUILDDIR}
kv=$build/examples/kv/kv
work=$(mktemp -d)
pid=

say() { printf '%s\n' "$*"; }
die() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

# On every way out: the server that we started, and nobody else, is ended.
clean_up() {
    status=$?
    trap - EXIT
    if [ -n "$pid" ]; then
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        [ -s "$work/err" ] && cat "$work/err" >&2
    fi
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# limit SECONDS COMMAND...: nothing here may hang for ever.
limit() {
    if command -v timeout >/dev/null; then
        timeout "$@"
    else
        shift
        "$@"
    fi
}

[ -x "$kv" ] || die "$kv is not there: kv was left out of the build (it needs uthash)"
command -v redis-benchmark >/dev/null || die "redis-benchmark is not there (package redis-tools, or redis)"
command -v redis-cli >/dev/null || die "redis-cli is not there (package redis-tools, or redis)"

start() {
    "$kv" --port 0 >"$work/out" 2>"$work/err" &
    pid=$!
    tries=0
    until grep -q listening "$work/out"; do
        kill -0 "$pid" 2>/dev/null || die "kv did not start"
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || die "kv does not say where it listens"
        sleep 0.1
    done
    port=$(sed -n 's/^kv: listening on .*:\([0-9]*\), .*/\1/p' "$work/out")
}

ask() { limit 10 redis-cli -p "$port" "$@"; }

# bench LABEL OPTIONS...: rows of CSV, marked with the label, into rows.csv. Looks at the server while it is busy.
bench() {
    label=$1
    shift
    limit 60 redis-benchmark -p "$port" -c "$CLIENTS" --csv "$@" >"$work/csv" 2>"$work/bench.err" &
    bench_pid=$!
    sleep 0.2
    ask info weft >>"$work/busy"
    wait "$bench_pid" || die "redis-benchmark failed: $(cat "$work/bench.err")"
    sed "s/^/$label,/" "$work/csv" >>"$work/rows.csv"
}

# The columns are found by the header, which versions before 6.2 do not print: they have no percentiles, and - stands there.
table() {
    awk -F '","|"' '
        BEGIN { printf "  %-26s %10s %14s %9s %9s\n", "operation", "requests", "requests/s", "p50 ms", "p99 ms" }
        {
            split($1, mark, ",")
            if ($2 == "test") {
                for (i = 3; i <= NF; i++) if ($i == "p50_latency_ms") p50 = i; else if ($i == "p99_latency_ms") p99 = i
                next
            }
            if ($2 == "") next
            if ($2 ~ /^set key/) $2 = "SET with PX 100"
            if (mark[1] != last && last != "") print ""
            last = mark[1]
            printf "  %-26s %10d %14.0f %9s %9s\n", $2 mark[3], mark[2], $3, p50 ? $p50 : "-", p99 ? $p99 : "-"
            sum += mark[2]
        }
        END { exit sum == 0 }
    ' "$work/rows.csv"
}

# What the server says of itself: the most green threads and threads that any look saw, the rest at the end.
facts() {
    awk -v cores="$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo several)" -v clients="$CLIENTS" '
        { sub(/\r$/, ""); split($0, f, ":") }
        FILENAME ~ /busy$/ && (f[1] == "green_threads" || f[1] == "threads") { if (f[2] + 0 > most[f[1]] + 0) most[f[1]] = f[2]; next }
        FILENAME ~ /busy$/ { next }
        { now[f[1]] = f[2] }
        END {
            for (i = 0; i < now["procs"]; i++) all += now["requests_p" i]
            for (i = 0; i < now["procs"]; i++)
                served = served sprintf("%sP%d %d (%.0f %%)", i ? ", " : "", i, now["requests_p" i], all ? 100 * now["requests_p" i] / all : 0)
            printf "  %-20s %d at the most, for %d clients\n", "green threads", most["green_threads"], clients
            printf "  %-20s %d at the most, on %d Ps\n", "threads", most["threads"], now["procs"]
            printf "  %-20s %d\n", "steals", now["steals"]
            printf "  %-20s p50 %s us, p99 %s us, longest %s us (%d timers fired)\n", "timer lateness", now["timer_late_p50_us"], now["timer_late_p99_us"], now["timer_late_max_us"], now["timers_fired"]
            printf "  %-20s %s\n", "requests served", served
            printf "  %-20s %d\n", "protocol errors", now["protocol_errors"]
            print ""
            printf "  Client and server share the %s cores of this machine: a server alone on them would do more.\n", cores
        }
    ' "$work/busy" "$work/last"
}

stop() {
    kill -TERM "$pid"
    (
        i=0
        while [ "$i" -lt 150 ]; do
            sleep 0.1
            i=$((i + 1))
        done
        kill -KILL "$pid" 2>/dev/null
    ) &
    guard=$!
    status=0
    wait "$pid" || status=$?
    kill "$guard" 2>/dev/null || true
    wait "$guard" 2>/dev/null || true
    [ "$status" -eq 0 ] || die "kv ended with status $status"
    pid=
}

start
say "kv, a Redis-compatible server: $CLIENTS clients, one green thread each"
: >"$work/rows.csv"
: >"$work/busy"
bench "plain,$PLAIN," -n "$PLAIN" -t ping,set,get,incr,mset
bench "pipeline,$PIPELINED, -P 16" -n "$PIPELINED" -P 16 -t ping,set,get,incr,mset
ask flushall >/dev/null
bench "expire,$EXPIRING, " -n "$EXPIRING" -r "$EXPIRING" set key:__rand_int__ value px 100
sleep 1
left=$(ask dbsize)
ask info >"$work/last"
expired=$(sed -n 's/\r$//; s/^expired_keys://p' "$work/last")
errors=$(sed -n 's/\r$//; s/^protocol_errors://p' "$work/last")
say ""
table || die "redis-benchmark said nothing that could be read"
say ""
facts
say "  $expired keys were set to expire after 100 ms; nobody read them, and $left are left."
say ""
[ "$errors" = 0 ] || die "the server counted $errors protocol errors"
[ "$left" = 0 ] || die "$left keys should have expired"
stop
say "kv was sent SIGTERM and ended with status 0."
