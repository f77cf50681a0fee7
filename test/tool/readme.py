"""readme.py README HELLO.C PROGRAM: the README's first program is HELLO.C, and PROGRAM prints what the
README says it prints. The order of lines is the scheduler's, and so is not compared."""
import re
import subprocess
import sys


def main():
    readme = open(sys.argv[1], encoding="utf-8").read()
    source = open(sys.argv[2], encoding="utf-8").read()
    shown = re.search(r"```c\n(.*?)```", readme, re.S).group(1).strip()
    promised = re.search(r"```text\n(.*?)```", readme, re.S).group(1)
    failed = 0
    if shown != source[source.index("#include"):].strip():
        print("the README's first program is not examples/hello/hello.c")
        failed += 1
    run = subprocess.run([sys.argv[3]], capture_output=True, text=True, timeout=20, check=False)
    if run.returncode != 0 or sorted(run.stdout.splitlines()) != sorted(promised.splitlines()):
        print(f"it printed (status {run.returncode}):\n{run.stdout}{run.stderr}")
        failed += 1
    print(f"{2 - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
