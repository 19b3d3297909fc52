"""Tracebacks and bare 500s where the database was away, the folder read-only, the key short or the disk full."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from tests.processes import ROOT, running, wait_for_http
from training.config import METHODS
from webapp.common.errors import log_outage
from webapp.common.host import free_port
from webapp.ops import demo as following
from webapp.ops.console import Console, UpOptions
from webapp.ops.programs import web_program
from webapp.ops.up import Up, disk_error


@pytest.fixture(scope="module")
def orphan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """URL and log of a web server whose database is away."""
    port, folder = free_port(), tmp_path_factory.mktemp("orphan")
    away = f"postgresql://postgres@127.0.0.1:{free_port()}/tiltyard"
    env = {**os.environ, "DATABASE_URL": away, "TILTYARD_PORT": str(port), "TILTYARD_DATA_DIR": str(folder / "data")}
    with running(web_program("127.0.0.1", port, behind_proxy=False).argv, folder / "log", env) as child:
        wait_for_http(f"http://127.0.0.1:{port}/login/", child, folder / "log")
        yield f"http://127.0.0.1:{port}", folder / "log"


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize("path", ["/", "/p/mill/runs/", "/api/v1/projects"])
def test_a_database_that_is_away_is_reported(orphan: tuple[str, Path], path: str, accept: str) -> None:
    url, log = orphan
    headers = {"Cookie": "tiltyard=" + "a" * 32, "Accept": accept}
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=15)
    text = answer.value.read().decode()
    assert answer.value.code == 503 and int(answer.value.headers["Retry-After"]) > 0
    if accept == "application/json" or path.startswith("/api/"):
        body = json.loads(text)
        assert set(body) == {"ok", "code", "message", "detail", "request_id"} and body["code"] == "unavailable"
        assert body["request_id"] == answer.value.headers["X-Request-Id"]
    else:
        assert "The database does not answer" in text and "Traceback" not in text
    causes = [line for line in log.read_text().splitlines() if f"GET {path} is answered with 503: " in line]
    assert causes and all("Error: " in line or "Timeout: " in line for line in causes), "the log names the cause"


def test_an_address_writes_no_lines_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log_outage(503, "GET /p/a\nERROR all is lost/", OperationalError("gone\nand more"))
    assert caplog.messages == ["GET /p/a\\nERROR all is lost/ is answered with 503: OperationalError: gone"]


def start(**env: str) -> subprocess.CompletedProcess[str]:
    """`manage.py up` with a setting that cannot work."""
    kept = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL"}}
    argv = [sys.executable, "manage.py", "up", "--port", str(free_port())]
    return subprocess.run(argv, cwd=ROOT, env={**kept, **env}, capture_output=True, text=True, timeout=60)


def test_a_data_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")  # root may write into read-only folders, but not below a file
    done = start(TILTYARD_DATA_DIR=str(tmp_path / "file" / "data"))
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    assert "cannot be written" in done.stderr and "TILTYARD_DATA_DIR" in done.stderr


def test_a_short_key_is_a_sentence(tmp_path: Path) -> None:
    done = start(TILTYARD_DATA_DIR=str(tmp_path), TILTYARD_SECRET_KEY="short")
    assert done.returncode == 1 and "Traceback" not in done.stderr + done.stdout
    assert "at least 50 characters" in done.stderr
    (tmp_path / "secret_key").write_text("")  # what a full disk left of it
    done = start(TILTYARD_DATA_DIR=str(tmp_path))
    assert done.returncode == 1 and "holds no whole key" in done.stderr and "Traceback" not in done.stderr


def test_a_full_disk_at_the_start_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("webapp.ops.up.host.write_private", full)
    monkeypatch.setattr(Up, "_install_signal_handlers", lambda self: None)  # this process keeps its own
    monkeypatch.setattr("webapp.ops.up.os.umask", lambda mask: mask)
    assert Up(UpOptions(data=tmp_path, root=ROOT, port=free_port()), Console()).run() == 1
    printed = capsys.readouterr().out
    assert "The disk that holds" in printed and "Free some space" in printed and "Traceback" not in printed


def test_a_redis_of_others_that_cannot_be_used_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends no start: runs wait in the database until Redis answers."""
    place, output = f"127.0.0.1:{free_port()}", io.StringIO()
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/site")
    monkeypatch.setenv("REDIS_URL", f"rediss://:secret@{place}/0")
    assert Up(UpOptions(tmp_path, ROOT), Console(output))._prepare_services() == {}
    assert output.getvalue().startswith(f"  Redis at {place} does not answer: ") and "secret" not in output.getvalue()


def test_a_disk_that_fails_later_is_a_sentence_too(tmp_path: Path) -> None:
    error = disk_error(OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "logs")), tmp_path)
    assert "Read-only file system" in str(error) and "logs" in str(error)


def test_following_the_demo_waits_for_its_database(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """`demo --follow` ended with a traceback when PostgreSQL was restarted."""

    class Ended:
        name, state, step, total_steps, kind, last_reward, error, pk, after_id = (
            "r",
            "succeeded",
            1,
            1,
            "grpo",
            0.5,
            None,
            1,
            None,
        )
        looks, method = 0, METHODS["grpo"]

        def refresh_from_db(self) -> None:
            Ended.looks += 1
            if Ended.looks < 3:
                raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(following, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(following, "_first_and_last_reward", lambda run: None)
    monkeypatch.setattr(following, "connection", type("Closed", (), {"close": staticmethod(lambda: None)}))
    following.follow([Ended()], Console())  # type: ignore[list-item]
    printed = capsys.readouterr().out
    assert printed.count("does not answer") == 1 and "reward 0.500" in printed
