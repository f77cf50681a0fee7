"""tidy.py BUILD: clang-tidy over our C files, as BUILD compiles them. What it checks stands in .clang-tidy."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

FOLDERS = ("runtime", "examples", "test/runner", "test/bench")


def main():
    build, root = pathlib.Path(sys.argv[1]), pathlib.Path.cwd()
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    files = {os.path.normpath(os.path.join(c["directory"], c["file"])) for c in commands}
    ours = sorted(f for f in files for folder in FOLDERS if f.startswith(f"{root / folder}/"))

    def tidy(path):
        done = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), path], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout if done.stdout.strip() else done.stderr

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for status, text in pool.map(tidy, ours):
            if status:
                bad += 1
                print(text)
    print(f"{len(ours)} files, {bad} with findings")
    return 1 if bad or not ours else 0


sys.exit(main())
