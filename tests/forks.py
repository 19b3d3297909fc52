"""Starts ``python -m training run …`` and the like out of processes that have imported what these commands import.

A trainer's start costs five seconds of processor time, nearly all of it for torch, transformers and TRL, and that of a
short command (the check of a dataset, an import, the lab's scoring) half a second; a fork of a process that has
imported the same costs a tenth of one. What is started stays a real process and a child of ours like any other: the
same entry point, with a session, descriptors, a folder and an environment of its own. What differs: its modules were
imported in the environment of the tests, all forks hash strings alike, it ends without taking its modules down, and
`ps` and `/proc` show the command and the environment of the process that was forked. Tests of such things have the
marker ``plain_start``; slow tests start plain processes without it, and so do the workers that tests start.

The workers of pytest-xdist are forked too (``tests/worker.py``): they import the same, and their first act is to fork
a loader of trainers that need not import it again.

There is a loader (``python -m tests.forks``) of each kind; the short commands have one without torch, because they
limit their own memory. A loader is our child and forks twice. The process in the middle ends at once, and the kernel
gives its child to the next ancestor that takes orphans, which we are for that moment. It is started by the first
command of its kind, and no one waits for it: until it has imported what it shall, commands start plainly.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from training.children import DEVICES, MODELS
from training.garbage import freeze, no_collections

ROOT = Path(__file__).resolve().parents[1]
TAKES_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
ABOVE = 1_000  # received descriptors wait up here until those whose numbers they get are closed
PLAIN: Callable[..., int] = subprocess._fork_exec  # type: ignore[attr-defined]
PYTHON = sys.executable  # some tests put a program of theirs in its place
READY = b"+"
LENGTH = 8  # bytes of a number on the socket
THREADS = "OMP_NUM_THREADS"


class Kind(NamedTuple):
    """What is forked from one process: commands by their first words, the modules that it has imported for them, and
    the variables that are read meanwhile: a child that has others than the loader starts plainly. Trainers are forked
    only where there is no CUDA device (`tests/processes.py`), so that no variable can hide one."""

    commands: tuple[tuple[str, ...], ...]
    modules: tuple[str, ...]
    variables: frozenset[str]


PYTHONS = frozenset({"LD_LIBRARY_PATH", "PYTHONHASHSEED", "PYTHONPATH"})
LIBRARIES = frozenset({*MODELS, *DEVICES, "HF_TOKEN_PATH", "HOME", "XDG_CACHE_HOME"})
HEAVY = Kind(
    (
        *(("training", word) for word in ("chat", "memory", "preflight", "rendered", "run", "template")),
        ("tests.training.without_health",),
    ),
    (
        "training.main", "training.algorithms.dpo", "training.algorithms.grpo",
        "training.algorithms.sft", "training.algorithms.values", "training.chat.serve", "training.preflight",
        "transformers.models.qwen3.modeling_qwen3",
    ),
    PYTHONS | LIBRARIES - {THREADS, "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES"},
)  # fmt: skip
LIGHT = Kind(
    (
        ("training", "data"), ("training", "import"), ("training.data",), ("training.rewards.lab",),
        ("training.rewards.scorer",),
    ),
    (
        "training.data.checking.check", "training.data.formats.gsm8k", "training.imports.__main__",
        "training.rewards.lab.scoring", "training.rewards.scorer.worker",
    ),
    PYTHONS,
)  # fmt: skip
WORKER = Kind((("tests.worker",),), (*HEAVY.modules, *LIGHT.modules, "envs.tools.server"), HEAVY.variables)
KINDS = {"heavy": HEAVY, "light": LIGHT, "worker": WORKER}


class Loader:
    """Our end of the process of a kind that is forked; it will have the environment of now."""

    def __init__(self, name: str = "heavy") -> None:
        self.name, self.kind, self.env = name, KINDS[name], dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket, self._its_socket = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        self._ready = False

    @classmethod
    def like_us(cls, name: str) -> Loader:
        """One that is a fork of this process, which has imported what the kind imports and has no other thread."""
        loader = cls(name)
        if os.fork() == 0:
            loader._socket.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1):  # what we read and write there is not meant for it
                os.dup2(nothing, number)
            serve_and_run(loader._its_socket)
        loader._its_socket.close()
        loader._ready = True
        return loader

    def ready(self, wait_s: float = 0.0) -> bool:
        """Whether it can be forked by then; the first who asks has it started."""
        with self._one_at_a_time:
            if not self._ready:
                self._process = self._process or self._started()
                if select.select([self._socket], [], [], wait_s)[0]:
                    self._ready = self._socket.recv(1) == READY
            return self._ready

    def fork(self, asked: dict[str, Any], descriptors: Mapping[int, int]) -> int:
        """The id of a new child that does what is ``asked``; ``descriptors`` are ours by the numbers that it has."""
        line = json.dumps({**asked, "numbers": list(descriptors)}).encode()
        answer, its_end = os.pipe()  # of this request alone: a test may be interrupted while it waits
        with self._one_at_a_time:
            ctypes.CDLL(None).prctl(TAKES_ORPHANS, 1, 0, 0, 0)
            try:
                self._socket.sendall(len(line).to_bytes(LENGTH, "big") + line)
                socket.send_fds(self._socket, [b"."], [its_end, *descriptors.values()])
                os.close(its_end)
                if not (pid := os.read(answer, LENGTH)):
                    raise ChildProcessError("the process that is forked has ended")
                return int.from_bytes(pid, "big")
            finally:
                ctypes.CDLL(None).prctl(TAKES_ORPHANS, 0, 0, 0, 0)
                os.close(answer)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._its_socket as its:
            argv, number = [PYTHON, "-m", "tests.forks", self.name], its.fileno()
            return subprocess.Popen(
                [*argv, str(number)], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, pass_fds=[number]
            )

    def end(self) -> None:
        """End it; its forks live on. A fork of ours ends by itself when it is asked no more."""
        self._socket.close()
        self._its_socket.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


@contextmanager
def forked_trainers(loader: Loader, commands: Sequence[tuple[str, ...]] | None = None) -> Iterator[None]:
    """Inside, ``python -m …`` of modules and words that begin like one of the ``commands``, by default those of its
    kind, is forked; all else starts as before, so that one may be inside another."""
    known = loader.kind.commands if commands is None else commands
    before = subprocess._fork_exec  # type: ignore[attr-defined]

    def start(words: Any, executables: Any, close: bool, keep: tuple[int, ...], *rest: Any) -> int:
        """What ``subprocess`` calls to start a program; the order of ``rest`` is that of its call."""
        cwd, variables, stdin, _, _, stdout, _, stderr, _, pipe, _, session, group, *others = rest[:18]
        named = [os.fsdecode(word) for word in words]
        if safe := named[1:2] == ["-P"]:  # its folder is not searched for modules
            del named[1]
        env = dict(os.environ) if variables is None else dict(os.fsdecode(pair).split("=", 1) for pair in variables)
        usual = close and group == -1 and others == [None, None, None, -1, None]
        ours = named[:2] == [PYTHON, "-m"] and any(tuple(named[2 : 2 + len(one)]) == one for one in known)
        alike = all(env.get(name) == loader.env.get(name) for name in loader.kind.variables)
        if not (usual and ours and alike and loader.ready()):
            return before(words, executables, close, keep, *rest)
        asked = {"module": named[2], "words": named[3:], "env": env, "cwd": os.fsdecode(cwd or os.getcwd())}
        asked["safe"] = safe
        streams = {number: number if own == -1 else own for number, own in enumerate((stdin, stdout, stderr))}
        kept = {number: number for number in keep if number != pipe}
        return loader.fork({**asked, "session": session}, streams | kept)

    with _starting(start):
        yield


@contextmanager
def plain_trainers() -> Iterator[None]:
    """Inside, they are started plainly again."""
    with _starting(PLAIN):
        yield


@contextmanager
def _starting(start: Callable[..., int]) -> Iterator[None]:
    before, subprocess._fork_exec = subprocess._fork_exec, start  # type: ignore[attr-defined]
    try:
        yield
    finally:
        subprocess._fork_exec = before  # type: ignore[attr-defined]


OWN: dict[str, Loader] = {}
"""By its name: the loader that was forked from this process at its begin, where it is a worker of pytest-xdist."""


# --- The loader -----------------------------------------------------------------------------------------------------
def serve(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork whenever it is asked for, until the other end closes. Returns in the new processes alone: what was asked,
    and the descriptors that came with it."""
    while size := sock.recv(LENGTH, socket.MSG_WAITALL):
        asked = json.loads(sock.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        _, (answer, *received), _, _ = socket.recv_fds(sock, 1, 1 + len(asked["numbers"]))
        report, reported = os.pipe()
        held, hold = os.pipe()
        if (middle := os.fork()) == 0:
            if (child := os.fork()) == 0:
                os.close(hold)
                os.read(held, 1)  # until the process in the middle has ended, so that our parent is who asked
                return asked, received
            os.write(reported, child.to_bytes(LENGTH, "big"))
            os._exit(0)
        os.waitpid(middle, 0)
        with suppress(BrokenPipeError):  # who asked no longer waits
            os.write(answer, os.read(report, LENGTH))
        for number in (answer, report, reported, held, hold, *received):
            os.close(number)
    os._exit(0)


def become(asked: dict[str, Any], received: list[int]) -> None:
    """In a new process: be as one that was started with what was asked."""
    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    waiting = [fcntl.fcntl(number, fcntl.F_DUPFD, ABOVE) for number in received]
    os.closerange(0, ABOVE)
    for number, ours in zip(asked["numbers"], waiting, strict=True):
        os.dup2(ours, number)
        os.close(ours)
    os.environ.clear()
    os.environ.update(asked["env"])
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open, as those below
    sys.stdout = open(1, "w", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=at_once)  # type: ignore[attr-defined]
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    sys.argv = [asked["module"], *asked["words"]]
    sys.path[:1] = [] if asked["safe"] else [asked["cwd"]]
    tempfile.tempdir = None
    if torch := sys.modules.get("torch"):  # it read the variable when it was imported
        torch.set_num_threads(int(os.environ.get(THREADS, len(os.sched_getaffinity(0)))))


def run(module: str) -> None:
    """``python -m module`` in this process, and its end without the seconds that taking down all modules costs."""
    code: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    if not isinstance(code, int):
        code = 0 if code is None else print(code, file=sys.stderr) or 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def serve_and_run(sock: socket.socket) -> None:
    """Never returns."""
    asked, received = serve(sock)
    become(asked, received)
    run(asked["module"])


def main() -> None:
    """Import what the commands of a kind import, then fork."""
    with no_collections():
        for name in KINDS[sys.argv[1]].modules:
            importlib.import_module(name)
    freeze()
    sock = socket.socket(fileno=int(sys.argv[2]))
    sock.sendall(READY)
    serve_and_run(sock)


if __name__ == "__main__":
    main()
