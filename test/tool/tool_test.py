"""tool_test.py SOURCE: the check scripts, tried on small trees that break each rule once.

A check that never says no proves nothing. Closes with `N passed, N failed`.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

passed = failed = 0


def check(what, ok, seen):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL tool/{what}\n{seen}")


def run(*command, cwd=None):
    done = subprocess.run([str(c) for c in command], cwd=cwd, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    return done.returncode, done.stdout


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def compile_rooms(root):
    """Objects named as meson names them."""
    out = root / "build/runtime/libweft.so.0.p"
    out.mkdir(parents=True)
    for source in (root / "runtime").glob("*/*.c"):
        obj = out / f"{source.parent.name}_{source.name}.o"
        status, text = run("cc", "-I", root / "runtime", "-fPIC", "-c", source, "-o", obj)
        if status:
            sys.exit(text)
    return out


HOUSE = {
    "runtime/base/base.h": "int weft__base(void);\n",
    "runtime/base/base.c": '#include "base.h"\nint weft__base(void) { return 1; }\n',
    "runtime/heap/heap.h": "int weft__heap(void);\n",
    "runtime/heap/heap.c": '#include "base/base.h"\nint weft__heap(void) { return weft__base(); }\n',
    "runtime/stack/stack.h": "int weft__stack(void);\n",
    "runtime/stack/stack.c": '#include "stack.h"\nint weft__stack(void) { return 2; }\n',
    "runtime/sched/sched.c": '#include "heap/heap.h"\n#include <stdio.h>\n'
                             "int weft__sched(void) { return weft__heap(); }\n",
}


def floors(tool):
    def judge(what, files, words):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {**HOUSE, **files})
            compile_rooms(root)
            status, text = run(sys.executable, tool / "floors.py", root, root / "build")
            ok = (status == 0 and not text) if words is None else (status == 1 and words in text)
            check(f"floors-{what}", ok, f"status {status}\n{text}")

    judge("kept", {}, None)
    judge("include-up", {"runtime/base/more.c": '#include "heap/heap.h"\n'},
          "up, from base to heap")
    judge("include-up-by-dots", {"runtime/base/more.c": '#include "../heap/heap.h"\n'},
          "up, from base to heap")
    judge("include-sideways", {"runtime/heap/more.c": '#include "stack/stack.h"\n'},
          "sideways, from heap to stack")
    judge("call-up", {"runtime/base/more.c": "int weft__sched(void);\nint weft__more(void) "
                                             "{ return weft__sched(); }\n"},
          "base_more.c.o: uses weft__sched: up, from base to sched")
    judge("data-sideways", {"runtime/stack/stack.c": "int weft__depth;\n",
                            "runtime/heap/more.c": "extern int weft__depth;\nint weft__more(void) "
                                                   "{ return weft__depth; }\n"},
          "uses weft__depth: sideways, from heap to stack")
    judge("call-by-pointer", {"runtime/base/more.c": "int (*weft__hook)(void);\nint weft__more(void) "
                                                     "{ return weft__hook(); }\n"}, None)
    judge("no-such-room", {"runtime/attic/x.h": "\n"}, "runtime/attic is on no floor")


def symbols(tool):
    def judge(what, header, source, words):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {"include/weft.h": "", "include/weft/x.h": header, "x.c": source})
            (root / "runtime").mkdir()
            status, text = run("cc", "-shared", "-fPIC", "-fvisibility=hidden", root / "x.c", "-o",
                               root / "runtime/libweft.so")
            if status:
                sys.exit(text)
            status, text = run(sys.executable, tool / "symbols.py", root, root)
            ok = status == 0 if words is None else (status == 1 and words in text)
            check(f"symbols-{what}", ok, f"status {status}\n{text}")

    define = '#define WEFT_API __attribute__((visibility("default")))\n'
    header = define + "/* WEFT_API int weft_old(void); */\nWEFT_API\nint *weft_one(int (*f)(int),\n int x);\n"
    one = define + "WEFT_API int *weft_one(int (*f)(int), int x) { (void)f; (void)x; return 0; }\n"
    judge("agree", header, one, None)
    judge("foreign", header, one + "WEFT_API int helper;\n", "no public name: helper")
    judge("internal", header, one + "WEFT_API void weft__in(void) {}\n", "no public name: weft__in")
    judge("undeclared", header, one + "WEFT_API void weft_two(void) {}\n", "no header: weft_two")
    judge("undefined", header + "WEFT_API void weft_two(void);\n", one, "not exported: weft_two")


def elf(tool):
    def judge(what, source, options, words):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {"x.c": source, "runtime/none": ""})
            status, text = run("cc", "-shared", "-fPIC", root / "x.c", "-o", root / "runtime/libweft.so",
                               *options)
            if status:
                sys.exit(text)
            status, text = run(sys.executable, tool / "elf.py", root)
            ok = status == 0 if words is None else (status == 1 and words in text)
            check(f"elf-{what}", ok, f"status {status}\n{text}")

    judge("fine", "static __thread int x;\nint f(void) { return x++; }\n", [], None)
    judge("stack", "int x;\n", ["-Wl,-z,execstack"], "its stack is executable")
    judge("tls", '__thread int x __attribute__((tls_model("initial-exec")));\nint f(void) { return x++; }\n',
          [], "it has STATIC_TLS")
    judge("tests", 'const char *f(void) { return "WEFT_TEST_" "REFUSED"; }\n', [], "something of the tests")
    judge("library", "int x;\n", ["-Wl,--no-as-needed", "-lm"], "it needs libm.so.6")


def lists(tool):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write(root, {"unit/a.c": "", "field/b.c": "", "runner/c.c": ""})
        status, text = run(sys.executable, tool / "listed.py", root, "unit/a.c")
        check("listed-forgotten", status == 1 and "test/field/b.c" in text and "c.c" not in text, text)
        status, text = run(sys.executable, tool / "listed.py", root, "unit/a.c", "field/b.c")
        check("listed-all", status == 0, text)
        write(root, {"list": "# a comment\none  s/t  5  words\n\n two  p  1  words # more\n"})
        status, text = run(sys.executable, tool / "canary_names.py", root / "list")
        check("canary-names", status == 0 and text.split() == ["one", "two"], text)


def words(tool):
    def judge(what, text, fine):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {"a.sh": "#!/bin/sh\n" + text})
            status, seen = run("sh", tool / "words.sh", root)
            check(f"words-{what}", (status == 0) == fine, seen)

    judge("fine", 'echo "x-XXXXXX"\n', True)
    judge("left-to-do", "# TO" "DO: more\n", False)
    judge("syntax", "if true; then\n", False)


def runner(tool):
    """run.py, given a build folder of ours whose tests are shell scripts."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "a build"
        scripts = {
            "good": "echo '3 passed, 0 failed'",
            "bad": "echo 'FAIL s/one: why'; echo '1 passed, 1 failed'; exit 1",
            "skips": "echo 'SKIP s/two: no such thing'; echo '0 passed, 0 failed, 1 skipped'",
            "plain": "exit 0",
            "crash": "echo '5 passed, 0 failed'; kill -SEGV $$",
            "mute": "exit 4",
            "slow": "sleep 60",
            "clock": "echo 'clock: missed s/three: 9 ms'; echo 'FAIL s/three'\n"
                     "echo x >>tries; [ $(wc -l <tries) -lt 3 ] || { echo 'clock: ok s/three: 1 ms'\n"
                     "echo '1 passed, 0 failed'; exit; }; echo '0 passed, 1 failed'; exit 1",
        }
        write(root, {f"{name}.sh": text for name, text in scripts.items()})

        def judge(name, count, words, failing, *args):
            test = {"name": name, "suite": ["weft:s"], "cmd": ["/bin/sh", f"./{name}.sh"], "env": {},
                    "workdir": None, "timeout": 2 if name == "slow" else 30, "is_parallel": name != "good"}
            other = {**test, "name": "other", "suite": ["weft:other"], "cmd": ["false"]}
            write(root, {"meson-info/intro-tests.json": json.dumps([test, other])})
            tally = root / "tally"
            tally.write_text("")
            status, text = run(sys.executable, tool / "run.py", "--build", root, "--name", "kind", "--tally",
                               tally, "--suite", "s", *args)
            said = tally.read_text()
            check(f"run-{name}{''.join(args)}", status == failing and f"count {count}" in said.splitlines()
                  and all(w in said for w in words) and said.count("count") == 1,
                  f"status {status}\n{text}\n{said}")

        judge("good", "3 0 0", [], 0)
        judge("bad", "1 1 0", ["failed kind: s/one: why | log: ", "./bad.sh s/one"], 1)
        judge("skips", "0 0 1", ["skipped kind: s/two: no such thing"], 0)
        judge("plain", "1 0 0", [], 0)
        judge("crash", "5 1 0", ["all passed, yet its status was -11"], 1)
        judge("mute", "0 1 0", ["status 4 and no closing line"], 1)
        judge("slow", "0 1 0", ["time-out (2 s)"], 1)
        judge("plain", "1 0 0", [], 0, "--only", "n*", "--only", "p*")
        judge("plain", "1 0 0", [], 0, "--only", "plai?")
        write(root, {"test/refuse": '#!/bin/sh\n[ "$1 $2 $3" = "this that --" ] || exit 9\nshift 3\nexec "$@"\n'})
        (root / "test/refuse").chmod(0o755)
        judge("plain", "1 0 0", [], 0, "--refuse", "this", "--refuse", "that")
        judge("bad", "1 1 0", ["this that -- /bin/sh ./bad.sh s/one"], 1, "--refuse", "this", "--refuse",
              "that")
        judge("clock", "1 0 0", ["clock kind: missed s/three: 9 ms", "clock kind: ok s/three: 1 ms"], 0,
              "--timed")
        judge("bad", "1 1 0", [], 1, "--timed")


