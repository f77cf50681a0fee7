"""dev_test.py SOURCE: ./dev on machines that this one is not, and in a clone whose path has a blank.

A machine is a folder of programs, the only one on PATH: the plain tools of any system, and an apt-get, sudo
or dnf of ours that writes down how it was called. Closes with `N passed, N failed`.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PLAIN = ("sh", "awk", "basename", "cat", "date", "dirname", "env", "find", "grep", "head", "mkdir", "rm",
         "chmod", "sed", "sort", "tail", "touch", "tr", "uname")
PACKAGES = {  # what our apt-get puts on PATH; the development files are seen through pkg-config
    "gcc": "gcc", "meson": "meson", "ninja-build": "ninja", "pkg-config": "pkg-config",
    "python3": "python3", "clang": "clang", "g++": "g++", "clang-format": "clang-format",
    "clang-tidy": "clang-tidy", "valgrind": "valgrind",
    "redis-tools": "redis-benchmark redis-cli",
}
APT_GET = """#!/bin/sh
echo "apt-get $* [$DEBIAN_FRONTEND]" >>"$MACHINE/calls"
words=
for a in "$@"; do
    case $a in
    update) touch "$MACHINE/lists/x_Packages" "$MACHINE/updated"; exit 0 ;;
    -*|install|DPkg*) ;;
    *) words="$words $a" ;;
    esac
done
if [ -e "$MACHINE/stale" ] && [ ! -e "$MACHINE/updated" ]; then exit 100; fi
for p in $words; do
    if grep -qsx -- "$p" "$MACHINE/unknown"; then exit 100; fi
done
for p in $words; do
    for program in $(sed -n "s/^$p //p" "$MACHINE/packages"); do
        printf '#!/bin/sh\\nexit 0\\n' >"$MACHINE/bin/$program"
        chmod +x "$MACHINE/bin/$program"
    done
    case $p in libcriterion-dev|libjemalloc-dev) echo "$p" >>"$MACHINE/developed" ;; esac
