"""listed.py TESTDIR FILE...: every test/SUITE/*.c must be among FILEs, the lists of test/meson.build.

Meson runs it at each configuration, `./dev check` at each call: a test that nobody builds is worse than
none.
"""
import pathlib
import sys

SUITES = ("unit", "stress", "fatal", "field", "conform")


def main():
    test_dir = pathlib.Path(sys.argv[1])
    listed = set(sys.argv[2:])
    found = {f"{suite}/{f.name}" for suite in SUITES for f in test_dir.glob(f"{suite}/*.c")}
    forgotten = sorted(found - listed)
    for name in forgotten:
        print(f"test/{name} is in no list of test/meson.build: add its name there", file=sys.stderr)
    return 1 if forgotten else 0


sys.exit(main())
