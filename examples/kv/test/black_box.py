#!/usr/bin/env python3
"""Talks to a running kv over plain sockets and looks at it from outside.

usage: black_box.py KV [--no-memory] [NAME...]

KV is the server's program. Each test starts servers of its own on free ports of the loopback. With
names only those tests run. --no-memory leaves out what a sanitizer's allocator cannot show.

The table of commands and answers is also put to a real redis-server, if there is one, to see that it
says what Redis says; without one that is skipped and counted.

Environment and output are those of all tests: WEFT_TEST_SLACK stretches what needs real time,
WEFT_TEST_TIMED=1 makes the clock parts count; the last line is N passed, N failed[, N skipped].
"""

import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SLACK = float(os.environ.get("WEFT_TEST_SLACK", "1"))
TIMED = os.environ.get("WEFT_TEST_TIMED") == "1"
PATIENCE = 30 * SLACK  # seconds until something that must come is given up


class Skip(Exception):
    """What a test needs is not there."""


class Faults:
    """What went wrong in the test that is running."""

    def __init__(self, name):
        self.name, self.lines, self.clock_missed = name, [], False


def check(good, what):
    if not good:
        print(f"  {faults.name}: not so: {what}", flush=True)
        faults.lines.append(what)
    return good


def clock(kept, what):
    """What depends on how fast the machine is: always printed, and counted in timed mode only."""
    print(f"clock: {'ok' if kept else 'missed'} {faults.name}: {what}", flush=True)
    faults.clock_missed |= not kept


class Server:
    """A kv of our own; ended, and its exit status checked, by `with`."""

    def __init__(self, *args):
        self.args = args
        self.ends_with = 0

    def __enter__(self):
        self.process = subprocess.Popen(
            [KV, "--port", "0", *self.args], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        self.port = int(line.split(",")[0].rsplit(":", 1)[1])
        self.pid = self.process.pid
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "none: it had to be killed"
        self.process.stdout.close()
        if kind is None:
            want = self.ends_with
            check(status == want, f"the server ends with status {want} (it was {status})")

    def client(self):
        return Client(self.port)

    def resident(self):
        with open(f"/proc/{self.pid}/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def info(self):
        with self.client() as c:
            lines = c.ask("INFO").decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Error(str):
    """An answer that begins with a minus."""


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def answer(self):
        """One answer, None for a null, EOFError at the end of the stream."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(line)
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Error(rest.decode("latin-1"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.file.read(int(rest) + 2)
            if data[-2:] != b"\r\n":
                raise EOFError(data)
            return data[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        raise ValueError(line)

    def ask(self, *args):
        self.send(encode(*args))
        return self.answer()

    def ended(self):
        """Whether nothing but the end of the stream comes."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def encode(*args):
    parts = [b"*%d\r\n" % len(args)]
    for a in args:
        if not isinstance(a, bytes):
            a = str(a).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(a), a))
    return b"".join(parts)


