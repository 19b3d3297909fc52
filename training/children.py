"""Programs that we start: their environment, their limits, and talking to them over both their pipes."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

# The environment of every child process that we start: named variables, never all of ours.
#
# Ours may hold the database's address, API keys and all that the operator's shell has. A child gets the groups that its
# work needs, and what its starter names; everything else stays here.

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
MODELS = ("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE")
_PROXIES = tuple(f"{kind}_proxy" for kind in ("http", "https", "all", "no"))
PROXIES = (*_PROXIES, *(name.upper() for name in _PROXIES))
# A project's own token for its base model, and where what it opens is kept. In no list: given to trainers by name, and
# to nothing that a trainer starts.
MODEL_TOKEN, MODEL_CACHE = "TILTYARD_MODEL_TOKEN", "TILTYARD_MODEL_CACHE"
HUB_ACCESS = ("HF_TOKEN", "HF_TOKEN_PATH", *PROXIES)
DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",  # its name before PyTorch 2.9
    "NCCL_DEBUG",
)
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
# What the operator puts in place for jobs: the folder that reward models lie in, a Python that has vLLM and one with
# verl, and the Ray cluster that verl's jobs run on, with what opens it.
REWARD_MODELS, VLLM_PYTHON, VERL_PYTHON = "TILTYARD_REWARD_MODELS", "TILTYARD_VLLM_PYTHON", "TILTYARD_VERL_PYTHON"
RAY_ADDRESS = "TILTYARD_RAY_ADDRESS"
RAY = (RAY_ADDRESS, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")
# The number of the pipe that closes when who started a trainer is gone.
PARENT_VARIABLE = "TILTYARD_PARENT_FD"


def python_of(variable: str, folder: str) -> Path:
    """The Python that ``variable`` names, else that of the repository's virtualenv ``folder``; it may be missing."""
    named = os.environ.get(variable, "")
    return Path(named) if named else ROOT / folder / "bin" / "python"


def child_env(*names: Iterable[str], **named: str) -> dict[str, str]:
    """The variables of ours that ``names`` list, our code, UTF-8, and ``named``, which wins."""
    return {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **known(*names), **named}


def known(*names: Iterable[str]) -> dict[str, str]:
    """Those variables of ours that ``names`` list and that are set."""
    return {name: os.environ[name] for group in names for name in group if name in os.environ}


def bare_env(**named: str) -> dict[str, str]:
    """For children that only compute: none of our variables, the system's own path."""
    return child_env(PATH=os.defpath, **named)


# Children with limits: a session of their own, a deadline, and nothing of them left afterwards.
#
# Every short-lived program that we start for a person runs like this: the check of a dataset, a look at its first rows,
# imports, the rows that an environment writes, the lab's scoring and the trainer's preflight.

READ_BYTES = 65536
KILLED = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
"""How a child without memory ends where it has no time left to say so."""
NO_LIMITS: Mapping[str, int] = {}
Stream = int | IO[Any] | None


class Limited:
    """A running child; what it prints and its end are waited for until its deadline, and no longer."""

    def __init__(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        self._process, self._deadline = process, deadline

    @property
    def code(self) -> int:
        """Its exit code, negative for a signal, once the block has ended."""
        return int(self._process.returncode)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it ended in time: before its deadline, or within ``seconds`` where they are given."""
        try:
            self._process.wait(max(0.0, self._deadline - time.monotonic()) if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def ask_to_stop(self) -> None:
        """SIGTERM, to all that it started as well."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def lines(self) -> Iterator[bytes]:
        """The lines that it prints, as they come. The end of one that is too long is enough."""
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-READ_BYTES:]
            yield from lines

    def output(self, most: int) -> bytes | None:
        """All that it prints; ``None`` where that is more than ``most`` bytes."""
        found = b""
        for chunk in self._chunks():
            found += chunk
            if len(found) > most:
                return None
        return found

    def _chunks(self) -> Iterator[bytes]:
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError("the child was started without a pipe")
        with selectors.DefaultSelector() as selector, stdout:
            selector.register(stdout, selectors.EVENT_READ)
            while (left := self._deadline - time.monotonic()) > 0:
                if not selector.select(left):
                    continue
                if not (chunk := os.read(stdout.fileno(), READ_BYTES)):
                    return
                yield chunk


