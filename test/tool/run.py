"""run.py: runs the test programs of one build and adds their results to a tally.

    run.py --build DIR --name KIND --tally FILE [--suite S]... [--only GLOB]... [--refuse WORD]...
           [--timed] [--jobs N]

The programs are those of DIR's meson (`meson-info/intro-tests.json`), so `meson test` and this tool run
the same. A program closes with `N passed, N failed[, N skipped]`; one without such a line counts as one
test by its exit status. Tests that meson says are not parallel run alone, after the others.

--only leaves the programs whose name matches one of the globs. --refuse runs each by way of the build's
`refuse` (runner/refuse.c), which has the system refuse what WORD names.

The tally gets one line a program, `count PASSED FAILED SKIPPED`, and one a thing to be named at the end:
`failed TEXT`, `skipped TEXT`, `clock TEXT`.

Under --timed the clock parts count: a test that missed one is run again, and passes if it keeps its
clock parts in one of three tries.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

LAST = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
FAIL = re.compile(r"^FAIL ([^\s:]+/[^\s:]+)(.*)$")
SKIP = re.compile(r"^SKIP (.+)$")
CLOCK = re.compile(r"^clock: (?:ok|missed) .+$")
TRIES = 3


class Outcome:
    """What one run of one program came to."""

    def __init__(self, test, log, text, status, seconds):
        self.test, self.log, self.seconds = test, log, seconds
        lines = text.splitlines()
        self.failures = [m.groups() for m in map(FAIL.match, lines) if m]
        self.skips = [m.group(1) for m in map(SKIP.match, lines) if m]
        self.clocks = [line for line in lines if CLOCK.match(line)]
        closing = [m for m in map(LAST.match, lines) if m]
        if closing:
            self.passed, self.failed, self.skipped = (int(n or 0) for n in closing[-1].groups())
            self.complaint = None
            if status != 0 and self.failed == 0:
                self.failed, self.complaint = 1, f"all passed, yet its status was {status}"
        else:
            self.passed, self.failed, self.skipped = int(status == 0), int(status != 0), 0
            self.complaint = None if status == 0 else f"ended with status {status} and no closing line"


class Runner:
    def __init__(self, args):
        self.args = args
        self.logs = pathlib.Path(args.build).parent / "log" / args.name
        self.logs.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.running = set()
        self.tally = open(args.tally, "a", encoding="utf-8")

    def tests(self):
        info = json.loads((pathlib.Path(self.args.build) / "meson-info/intro-tests.json").read_text())
        for test in info:
            suites = {s.rsplit(":", 1)[-1] for s in test["suite"]}
            if self.args.suite and not suites & set(self.args.suite):
                continue
            if self.args.only and not any(fnmatch.fnmatch(test["name"], glob) for glob in self.args.only):
                continue
            yield self.refused(test) if self.args.refuse else test

    def refused(self, test):
        refuse = os.path.join(os.path.abspath(self.args.build), "test", "refuse")
        return {**test, "cmd": [refuse, *self.args.refuse, "--", *test["cmd"]]}

    def execute(self, test, log, extra=()):
        """Runs the program once, output to the log; returns what it came to."""
        env = {**os.environ, **test["env"]}
        limit = test["timeout"] or None
        if limit and "WEFT_TEST_SLACK" in env:
            limit *= max(1.0, float(env["WEFT_TEST_SLACK"]))
        start = time.monotonic()
        with open(log, "wb") as out:
            child = subprocess.Popen([*test["cmd"], *extra], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, env=env, cwd=test["workdir"] or self.args.build,
                                     start_new_session=True)
            self.running.add(child)
            try:
                status = child.wait(limit)
            except subprocess.TimeoutExpired:
                status = f"time-out ({limit:.0f} s)"
            finally:
                self.end_group(child)
                self.running.discard(child)
        text = log.read_text(encoding="utf-8", errors="replace")
        return Outcome(test, log, text, status, time.monotonic() - start)

    @staticmethod
    def end_group(child):
        """Ends what the program left running; the program itself when it was too slow."""
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()

    def run(self, test):
        log = self.logs / (test["name"].replace("/", "-").replace(" ", "-") + ".log")
        outcome = self.execute(test, log)
        if self.args.timed:
            self.try_again(outcome)
        self.publish(outcome)
        return outcome

    def try_again(self, outcome):
        """Best of three for each test that failed by nothing but its clock parts."""
        missed = {line.split()[2].rstrip(":") for line in outcome.clocks if " missed " in line}
        for name, reason in list(outcome.failures):
            if name not in missed:
                continue
            for attempt in range(2, TRIES + 1):
                log = outcome.log.with_suffix(f".try{attempt}.log")
                again = self.execute(outcome.test, log, [name])
                outcome.clocks += again.clocks
                if again.failed == 0:
                    outcome.failures.remove((name, reason))
                    outcome.failed -= 1
                    outcome.passed += 1
                    break

    def repeat_command(self, test, name=None):
        """As typed in the root of the tree: meson runs tests in the build folder."""
        def word(w):
            path = os.path.relpath(os.path.join(self.args.build, w))
            return path if "/" in w and os.path.exists(path) and not path.startswith("..") else w
        return shlex.join([word(w) for w in test["cmd"]] + ([name] if name else []))

    def publish(self, o):
        kind, name = self.args.name, o.test["name"]
        log = os.path.relpath(o.log)
        count = f"{o.passed} passed, {o.failed} failed" + (f", {o.skipped} skipped" if o.skipped else "")
        with self.lock:
            print(f"    {'FAIL' if o.failed else 'ok  '}  {name:<28} {count}  ({o.seconds:.1f} s)")
            self.tally.write(f"count {o.passed} {o.failed} {o.skipped}\n")
            for test, reason in o.failures:
                self.complain(f"{kind}: {test}{reason}", log, self.repeat_command(o.test, test))
            if o.complaint or (o.failed and not o.failures):
                why = f": {o.complaint}" if o.complaint else ""
                self.complain(f"{kind}: {name}{why}", log, self.repeat_command(o.test))
            if o.failed:
                self.show(o.log)
            for line in o.skips:
                self.tally.write(f"skipped {kind}: {line}\n")
            for line in o.clocks:
                self.tally.write(f"clock {kind}: {line[len('clock: '):]}\n")
            self.tally.flush()
            sys.stdout.flush()

    @staticmethod
    def show(log, lines=25):
        """The end of the log, so that a reader far away sees what was said."""
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in text[-lines:]:
            print(f"        | {line}")

    def complain(self, what, log, again):
        print(f"      {what}\n        log:    {log}\n        repeat: {again}")
        self.tally.write(f"failed {what} | log: {log} | repeat: {again}\n")

    def interrupted(self, number, _frame):
        """The programs lead sessions of their own, so the terminal's interrupt does not reach them."""
        for child in list(self.running):
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os._exit(128 + number)

    def all(self):
        side_by_side = [t for t in self.tests() if t["is_parallel"]]
        alone = [t for t in self.tests() if not t["is_parallel"]]
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            outcomes = list(pool.map(self.run, side_by_side))
        outcomes += [self.run(t) for t in alone]
        return any(o.failed for o in outcomes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tally", required=True)
    parser.add_argument("--suite", action="append")
    parser.add_argument("--only", action="append")
    parser.add_argument("--refuse", action="append")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--jobs", type=int, default=min(4, len(os.sched_getaffinity(0))))
    runner = Runner(parser.parse_args())
    signal.signal(signal.SIGINT, runner.interrupted)
    signal.signal(signal.SIGTERM, runner.interrupted)
    return int(runner.all())


sys.exit(main())
