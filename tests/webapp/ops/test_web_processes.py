"""Several web servers behind one port, as `up` starts them."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos.services import wait_until
from tests.processes import running, wait_for_http
from tests.servers import make_child_env
from webapp.common.host import free_port
from webapp.ops.programs import web_program

pytestmark = pytest.mark.django_db(transaction=True)


def status_of(url: str) -> int:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(answer.status)


@pytest.mark.slow
def test_one_of_two_web_servers_may_die(settings: Any, tmp_path: Path) -> None:
    settings.WEB_PROCESSES = 2
    port = free_port()
    url = f"http://127.0.0.1:{port}/login/"
    argv = web_program("127.0.0.1", port, behind_proxy=False).argv
    with running(argv, tmp_path / "log", make_child_env(TILTYARD_PORT=str(port))) as head:
        wait_for_http(url, head, tmp_path / "log")

        def servers() -> set[int]:
            children = psutil.Process(head.pid).children(recursive=True)
            alive = [each for each in children if each.status() != psutil.STATUS_ZOMBIE]
            return {each.pid for each in alive if "spawn_main" in " ".join(each.cmdline())}

        # The head looks at one server after the other: it sees a death once the other has begun to answer.
        before = wait_until(lambda: servers() if len(servers()) == 2 else None, 120)
        os.kill(min(before), signal.SIGKILL)
        after = wait_until(lambda: servers() if len(servers()) == 2 and servers() != before else None, 120)
        assert max(before) in after
        assert {status_of(url) for _ in range(10)} == {200}
    assert not any(psutil.pid_exists(pid) for pid in after)


def test_no_web_server_outlives_their_head(settings: Any, tmp_path: Path) -> None:
    settings.WEB_PROCESSES = 2
    port = free_port()
    argv = web_program("127.0.0.1", port, behind_proxy=False).argv
    with running(argv, tmp_path / "log", make_child_env(TILTYARD_PORT=str(port))) as head:
        wait_for_http(f"http://127.0.0.1:{port}/login/", head, tmp_path / "log")
        servers = psutil.Process(head.pid).children(recursive=True)
        assert len(servers) >= 2
        os.kill(head.pid, signal.SIGKILL)
        wait_until(lambda: not [each for each in servers if each.is_running() and each.status() != "zombie"], 20)


def test_the_number_follows_the_setting_and_the_cores(settings: Any) -> None:
    settings.WEB_PROCESSES = 3
    argv = web_program("127.0.0.1", 8000, behind_proxy=False).argv
    assert argv[argv.index("--workers") + 1] == "3"
