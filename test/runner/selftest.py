"""selftest.py PROGRAM...: the runners, judged by what they say of runner/fixture.c.

Each PROGRAM is the fixture built for one runner. Closes with `N passed, N failed`.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

passed = failed = 0


def check(what, ok, seen):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL runner/{what}\n{seen}")


class Run:
    """One run of a program, its output through a file: a child it leaves behind would hold a pipe open."""

    def __init__(self, program, *args, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        start = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:
            child = subprocess.Popen([program, *args], env={**clean, **env}, stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                self.status = child.wait(120)
            except subprocess.TimeoutExpired:
                self.status = "none: it hung"
            self.seconds = time.monotonic() - start
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            out.seek(0)
            self.text = out.read()
        lines = self.text.splitlines()
        # Criterion's own lines come through another stream: the closing line is the last of ours.
        self.last = [x for x in lines if re.fullmatch(r"\d+ passed, \d+ failed(, \d+ skipped)?", x)][-1:]
        self.fails = {x.split()[1].rstrip(":") for x in lines if x.startswith("FAIL ")}


def one(program, runner):
    def expect(what, args, last, status, texts=(), fails=(), env=None, within=60):
        r = Run(program, *args, **(env or {}))
        ok = (r.last == [last] and r.status == status and r.fails == set(fails)
              and all(t in r.text for t in texts) and r.seconds < within)
        check(f"{runner}-{what}", ok, f"status {r.status}, {r.seconds:.1f} s\n{r.text}")

    def fails(name, *texts, within=60):
        expect(name, [f"bad/{name}"], "0 passed, 1 failed", 1, texts, [f"bad/{name}"], within=within)

    expect("good", ["good/*"], "3 passed, 0 failed", 0, within=20)
    fails("check", "fixture.c:", "CHECK(a == 2)", "printed before")
    fails("eq", "CHECK_EQ(40 + 2, 43): 42, 43")
    fails("str", '"left", "right"')
    fails("mem", "byte 1 of 2: 0x62, 0x63")
    fails("on_a_thread", "CHECK(arg != NULL)")
    fails("aborts")
    fails("segfaults")
    fails("exits_early", "its process ended before the test did")
    fails("exits_early_underscore", "its process ended before the test did")
    fails("hangs", within=15)
    fails("fails_not_at_all", "ended by exit status 0")
    fails("fails_by_another_signal", "ended by signal 6")
    fails("fails_by_another_status", "ended by exit status 3")
    fails("fails_without_the_text", 'no "other words"', "the end: x")
    expect("skips", ["skip/*"], "0 passed, 0 failed, 2 skipped", 0,
           ["SKIP skip/by_itself: nothing to see here", "SKIP skip/on_a_thread: skipped from a thread"])
    clocks = ["clock: ok clock/kept: took 7 ms", "clock: missed clock/missed: took 99 ms"]
    expect("clock", ["clock/*"], "2 passed, 0 failed", 0, clocks)
    expect("clock-timed", ["clock/*"], "1 passed, 1 failed", 1, clocks, ["clock/missed"],
           {"WEFT_TEST_TIMED": "1"})
    expect("environment", ["env/*"], "3 passed, 0 failed", 0, [], [],
           {"WEFT_TEST_SLACK": "3", "WEFT_STRESS_SECONDS": "5"})
    expect("limit", ["env/limit_grows"], "0 passed, 1 failed", 1, [], ["env/limit_grows"])
    expect("two-globs", ["good/passes", "skip/by*"], "1 passed, 0 failed, 1 skipped", 0)
    expect("no-such-test", ["good/nothing"], "0 passed, 1 failed", 1, ["no test of that name"], ["(no"])
    listed = Run(program, "--list", "good/*")
    check(f"{runner}-list", listed.status == 0 and listed.text.split() ==
          ["good/passes", "good/leaves_a_child", "good/fails_as_expected"], listed.text)


def leftovers(program):
    """No report of a run stays in the folder for temporary files."""
    folder = pathlib.Path(program).parent / "selftest-tmp"
    folder.mkdir(exist_ok=True)
    Run(program, "good/passes", TMPDIR=str(folder))
    left = list(folder.iterdir())
    check("leaves-no-file", not left, str(left))


for path in sys.argv[1:]:
    one(path, pathlib.Path(path).name.rsplit("-", 1)[-1])
    leftovers(path)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0 or passed == 0)
