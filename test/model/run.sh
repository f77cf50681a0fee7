#!/bin/sh
# model/run.sh [MODEL]: verifies the models of the lock-free protocols with spin, each as it is (must
# hold in all states) and with each part taken out (must fail). README.md says what they model.
# model/run.sh -t MODEL [MACRO]...: prints the shortest trace to the failure of that variant.
#
# Prints one line a variant, and last `N passed, N failed`, or `0 passed, 0 failed, 1 skipped` where
# spin or a compiler is missing. Some 90 s of one core, at most 1.5 GB. CC names the compiler.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
cc=${CC:-gcc}
for tool in spin "${cc%% *}"; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "SKIP model: $tool is not installed"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
done

# MODEL holds|breaks [MACRO]...
variants() {
    cat <<'EOF'
free_park holds
free_park breaks NO_HEAVY
free_park breaks FLAG_BEFORE
free_park breaks READY_ARMING
free_park breaks NO_COMMIT_READY
free_park breaks NO_AWAIT
free_park breaks NO_UNLINK
free_park holds LATE_FIRE
free_park breaks LATE_FIRE NO_GENERATION
held_park holds
held_park breaks NO_HEAVY
held_park breaks CANCEL_FIRST
held_park breaks NO_WORD
held_park breaks NO_RESET
held_park breaks NO_RUNNING
idle holds
idle breaks NO_FENCE
idle breaks NO_RECHECK
idle breaks LOOK_FIRST
idle breaks SPINNERS_RECHECK
idle breaks NO_OFFERED
idle breaks NO_CHAIN
idle breaks NO_OWE
idle breaks NO_WANTED
poll holds
poll breaks NO_FENCE
poll breaks ZERO_IS_SOON
poll breaks TOKEN_LATE
poll breaks NO_TELL
poll breaks DRAIN_FLIPPED
poll breaks NO_WATCH
poll holds LEAVE
poll breaks LEAVE NO_LOOK_BEHIND
poll breaks LEAVE NO_LOOK_AT_PARK
gate holds
gate breaks BLIND_MARK
gate breaks LEAVER_CLEARS_OPEN
gate breaks CLEAR_BEFORE_LOCK
gate breaks PASS_WITHOUT_LOCK
mutex holds
mutex breaks BLIND_MARK
mutex breaks TAKER_KEEPS_WOKEN
mutex breaks LEAVER_KEEPS_WOKEN
mutex breaks LEAVER_WAKES_NOBODY
mutex breaks UNLOCK_UNDER_INNER
mutex breaks HAND_TO_NOBODY
mutex breaks FAST_PAST_WAITERS
mutex breaks WAKE_BEFORE_DROP
ticket holds
ticket holds TWO_PS ONE_RETAKER CALLS=2
ticket breaks NO_HEAVY
ticket breaks TICKET_BY_OWNER
ticket breaks TWO_RETAKERS
ticket breaks PUT_BACK ONE_RETAKER CALLS=2
ticket breaks LEAVE_WRONG
ticket breaks STALE_PM
ticket breaks NO_RECHECK
ticket breaks NO_STAY_UP
sysmon holds SOLO
sysmon holds RETURNS=0
sysmon breaks SOLO NO_HEAVY
sysmon breaks SOLO NO_FULL
sysmon breaks SOLO NO_LOOK_AT_PS
sysmon breaks SOLO NO_LOOK_AT_WORK
sysmon breaks SOLO CLEAR_LATE
sysmon breaks SOLO NO_POKE
sysmon breaks SOLO NO_WAKE_BY_TAKER
sysmon breaks SOLO NO_WAKE_BY_REGAIN
sysmon breaks SUBMITS=2 NO_OWE
EOF
}

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cp "$here"/*.pml "$here"/*.h "$work" || exit 2
cd "$work" || exit 2

# The first in order of length; steps of the machine's memory are left out.
trace() {
    model=$1
    shift
    flags=
    for macro in "$@"; do
        flags="$flags -D$macro"
    done
    # shellcheck disable=SC2086
    spin $flags -a "$model.pml" >report 2>&1 && $cc -O1 -w -DSAFETY -DBFS -DMEMLIM=3000 -o pan pan.c &&
        ./pan -w22 >>report 2>&1
    grep -qE 'errors: [1-9]' report || {
        grep -E 'rror' report
        echo "no failure was found"
        return 1
    }
    # shellcheck disable=SC2086
    spin $flags -t -p "$model.pml" | grep -vE '\(machine:1\) tso|\[goto |\[else\]'
}

# verify LEVEL MODEL [MACRO]...: LEVEL of optimisation, since most errors are found sooner than a
# compiler is done. The verifier's report goes to $work/report; 1 if there is none.
verify() {
    level=$1
    model=$2
    shift 2
    rm -f pan report
    flags=
    for macro in "$@"; do
        flags="$flags -D$macro"
    done
    # shellcheck disable=SC2086
    spin $flags -a "$model.pml" >report 2>&1 || return 1
    # Safety only: assertions, and states in which somebody waits for ever.
    # shellcheck disable=SC2086
    $cc "-O$level" -w -DSAFETY -DMEMLIM=1500 -o pan pan.c >>report 2>&1 || return 1
    ./pan -m20000 -w22 >>report 2>&1
    grep -q 'errors: [0-9]' report
}

# Complete: every state was reached, none was cut off by depth or memory.
is_complete() {
    grep -q 'errors: 0' report && ! grep -qiE 'depth too small|not completed|memlim|out of memory' report
}

searched() { sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' report; }

if [ "${1:-}" = -t ] && [ $# -ge 2 ]; then
    shift
    trace "$@"
    exit
fi

passed=0
failed=0
variants >list
while read -r model expected macros; do
    [ $# -eq 0 ] || [ "$1" = "$model" ] || continue
    level=0
    [ "$expected" = breaks ] || level=2
    # shellcheck disable=SC2086
    if ! verify "$level" "$model" $macros; then
        why='it could not be run'
    elif [ "$expected" = holds ]; then
        why='an error was found, or the search was cut short'
        is_complete && why=
    else
        why='no error was found: the model does not see that this part is missing'
        grep -qE 'errors: [1-9]' report && grep -qE 'assertion violated|invalid end state' report && why=
    fi
    if [ -z "$why" ]; then
        passed=$((passed + 1))
        echo "ok   model/$model $expected${macros:+ with $macros} ($(searched) states)"
    else
        failed=$((failed + 1))
        echo "FAIL model/$model $expected${macros:+ with $macros}: $why"
        sed 's/^/    /' report | head -n 20
    fi
done <list
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
