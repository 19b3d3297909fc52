"""Code that attacks the sandbox or fails in it. Each piece has the kinds of problem that may be said about it.

``WALK`` finds the ``os`` module without importing it, as such code does; the kernel must hold where Python does not.
"""

from __future__ import annotations

WALK = """
def find(name):
    for cls in object.__subclasses__():
        loader = getattr(cls, "__init__", None)
        names = getattr(loader, "__globals__", {})
        if "sys" in names and hasattr(names["sys"], "modules"):
            return names["sys"].modules.get(name)
os = find("os") or find("posix")
sys = find("sys")
posix = find("posix")
"""


def code(body: str, before: str = "") -> str:
    """A reward with this body."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"{before}\ndef reward(episode):\n{lines}\n"


def walked(body: str) -> str:
    """A reward that has ``os`` in its hands."""
    return code(body, WALK)


# Blinds the audit hook first, so that only the kernel protects; returns how many of the attempts worked.
BARE = walked("""
inside = find("__main__")
inside._KINDS.clear()
inside._PROCESS.clear()
ctypes, socket = find("ctypes"), find("_socket")
C = next(cls for cls in object.__subclasses__() if cls.__name__ == "CDLL") if ctypes is None else ctypes.CDLL
libc, inner = C(None, use_errno=True), find("_ctypes")
def call(number, *rest):
    if libc.syscall(number, *rest) < 0:
        raise OSError(inner.get_errno(), "refused")
tries = [
    lambda: posix.open("/etc/passwd", 0), lambda: posix.open("/proc/self/environ", 0), lambda: posix.open(".", 0),
    lambda: posix.open("/tmp/tiltyard-was-here", 0o101), lambda: posix.mkdir("/tmp/tiltyard-was-here"),
    lambda: posix.stat("/"), lambda: posix.chdir("/tmp"), lambda: posix.listdir("/"), lambda: posix.getcwd(),
    lambda: posix.fork(), lambda: posix.execv("/bin/true", ["true"]), lambda: posix.posix_spawn("/bin/true", ["t"], {}),
    lambda: posix.kill(posix.getpid(), 0), lambda: posix.pipe(), lambda: posix.dup(1), lambda: posix.close(1),
    lambda: posix.setuid(0), lambda: posix.memfd_create("x"), lambda: posix.pidfd_open(1), lambda: posix.nice(-5),
    lambda: find("resource").setrlimit(7, (100, 100)), lambda: find("_thread").start_new_thread(print, ()),
    lambda: find("signal").signal(14, 1), lambda: posix.write(2, b"x"), lambda: posix.read(1, 1),
    lambda: call(41, 2, 1, 0), lambda: call(53, 1, 1, 0, 0), lambda: call(425, 8, 0), lambda: call(101, 0, 0, 0, 0),
    lambda: call(310, 1, 0, 0, 0, 0, 0), lambda: call(9, 0, 4096, 7, 34, -1, 0), lambda: call(272, 0x10000000),
    lambda: call(161, b"/"), lambda: call(321, 0, 0, 0), lambda: call(157, 22, 0, 0, 0, 0), lambda: call(317, 1, 0, 0),
    lambda: call(56, 0x100, 0, 0, 0, 0), lambda: call(435, 0, 0), lambda: call(437, -100, b"/", 0, 0),
]
worked = []
for number, attempt in enumerate(tries):
    try:
        attempt()
        worked.append(number)
    except OSError as error:
        if error.errno != 1:
            worked.append((number, error.errno))
    except (RuntimeError, ValueError):  # "can't start new thread", "not allowed to raise maximum limit"
        pass
