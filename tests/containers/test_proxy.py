"""The proxies of docs/proxy.md, real and in front of the real web server. Behind them all shared one address."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes import ROOT, running, wait_for_http
from tests.servers import make_child_env
from webapp.common.host import free_port
from webapp.ops.programs import web_program
from webapp.people.teams.logins import Keys
from webapp.people.teams.models import LoginThrottle

EXAMPLES = ROOT / "examples/proxy"
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
HOST = "tiltyard.example.org"


def caddy(folder: Path, port: int, web: int) -> list[str]:
    """The example, on another port and without TLS, which needs a name that the world can reach."""
    text = (EXAMPLES / "Caddyfile").read_text()
    text = text.replace(f"{HOST} {{", f"http://127.0.0.1:{port} {{\n\tbind 127.0.0.1", 1)
    file = folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + text.replace("127.0.0.1:8000", f"127.0.0.1:{web}"))
    return ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]


def nginx(folder: Path, port: int, web: int) -> list[str]:
    """The example inside the smallest whole configuration, on another port and without TLS."""
    text = (EXAMPLES / "nginx.conf").read_text()
    kept = [line for line in text.split("server {\n    listen 80")[0].splitlines() if "ssl_certificate" not in line]
    site = "\n".join(kept).replace("listen 443 ssl", f"listen 127.0.0.1:{port}").replace(f"server_name {HOST};", "")
    places = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}} "
        f"http {{ access_log off; {places} {site.replace('127.0.0.1:8000', f'127.0.0.1:{web}')} }}"
    )
    assert subprocess.run(["nginx", "-t", "-c", str(file), "-p", str(folder)], capture_output=True).returncode == 0
    return ["nginx", "-c", str(file), "-p", str(folder)]


@pytest.fixture(params=[caddy, nginx], ids=["caddy", "nginx"])
def proxied(
    request: pytest.FixtureRequest, transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a proxy before a web server that believes it."""
    start: Callable[[Path, int, int], list[str]] = request.param
    if not shutil.which(start.__name__):
        pytest.skip(f"{start.__name__} is not installed")
    web, port = free_port(), free_port()
    origin = f"http://127.0.0.1:{port}"
    env = make_child_env(TILTYARD_PORT=str(web), TILTYARD_ORIGINS=origin, TILTYARD_BEHIND_PROXY="true")
    argv = web_program("127.0.0.1", web, behind_proxy=True).argv
    proxy_env = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    with running(argv, tmp_path / "web.log", env) as child:
        wait_for_http(f"http://127.0.0.1:{web}/login/", child, tmp_path / "web.log")
        with running(start(tmp_path, port, web), tmp_path / "proxy.log", proxy_env) as proxy:
            wait_for_http(f"{origin}/login/", proxy, tmp_path / "proxy.log")
            yield origin


def test_a_proxy_passes_people_on_and_no_client_chooses_its_address(proxied: str) -> None:
    with httpx.Client(base_url=proxied) as browser:
        page = browser.get("/login/")
        token = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        data = {"username": "nobody", "password": "x", "csrfmiddlewaretoken": token}
        headers = {"X-Forwarded-For": "203.0.113.9", "Referer": f"{proxied}/login/"}
        assert browser.post("/login/", data=data, headers=headers).status_code == 422
    held = set(LoginThrottle.objects.values_list("key", flat=True))
    assert not held & set(Keys("nobody", "203.0.113.9").counted[::2])  # what the client wrote is not believed
    assert held >= set(Keys("nobody", "127.0.0.1").counted)


def test_a_proxy_hands_on_sockets_and_refusals(proxied: str) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Origin": proxied,
    }
    address = f"{proxied}/ws/runs/00000000-0000-4000-8000-000000000000/"
    assert httpx.get(address, headers=upgrade).status_code == 403  # our refusal of a socket, not a page
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = httpx.post(f"{proxied}/login/", content=b"x" * 3_000_000, headers=form)
    assert answer.status_code == 413 and answer.json()["code"] == "too_large"
