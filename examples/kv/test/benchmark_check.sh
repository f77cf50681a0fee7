#!/bin/sh
# benchmark_check.sh KV [ROUNDS] [REQUESTS]: the real redis-benchmark against kv at two Ps, and beside
# it, in the same rounds, against a real redis-server if there is one.
#
# What must be so, or the status is 1: no protocol error counted; the INCR total, the values and the
# number of keys right afterwards; requests per P at most 3 times apart. What is measured: throughput,
# and the server's CPU time a request, medians over the rounds (3, of 200000 requests a row). Client and
# server share the machine, so throughput says less than CPU does.
set -eu

kv=${1:?usage: benchmark_check.sh KV [ROUNDS] [REQUESTS]}
rounds=${2:-3}
requests=${3:-200000}
work=$(mktemp -d)
pid=
passed=0
failed=0

clean_up() {
    status=$?
    trap - EXIT
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

check() {
    if [ "$1" = "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'not so: %s is %s: it is %s\n' "$3" "$2" "$1"
    fi
}

ask() { timeout 20 redis-cli -p "$port" "$@" | tr -d '\r'; }
info() { ask info "$1" | sed -n "s/^$2://p"; }

start_kv() {
    "$kv" --port 0 --procs 2 >"$work/out" &
    pid=$!
    until grep -q listening "$work/out"; do
        kill -0 "$pid"
        sleep 0.1
    done
    port=$(sed -n 's/^kv: listening on .*:\([0-9]*\), .*/\1/p' "$work/out")
}

# It cannot choose a free port by itself: the one that kv had is free now.
start_redis() {
    redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" >"$work/out" &
    pid=$!
    until ask ping 2>/dev/null | grep -q PONG; do
        kill -0 "$pid"
        sleep 0.1
    done
}

stop() {
    kill -TERM "$pid"
    status=0
    wait "$pid" || status=$?
    pid=
    check "$status" 0 "the status of $1"
}

# CPU time of the server so far, in clock ticks: all its threads, user and system.
ticks() { sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }'; }

# drive NAME ROUND MODE OPTIONS...: appends "NAME MODE operation rate" and "NAME MODE cpu-us" lines.
drive() {
    name=$1 mode=$2
    shift 2
    before=$(ticks)
    timeout 300 redis-benchmark -p "$port" -c 50 -n "$requests" --csv "$@" >"$work/csv"
    after=$(ticks)
    awk -F '","|"' -v name="$name" -v mode="$mode" -v n="$requests" -v ticks=$((after - before)) \
        -v hz="$(getconf CLK_TCK)" '
        $2 != "test" && $2 != "" {
            gsub(/ /, "_", $2)
            print name, mode, $2, $3
            rows++
        }
        END { print name, mode, "server_CPU_us_a_request", ticks / hz * 1e6 / (n * rows) }
    ' "$work/csv" >>"$work/all"
}

both_modes() {
    drive "$1" plain -t ping,set,get,incr,mset
    drive "$1" P16 -P 16 -t ping,set,get,incr,mset
}

check_kv() {
    check "$(ask get counter:__rand_int__)" $((2 * requests)) 'the INCR total'
    check "$(ask strlen key:__rand_int__)" 3 'the length of the value that SET left'
    check "$(ask get key:__rand_int__)" "$(ask mget key:__rand_int__)" 'the value by GET and by MGET'
    check "$(ask dbsize)" 2 'the number of keys'
    check "$(info stats protocol_errors)" 0 'the count of protocol errors'
    p0=$(info weft requests_p0)
    p1=$(info weft requests_p1)
    apart=$(awk -v a="$p0" -v b="$p1" 'BEGIN { print (a <= 3 * b && b <= 3 * a) ? "at most 3" : "more" }')
    check "$apart" 'at most 3' "requests of P0 ($p0) over P1 ($p1), or the other way,"
    printf 'kv: requests P0 %s, P1 %s; steals %s; threads %s\n' "$p0" "$p1" \
        "$(info weft steals)" "$(info weft threads)"
}

# Medians of each row, kv beside redis-server.
report() {
    sort -k1,3 -k4n "$work/all" | awk '
        function flush() { if (n) median[key] = (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 }
        {
            k = $1 " " $2 " " $3
            if (k != key) { flush(); key = k; n = 0 }
            v[++n] = $4
            if ($1 == "kv") rows[$2 " " $3]
        }
        END {
            flush()
            printf "  %-36s %12s %12s %8s\n", "", "kv", "redis", "kv/redis"
            for (r in rows) {
                a = median["kv " r]
                b = median["redis " r]
                form = r ~ /CPU/ ? "%.2f" : "%.0f"
                line = sprintf("  %-36s %12s", r, sprintf(form, a))
                if (b) line = line sprintf(" %12s %8.2f", sprintf(form, b), a / b)
                print line | "sort"
            }
        }
    '
}

: >"$work/all"
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    start_kv
    both_modes kv
    check_kv
    stop kv
    if command -v redis-server >/dev/null; then
        start_redis
        both_modes redis
        stop redis-server
    fi
done
report
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
