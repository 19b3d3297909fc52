"""Requests of one web server do not wait for each other where they need not: locks of Django's, connections."""

from __future__ import annotations

import contextvars
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from asgiref.local import Local
from django.conf import settings
from django.db import connection
from django.urls import get_script_prefix, set_script_prefix
from django.utils import timezone, translation
from django.utils.translation import gettext, trans_real

from tests.chaos.services import wait_until
from tests.processes import port_is_free, running, wait_for_http
from tests.servers import make_child_env
from webapp.common.host import free_port
from webapp.common.serving import LOCALS, ContextLocal, look_without_locks, share_connections
from webapp.ops.programs import web_program

ROOT = Path(__file__).resolve().parents[3] / "webapp"
LIMIT_S = 20.0
UNKNOWN = {settings.SESSION_COOKIE_NAME: "x" * 32}  # has a page look into the database


@pytest.fixture
def without_locks() -> Iterator[None]:
    """As a web server has them; Django's own come back."""
    own = [getattr(module, name) for module, name in LOCALS]
    assert all(isinstance(one, Local | ContextLocal) for one in own)
    look_without_locks()
    yield
    for (module, name), one in zip(LOCALS, own, strict=True):
        setattr(module, name, one)


def stopped_in_a_look(act: Callable[[], Any]) -> bool:
    """Whether another thread can ``act`` while one was interrupted in the middle of the same."""
    inside, go_on = threading.Event(), threading.Event()

    def interrupt(frame: Any, event: str, _argument: Any) -> Any:
        code = frame.f_code
        if (Path(code.co_filename).name, code.co_name) in (("local.py", "_storage"), ("serving.py", "value")):
            inside.set()
            go_on.wait(LIMIT_S)
            return None
        return interrupt

    def look() -> None:
        sys.settrace(interrupt)
        try:
            act()
        finally:
            sys.settrace(None)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(look)
        assert inside.wait(LIMIT_S)
        second = threads.submit(act)
        try:
            second.result(1.0)
        except TimeoutError:
            return False
        finally:
            go_on.set()
            first.result(LIMIT_S)
        return True


LOOKS: dict[str, Callable[[], Any]] = {
    "language": lambda: gettext("Models"),
    "zone": timezone.get_current_timezone,
    "prefix": get_script_prefix,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.usefixtures("without_locks")
def test_who_is_interrupted_in_a_look_keeps_no_other_waiting(look: Callable[[], Any]) -> None:
    assert stopped_in_a_look(look)


def test_the_look_that_is_replaced_does_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else there would be no reason left for ours."""
    monkeypatch.setattr(trans_real, "_active", Local())
    assert not stopped_in_a_look(LOOKS["language"])


@pytest.mark.usefixtures("without_locks")
def test_each_request_has_a_language_of_its_own() -> None:
    both = threading.Barrier(2)

    def request(language: str) -> list[str]:
        with translation.override(language):
            both.wait(LIMIT_S)
            seen = [translation.get_language() or "", gettext("Models")]
            both.wait(LIMIT_S)
        return [*seen, translation.get_language() or ""]

    with ThreadPoolExecutor(2) as threads:
        chinese, english = threads.map(request, ("zh-hans", "en"))
    assert chinese == ["zh-hans", "模型", "en"] and english == ["en", "Models", "en"]


@pytest.mark.usefixtures("without_locks")
def test_a_thread_that_works_for_a_request_has_its_language_and_another_has_not() -> None:
    with translation.override("zh-hans"), ThreadPoolExecutor(1) as threads:
        assert threads.submit(contextvars.copy_context().run, translation.get_language).result() == "zh-hans"
        assert threads.submit(translation.get_language).result() == "en"
        translation.deactivate()
        assert translation.get_language() == "en"
        translation.deactivate()
    with timezone.override("Asia/Shanghai"):
        assert timezone.get_current_timezone_name() == "Asia/Shanghai"
    assert timezone.get_current_timezone_name() == settings.TIME_ZONE
    set_script_prefix("/below/")
    assert get_script_prefix() == "/below/"
    set_script_prefix("/")


@pytest.mark.parametrize(("size", "pool"), [(0, None), (1, 1), (20, 20)])
def test_the_pool_is_as_large_as_the_setting(monkeypatch: pytest.MonkeyPatch, size: int, pool: int | None) -> None:
    database: dict[str, Any] = {"OPTIONS": {}, "CONN_HEALTH_CHECKS": False}
    monkeypatch.setattr(settings, "DATABASES", {"default": database})
    monkeypatch.setattr(settings, "DATABASE_POOL", size)
    share_connections()
    assert database["OPTIONS"].get("pool", {}).get("max_size") == pool
    assert not pool or database["OPTIONS"]["pool"]["max_lifetime"] == 900
    assert database["CONN_HEALTH_CHECKS"] is bool(size)


def connected() -> set[int]:
    """Process ids of PostgreSQL that serve others on this database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
            "AND pid <> pg_backend_pid()"
        )
        return {pid for (pid,) in cursor.fetchall()}


