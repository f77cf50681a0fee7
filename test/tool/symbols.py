"""symbols.py SOURCE BUILD: libweft.so exports weft_ names only, and just those that the headers declare."""
import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
DECLARED = re.compile(r"\bWEFT_API\b[^;{]*?\b(weft_\w+)\s*(?=[(;\[])", re.S)


def declared(include):
    names = set()
    for header in [include / "weft.h", *sorted((include / "weft").glob("*.h"))]:
        if header.name != "uv.h":
            text = DIRECTIVE.sub("", COMMENT.sub(" ", header.read_text(encoding="utf-8")))
            names |= set(DECLARED.findall(text))
    return names


def exported(library):
    text = subprocess.run(["nm", "-D", "-P", "--defined-only", str(library)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return {line.split()[0] for line in text.splitlines() if line}


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    seen, said = exported(build / "runtime/libweft.so"), declared(source / "include")
    foreign = {name for name in seen if not name.startswith("weft_") or name.startswith("weft__")}
    for name in sorted(foreign):
        print(f"exported, and no public name: {name}")
    for name in sorted(seen - said - foreign):
        print(f"exported, but declared in no header: {name}")
    for name in sorted(said - seen):
        print(f"declared, but not exported: {name}")
    print(f"{len(seen & said)} names are declared and exported")
    return 1 if foreign or seen != said or not seen else 0


sys.exit(main())
