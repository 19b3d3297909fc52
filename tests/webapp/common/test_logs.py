"""Log lines: what they carry, in both formats, from the click over the message to the run's attempt."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import current_app
from celery.app.trace import trace_task
from django.test import Client

from tests.processes import ROOT, running, wait_for_http
from tests.servers import make_child_env
from webapp.celery import ASKED_BY
from webapp.common.host import free_port
from webapp.common.logs import JsonFormatter, LineFormatter, RedactFilter, about, log_about
from webapp.common.middleware import RequestIdMiddleware
from webapp.ops.programs import single_programs, web_program
from webapp.people.teams.models import User
from webapp.runs.models import Run

logger = logging.getLogger("webapp.tests")
SECRET = "password=hunter2hunter2"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """All that is logged meanwhile, as JSON lines."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RedactFilter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel("INFO")
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(level)


Lines = Callable[[], list[dict[str, Any]]]


# --- Formats --------------------------------------------------------------------------------------------------------


def test_a_line_is_one_object_with_its_fields(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTYARD_WORKER", "train@a")
    with about(run_id="r1", attempt=2, request_id="q1"):
        logger.info(
            "two\nlines of %s", "甲", extra={"action": "x", "attempt": 3, "share": 0.5, "none": None, "on": True}
        )
    (line,) = lines()
    assert line.pop("time").endswith("+00:00") and line.pop("host")
    assert line == {
        "level": "info", "logger": "webapp.tests", "message": "two\nlines of 甲", "worker": "train@a",
        "run_id": "r1", "attempt": 3, "request_id": "q1", "action": "x", "share": 0.5, "none": None, "on": True,
    }  # fmt: skip


def test_no_field_hides_another_and_no_number_breaks_the_line(lines: Lines) -> None:
    logger.warning("m", extra={"level": "x", "host": "y", "time": 1, "lag": float("nan"), "far": float("inf")})
    (line,) = lines()
    assert (line["level"], line["message"], line["lag"], line["far"]) == ("warning", "m", "nan", "inf")
    assert line["host"] != "y" and line["time"] != 1 and "worker" not in line


def test_secrets_are_in_no_part_of_a_line(lines: Lines) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        logger.exception("it was %s", SECRET, extra={"error": SECRET, "more": [SECRET]})
    (line,) = lines()
    assert line["message"] == "it was password=***" and line["error"] == "password=***"
    assert line["traceback"].startswith("Traceback") and "ValueError: password=***" in line["traceback"]
    assert "hunter2" not in json.dumps(line)


def test_any_terminal_and_file_takes_a_line() -> None:
    record = logging.makeLogRecord({"msg": "甲 \ud800 \u2028", "name": "x", "levelname": "INFO"})
    text = JsonFormatter().format(record)
    assert text.isascii() and "\n" not in text and json.loads(text)["message"] == "甲 \ud800 \u2028"


def test_lines_for_people_carry_the_same() -> None:
    record = logging.makeLogRecord({"msg": "m", "name": "x", "levelname": "INFO", "attempt": 3})
    with about(run_id="r1", attempt=2):
        assert LineFormatter().format(record).endswith(" INFO x m run_id=r1 attempt=3")
    assert LineFormatter().format(record).endswith(" INFO x m attempt=3")


def test_what_lines_carry_ends_where_it_began() -> None:
    with about(run_id="a", request_id="q"):
        with about(run_id="b", request_id=""):
            assert log_about() == {"run_id": "b"}
        with pytest.raises(ValueError), about(attempt=0):
            assert log_about() == {"run_id": "a", "request_id": "q", "attempt": 0}
            raise ValueError
        assert log_about() == {"run_id": "a", "request_id": "q"}
    assert log_about() == {}


@pytest.mark.parametrize(("value", "code"), [("", 1), ("line", 0), ("json", 0), ("JSON", 1), ("xml", 1)])
def test_another_format_stops_the_start(value: str, code: int, tmp_path: Path) -> None:
    env = dict(os.environ) | {"TILTYARD_LOG_FORMAT": value, "TILTYARD_DATA_DIR": str(tmp_path)}
    argv = [sys.executable, "-c", "import webapp.settings as s; print(s.LOGGING['handlers']['console']['formatter'])"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stdout.strip() == ("" if code else value)
    assert ("TILTYARD_LOG_FORMAT must be line or json" in done.stderr) is bool(code)


# --- Requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["a", "6f1d-A_b.c", "x" * 64])
def test_a_plain_id_of_a_request_is_kept(client: Client, sent: str) -> None:
    assert client.get("/healthz", headers={"X-Request-ID": sent})["X-Request-Id"] == sent


@pytest.mark.parametrize("sent", ["", "x" * 65, "a b", "a\nb", "é", "a=b", '"', "<b>", "٣"])
def test_any_other_is_replaced(client: Client, sent: str) -> None:
    found = client.get("/healthz", headers={"X-Request-ID": sent})["X-Request-Id"]
    assert found != sent and len(found) == 12 and found.isalnum()


def test_each_request_has_an_id_of_its_own_that_ends_with_it(client: Client) -> None:
    assert client.get("/healthz")["X-Request-Id"] != client.get("/healthz")["X-Request-Id"]
    seen: list[Any] = []

    def answer(request: Any) -> dict[str, str]:
        seen.append((request.request_id, log_about()["request_id"]))
        return {}

    request = type("Request", (), {"headers": {"X-Request-ID": "click-1"}})()
    RequestIdMiddleware(answer)(request)  # type: ignore[arg-type]
    assert seen == [("click-1", "click-1")] and log_about() == {}


@pytest.mark.django_db
def test_lines_of_a_request_carry_its_id_and_so_does_the_error(
    client_for: Any, alice: User, project: Any, lines: Lines, make_run: Any
) -> None:
    run = make_run(state="queued")
    client = client_for(alice)
    assert client.post(f"{run.url}stop/", headers={"X-Request-ID": "click-7"}).status_code in (200, 302)
    audit = next(line for line in lines() if line["message"] == "audit")
    assert (audit["request_id"], audit["object_id"], audit["object_kind"]) == ("click-7", str(run.pk), "runs.run")
    wrong = client.get("/api/v1/nothing", headers={"X-Request-ID": "click-8"})
    assert wrong.json()["request_id"] == "click-8"
    refused = [line for line in lines() if line["logger"] == "django.request"]
    assert [line["request_id"] for line in refused] == ["click-8"] and "request" not in refused[0]


# --- Messages -------------------------------------------------------------------------------------------------------


@current_app.task(name="tests.say", ignore_result=True)
def say() -> None:
    logger.info("said")


@pytest.fixture
def headers_of() -> Iterator[Callable[[], dict[str, Any]]]:
    """The headers of the one message in the queue ``short``, taken from the real broker."""
    with current_app.connection_for_write() as connection:
        channel = connection.default_channel
        channel.queue_purge("short")

        def take() -> dict[str, Any]:
            message = channel.basic_get("short", no_ack=True)
            assert message is not None and channel.basic_get("short", no_ack=True) is None
            return dict(message.headers)

        yield take
        channel.queue_purge("short")


def test_a_message_carries_the_request_that_asked_for_it(headers_of: Callable[[], dict[str, Any]]) -> None:
    with about(request_id="click-3"):
        current_app.send_task("tests.say", queue="short")
    assert headers_of()[ASKED_BY] == "click-3"
    current_app.send_task("tests.say", queue="short")
    assert ASKED_BY not in headers_of()


def test_lines_of_a_task_carry_the_request_and_the_next_ones_do_not(lines: Lines) -> None:
    """As a worker runs them, and on the spot."""
    task = current_app.tasks["tests.say"]
    trace_task(task, "t1", (), {}, request={"id": "t1", ASKED_BY: "click-4"}, app=current_app)
    trace_task(task, "t2", (), {}, request={"id": "t2"}, app=current_app)
    with about(request_id="click-5", run_id="r"):
        task.apply(task_id="t3")
        trace_task(task, "t4", (), {}, request={"id": "t4", ASKED_BY: "click-6"}, app=current_app)
        trace_task(task, "t5", (), {}, request={"id": "t5"}, app=current_app)
        assert log_about() == {"request_id": "click-5", "run_id": "r"}
    said = [line for line in lines() if line["message"] == "said"]
    assert [(line["task"], line["task_id"], line.get("request_id")) for line in said] == [
        ("tests.say", "t1", "click-4"),
        ("tests.say", "t2", None),
        ("tests.say", "t3", "click-5"),
        ("tests.say", "t4", "click-6"),
        ("tests.say", "t5", None),
    ]
    assert log_about() == {}


# --- Processes ------------------------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All lines; of a worker but the words that Celery says to a terminal when it is asked to end."""
    text = re.sub(r"^\n?worker: Warm shutdown \(MainProcess\)\n", "", path.read_text(), flags=re.M)
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_click_is_found_in_the_worker_that_it_set_to_work(
    client_for: Any, alice: User, make_run: Any, tmp_path: Path, settings: Any
) -> None:
    """A real worker and the clockwork as they are started: all that they print is JSON."""
    settings.LOG_FORMAT = "json"
    programs, env = single_programs(), make_child_env(TILTYARD_LOG_FORMAT="json")
    run: Run = make_run(state="paused", attempt=1)
    with (
        running(programs["worker-train"].argv, tmp_path / "train.log", env),
        running(programs["clock"].argv, tmp_path / "clock.log", env),
    ):
        answer = client_for(alice).post(f"{run.url}resume/", headers={"X-Request-ID": "click-9"})
        assert answer.status_code in (200, 302)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            run.refresh_from_db()
            if run.state not in ("queued", "preparing"):
                break
            time.sleep(0.2)
    assert run.attempt == 2
    for name in ("train", "clock"):
        found = read_lines(tmp_path / f"{name}.log")
        assert found and all({"time", "level", "logger", "message", "host"} <= set(line) for line in found)
    mine = [line for line in read_lines(tmp_path / "train.log") if line.get("request_id") == "click-9"]
    began = next(line for line in mine if line.get("action") == "attempt_begin")
    assert (began["run_id"], began["attempt"], began["task"]) == (str(run.pk), 2, "runs.supervise")
    assert began["worker"].startswith("train@")
    assert {line["run_id"] for line in mine if "run_id" in line} == {str(run.pk)}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_all_that_the_web_server_prints_is_json(tmp_path: Path, settings: Any) -> None:
    settings.LOG_FORMAT, settings.WEB_PROCESSES = "json", 2
    port, log = free_port(), tmp_path / "log"
    env = make_child_env(TILTYARD_PORT=str(port), TILTYARD_LOG_FORMAT="json")
    with running(web_program("127.0.0.1", port, behind_proxy=False).argv, log, env) as child:
        wait_for_http(f"http://127.0.0.1:{port}/healthz", child, log)
        answer = httpx.get(f"http://127.0.0.1:{port}/nothing", headers={"X-Request-ID": "click-2"}, timeout=30)
        assert answer.headers["X-Request-ID"] == "click-2"
    found = read_lines(log)
    assert {"uvicorn.error", "django.request"} <= {line["logger"] for line in found}
    assert [line["request_id"] for line in found if line["logger"] == "django.request"] == ["click-2"]