@pytest.fixture
def served(transactional_db: None) -> Callable[[], set[int]]:
    """As :func:`connected`, without the connections that threads of earlier tests left in this process."""
    left = connected()
    return lambda: connected() - left


def waiting_for_a_lock() -> int:
    """How many processes of PostgreSQL wait for a lock on this database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


@pytest.fixture
def pooled(transactional_db: None, tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """``pooled(n)``: the URL of a web server as `up` starts it, whose requests share ``n`` connections."""
    port, log = free_port(), tmp_path / "web.log"
    argv = web_program("127.0.0.1", port, behind_proxy=False).argv
    servers = []

    def start(size: int) -> str:
        env = make_child_env(TILTYARD_PORT=str(port), TILTYARD_DATABASE_POOL=str(size))
        server = running(argv, log, env)
        servers.append(server)
        wait_for_http(f"http://127.0.0.1:{port}/healthz", server.__enter__(), log)
        return f"http://127.0.0.1:{port}"

    yield start
    for server in servers:
        server.__exit__(None, None, None)
    assert port_is_free(port)


def test_requests_share_connections_and_dead_ones_are_not_handed_out(
    pooled: Callable[[int], str], served: Callable[[], set[int]]
) -> None:
    with httpx.Client(base_url=pooled(20), cookies=UNKNOWN) as browser:
        assert browser.get("/readyz").status_code in (200, 503)  # the clock is not ticking here
        first = served()
        assert [browser.get("/login/").status_code for _ in range(20)] == [200] * 20
        # The next request may come before the last one's connection is back.
        assert first and len(first | served()) <= 2
        with connection.cursor() as cursor:
            first |= served()
            for pid in first:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        assert browser.get("/login/").status_code == 200
        assert served() and served().isdisjoint(first)


@pytest.mark.parametrize("kept", [2, 8])
def test_a_request_waits_for_no_more_than_one_dead_connection(
    pooled: Callable[[int], str], served: Callable[[], set[int]], kept: int
) -> None:
    """With four in the pool, as after a restart of the database, it waited three seconds and was refused."""
    ask = partial(httpx.get, f"{pooled(20)}/login/", cookies=UNKNOWN, timeout=LIMIT_S)
    with psycopg.connect(make_child_env()["DATABASE_URL"]) as other:
        other.execute("LOCK TABLE django_session IN ACCESS EXCLUSIVE MODE")
        with ThreadPoolExecutor(kept) as threads:
            waiting = [threads.submit(ask) for _ in range(kept)]
            wait_until(lambda: waiting_for_a_lock() == kept, LIMIT_S, what="each request has a connection")
            other.rollback()
            assert {each.result().status_code for each in waiting} == {200}
    first = served()
    assert len(first) >= kept
    with connection.cursor() as cursor:
        for pid in first:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert [ask().status_code for _ in range(kept)] == [200] * kept
    assert served().isdisjoint(first)


def test_a_request_for_which_there_is_no_connection_learns_when_to_come_again(pooled: Callable[[int], str]) -> None:
    url = pooled(1)
    with ThreadPoolExecutor(1) as threads:
        with psycopg.connect(make_child_env()["DATABASE_URL"]) as other:
            other.execute("LOCK TABLE django_session IN ACCESS EXCLUSIVE MODE")
            stuck = threads.submit(httpx.get, f"{url}/login/", cookies=UNKNOWN, timeout=LIMIT_S)
            wait_until(lambda: waiting_for_a_lock() == 1, LIMIT_S, what="one request has the only connection")
            refused = httpx.get(f"{url}/login/", cookies=UNKNOWN, timeout=LIMIT_S)
            assert not stuck.done()
        assert refused.status_code == 503 and int(refused.headers["Retry-After"]) >= 1
        assert stuck.result().status_code in (200, 503)
    assert httpx.get(f"{url}/login/", cookies=UNKNOWN, timeout=LIMIT_S).status_code == 200


def test_no_request_changes_what_its_connection_brings_to_the_next_one() -> None:
    """``SET LOCAL`` ends with its transaction. Management commands have connections of their own."""
    pattern = re.compile(
        r"execute\(\s*f?[\"']\s*(SET\s+(?!LOCAL\b)|LISTEN\s|PREPARE\s|SELECT\s+pg_(try_)?advisory_lock\b)",
        re.IGNORECASE,
    )
    sources = [path for path in ROOT.rglob("*.py") if not {"management", "migrations"} & set(path.parts)]
    assert len(sources) > 300
    keeper = ROOT / "environments" / "keeper.py"  # a process of its own, which holds a lock as long as it lives
    assert [path for path in sources if pattern.search(path.read_text())] == [keeper]
    assert pattern.search('cursor.execute("SET statement_timeout = 0")')
