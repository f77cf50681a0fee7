"""elf.py BUILD: libweft.so asks nothing of its host: no executable stack, no static TLS (dlopen would run out
of it), no text relocations, no library but the C library's own, so no allocator and no event loop, and nothing
runs at load but what the compiler puts into every library (one function). And neither it nor libweft.a has
anything that only tests use: they change the runtime at link time (runner/refused.c), never inside."""
import pathlib
import re
import subprocess
import sys

C_LIBRARY = re.compile(r"(lib(c|pthread|rt|dl|gcc_s|atomic)|ld-linux[\w-]*|ld-musl[\w-]*)\.so(\.\d+)?"
                       r"|libc\.musl-\w+\.so\.\d+")


def readelf(library, *options):
    return subprocess.run(["readelf", *options, str(library)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def complaints(library):
    stack = [line.split() for line in readelf(library, "-lW").splitlines() if "GNU_STACK" in line]
    if not stack or "RWE" in stack[0]:
        yield "its stack is executable"
    dynamic = readelf(library, "-dW")
    for flag in ("STATIC_TLS", "TEXTREL"):
        if re.search(rf"\b{flag}\b", dynamic):
            yield f"it has {flag}"
    bits = 64 if "ELF64" in readelf(library, "-hW") else 32
    for size in re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic):
        if int(size) > bits // 8:
            yield f"{int(size) // (bits // 8)} functions run when it is loaded"
    for needed in re.findall(r"\(NEEDED\)[^\[]*\[([^\]]+)\]", dynamic):
        if not C_LIBRARY.fullmatch(needed):
            yield f"it needs {needed}"


def of_tests(library):
    """By what each such thing listens to: a word of the environment; or by the name that links it in."""
    code = library.read_bytes()
    for word in (b"WEFT_TEST_", b"__wrap_weft", b"__real_weft"):
        if word in code:
            yield f"it has something of the tests: {word.decode()}"


def main():
    folder = pathlib.Path(sys.argv[1]) / "runtime"
    shared = folder / "libweft.so"
    found = [f"{shared.name}: {words}" for words in complaints(shared)]
    for library in (shared, folder / "libweft.a"):
        if library == shared or library.exists():
            found += [f"{library.name}: {words}" for words in of_tests(library)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


sys.exit(main())
