"""Rows and notes of a restored copy name servers of its original; the copy's keeper ends none of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from webapp.common.host import known
from webapp.common.storage import environments_dir
from webapp.environments.launchers import ProcessLauncher, _handle_of, installation_id


@pytest.fixture
def original(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path / "original"
    environments_dir().mkdir(parents=True)
    return Path(settings.DATA_DIR)


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def restored(settings: Any, original: Path) -> None:
    shutil.copytree(original, original.with_name("copy"))
    settings.DATA_DIR = original.with_name("copy")


def test_a_copys_keeper_leaves_the_originals_processes_alone(
    settings: Any, original: Path, server: subprocess.Popen[bytes]
) -> None:
    launcher = ProcessLauncher()
    launcher._add_to_ledger(server.pid, f"{uuid4()}/1")
    one = known(psutil.Process(server.pid))
    assert one is not None
    handle = _handle_of(one)
    assert launcher.alive(handle) and [item.handle for item in launcher.list_owned()] == [handle]

    restored(settings, original)
    copy = ProcessLauncher()
    assert copy.list_owned() == [] and not copy.alive(handle)
    copy.stop(handle, force=True)
    assert server.poll() is None

    settings.DATA_DIR = original
    launcher.stop(handle, force=True)
    assert server.wait(10) == -9


def test_a_row_of_an_older_release_names_no_process(original: Path, server: subprocess.Popen[bytes]) -> None:
    launcher, handle = ProcessLauncher(), {"pid": server.pid, "started": psutil.Process(server.pid).create_time()}
    launcher.stop(handle, force=True)
    assert not launcher.alive(handle) and server.poll() is None


def test_a_copy_has_containers_of_its_own(settings: Any, original: Path) -> None:
    first = installation_id()
    assert len(first) == 16 and installation_id() == first
    restored(settings, original)
    assert installation_id() == installation_id() != first
    settings.DATA_DIR = original
    assert installation_id() == first
    settings.DATA_DIR = original.with_name("new")
    assert installation_id() != first and environments_dir().stat().st_mode & 0o777 == 0o700


def test_an_id_of_an_older_release_stays(original: Path) -> None:
    (environments_dir() / "installation").write_text("0123456789abcdef")
    assert installation_id() == installation_id() == "0123456789abcdef"
