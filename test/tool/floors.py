"""floors.py SOURCE BUILD: proves that no room of runtime/ includes or calls upward or sideways.

Includes are read from the sources; calls from the objects in BUILD, by their undefined symbols. A call
through a pointer leaves no such symbol, which is how a lower room may reach a higher one. Public headers
may be included anywhere, weft/uv.h excepted: they only declare, and the calls are seen in the objects.
"""
import pathlib
import re
import subprocess
import sys

from rooms import FLOORS, may_use, way

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def fail_unless(cond, words):
    if not cond:
        sys.exit(f"floors: {words}")


def room_of_path(path, runtime):
    parts = path.relative_to(runtime).parts
    return parts[0] if len(parts) > 1 else None


def included(source, name, runtime):
    """The file of ours that a quoted include means, or None."""
    for folder in (source.parent, runtime):
        path = (folder / name).resolve()
        if path.is_file() and runtime in path.parents:
            return path
    return None


def check_includes(runtime):
    for source in sorted(runtime.glob("*/**/*.[chS]")):
        room = room_of_path(source, runtime)
        if room not in FLOORS:
            yield f"{source}: runtime/{room} is on no floor"
            continue
        for quote, name in INCLUDE.findall(source.read_text(encoding="utf-8")):
            if quote == "<":
                if name == "weft/uv.h" and room != "uv":
                    yield f"{source}: <weft/uv.h> is for the room uv only"
                continue
            path = included(source, name, runtime)
            if path is None:
                continue
            other = room_of_path(path, runtime)
            if other in FLOORS and not may_use(room, other):
                yield f"{source}: includes {name}: {way(room, other)}, from {room} to {other}"


def room_of_object(obj):
    """meson calls the object of base/errors.c base_errors.c.o."""
    room = obj.name.split("_", 1)[0]
    return room if room in FLOORS else None


def symbols(obj, *options):
    text = subprocess.run(["nm", "-g", "-P", *options, str(obj)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return [line.split()[0] for line in text.splitlines() if line]


def check_calls(build):
    objects = sorted(build.glob("runtime/libweft.*.p/**/*.o"))
    fail_unless(objects, f"no objects in {build}/runtime")
    home = {}
    for obj in objects:
        fail_unless(room_of_object(obj), f"{obj.name}: of which room?")
        for name in symbols(obj, "--defined-only"):
            home[name] = room_of_object(obj)
    for obj in objects:
        room = room_of_object(obj)
        for name in symbols(obj, "--undefined-only"):
            other = home.get(name)
            if other and not may_use(room, other):
                yield f"{obj.name}: uses {name}: {way(room, other)}, from {room} to {other}"


def main():
    runtime = (pathlib.Path(sys.argv[1]) / "runtime").resolve()
    breaches = [*check_includes(runtime), *check_calls(pathlib.Path(sys.argv[2]))]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


sys.exit(main())
