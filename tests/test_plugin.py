"""Workers are forked from a process that has imported what they import. In a fresh clone one worker compiles the tests,
and the others wait for it, but not without end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.forks import LIGHT
from tests.plugin import (
    COMPILING_VARIABLE,
    FOLDER_VARIABLE,
    pytest_collection_finish,
    pytest_xdist_setupnodes,
    uncompiled,
    wait_until_compiled,
)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The second worker of a run in a fresh clone."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(COMPILING_VARIABLE, "1")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw1")
    return monkeypatch


def waited() -> bool:
    begun = time.monotonic()
    wait_until_compiled(seconds=0.3)
    return time.monotonic() - begun >= 0.3


def test_the_others_wait_until_the_first_has_imported_all(worker: pytest.MonkeyPatch) -> None:
    assert waited()
    pytest_collection_finish()
    assert waited(), "another worker has only imported what is compiled already"
    worker.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert not waited()
    pytest_collection_finish()
    worker.setenv("PYTEST_XDIST_WORKER", "gw1")
    assert not waited()


@pytest.mark.parametrize("variable", [COMPILING_VARIABLE, "PYTEST_XDIST_WORKER"])
def test_no_one_waits_where_all_is_compiled_or_there_is_one_process(worker: pytest.MonkeyPatch, variable: str) -> None:
    worker.delenv(variable)
    assert not waited()


def test_a_clone_is_fresh_until_a_test_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / "webapp" / "__pycache__"
    folder.mkdir(parents=True)
    for name in ("test_one.cpython-311.pyc", "plugin.cpython-311-pytest-9.2.0.pyc"):  # which pytest loads before
        (folder / name).touch()
    assert uncompiled(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert not uncompiled(tmp_path), "each process compiles for itself, so there is nothing to wait for"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (folder / "test_one.cpython-311-pytest-9.2.0.pyc").touch()
    assert not uncompiled(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")
@pytest.mark.parametrize("ready", [True, False])
def test_workers_are_forked_where_the_loader_is_ready(monkeypatch: pytest.MonkeyPatch, ready: bool) -> None:
    ended: list[bool] = []

    class Stub:
        name, kind, env = "worker", LIGHT, dict[str, str]()

        def __init__(self, name: str) -> None:
            assert name == "worker"

        def ready(self, wait_s: float) -> bool:
            assert wait_s >= 60
            return ready

        def end(self) -> None:
            ended.append(True)

    monkeypatch.setattr("tests.plugin.Loader", Stub)
    cleanups: list[Any] = []
    before = subprocess._fork_exec  # type: ignore[attr-defined]
    specs = [SimpleNamespace(python=None), SimpleNamespace(python=None)]
    pytest_xdist_setupnodes(SimpleNamespace(add_cleanup=cleanups.append), specs)  # type: ignore[arg-type]
    during = subprocess._fork_exec  # type: ignore[attr-defined]
    for clean in reversed(cleanups):
        clean()
    words = f"{sys.executable} -m tests.worker" if ready else None
    assert [spec.python for spec in specs] == [words, words]
    assert (during is not before) == ready and subprocess._fork_exec is before  # type: ignore[attr-defined]
    assert ended == [True]