def within(seconds, condition):
    """Asks again and again until it is so; false if it is not so in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


OK = "OK"
INTEGER = Error("ERR value is not an integer or out of range")
SYNTAX = Error("ERR syntax error")


def arity(name):
    return Error(f"ERR wrong number of arguments for '{name}' command")


def expire_time(name):
    return Error(f"ERR invalid expire time in '{name}' command")


MAX = 2**63 - 1

# A request and its answer, one after the other on an empty store; a function judges the answer.
CASES = [
    (("PING",), "PONG"),
    (("ping", "hello there"), b"hello there"),
    (("PING", "a", "b"), arity("ping")),
    (("ECHO", b"\x00\r\n\xff"), b"\x00\r\n\xff"),
    (("ECHO",), arity("echo")),
    (("ECHO", "a", "b"), arity("echo")),
    (("SELECT", 0), OK),
    (("SELECT", 99), Error("ERR DB index is out of range")),
    (("SELECT", "x"), INTEGER),
    (("SELECT",), arity("select")),
    # SET and GET
    (("GET", "none"), None),
    (("SET", "k", "v"), OK),
    (("GET", "k"), b"v"),
    (("GeT", "k"), b"v"),
    (("GET",), arity("get")),
    (("GET", "k", "k"), arity("get")),
    (("SET", "k"), arity("set")),
    (("SET", "k", "v", "NX"), None),
    (("SET", "new", "v", "nx"), OK),
    (("SET", "k", "w", "XX"), OK),
    (("GET", "k"), b"w"),
    (("SET", "absent", "v", "XX"), None),
    (("EXISTS", "absent"), 0),
    (("SET", "k", "v", "NX", "XX"), SYNTAX),
    (("SET", "k", "v", "XX", "NX"), SYNTAX),
    (("SET", "k", "v", "EX"), SYNTAX),
    (("SET", "k", "v", "EX", 10, "PX", 10), SYNTAX),
    (("SET", "k", "v", "PX", 10, "EX", 10), SYNTAX),
    (("SET", "k", "v", "bogus"), SYNTAX),
    (("SET", "k", "v", "EX", "x"), INTEGER),
    (("SET", "k", "v", "EX", "1.5"), INTEGER),
    (("SET", "k", "v", "EX", 0), expire_time("set")),
    (("SET", "k", "v", "PX", -1), expire_time("set")),
    (("SET", "k", "v", "EX", MAX), expire_time("set")),
    (("SET", "k", "v", "PX", MAX), expire_time("set")),
    (("SET", "k", "v", "EX", MAX + 1), INTEGER),
    (("GET", "k"), b"w"),
    (("TTL", "k"), -1),
    (("SET", "k", "v", "XX", "EX", 10, "XX", "EX", 100), OK),
    (("TTL", "k"), 100),
    (("SET", "k", "v", "PX", 100000, "XX"), OK),
    (("TTL", "k"), 100),
    (("PTTL", "k"), lambda a: 99000 < a <= 100000),
    (("SET", "k", "v"), OK),
    (("TTL", "k"), -1),
    (("SET", "", "empty key"), OK),
    (("GET", ""), b"empty key"),
    (("SET", b"\x00\r\n", b"\r\n\x00"), OK),
    (("GET", b"\x00\r\n"), b"\r\n\x00"),
    (("SET", "e", ""), OK),
    (("GET", "e"), b""),
    (("STRLEN", "e"), 0),
    # numbers
    (("INCR", "n"), 1),
    (("INCR", "n"), 2),
    (("GET", "n"), b"2"),
    (("DECR", "n"), 1),
    (("INCRBY", "n", 41), 42),
    (("INCRBY", "n", -100), -58),
    (("INCRBY", "n", "x"), INTEGER),
    (("INCRBY", "n", "1 "), INTEGER),
    (("INCRBY", "n", ""), INTEGER),
    (("INCRBY", "n", "+1"), INTEGER),
    (("INCRBY", "n", "01"), INTEGER),
    (("INCRBY", "n"), arity("incrby")),
    (("INCR",), arity("incr")),
    (("DECR", "n", "1"), arity("decr")),
    (("INCR", "k"), INTEGER),
    (("DECR", "k"), INTEGER),
    (("SET", "n", MAX), OK),
    (("INCR", "n"), Error("ERR increment or decrement would overflow")),
    (("GET", "n"), str(MAX).encode()),
    (("SET", "n", -MAX - 1), OK),
    (("DECR", "n"), Error("ERR increment or decrement would overflow")),
    (("INCRBY", "n", MAX), -1),
    (("SET", "n", " 7"), OK),
    (("INCR", "n"), INTEGER),
    (("SET", "n", "7", "EX", 100), OK),
    (("INCR", "n"), 8),
    (("TTL", "n"), 100),
    # strings
    (("APPEND", "s", "Hello"), 5),
    (("APPEND", "s", " World"), 11),
    (("APPEND", "s", ""), 11),
    (("GET", "s"), b"Hello World"),
    (("STRLEN", "s"), 11),
    (("STRLEN", "none"), 0),
    (("STRLEN",), arity("strlen")),
    (("APPEND", "s"), arity("append")),
    (("APPEND", "n", "0"), 2),
    (("INCR", "n"), 81),
    (("TTL", "n"), 100),
    (("MSET", "a", 1, "b", 2, "a", 3), OK),
    (("MGET", "a", "b", "none", "a"), [b"3", b"2", None, b"3"]),
    (("MSET", "a"), arity("mset")),
    (("MSET", "a", 1, "b"), arity("mset")),
    (("MGET",), arity("mget")),
    # keys and their ends
    (("EXISTS", "a", "b", "none", "a"), 3),
    (("EXISTS",), arity("exists")),
    (("DEL", "a", "none", "a"), 1),
    (("DEL",), arity("del")),
    (("EXPIRE", "b", 100), 1),
    (("TTL", "b"), 100),
    (("PERSIST", "b"), 1),
    (("PERSIST", "b"), 0),
    (("PERSIST", "none"), 0),
    (("TTL", "b"), -1),
    (("PTTL", "b"), -1),
    (("TTL", "none"), -2),
    (("PTTL", "none"), -2),
    (("EXPIRE", "none", 100), 0),
    (("PEXPIRE", "b", 100000), 1),
    (("PTTL", "b"), lambda a: 99000 < a <= 100000),
    (("EXPIRE", "b", "x"), INTEGER),
    (("EXPIRE", "b", MAX), expire_time("expire")),
    (("EXPIRE", "b", -MAX - 1), expire_time("expire")),
    (("PEXPIRE", "b", MAX), expire_time("pexpire")),
    (("EXPIRE", "b"), arity("expire")),
    (("TTL",), arity("ttl")),
    (("PTTL", "a", "b"), arity("pttl")),
    (("PERSIST",), arity("persist")),
    (("PEXPIRE", "b"), arity("pexpire")),
    (("GET", "b"), b"2"),
    (("EXPIRE", "b", -1), 1),
    (("GET", "b"), None),
    (("SET", "b", 1), OK),
    (("PEXPIRE", "b", 0), 1),
    (("EXISTS", "b"), 0),
    # the whole
    (("FLUSHALL", "now"), SYNTAX),
    (("FLUSHALL",), OK),
    (("DBSIZE",), 0),
    (("MSET", "one", 1, "two", 2, "three", 3, "t*", 4), OK),
    (("DBSIZE",), 4),
    (("DBSIZE", "x"), arity("dbsize")),
    (("KEYS", "*"), lambda a: sorted(a) == [b"one", b"t*", b"three", b"two"]),
    (("KEYS", "t*"), lambda a: sorted(a) == [b"t*", b"three", b"two"]),
    (("KEYS", "t\\*"), [b"t*"]),
    (("KEYS", "?[nw][^x]"), lambda a: sorted(a) == [b"one", b"two"]),
    (("KEYS", "none"), []),
    (("KEYS",), arity("keys")),
    (("FLUSHALL", "async"), OK),
    (("KEYS", "*"), []),
    # what clients ask at start
    (("CONFIG", "GET", "save"), lambda a: len(a) == 2 and a[0] == b"save"),
    (("CONFIG", "get", "APPENDONLY"), lambda a: [a[0].lower(), a[1]] == [b"appendonly", b"no"]),
    (("CONFIG", "GET", "nosuchthing"), []),
    (("CONFIG", "GET"), arity("config|get")),
    (("CONFIG",), arity("config")),
    (("CONFIG", "FROB"), Error("ERR unknown subcommand 'FROB'. Try CONFIG HELP.")),
    (("CLIENT", "GETNAME"), None),
    (("CLIENT", "SETNAME", "me"), OK),
    (("CLIENT", "GETNAME"), b"me"),
    (
        ("CLIENT", "SETNAME", "two words"),
        Error("ERR Client names cannot contain spaces, newlines or special characters."),
    ),
    (("CLIENT", "SETNAME", ""), OK),
    (("CLIENT", "GETNAME"), None),
    (("CLIENT", "SETNAME"), arity("client|setname")),
    (("CLIENT", "GETNAME", "x"), arity("client|getname")),
    (("CLIENT",), arity("client")),
    (("CLIENT", "FROB"), Error("ERR unknown subcommand 'FROB'. Try CLIENT HELP.")),
    (("COMMAND", "FROB"), Error("ERR unknown subcommand 'FROB'. Try COMMAND HELP.")),
    (("COMMAND", "COUNT", "x"), arity("command|count")),
    (("INFO", "server"), lambda a: a.startswith(b"# Server\r\nredis_version:")),
    (("INFO", "stats"), lambda a: b"total_commands_processed:" in a and b"redis_version" not in a),
    (("INFO", "nosuchsection"), b""),
    # what there is not
    (("FROB",), Error("ERR unknown command 'FROB', with args beginning with: ")),
    (
        ("FROB", "a", "b c"),
        Error("ERR unknown command 'FROB', with args beginning with: 'a' 'b c' "),
    ),
    (
        ("FROB\r\nX", "a\nb"),
        Error("ERR unknown command 'FROB  X', with args beginning with: 'a b' "),
    ),
    (
        ("F" * 200, "a" * 100, "b" * 100, "c"),
        Error(
            "ERR unknown command '"
            + "F" * 128
            + "', with args beginning with: '"
            + "a" * 100
            + "' '"
            + "b" * 25
            + "' "
        ),
    ),
    (("SHUTDOWN", "now please"), SYNTAX),
]

# Where kv differs from Redis 7 on purpose: it speaks RESP2 as Redis 5 did, and tells clients nothing
# of its commands.
OWN_CASES = [
    (("HELLO",), Error("ERR unknown command 'HELLO', with args beginning with: ")),
    (("HELLO", 3), Error("ERR unknown command 'HELLO', with args beginning with: '3' ")),
    (("COMMAND",), []),
    (("COMMAND", "COUNT"), []),
    (("COMMAND", "DOCS"), []),
    (("COMMAND", "DOCS", "get"), []),
    (("CLIENT", "SETINFO", "lib-name", "x"), OK),
    (("CLIENT", "SETINFO", "LIB-VER", "1.0"), OK),
    (
        ("CLIENT", "SETINFO", "lib-name", "a b"),
        Error("ERR lib-name cannot contain spaces, newlines or special characters."),
    ),
    (("CLIENT", "SETINFO", "lib-x", "x"), Error("ERR Unrecognized option 'lib-x'")),
    (("CLIENT", "SETINFO", "lib-name"), arity("client|setinfo")),
    (("CONFIG", "GET", "*"), [b"save", b"", b"appendonly", b"no"]),
    (("CONFIG", "GET", "save"), [b"save", b""]),
    (("SET", "k", "v", "EX", 9999999999), OK),
    (("TTL", "k"), 9999999999),
    (("SET", "k", "v", "GET"), SYNTAX),
    (("SET", "k", "v", "KEEPTTL"), SYNTAX),
    (("EXPIRE", "k", 1, "NX"), arity("expire")),
    (("INFO", "server"), lambda a: b"redis_version:5." in a and b"weft_version:" in a),
    (
        ("INFO", "weft"),
        lambda a: all(
            w in a for w in (b"green_threads:", b"steals:", b"timer_late_p99_us:", b"requests_p0:")
        ),
    ),
    (
        ("INFO",),
        lambda a: all(
            w in a for w in (b"# Server", b"# Clients", b"# Stats", b"# Weft", b"# Keyspace")
        ),
    ),
    (
        ("INFO", "STATS", "weft"),
        lambda a: a.startswith(b"# Stats") and b"# Weft" in a and b"# Server" not in a,
    ),
]

PROTOCOL_ERRORS = [
    (b"*x\r\n", "invalid multibulk length"),
    (b"*2147483648\r\n", "invalid multibulk length"),
    (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$x\r\n", "invalid bulk length"),
    (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    (b"*2\r\n$3\r\nGET\r\n$9999999999\r\n", "invalid bulk length"),
    (b'set k "open\r\n', "unbalanced quotes in request"),
    (b"x" * 70000, "too big inline request"),
    (b"*" + b"1" * 70000, "too big mbulk count string"),
    (b"*1\r\n$" + b"1" * 70000, "too big bulk count string"),
]

# Bounds that Redis 7 has given up, or never had.
OWN_PROTOCOL_ERRORS = [
    (b"*1048577\r\n", "invalid multibulk length"),
    (b"*1\r\n$4\r\nPINGxxPING\r\n", "expected CRLF after bulk"),
]


def put_cases(client, cases, who):
    for request, want in cases:
        got = client.ask(*request)
        good = want(got) if callable(want) else type(got) is type(want) and got == want
        check(good, f"{who}: {request!r:.200} is answered {want!r:.200}, but it was {got!r:.200}")


def put_protocol_errors(port, errors, who):
    for data, why in errors:
        with Client(port) as c:
            c.send(encode("PING") + data)
            got = [c.answer(), c.answer()]
            check(
                got == ["PONG", Error("ERR Protocol error: " + why)],
                f"{who}: {data[:40]!r}: {why}, but it was {got[1]!r}",
            )
            check(c.ended(), f"{who}: {data[:40]!r}: the connection is closed")


def test_commands():
    """Every command, its options, its arity, its errors."""
    with Server() as s:
        with s.client() as c:
            put_cases(c, CASES, "kv")
            put_cases(c, OWN_CASES, "kv")
        check(s.info()["protocol_errors"] == "0", "none of that is a protocol error")


def test_redis_says_so():
    """The same table, put to the real one."""
    path = shutil.which("redis-server")
    if path is None:
        raise Skip("there is no redis-server to put the table of answers to")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        args = [path, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL)
        try:
            check(within(PATIENCE, lambda: can_connect(port)), "redis-server starts")
            with Client(port) as c:
                version = (
                    c.ask("INFO", "server").decode().split("redis_version:")[1].split("\r\n")[0]
                )
                if not version.startswith("7."):
                    raise Skip(f"the table has the words of Redis 7, and this is {version}")
                put_cases(c, CASES, "redis " + version)
            put_protocol_errors(port, PROTOCOL_ERRORS, "redis " + version)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def can_connect(port):
    try:
        Client(port).close()
        return True
    except OSError:
        return False


def test_protocol_errors():
    """A protocol error is answered, and that is the end; what came before it is answered first."""
    with Server() as s:
        errors = PROTOCOL_ERRORS + OWN_PROTOCOL_ERRORS
        put_protocol_errors(s.port, errors, "kv")
        count = int(s.info()["protocol_errors"])
        check(count == len(errors), f"each is counted once ({count})")
        with s.client() as c:
            # the client is still sending when the error is found: the words must reach it
            try:
                c.send(b"*1\r\n$x\r\n" + b"z" * 500000)
            except OSError:
                pass
            check(
                c.answer() == Error("ERR Protocol error: invalid bulk length"),
                "the error arrives over unread input",
            )


def test_inline():
    with Server() as s, s.client() as c:
        c.send(b"PING\r\n")
        check(c.answer() == "PONG", "inline PING")
        c.send(b'\r\n\n  \r\nset  key "two words\\n"\nget key\r\n')
        check(
            [c.answer(), c.answer()] == [OK, b"two words\n"],
            "inline with quotes, blank lines skipped",
        )
        c.send(b"*0\r\n*-1\r\nECHO 'single \\' quoted'\r\n")
        check(c.answer() == b"single ' quoted", "empty requests skipped; single quotes")


def test_pieces():
    """Requests that come byte by byte, and half a request that never ends."""
    with Server() as s:
        with s.client() as c:
            for byte in encode("SET", "slow", b"a\r\nb") + b"GET slow\r\n":
                c.send(bytes([byte]))
            check([c.answer(), c.answer()] == [OK, b"a\r\nb"], "byte by byte")
        before = s.descriptors()  # the one above may still be among them
        for half in (
            b"*",
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\nab",
            b"GET sl",
            encode("GET", "slow")[:-1],
        ):
            for _ in range(20):
                c = s.client()
                c.send(half)
                c.close()
        check(
            within(PATIENCE, lambda: s.descriptors() <= before),
            "half a command, then close: gone without a trace",
        )
        with s.client() as c:
            c.send(encode("PING") + b"*2\r\n$4\r\nECHO")
            check(c.answer() == "PONG", "what is whole is answered though more is on its way")
            c.socket.shutdown(socket.SHUT_WR)
            check(c.ended(), "half a command and the end: closed without a word")
        with s.client() as c:
            c.send(encode("SET", "last", 1) + encode("GET", "last"))
            c.socket.shutdown(socket.SHUT_WR)
            check(
                [c.answer(), c.answer()] == [OK, b"1"] and c.ended(),
                "whole commands and the end: answered, then closed",
            )
        check(s.info()["protocol_errors"] == "0", "none of that is a protocol error")


def test_large_header():
    """A header alone makes no memory, and the bytes behind it only as they come."""
    with Server() as s, s.client() as c:
        c.ask("PING")
        before = s.resident()
        many = [s.client() for _ in range(20)]
        for m in many:
            m.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nonly this")
            m.send(b"")
        for m in many:
            m.send(b" and that")
        c.ask("PING")
        time.sleep(0.2)  # for what they might do, not for what we wait for
        if MEMORY:
            grown = s.resident() - before
            check(grown < 16 << 20, f"20 headers of 512 MB each take {grown >> 10} KiB")
        check(c.ask("DBSIZE") == 0, "nothing is stored")
        for m in many:
            m.close()
        with s.client() as m:
            m.send(b"*1048576\r\n$1\r\nx\r\n")
            check(c.ask("PING") == "PONG", "a million announced arguments disturb nobody")


def test_large_values():
    with Server() as s, s.client() as c:
        value = os.urandom(1 << 20) * 20
        check(c.ask("SET", "large", value) == OK, "20 MB in")
        check(c.ask("GET", "large") == value, "20 MB out")
        check(c.ask("STRLEN", "large") == len(value), "its length")
        check(c.ask("APPEND", "large", b"tail") == len(value) + 4, "and a little more")
        c.send(encode("GET", "large") + encode("PING") + encode("MGET", "large", "none", "large"))
        check(
            c.answer() == value + b"tail" and c.answer() == "PONG",
            "large and small in one pipeline",
        )
        check(c.answer() == [value + b"tail", None, value + b"tail"], "MGET of it")
        key = os.urandom(10000)
        check(
            c.ask("SET", key, "at a long key") == OK and c.ask("GET", key) == b"at a long key",
            "a key of 10,000 bytes",
        )
        check(
            c.ask("KEYS", b"*") == [key, b"large"] or c.ask("KEYS", b"*") == [b"large", key],
            "KEYS shows it whole",
        )
        check(c.ask("DEL", key, "large") == 2, "DEL")
        every = bytes(range(256))
        check(
            c.ask("SET", every, every * 3) == OK and c.ask("GET", every) == every * 3,
            "every byte there is",
        )
        args = [x for i in range(20000) for x in (f"k{i}", i)]
        check(c.ask("MSET", *args) == OK, "40,000 arguments")
        got = c.ask("MGET", *args[::2])
        check(got == [str(i).encode() for i in range(20000)], "and back")
        check(
            c.ask("EXISTS", *args[::2]) == 20000 and c.ask("DEL", *args[::2]) == 20000, "and away"
        )


def test_pipeline():
    """10,000 commands in one write."""
    with Server() as s, s.client() as c:
        c.send(b"".join(encode("INCR", "n") for _ in range(10000)))
        check([c.answer() for _ in range(10000)] == list(range(1, 10001)), "10,000 INCR in order")
        c.send(b"".join(encode("SET", f"k{i}", i) + encode("GET", f"k{i}") for i in range(5000)))
        got = [c.answer() for _ in range(10000)]
        check(
            got == [x for i in range(5000) for x in (OK, str(i).encode())],
            "10,000 SET and GET in order",
        )
        c.send(encode("QUIT") + encode("SET", "after", 1))
        check(c.answer() == OK and c.ended(), "QUIT ends it")
        with s.client() as d:
            check(d.ask("EXISTS", "after") == 0, "and what came behind it is not done")


def test_one_write():
    """The answers of one read leave with one write: one segment, since the reader waits."""
    with Server() as s:
        with s.client() as c:
            c.ask("SET", "k", "v")
            whole = 0
            for _ in range(50):
                c.send(encode("GET", "k") * 20)
                select.select([c.socket], [], [], PATIENCE)
                whole += len(c.socket.recv(1 << 16)) == 20 * len(b"$1\r\nv\r\n")
            check(whole == 50, f"{whole} of 50 pipelines of 20 were answered in one piece")


def test_expiry():
    """Keys end in time though nobody reads them, and never early."""
    with Server() as s, s.client() as c:
        early = wrong = 0
        for ms in (1, 5, 20, 50):
            start = time.monotonic()
            c.ask("SET", "k", "v", "PX", ms)
            while c.ask("EXISTS", "k") == 1:
                if time.monotonic() - start > PATIENCE:
                    wrong += 1
                    break
            early += time.monotonic() - start < ms / 1000
        check(early == 0, f"{early} of 4 keys ended early")
        check(wrong == 0, f"{wrong} of 4 keys did not end")
        c.ask("SET", "short", "v", "PX", 50)
        c.ask("SET", "long", "v", "EX", 1000)
        c.ask("SET", "kept", "v", "PX", 50)
        c.ask("PERSIST", "kept")
        c.ask("SET", "later", "v", "PX", 50)
        c.ask("EXPIRE", "later", 1000)
        check(within(PATIENCE, lambda: c.ask("DBSIZE") == 3), "DBSIZE falls by the one that ended")
        check(sorted(c.ask("KEYS", "*")) == [b"kept", b"later", b"long"], "and only that")
        c.ask("EXPIRE", "long", 1)
        c.ask("PEXPIRE", "long", 30)  # earlier than what the timer was set to
        check(
            within(PATIENCE, lambda: c.ask("DBSIZE") == 2), "an end that is moved forward is kept"
        )
        check(int(s.info()["expired_keys"]) >= 6, "each is counted")


def test_mass_expiry():
    """100,000 keys that nobody reads: gone, and their memory with them, a second after."""
    count = 100000
    with Server() as s, s.client() as c:
        c.ask("PING")
        before = s.resident()
        step = 10000
        requests = [
            b"".join(encode("SET", f"key:{i}", "v" * 20, "PX", 2000) for i in range(at, at + step))
            for at in range(0, count, step)
        ]
        for r in requests:
            c.send(r)
            for _ in range(step):
                c.answer()
        last = time.monotonic()
        peak = s.resident()
        time.sleep(max(0, last + 2 - time.monotonic()))  # the end of the last one
        start = time.monotonic()
        check(within(PATIENCE, lambda: c.ask("DBSIZE") == 0), "DBSIZE falls to 0")
        took = time.monotonic() - start
        clock(took <= 1, f"DBSIZE was 0 {took * 1000:.0f} ms after the last one's end")
        info = s.info()
        check(info["expired_keys"] == str(count), f"{info['expired_keys']} are counted as expired")
        p50, p99 = info["timer_late_p50_us"], info["timer_late_p99_us"]
        print(f"  timer lateness: p50 {p50} us, p99 {p99} us")
        if MEMORY:
            grown = peak - before
            check(
                within(PATIENCE, lambda: s.resident() - before < grown * 0.3),
                "memory is given back",
            )
            took = time.monotonic() - start
            left = s.resident() - before
            clock(
                took <= 1, f"of {grown >> 10} KiB {left >> 10} were left after {took * 1000:.0f} ms"
            )


def test_idle():
    """A connection that asks nothing is closed at its deadline; each request moves it."""
    with Server("--idle-timeout", "1") as s:
        silent, half, busy = s.client(), s.client(), s.client()
        start = time.monotonic()
        half.send(b"*2\r\n$4\r\nECHO")
        for _ in range(8):
            check(busy.ask("PING") == "PONG", "a busy one goes on")
            time.sleep(0.25)
        check(silent.ended() and half.ended(), "silent ones are closed")
        check(time.monotonic() - start >= 1, "not before their time")
        check(s.info()["idle_connections_closed"] == "2", "and counted")
        check(busy.ended(), "at last that one too")
        for c in (silent, half, busy):
            c.close()
    with Server("--idle-timeout", "0") as s, s.client() as c:
        time.sleep(1.5)
        check(c.ask("PING") == "PONG", "0 is never")


def test_many_idle():
    """Thousands of connections that say nothing: what each costs, and that all of it comes back."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = 10000 if MEMORY else 2000  # the thread sanitizer has room for 8,000 green threads
    count = min(count, soft - 200)
    with Server("--idle-timeout", "6") as s:
        with s.client() as c:
            c.ask("PING")
        check(
            within(PATIENCE, lambda: int(s.info()["connected_clients"]) <= 1),
            "nobody else is there",
        )
        descriptors, before = s.descriptors(), s.resident()
        clients = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(count)]
        for c in clients:
            c.sendall(b"PING\r\n")
        for c in clients:
            c.settimeout(PATIENCE)
            check(c.recv(100) == b"+PONG\r\n", "each is served")
        each = (s.resident() - before) // count
        print(f"  {count} idle connections: {each} bytes of resident memory each")
        if MEMORY:
            check(each < 16384, f"an idle connection takes {each} bytes")
        check(all(c.recv(1) == b"" for c in clients), "all are closed by their deadline")
        for c in clients:
            c.close()
        check(
            within(PATIENCE, lambda: s.descriptors() <= descriptors),
            f"descriptors are back ({s.descriptors()}, {descriptors})",
        )
        check(int(s.info()["idle_connections_closed"]) >= count, "each is counted")