done
"""
PKG_CONFIG = """#!/bin/sh
exec grep -qs "lib$2-dev" "$MACHINE/developed"
"""
SUDO = """#!/bin/sh
echo "sudo $*" >>"$MACHINE/calls"
exec "$@"
"""
NOT_TO_BE_CALLED = """#!/bin/sh
echo "$0 $*" >>"$MACHINE/calls"
"""

passed = failed = 0


def check(what, ok, seen=""):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL dev/{what}\n{seen}")


class Machine:
    def __init__(self, source, folder, user="0", system="ID=debian", lists=True, **programs):
        self.home = pathlib.Path(folder)
        self.clone = self.home / "a clone"
        for name in ("bin", "lists", "a clone"):
            (self.home / name).mkdir(parents=True)
        shutil.copy(source / "dev", self.clone / "dev")
        for name in PLAIN:
            os.symlink(shutil.which(name), self.home / "bin" / name)
        self.program("id", f"#!/bin/sh\necho {user}\n")
        for name, text in programs.items():
            self.program(name.replace("_", "-"), text)
        (self.home / "packages").write_text("".join(f"{p} {b}\n" for p, b in PACKAGES.items()))
        (self.home / "os-release").write_text(system + "\n")
        if lists:
            (self.home / "lists" / "x_Packages").touch()

    def program(self, name, text):
        path = self.home / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def dev(self, *args):
        env = {"PATH": str(self.home / "bin"), "MACHINE": str(self.home), "HOME": str(self.home),
               "WEFT_OS_RELEASE": str(self.home / "os-release"),
               "WEFT_APT_LISTS": str(self.home / "lists")}
        done = subprocess.run([str(self.home / "bin" / "sh"), str(self.clone / "dev"), *args], env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        log = self.clone / "build/log/setup.log"
        self.text = done.stdout + (log.read_text() if log.exists() else "")
        return done.returncode

    def calls(self):
        path = self.home / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def packages_at_hand(self):
        # pkg-config is ours from the start: apt-get's copy would say yes to everything.
        self.program("pkg-config", PKG_CONFIG)


def machine(source, root, name, **how):
    m = Machine(source, pathlib.Path(root) / name, **how)
    m.packages_at_hand()
    return m


def setting_up(source, root):
    m = machine(source, root, "bare", lists=False, apt_get=APT_GET)
    status = m.dev("setup")
    calls = m.calls()
    check("root-bare", status == 0 and len(calls) == 2 and calls[0].endswith("update [noninteractive]")
          and "install -y --no-install-recommends" in calls[1]
          and calls[1].endswith("[noninteractive]")
          and all(f" {p}" in calls[1] for p in ("gcc", "meson", "ninja-build", "redis-tools",
                                                "libcriterion-dev")), m.text + str(calls))
    check("second-call-costs-nothing", m.dev("setup") == 0 and m.calls() == calls, str(m.calls()))

    m = machine(source, root, "lists", apt_get=APT_GET)
    check("no-update-with-lists", m.dev("setup") == 0 and len(m.calls()) == 1
          and "install" in m.calls()[0], str(m.calls()))

    m = machine(source, root, "stale", apt_get=APT_GET)
    (m.home / "stale").touch()
    status, words = m.dev("setup"), [c.split()[3] for c in m.calls()]
    check("update-when-it-fails-without", status == 0 and words == ["install", "update", "install"],
          m.text + str(m.calls()))

    m = machine(source, root, "unknown", apt_get=APT_GET)
    (m.home / "unknown").write_text("libcriterion-dev\n")
    status = m.dev("setup")
    check("optional-not-to-be-had", status == 0 and "not installed: libcriterion-dev (" in m.text
          and (m.home / "bin/clang").exists(), m.text + str(m.calls()))
    before = m.calls()
    m.dev("canaries")
    check("optional-not-asked-for-again", m.calls() == before, str(m.calls()[len(before):]))

    m = machine(source, root, "required", apt_get=APT_GET)
    (m.home / "unknown").write_text("meson\n")
    check("required-not-to-be-had", m.dev("setup") == 2 and "cannot go on without:" in m.text
          and "meson" in m.text.split("without:")[1], m.text)

    m = machine(source, root, "user", user="1000", apt_get=APT_GET, sudo=SUDO)
    check("user-is-told", m.dev("setup") == 2 and "    sudo apt-get install -y" in m.text
          and not m.calls(), m.text)
    status, calls = m.dev("setup", "--yes"), m.calls()
    check("user-says-yes", status == 0 and calls and calls[0].startswith("sudo env DEBIAN_FRONTEND="),
          m.text + str(calls))

    m = machine(source, root, "no-sudo", user="1000", apt_get=APT_GET)
    check("user-without-sudo", m.dev("setup", "--yes") == 2 and "su -c 'apt-get install" in m.text
          and not m.calls(), m.text)

    m = machine(source, root, "fedora", system="ID=fedora", dnf=NOT_TO_BE_CALLED)
    check("fedora", m.dev("setup") == 2 and "sudo dnf install" in m.text
          and "libcriterion" not in m.text and "criterion-devel" in m.text and not m.calls(), m.text)

    m = machine(source, root, "nowhere", system="ID=plan9")
    check("elsewhere", m.dev("setup") == 2
          and all(f"  {w}: " in m.text for w in ("dnf", "pacman", "apk", "brew")), m.text)

    m = machine(source, root, "optional", system="ID=fedora", dnf=NOT_TO_BE_CALLED)
    for programs in (PACKAGES[p] for p in ("gcc", "meson", "ninja-build", "python3", "redis-tools")):
        for program in programs.split():
            m.program(program, "#!/bin/sh\n")
    check("optional-alone-stops-nobody", m.dev("setup") == 0 and "not installed: clang (" in m.text, m.text)


def asking(source, root):
    m = machine(source, root, "asking")
    check("bare-call", m.dev() == 0 and "./dev demo" in m.text and "./dev clean" in m.text, m.text)
    check("no-such-command", m.dev("nonsense") == 2 and "no such command: nonsense" in m.text, m.text)
    check("no-such-tier", m.dev("test", "nonsense") == 2, m.text)


def a_clone_with_a_blank(source, root):
    clone = pathlib.Path(root) / "another clone"
    shutil.copytree(source, clone, ignore=shutil.ignore_patterns("build", ".git"))
    work = pathlib.Path(root) / "some where"
    work.mkdir()
    (work / "hello.c").write_text("""#include <weft.h>
#include <stdio.h>
int main(int argc, char **argv) {
    printf("hello %s from %s\\n", argc > 1 ? argv[1] : "?", weft_version());
    return 7;
}
""")
    env = {k: v for k, v in os.environ.items() if k not in ("MESON_BUILD_ROOT", "MESON_SOURCE_ROOT")}

    def dev(*args):
        return subprocess.run([str(clone / "dev"), *args], cwd=work, env=env, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    done = dev("try", "hello.c", "blank")
    check("try", done.returncode == 7 and "hello blank from" in done.stdout, done.stdout)
    done = dev("install", "pre fix")
    check("install", done.returncode == 0 and "(shared library) ran" in done.stdout
          and "(static library) ran" in done.stdout and (work / "pre fix/include/weft.h").exists(),
          done.stdout)
    done = dev("clean")
    check("clean", done.returncode == 0 and not (clone / "build").exists(), done.stdout)


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as root:
        asking(source, root)
        setting_up(source, root)
        a_clone_with_a_blank(source, root)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
