"""A whole Tiltyard in a folder of its own, started by ``manage.py up`` as a person would, for benchmarks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"https?://\S+/login/\S+")
START_LIMIT_S, STOP_LIMIT_S = 900, 90


def free_port() -> int:
    """A port that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """``with Site(demo=True) as site:`` – ``site.link`` logs in once, ``site.lines`` is the console so far.

    ``clone`` makes a fresh clone of the committed tree and starts it with ``make``, installation included. ``data`` is
    a folder that outlives the site, ``root`` the tree that is started, ``settings`` a module of settings that are not
    the product's.
    """

    def __init__(
        self, *, demo: bool, clone: bool = False, data: Path | None = None, root: Path = ROOT, settings: str = ""
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tiltyard-bench-", ignore_cleanup_errors=True)
        self.data = data or Path(self._folder.name) / "data"
        self.port = free_port()
        self.env = {**os.environ, "TILTYARD_DATA_DIR": str(self.data), "TILTYARD_PORT": str(self.port)}
        for name in ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"):
            self.env.pop(name, None)
        if settings:
            self.env["DJANGO_SETTINGS_MODULE"] = settings
        self.root, self.python = root, sys.executable
        self._argv = [sys.executable, "manage.py", "up", *(["--demo"] if demo else [])]
        self._clone = clone
        if clone:
            self.root = Path(self._folder.name) / "clone"
            self.python = str(self.root / ".venv/bin/python")
            self._argv = ["make", "demo" if demo else "up"]
        self.lines: list[str] = []
        self.link = ""
        self.started_at = 0.0

    def __enter__(self) -> Site:
        self.started_at = time.time()
        if self._clone:
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.root)], check=True, timeout=120)
        self._process = subprocess.Popen(
            self._argv,
            cwd=self.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        deadline = time.monotonic() + START_LIMIT_S
        while not self.link:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError("The site did not start:\n" + "\n".join(self.lines[-20:]))
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)  # as Ctrl-C does: make alone would not pass it on
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._folder.cleanup()

    def manage(self, *arguments: str, timeout: float = 60) -> str:
        """Output of a management command on this site."""
        argv = [self.python, "manage.py", *arguments]
        done = subprocess.run(argv, cwd=self.root, env=self.env, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout

    def shell(self, code: str, timeout: float = 60) -> str:
        """The output of a few lines of Python inside this site's Django."""
        return self.manage("shell", "--no-imports", "-v", "0", "-c", code, timeout=timeout).strip()

    def _read(self) -> None:
        assert self._process.stdout is not None  # it was opened as a pipe
        for line in self._process.stdout:
            self.lines.append(line.rstrip())
            found = LINK.search(line)
            if found:
                self.link = found[0]
