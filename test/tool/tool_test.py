"""tool_test.py SOURCE: the check scripts, tried on small trees that break each rule once.

A check that never says no proves nothing. Closes with `N passed, N failed`.
"""
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

    judge("fine", 'name="x-XXXXXX"\n', True)
    judge("left-to-do", "# TO" "DO: more\n", False)
    judge("syntax", "if true; then\n", False)


def main():
    tool = pathlib.Path(sys.argv[1]).resolve() / "test/tool"
    floors(tool)
    symbols(tool)
    lists(tool)
    words(tool)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
