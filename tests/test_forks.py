"""A forked process is like one that was started: its streams, folder, environment, session, parent and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.forks import Loader, forked_trainers

FACTS = """
import json, os, sys, tempfile, torch
print("to stderr", file=sys.stderr)
facts = {
    "argv": sys.argv, "name": __name__, "cwd": os.getcwd(), "path": sys.path[0], "env": dict(os.environ),
    "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(), "stdin": sys.stdin.read(),
    "open": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "temporary": tempfile.gettempdir(), "at once": sys.stdout.write_through,
    "threads": torch.get_num_threads(),
}
print(json.dumps(facts))
sys.exit(int(sys.argv[1]))
"""
WAYS = {"plain": lambda loader: nullcontext(), "forked": lambda loader: forked_trainers(loader, [("probe",)])}
both = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    made = Loader()
    assert made.ready(wait_s=240)
    yield made
    made.end()


@pytest.fixture(scope="module")
def light() -> Iterator[Loader]:
    made = Loader("light")
    assert made.ready(wait_s=120)
    yield made
    made.end()


@pytest.fixture
def start(tmp_path: Path, loader: Loader) -> Callable[..., subprocess.Popen[bytes]]:
    """``start(way, code, *words, **options)``: ``python -m probe`` in either way."""

    def make(way: str, code: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        (tmp_path / "probe.py").write_text(code)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with WAYS[way](loader):
            return subprocess.Popen([sys.executable, "-m", "probe", *words], cwd=tmp_path, **{**pipes, **options})

    return make


def test_it_knows_what_a_started_one_knows(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    read, write = os.pipe()
    threads = 2 if os.environ.get("OMP_NUM_THREADS") == "1" else 1  # not what the loader has
    env = {**os.environ, "TMPDIR": str(tmp_path), "ONLY_HERE": "ü", "PYTHONUNBUFFERED": "1"}
    env["OMP_NUM_THREADS"] = str(threads)
    found = {}
    for way in WAYS:
        child = start(way, FACTS, "3", "--word", env=env, pass_fds=[read], start_new_session=True)
        said, errors = child.communicate(b"asked", timeout=60)
        assert (child.returncode, errors) == (3, b"to stderr\n")
        found[way] = json.loads(said)
    os.close(read)
    os.close(write)
    assert found["forked"] == found["plain"]
    assert found["forked"] == {
        "argv": [str(tmp_path / "probe.py"), "3", "--word"], "name": "__main__", "cwd": str(tmp_path),
        "path": str(tmp_path), "env": env,
        "parent": os.getpid(), "leads": True, "stdin": "asked", "open": [0, 1, 2, read], "temporary": str(tmp_path),
        "at once": True, "threads": threads,
    }  # fmt: skip


@both
@pytest.mark.parametrize(("code", "ended", "words"), [
    ("pass", 0, ""),
    ("import sys; sys.exit('a sentence')", 1, "a sentence\n"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ("import atexit, sys; atexit.register(lambda: print('last', file=sys.stderr))", 0, "last\n"),
    ("import threading, sys; threading.Timer(0.1, lambda: print('late', file=sys.stderr)).start()", 0, "late\n"),
    ("raise ValueError('wrong')", 1, "ValueError: wrong\n"),
])  # fmt: skip
def test_its_end_is_that_of_a_started_one(
    start: Callable[..., subprocess.Popen[bytes]], way: str, code: str, ended: int, words: str
) -> None:
    child = start(way, code)
    errors = child.communicate(timeout=60)[1].decode()
    assert child.returncode == ended
    assert errors.endswith(words) and bool(errors) == bool(words)


def test_it_is_forked_and_a_group_that_can_be_killed(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    code = "import sys, time; print('torch' in sys.modules, flush=True); time.sleep(60)"
    child = start("forked", code, start_new_session=True)
    assert child.stdout is not None and child.stdout.readline() == b"True\n"
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=20)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "options", [{"env": {"HF_HOME": "/elsewhere"}}, {"preexec_fn": os.getpid}, {"close_fds": False}]
)
def test_what_a_fork_cannot_be_given_is_started_plainly(
    start: Callable[..., subprocess.Popen[bytes]], options: dict[str, Any]
) -> None:
    options["env"] = {**os.environ, **options.get("env", {})}
    said, _ = start("forked", "import sys; print('torch' in sys.modules)", **options).communicate(timeout=60)
    assert said == b"False\n"


def test_devices_that_are_not_there_can_be_hidden_from_a_fork(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """As they are from what runs in a place of an endpoint."""
    code = "import os, sys; print('torch' in sys.modules, repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    said, _ = start("forked", code, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}).communicate(timeout=60)
    assert said == b"True ''\n"


@pytest.mark.parametrize(("words", "torch"), [
    (["-m", "other"], "False"), (["-m", "probe", "other"], "False"), (["probe.py", "run"], "False"),
    (["-m", "probe", "run", "--now"], "True"),
])  # fmt: skip
def test_only_what_begins_with_a_command_is_forked(
    tmp_path: Path, loader: Loader, words: list[str], torch: str
) -> None:
    for name in ("probe.py", "other.py"):
        (tmp_path / name).write_text("import sys; print('torch' in sys.modules)")
    with forked_trainers(loader, [("probe", "run")]):
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == torch


@pytest.mark.parametrize(("word", "heavy", "lab"), [("run", True, False), ("check", False, True), ("x", False, False)])
def test_each_kind_has_imported_its_own_and_one_works_inside_the_other(
    tmp_path: Path, loader: Loader, light: Loader, word: str, heavy: bool, lab: bool
) -> None:
    code = "import sys; print(*(name in sys.modules for name in ('torch', 'training.rewards.lab.scoring', 'numpy')))"
    (tmp_path / "probe.py").write_text(code)
    for outer, inner in ((loader, light), (light, loader)):
        named = {"heavy": [("probe", "run")], "light": [("probe", "check")]}
        with forked_trainers(outer, named[outer.name]), forked_trainers(inner, named[inner.name]):
            done = subprocess.run([sys.executable, "-m", "probe", word], cwd=tmp_path, capture_output=True, timeout=60)
        torch, scoring, numpy = done.stdout.decode().split()
        assert (torch, numpy) == (str(heavy), str(heavy or lab))
        assert scoring == str(lab) or heavy


@pytest.mark.parametrize(("options", "own_folder"), [(["-P"], False), ([], True)])
def test_modules_come_from_its_folder_unless_paths_shall_be_safe(
    tmp_path: Path, light: Loader, monkeypatch: pytest.MonkeyPatch, options: list[str], own_folder: bool
) -> None:
    found, forked, fork = [], [], light.fork
    monkeypatch.setattr(light, "fork", lambda *asked: forked.append(asked) or fork(*asked))
    for way in (nullcontext(), forked_trainers(light, [("site",)])):
        with way:
            argv = [sys.executable, *options, "-m", "site"]  # it prints where modules are looked for
            found.append(subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout)
    assert found[0] == found[1] and "sys.path = [" in found[0] and len(forked) == 1
    assert (f"'{tmp_path}'" in found[0]) == own_folder


def test_no_one_waits_for_the_loader() -> None:
    other = Loader()
    assert not other.ready(), "it has just been started"
    with forked_trainers(other, [("json",)]):
        done = subprocess.run([sys.executable, "-m", "json.tool", "--help"], capture_output=True, timeout=60)
    assert done.returncode == 0
    other.end()


AS_WORKER = """
import os, subprocess, sys
from tests.forks import OWN, forked_trainers
with forked_trainers(OWN["heavy"], [("probe",)]):
    child = subprocess.run([sys.executable, "-m", "probe"], stdout=subprocess.PIPE, text=True)