@contextmanager
def limited_child(
    command: list[str],
    *,
    wall_s: float,
    env: dict[str, str],
    limits: Mapping[str, int] = NO_LIMITS,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.DEVNULL,
    cwd: Path | None = None,
    preexec_fn: Callable[[], None] | None = None,
) -> Iterator[Limited]:
    """Start it, and kill what is left of its process group when the block ends, in whatever way.

    ``limits`` are names of the module ``resource``; a system that cannot set them from outside goes without.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=preexec_fn,
    )
    deadline = time.monotonic() + wall_s
    try:
        limit_child(process.pid, limits)
        yield Limited(process, deadline)
    finally:
        _end(process)


def limit_child(pid: int, limits: Mapping[str, int]) -> None:
    """Limit a running child of ours: names of the module ``resource``, where the system can set them from outside."""
    with suppress(OSError, ValueError):  # it has gone already
        if hasattr(resource, "prlimit"):
            for name, value in limits.items():
                resource.prlimit(pid, getattr(resource, name), (value, value))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's process group and reap it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it may end between the two calls
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


# A child that is spoken to over both its pipes, line by line, and that no wait of ours outlives.
#
# It leads a session of its own, so that its end takes along all that it started in it. For one thread at a time, but
# for ``stop``, which any thread may call while another one waits.

PIPE_READ_BYTES = 64 << 10


class Piped:
    """The child and its two pipes, neither of which blocks."""

    def __init__(self, command: list[str], *, env: Mapping[str, str], stderr: int | None = None) -> None:
        """Start it: an argument list, no shell, ``env`` and nothing else. Raises ``OSError``."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd="/",
            env=env,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin and self._process.stdout  # noqa: S101 - for the type checker
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it may be called again."""
        return self._process.poll() is None

    def lines(self, sent: bytes, deadline: float) -> Iterator[bytes]:
        """Send it ``sent``, and give its lines as they come, until the deadline or its end."""
        rest = memoryview(sent)
        while (left := deadline - time.monotonic()) > 0:
            readable, writable = self._wait(bool(rest), left)
            if writable:
                rest = self._write(rest)
            if readable and not self._read():
                return
            *whole, self._buffer = self._buffer.split(b"\n")
            yield from whole

    def stop(self) -> None:
        """Have it end at once; a caller that waits for it sees its end."""
        self._process.kill()

    def kill(self) -> None:
        """End it, and everything of its session; safe to call twice."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)  # its leader is not reaped, so the group is surely ours
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def ended(self) -> int | None:
        """Its exit code, negative for a signal, once its pipe is closed; ``None`` where it closed that and stayed."""
        try:
            return self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return None

    def _wait(self, writing: bool, limit_s: float) -> tuple[bool, bool]:
        poll = select.poll()  # select() knows no descriptor above 1023, and a trainer may have many
        poll.register(self._from, select.POLLIN)
        if writing:
            poll.register(self._to, select.POLLOUT)
        events = dict(poll.poll(limit_s * 1000))
        return bool(events.get(self._from)), bool(events.get(self._to))

    def _write(self, rest: memoryview) -> memoryview:
        """The rest to be sent; nothing of it where the child no longer reads."""
        try:
            return rest[os.write(self._to, rest) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            return rest[len(rest) :]

    def _read(self) -> bool:
        try:
            chunk = os.read(self._from, PIPE_READ_BYTES)
        except BlockingIOError:
            return True
        self._buffer += chunk
        return bool(chunk)