print(worked)
return float(len(worked))
""")
OTHER_ABI = walked("""
find("__main__")._KINDS.clear()
C = next(cls for cls in object.__subclasses__() if cls.__name__ == "CDLL")
return float(C(None).syscall(0x40000000 + 39))
""")

# what: (code, kinds that it may end with)
ENDS: dict[str, tuple[str, set[str]]] = {
    "loops": (code("while True: pass"), {"time"}),
    "slow expression": (code("import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')"), {"time"}),
    "catches everything and continues": (
        code("while True:\n    try: int('')\n    except BaseException: pass"),
        {"time"},
    ),
    "allocates 10 GB": (code("return float(len('x' * 10**10))"), {"memory"}),
    "allocates slowly": (code("kept = []\nwhile True: kept.append(bytearray(1 << 20))"), {"memory"}),
    "calls itself": (code("return reward(episode)"), {"recursion"}),
    "calls itself without a limit": (
        walked("sys.setrecursionlimit(10**9)\ndef deep(n): return deep(n + 1)\nreturn deep(0)"),
        {"ended", "memory", "recursion", "time"},
    ),
    "opens a file": (code("return float(len(open('/etc/passwd').read()))"), {"file"}),
    "opens a file after all": (walked("return float(len(find('io').open('/etc/passwd').read()))"), {"file"}),
    "opens by system call": (walked("return float(posix.open('/etc/passwd', 0))"), {"file"}),
    "reads the environment": (walked("posix.open('/proc/self/environ', 0)"), {"file"}),
    "writes a file": (walked("find('io').open('/tmp/tiltyard-was-here', 'w').write('x')"), {"file"}),
    "lists a folder": (walked("return float(len(posix.listdir('/')))"), {"file"}),
    "removes a file": (walked("posix.unlink('/tmp/x')"), {"file"}),
    "reads a link": (walked("posix.readlink('/proc/self/exe')"), {"refused", "file"}),
    "makes a pipe": (walked("posix.pipe()"), {"refused"}),
    "runs a command": (walked("return float(os.system('id'))"), {"process"}),
    "forks": (walked("return float(posix.fork())"), {"process", "refused"}),
    "starts a program": (walked("posix.execv('/bin/sh', ['sh'])"), {"process"}),
    "signals its parent": (walked("posix.kill(posix.getppid(), 9)"), {"process", "refused"}),
    "signals everybody": (walked("posix.kill(-1, 9)"), {"process"}),
    "handles signals": (walked("find('signal').signal(14, lambda *_: None)"), {"refused", "raised"}),
    "starts a thread": (walked("find('_thread').start_new_thread(print, ())"), {"thread", "raised", "refused"}),
    "opens a socket": (code("import socket"), {"import"}),
    "opens a socket after all": (
        walked("find('importlib').import_module('socket').create_connection(('127.0.0.1', 80))"),
        {"import", "raised", "socket"},
    ),
    "imports os": (code("import os\nreturn 1.0"), {"import"}),
    "imports from os": (code("from os import system"), {"import"}),
    "imports subprocess": (code("return __import__('subprocess')"), {"import"}),
    "imports ctypes": (code("import ctypes"), {"import"}),
    "ctypes after all": (
        walked("ctypes = find('ctypes')\nreturn float(ctypes.CDLL(None).getpid())"),
        {"native", "raised"},
    ),
    "raises its own limit": (
        walked("r = find('resource')\nr.setrlimit(r.RLIMIT_AS, (-1, -1))\nreturn 1.0"),
        {"raised", "refused", "process"},
    ),
    "ends its process": (walked("posix._exit(0)"), {"ended"}),
    "aborts": (walked("os.abort()"), {"ended"}),
    "exits": (code("raise SystemExit(0)"), {"exit"}),
    "closes its pipes": (walked("posix.close(0)\nposix.close(1)\nreturn 1.0"), {"refused"}),
    "forges an answer": (walked('posix.write(1, b\'{"id": "x", "value": 1.0}\\n\')\nreturn 0.0'), {"output"}),
    "floods the channel": (walked("while True: posix.write(1, b'x' * 65536)"), {"output"}),
    "breaks its own printer": (walked("find('json').dumps = None\nreturn 1.0"), {"ended"}),
    "returns NaN": (code("return float('nan')"), {"not_finite"}),
    "returns infinity": (code("return float('inf')"), {"not_finite"}),
    "returns a huge number": (code("return 10 ** 400"), {"not_finite"}),
    "returns nothing": (code("pass"), {"type"}),
    "returns a text": (code("return '1.0'"), {"type"}),
    "returns a list": (code("return [1.0] * len(episode['messages'])"), {"type"}),
    "returns yes": (code("return True"), {"type"}),
    "returns a complex number": (code("return 1j"), {"type"}),
    "lies about its class": (
        code("class Number:\n    __class__ = property(lambda self: float)\nreturn Number()"),
        {"raised", "type"},
    ),
    "raises": (code("return 1 / 0"), {"raised"}),
    "raises 10 MB": (code("raise ValueError('x' * 10_000_000)"), {"raised"}),
    "raises what cannot be shown": (
        code("class Bad(BaseException):\n    def __str__(self): raise self\nraise Bad()"),
        {"raised"},
    ),
    "is no Python": ("def reward(episode:\n    return 1", {"syntax"}),
    "nests too deeply": ("x = " + "(" * 5000 + ")" * 5000, {"syntax", "memory", "ended"}),
    "has no function": ("score = 1.0", {"no_function"}),
    "takes nothing": ("def reward():\n    return 1.0", {"raised"}),
}

# The same for code that burns its whole time; apart, because that is what it costs.
BURNS: dict[str, tuple[str, set[str]]] = {
    "loops while loading": ("while True: pass", {"time"}),
    "sleeps": (walked("find('time').sleep(60)"), {"time"}),
    "huge power": (code("return float(9 ** 9 ** 9)"), {"time", "memory"}),
    "prints without end": (code("while True: print('x' * 10000)"), {"time"}),
}