def canaries(tool):
    """canaries.py, given builds that are there already: a ninja that does nothing, tests in shell."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        fine, finds = "echo '1 passed, 0 failed'", "echo 'FAIL s/t'; echo '0 passed, 1 failed'; exit 1"
        cases = {  # name: the release build's test, the planted build's, what is said
            "found": (fine, finds, "found in"),
            "survivor": (fine, fine, "SURVIVED"),
            "another": (fine, "echo 'FAIL s/else'; echo '0 passed, 1 failed'; exit 1", "SURVIVED"),
            "mute": (fine, "exit 1", "SURVIVED"),
            "slow": (fine, "sleep 60", "no verdict in 1 s"),
            "always": (finds, finds, "does not pass without the fault"),
            "skipped": ("echo '0 passed, 0 failed, 1 skipped'", finds, "does not pass without the fault"),
        }
        write(root, {"bin/ninja": "#!/bin/sh\n", "test/stress/x.c": "TEST_IN(s, t, 1) {}\n",
                     "test/canary/list": "# names\n" + "".join(f"{c} s/t 1 words\n" for c in cases)})
        for name, (release, planted, _) in cases.items():
            for build, text in (("release", release), (f"canary-{name}", planted)):
                write(root, {f"build/{build}/build.ninja": "", f"build/{build}/test/stress-x":
                             f"#!/bin/sh\n{text}\n"})
                (root / f"build/{build}/test/stress-x").chmod(0o755)
            (root / "bin/ninja").chmod(0o755)
            path = f"{root / 'bin'}:{os.environ['PATH']}"
            status, text = run("env", f"PATH={path}", sys.executable, tool / "canaries.py", "--tally",
                               root / "tally", name, cwd=root)
            check(f"canary-{name}", cases[name][2] in text and status == int(name != "found"), text)


def main():
    tool = pathlib.Path(sys.argv[1]).resolve() / "test/tool"
    floors(tool)
    symbols(tool)
    elf(tool)
    lists(tool)
    words(tool)
    runner(tool)
    canaries(tool)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