def test_slow_client():
    """One that asks for much and does not read holds up nobody, and costs little."""
    with Server() as s:
        with s.client() as c:
            value = os.urandom(1 << 20)
            c.ask("SET", "large", value)
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(PATIENCE)
            slow.connect(("127.0.0.1", s.port))
            before = s.resident()
            slow.sendall(encode("GET", "large") * 200)
            start = time.monotonic()
            for i in range(2000):
                check(c.ask("SET", "small", i) == OK, "others write")
                check(
                    c.ask("GET", "large")[:10] == value[:10] if i % 100 == 0 else True,
                    "and read the same",
                )
            took = time.monotonic() - start
            clock(took < 2, f"2,000 requests beside it took {took:.2f} s")
            check(c.ask("SET", "large", "changed") == OK, "they may even change it")
            if MEMORY:
                grown = s.resident() - before
                check(grown < 16 << 20, f"200 MB that nobody reads take {grown >> 10} KiB")
            first = b""
            while len(first) < 10 + len(value):
                first += slow.recv(65536)
            check(
                first[10 : 10 + len(value)] == value,
                "the slow one gets what there was when it asked",
            )
            slow.close()
            check(c.ask("PING") == "PONG", "and may go in the middle of an answer")


def test_race_on_one_key():
    """Many clients, one counter: no increment is lost; MSET and MGET of two keys are one moment."""
    with Server() as s:
        bad = []

        def count():
            with s.client() as c:
                for _ in range(10):
                    c.send(encode("INCR", "n") * 100)
                    for _ in range(100):
                        c.answer()

        def pairs(i):
            with s.client() as c:
                for k in range(200):
                    c.ask("MSET", "left", f"{i}.{k}", "right", f"{i}.{k}")
                    left, right = c.ask("MGET", "left", "right")
                    if left != right:
                        bad.append((left, right))

        threads = [threading.Thread(target=count) for _ in range(8)]
        threads += [threading.Thread(target=pairs, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        with s.client() as c:
            check(c.ask("GET", "n") == b"8000", "8 times 1,000 increments")
        check(not bad, f"MGET saw half an MSET: {bad[:3]}")


def test_drain():
    """SIGTERM: what has arrived is answered, everybody is let go, the status is 0."""
    for which in (signal.SIGTERM, signal.SIGINT):
        with Server() as s:
            idle, busy = s.client(), s.client()
            busy.ask("PING")
            busy.send(encode("INCR", "n") * 10000)
            s.process.send_signal(which)
            got = 0
            try:
                while True:
                    got = busy.answer()
            except EOFError:
                pass
            check(
                got == 10000,
                f"{which.name}: {got} of 10,000 requests that had arrived are answered",
            )
            check(idle.ended(), f"{which.name}: an idle one is let go")
            check(s.process.wait(PATIENCE) == 0, f"{which.name}: status 0")
            check(not can_connect(s.port), f"{which.name}: nobody listens any more")
            idle.close()
            busy.close()


def test_drain_has_an_end():
    """A client that never reads cannot hold up the end for ever."""
    with Server() as s:
        with s.client() as c:
            c.ask("SET", "large", b"x" * (1 << 22))
        stuck = s.client()
        stuck.send(encode("GET", "large") * 20)
        talker = s.client()
        talker.ask("PING")
        s.process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        try:
            while time.monotonic() - start < PATIENCE:
                talker.ask("PING")
        except (EOFError, OSError):
            pass
        check(s.process.wait(PATIENCE) == 0, "it ends, with status 0")
        took = time.monotonic() - start
        clock(took < 5, f"it took {took:.1f} s")
        stuck.close()
        talker.close()


def test_second_signal():
    """Somebody is out of patience: it ends at once, and says by its status which signal it was."""
    with Server() as s:
        with s.client() as c:
            c.ask("SET", "large", b"x" * (1 << 22))
        stuck = s.client()
        stuck.send(encode("GET", "large") * 20)
        stuck.answer()
        s.process.send_signal(signal.SIGTERM)
        check(within(PATIENCE, lambda: not can_connect(s.port)), "the first one begins the drain")
        s.process.send_signal(signal.SIGINT)
        check(s.process.wait(PATIENCE) == 128 + signal.SIGINT, "the second one ends it")
        stuck.close()
        s.ends_with = 128 + signal.SIGINT


def test_shutdown():
    for words in (("SHUTDOWN",), ("SHUTDOWN", "NOSAVE")):
        with Server() as s, s.client() as c:
            c.send(encode(*words))
            check(c.ended(), f"{words}: no answer but the end")
            check(s.process.wait(PATIENCE) == 0, f"{words}: status 0")


def test_command_line():
    def run(*args):
        return subprocess.run([KV, *args], capture_output=True, text=True, timeout=PATIENCE)

    r = run("--help")
    check(r.returncode == 0 and "--idle-timeout" in r.stdout, "--help")
    for wrong in (
        ["--port", "70000"],
        ["--port", "x"],
        ["--procs", "0"],
        ["--frob"],
        ["extra"],
        ["--idle-timeout", "-1"],
    ):
        r = run(*wrong)
        check(r.returncode == 2 and "kv:" in r.stderr, f"{wrong} is refused with status 2")
    with Server("--procs", "1") as s:
        check(s.info()["procs"] == "1", "--procs 1")
        r = run("--port", str(s.port))
        check(r.returncode == 1 and "cannot listen" in r.stderr, "a port that is taken")
    r = run("--addr", "not an address")
    check(r.returncode == 1 and "cannot listen" in r.stderr, "an address that is none")


def test_abrupt():
    """Resets, in all states: the server lives on."""
    with Server() as s:
        for data in (b"", b"*1\r\n$4\r\nPI", encode("GET", "x") * 1000, encode("INFO") * 1000):
            for _ in range(20):
                c = socket.create_connection(("127.0.0.1", s.port))
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.sendall(data)
                c.close()
        with s.client() as c:
            check(c.ask("PING") == "PONG", "alive")
        check(within(PATIENCE, lambda: s.info()["connected_clients"] == "1"), "and alone")


def run(f, name):
    """passed, failed or skipped"""
    global faults
    faults = Faults(name)
    start = time.monotonic()
    try:
        f()
    except Skip as why:
        print(f"SKIP {name}: {why}", flush=True)
        return "skipped"
    except Exception as e:  # a broken connection is a failure of that test, not of all
        check(False, f"it came to its end: {type(e).__name__}: {e}")
    if TIMED and faults.clock_missed:
        check(False, "a clock part was missed")
    if faults.lines:
        print(f"FAIL {name}: {faults.lines[0]}"[:500].replace("\n", " "), flush=True)
        return "failed"
    print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
    return "passed"


def main():
    global KV, MEMORY
    args = sys.argv[1:]
    MEMORY = "--no-memory" not in args
    args = [a for a in args if a != "--no-memory"]
    if not args or args[0].startswith("-"):
        sys.exit(__doc__)
    KV = os.path.abspath(args[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65536, hard)
    )
    tests = {"kv/" + name[5:]: f for name, f in globals().items() if name.startswith("test_")}
    names = [n if n.startswith("kv/") else "kv/" + n for n in args[1:]] or list(tests)
    for unknown in set(names) - set(tests):
        sys.exit(f"no such test: {unknown}")
    results = [run(tests[n], n) for n in names]
    count = {r: results.count(r) for r in ("passed", "failed", "skipped")}
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    print(f"{count['passed']} passed, {count['failed']} failed{skipped}")
    sys.exit(count["failed"] != 0 or count["passed"] == 0)


main()
