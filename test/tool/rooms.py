"""rooms.py: the floors of runtime/, lowest first. A room may use its own things and what lies below."""

FLOORS = {
    "base": 1,
    "os": 2,
    "stack": 3, "heap": 3, "poller": 3, "trace": 3,
    "sched": 4,
    "time": 5, "sync": 5, "chan": 5, "ctx": 5,
    "net": 6,
    "host": 7,
    "inspect": 8, "sim": 8,
    "tool": 9, "uv": 9,
}


def may_use(room, other):
    return room == other or FLOORS[other] < FLOORS[room]


def way(room, other):
    return "sideways" if FLOORS[other] == FLOORS[room] else "up"
