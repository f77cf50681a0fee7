"""canaries.py --tally FILE [NAME...]: plants each fault of test/canary/list and sees its test find it.

A line of the list: NAME  SUITE/TEST (or SUITE.TEST, or a program's name)  SECONDS  what is broken.
For each, a build with -Dcanary=NAME of nothing but the library and that one test's program. The test must
report its own failure within SECONDS, and pass in the release build: a test that fails without the fault,
or that is still running, has found nothing.

Two faults are under way at a time: one is compiled while the test of the other waits for what will not come.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

LIST = pathlib.Path("test/canary/list")
CLEAN_SECONDS = 120  # without the fault the test may take all the time it is made for
AT_A_TIME = 2
release_lock = threading.Lock()  # one folder, one ninja
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed", re.M)


class Canary:
    def __init__(self, line):
        self.name, target, seconds, self.what = line.split(None, 3)
        self.seconds = float(seconds)
        self.suite, self.test = None, None
        pair = re.fullmatch(r"(\w+)[./](\w+)", target)
        if pair:
            self.suite, self.test = pair.groups()
            self.program = program_of(self.suite, self.test)
        else:
            self.program = target

    @property
    def glob(self):
        return [f"{self.suite}/{self.test}"] if self.test else []

    @property
    def target(self):
        return self.glob[0] if self.test else self.program


def program_of(suite, test):
    """The program that has this test: its source says TEST(suite, test)."""
    word = re.compile(rf"\bTEST(?:_IN)?\(\s*{suite}\s*,\s*{test}\b")
    for source in sorted(pathlib.Path("test").glob("*/*.c")):
        if word.search(source.read_text(encoding="utf-8")):
            return f"{source.parent.name}-{source.stem}"
    sys.exit(f"{LIST}: no file under test/ has TEST({suite}, {test})")


def read_list(wanted):
    lines = [line.strip() for line in LIST.read_text(encoding="utf-8").splitlines()]
    canaries = [Canary(line) for line in lines if line and not line.startswith("#")]
    unknown = set(wanted) - {c.name for c in canaries}
    if unknown:
        sys.exit(f"{LIST} has no {', '.join(sorted(unknown))}")
    return [c for c in canaries if not wanted or c.name in wanted]


def build(folder, program, log, *options):
    """Configures once, then builds that one program."""
    with open(log, "wb") as out:
        def run(*command):
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT).returncode == 0
        if not (folder / "build.ninja").exists():
            # What only a debugger needs takes as long to make as the code.
            if not run("meson", "setup", str(folder), "-Dexamples=false", "-Ddebug=false", *options):
                return False
        return run("ninja", "-C", str(folder), f"test/{program}")


def run_test(folder, canary, log, limit):
    """(text, seconds, ended): the test's output, and whether it came to an end in time."""
    start = time.monotonic()
    with open(log, "wb") as out:
        child = subprocess.Popen([str(folder / "test" / canary.program), *canary.glob],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            child.wait(limit)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        seconds = time.monotonic() - start
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
    return log.read_text(encoding="utf-8", errors="replace"), seconds, ended


def closing(text):
    found = CLOSING.findall(text)
    return tuple(map(int, found[-1])) if found else (0, 0)


def try_canary(c, logs):
    """What is wrong, or None; and how long the fault lived."""
    release, planted = pathlib.Path("build/release"), pathlib.Path(f"build/canary-{c.name}")
    log = logs / f"{c.name}.log"
    with release_lock:
        built = build(release, c.program, log)
    if not built:
        return "the release build failed", 0, log
    text, _, ended = run_test(release, c, log, max(c.seconds, CLEAN_SECONDS))
    passed, failed = closing(text)
    if not ended or failed or not passed:
        return "its test does not pass without the fault", 0, log
    if not build(planted, c.program, log, f"-Dcanary={c.name}"):
        return "the build with the fault failed", 0, log
    text, seconds, ended = run_test(planted, c, log, c.seconds)
    if not ended:
        return f"its test came to no verdict in {c.seconds:g} s", seconds, log
    named = rf"^FAIL {c.suite}/{c.test}\b" if c.test else r"^FAIL \w+/\w+"
    if not closing(text)[1] or not re.search(named, text, re.M):
        return "SURVIVED: its test passed", seconds, log
    return None, seconds, log


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tally", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    logs = pathlib.Path("build/log/canary")
    logs.mkdir(parents=True, exist_ok=True)
    survivors = 0
    canaries = read_list(args.names)
    width = max([len(c.name) for c in canaries], default=0)
    room = max([len(c.target) for c in canaries], default=0)
    with open(args.tally, "a", encoding="utf-8") as tally, \
            concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        for c, result in zip(canaries, pool.map(lambda c: try_canary(c, logs), canaries)):
            wrong, seconds, log = result
            verdict = wrong or f"found in {seconds:.1f} s"
            print(f"    {c.name:<{width}}  {c.target:<{room}}  {verdict}  ({c.what})", flush=True)
            tally.write(f"count {int(not wrong)} {int(bool(wrong))} 0\n")
            if wrong:
                survivors += 1
                tally.write(f"failed canary {c.name}: {wrong} | log: {log} "
                            f"| repeat: ./dev canaries {c.name}\n")
    return 1 if survivors or not canaries else 0


sys.exit(main())
