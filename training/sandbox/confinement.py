"""How a process gives up everything but computing: limits, another user, no network, a list of allowed system calls.

Called once by ``training/sandbox/worker.py``, after all modules are loaded and before any code is read. In order:

1. resource limits: memory, processor time, no new files, no file to grow, no processes, no core dump; a lower priority;
2. who and where it is: a network, IPC and user namespace of its own where the system gives them, the user ``nobody``
   where it was root, and no capabilities;
3. ``no_new_privs``, then a seccomp filter that answers EPERM to every system call that is not on a short list.

The third step is the wall; without it ``confine`` raises, and nothing is ever run. The first two are a second line.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
import sys

NOBODY = 65534
CPU_LIMIT_S = 600
OPEN_FILES = 3  # the two pipes, and an error stream that leads nowhere
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 4, 38, 22, 2
_NEWNET, _NEWUSER, _NEWIPC, _NEWUTS = 0x40000000, 0x10000000, 0x08000000, 0x04000000
_X32, _CAPABILITIES_3 = 0x40000000, 0x20080522
_PROT_EXEC = 4
# linux/bpf_common.h, linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NUMBER, _MACHINE, _ARGUMENT_0, _ARGUMENT_2 = 0, 4, 16, 32  # offsets in struct seccomp_data, little endian

# Numbers of asm/unistd_64.h and asm-generic/unistd.h. Neither list has a call that names a path, makes a descriptor,
# a process, a thread or a signal handler, or changes who or where the process is.
CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "read": 0,
        "write": 1,
        "mmap": 9,
        "mprotect": 10,
        "munmap": 11,
        "brk": 12,
        "rt_sigprocmask": 14,
        "rt_sigreturn": 15,
        "sched_yield": 24,
        "mremap": 25,
        "madvise": 28,
        "nanosleep": 35,
        "setitimer": 38,
        "getpid": 39,
        "exit": 60,
        "gettimeofday": 96,
        "getrusage": 98,
        "times": 100,
        "sigaltstack": 131,
        "gettid": 186,
        "time": 201,
        "futex": 202,
        "restart_syscall": 219,
        "clock_gettime": 228,
        "clock_getres": 229,
        "clock_nanosleep": 230,
        "exit_group": 231,
        "getrandom": 318,
    },
    "aarch64": {
        "read": 63,
        "write": 64,
        "mmap": 222,
        "mprotect": 226,
        "munmap": 215,
        "brk": 214,
        "rt_sigprocmask": 135,
        "rt_sigreturn": 139,
        "sched_yield": 124,
        "mremap": 216,
        "madvise": 233,
        "nanosleep": 101,
        "setitimer": 103,
        "getpid": 172,
        "exit": 93,
        "gettimeofday": 169,
        "getrusage": 165,
        "times": 153,
        "sigaltstack": 132,
        "gettid": 178,
        "futex": 98,
        "restart_syscall": 128,
        "clock_gettime": 113,
        "clock_getres": 114,
        "clock_nanosleep": 115,
        "exit_group": 94,
        "getrandom": 278,
    },
}
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h


class Unavailable(Exception):
    """This system cannot confine a process; the message says why."""


def confine(memory_bytes: int) -> list[str]:
    """Give everything up, for good. Returns what was given up; raises ``Unavailable`` when the wall cannot be built."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES or sys.byteorder != "little":
        raise Unavailable(f"there is no filter of system calls for {sys.platform} on {machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    done = [*_limit(memory_bytes), *_leave(libc)]
    _filter(libc, machine)
    _prove()
    return [*done, "seccomp"]


def _limit(memory_bytes: int) -> list[str]:
    os.nice(5)  # below the trainer, yet never starved by it: its limit is wall time
    limits = {
        "AS": memory_bytes,
        "CPU": CPU_LIMIT_S,
        "NOFILE": OPEN_FILES,
        "FSIZE": 0,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "NPROC": 0,
    }
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    return ["limits"]


def _leave(libc: ctypes.CDLL) -> list[str]:
    """Namespaces and the user, each where the system allows it."""
    root = os.geteuid() == 0
    flags = _NEWNET | _NEWIPC | _NEWUTS | (0 if root else _NEWUSER)
    left = ["namespaces"] if libc.unshare(flags) == 0 else []
    if root:
        with contextlib.suppress(PermissionError):  # root of a container that has no capabilities left to give up
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            left.append("nobody")
    # A user namespace gives its first process every capability inside it.
    libc.capset(struct.pack("=Ii", _CAPABILITIES_3, 0), bytes(24))
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return left


def program(machine: str) -> bytes:
    """The filter as BPF: each allowed call is one comparison, everything else is EPERM."""
    calls = dict(CALLS[machine])
    lines = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, MACHINES[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":  # the same numbers with this bit set are other calls
        lines += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    for name, descriptor in (("read", 0), ("write", 1)):  # only from the parent, only to the parent
        lines += [
            (_EQUAL, 0, 4, calls.pop(name)),
            (_LOAD, 0, 0, _ARGUMENT_0),
            (_EQUAL, 0, 1, descriptor),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _EPERM),
        ]
    for name in ("mmap", "mprotect"):  # memory, but none that can be run
        lines += [
            (_EQUAL, 0, 4, calls.pop(name)),
            (_LOAD, 0, 0, _ARGUMENT_2),
            (_BITS, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _EPERM),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for number in calls.values():
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    lines.append((_RETURN, 0, 0, _EPERM))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))


def _filter(libc: ctypes.CDLL, machine: str) -> None:
    lines = program(machine)
    kept = ctypes.create_string_buffer(lines, len(lines))
    whole = _Program(len(lines) // 8, ctypes.cast(kept, ctypes.c_void_p))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise Unavailable("the kernel refuses no_new_privs")
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0) != 0:
        raise Unavailable(f"the kernel refuses a seccomp filter ({os.strerror(ctypes.get_errno())})")


def _prove() -> None:
    """A call that needs no right and always worked before must fail now."""
    try:
        os.close(os.dup(1))
    except OSError as exc:
        if exc.errno == errno.EPERM:
            return
    raise Unavailable("the kernel does not enforce the seccomp filter")
