#!/bin/sh
# demo.sh BUILDDIR: what ./dev demo shows after the build.
#
# Starts kv on a free port of the loopback, lets the real redis-benchmark drive it, prints one table,
# and stops it as an operator would: SIGTERM. Fails if the server counted a protocol error, forgot to
# expire a key, or did not end well.
set -eu

clients=50
plain=60000 # requests a row; the whole stays under a minute on two slow cores
pipelined=160000
expiring=20000

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
        cat "$work/err" >&2 || true
    fi
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

need() { command -v "$1" >/dev/null || die "$1 is not there (package redis-tools, or redis)"; }

# limit SECONDS COMMAND...: nothing here may hang for ever.
limit() {
    if command -v timeout >/dev/null; then
        timeout "$@"
    else
        shift
        "$@"
    fi
}

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

ask() { limit 10 redis-cli -p "$port" "$@" | tr -d '\r'; }

# bench REQUESTS SUFFIX OPTIONS...: rows of CSV, behind what the table wants to know of each. Looks at
# the server while it is busy.
bench() {
    requests=$1 suffix=$2
    shift 2
    limit 60 redis-benchmark -p "$port" -c "$clients" -n "$requests" --csv "$@" \
        >"$work/csv" 2>"$work/bench.err" &
    bench_pid=$!
    sleep 0.2
    ask info weft >>"$work/busy"
    wait "$bench_pid" || die "redis-benchmark failed: $(cat "$work/bench.err")"
    sed "s/^/$requests,$suffix,/" "$work/csv" >>"$work/rows"
}

# The columns are found by the header. Versions before 6.2 print none and give no percentiles: a dash.
table() {
    awk -F '","|"' '
        function row(name, requests, rate, p50, p99) {
            printf "  %-24s %9s %12s %8s %8s\n", name, requests, rate, p50, p99
        }
        BEGIN { row("operation", "requests", "requests/s", "p50 ms", "p99 ms") }
        { split($1, mark, ",") }
        $2 == "test" {
            for (i = 3; i <= NF; i++) {
                if ($i == "p50_latency_ms") p50 = i
                if ($i == "p99_latency_ms") p99 = i
            }
            next
        }
        $2 == "" { next }
        {
            if (rows++ && mark[2] != last) print ""
            last = mark[2]
            name = ($2 ~ /^set key/ ? "SET with PX 100" : $2) mark[2]
            row(name, mark[1], sprintf("%.0f", $3), p50 ? $p50 : "-", p99 ? $p99 : "-")
        }
        END { exit rows == 0 }
    ' "$work/rows"
}

# What the server says of itself: the most green threads and threads that a look at the busy server
# saw, the rest as it was at the end.
facts() {
    awk -F : -v cores="$(getconf _NPROCESSORS_ONLN)" -v clients="$clients" '
        function fact(name, text) { printf "  %-20s %s\n", name, text }
        FILENAME ~ /busy$/ {
            if ($2 + 0 > most[$1] + 0) most[$1] = $2
            next
        }
        { now[$1] = $2 }
        END {
            procs = now["procs"]
            for (i = 0; i < procs; i++) all += now["requests_p" i]
            for (i = 0; i < procs; i++) {
                n = now["requests_p" i]
                served = served sprintf("%sP%d %d (%.0f %%)", i ? ", " : "", i, n, 100 * n / all)
            }
            fact("green threads", most["green_threads"] " at the most, for " clients " clients")
            fact("threads", most["threads"] " at the most, on " procs " Ps")
            fact("steals", now["steals"])
            fact("timer lateness", "p50 " now["timer_late_p50_us"] " us, p99 " \
                now["timer_late_p99_us"] " us, longest " now["timer_late_max_us"] " us, of " \
                now["timers_fired"] " timers")
            fact("requests served", served)
            fact("protocol errors", now["protocol_errors"])
            print ""
            print "  Client and server share the " cores " cores of this machine: alone on them the"
            print "  server would do more."
        }
    ' "$work/busy" "$work/last"
}

figure() { sed -n "s/^$1://p" "$work/last"; }

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

[ -x "$kv" ] || die "$kv is not there: was kv left out of the build, for want of uthash?"
need redis-benchmark
need redis-cli
start
say "kv, a Redis-compatible server: $clients clients, one green thread each"
say ""
: >"$work/rows"
bench "$plain" "" -t ping,set,get,incr,mset
bench "$pipelined" " -P 16" -P 16 -t ping,set,get,incr,mset
ask flushall >/dev/null
bench "$expiring" " " -r "$expiring" set key:__rand_int__ value px 100
sleep 1
left=$(ask dbsize)
ask info >"$work/last"
table || die "redis-benchmark said nothing that could be read"
say ""
facts
say "  $(figure expired_keys) keys ended after 100 ms; nobody read them, and $left are left."
say ""
errors=$(figure protocol_errors)
[ "$errors" = 0 ] || die "the server counted $errors protocol errors"
[ "$left" = 0 ] || die "$left keys should have ended"
stop
say "kv was sent SIGTERM and ended with status 0."
