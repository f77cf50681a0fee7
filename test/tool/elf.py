"""elf.py BUILD: libweft.so asks nothing of its host: no executable stack, no static TLS (dlopen would run out
of it), no text relocations, no library but the C library's own, so no allocator and no event loop, and nothing
runs at load but what the compiler puts into every library (one function)."""
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


def main():
    library = pathlib.Path(sys.argv[1]) / "runtime/libweft.so"
    found = list(complaints(library))
    for words in found:
        print(f"{library.name}: {words}")
    return 1 if found else 0


sys.exit(main())