print(child.returncode, child.stdout.split() == ["True", str(os.getpid())])
"""
ITS_LOADER = "import psutil; (own,) = psutil.Process().children(); print(own.pid, flush=True); input()"


@pytest.fixture
def worker(tmp_path: Path, loader: Loader) -> Callable[..., subprocess.Popen[bytes]]:
    """``worker(way, code)``: a worker of pytest-xdist that is sent this code."""
    (tmp_path / "probe.py").write_text("import os, sys; print('torch' in sys.modules, os.getppid())")

    def make(way: str, code: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "tests.worker", "-u", "-c", "what execnet has plain workers run"]
        with forked_trainers(loader, [("tests.worker",)]) if way == "forked" else nullcontext():
            child = subprocess.Popen(argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdin is not None
        child.stdin.write(f"{code!r}\n".encode())
        child.stdin.flush()
        return child

    return make


def test_a_worker_forks_trainers_from_a_loader_that_imported_nothing_again(worker: Any) -> None:
    child = worker("forked", AS_WORKER)
    assert (child.communicate(timeout=60)[0], child.returncode) == (b"0 True\n", 0)


def test_a_worker_that_was_started_plainly_starts_a_loader_when_it_needs_one(worker: Any) -> None:
    child = worker("plain", "from tests.forks import OWN; print(OWN)")
    assert (child.communicate(timeout=60)[0], child.returncode) == (b"{}\n", 0)


def test_the_loader_of_a_worker_ends_with_it(worker: Any) -> None:
    child = worker("forked", ITS_LOADER)
    own = psutil.Process(int(child.stdout.readline()))
    child.kill()
    assert child.communicate(timeout=20)[0] == b""
    until = time.monotonic() + 20
    while own.is_running() and own.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.05)
    assert not own.is_running() or own.status() == psutil.STATUS_ZOMBIE


def test_a_program_in_the_place_of_python_is_started(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho mine")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with forked_trainers(loader, [("probe",)]):
        done = subprocess.run([sys.executable, "-m", "probe"], capture_output=True, timeout=60)
    assert done.stdout == b"mine\n"


def test_its_orphans_are_not_ours(start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """We take orphans only while one is forked: those of a test must vanish as they do outside."""
    code = "import os, time\nif (child := os.fork()) == 0:\n    time.sleep(0.3); os._exit(0)\nprint(child, flush=True)"
    child = start("forked", code)
    orphan = int(child.communicate(timeout=60)[0])
    with pytest.raises(ChildProcessError):
        os.waitpid(orphan, 0)


def test_a_fork_that_was_not_waited_for_is_not_taken_for_the_next(
    start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that reaches its time limit is interrupted at any place."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tests.forks.os.read", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        start("forked", "pass")
    assert start("forked", "import sys; sys.exit(7)").wait(timeout=60) == 7
