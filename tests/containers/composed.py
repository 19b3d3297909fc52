"""docker-compose.yml as an operator runs it, under a project name, port and .env of the test's own.

Images are built where they do not exist yet or code has changed. Where pip finds packages in a local folder, as on a
machine that does not reach torch's own index, the folder is served to the builds on loopback.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from webapp.common.host import free_port
from webapp.ops.compose import compose_init, env_read

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
BUILD_LIMIT_S, COMMAND_LIMIT_S, HEALTHY_LIMIT_S = 1800.0, 300.0, 600.0
PROJECT = "tiltyard-tests"
WHEELS_PORT = 8976
SUBNET = "10.213.78"  # next to an installation of this machine


def compose_argv() -> list[str] | None:
    """The compose command of this machine: the docker plugin, else the older program."""
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def docker_answers() -> bool:
    """Whether there is an engine to talk to."""
    if not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30).returncode == 0


def services_here() -> list[str]:
    """The services that start without a profile or with that of a machine without a GPU."""
    services = yaml.safe_load(FILE.read_text())["services"]
    return [name for name, one in services.items() if one.get("profiles", ["cpu"]) == ["cpu"]]


class Composed:
    """One running compose project."""

    def __init__(self, folder: Path) -> None:
        argv = compose_argv()
        assert argv is not None, "neither `docker compose` nor docker-compose is here"
        compose_init(folder)
        self._folder = folder
        self.port = free_port()
        self.seconds: dict[str, float] = {}
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TILTYARD_")},
            "TILTYARD_PORT": str(self.port),
            "TILTYARD_SECRETS": str(folder / ".secrets"),
            "TILTYARD_SUBNET": SUBNET,
            "COMPOSE_PROJECT_NAME": PROJECT,
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        self._argv = [*argv, "-f", str(FILE), "--env-file", str(folder / ".env")]

    def secret(self, name: str) -> str:
        """A value of its .env."""
        return env_read((self._folder / ".env").read_text())[name]

    @property
    def address(self) -> str:
        """Where its pages are."""
        return f"http://127.0.0.1:{self.port}"

    def run(self, *arguments: str, limit_s: float = COMMAND_LIMIT_S, env: dict[str, str] | None = None) -> str:
        """One compose command; its output. A failure shows both streams."""
        done = subprocess.run(
            [*self._argv, *arguments],
            cwd=ROOT,
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"compose {' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def typed(self, lines: str, folder: Path) -> str:
        """Lines of a page in an operator's shell, as they are there but for where compose finds its files."""
        lines = lines.replace("docker compose ", f"{shlex.join(self._argv)} ")
        done = subprocess.run(
            ["sh", "-euc", lines], cwd=folder, env=self.env, capture_output=True, text=True, timeout=COMMAND_LIMIT_S
        )
        assert done.returncode == 0, f"{lines}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def build(self) -> None:
        """Build every image that we start, once."""
        began = time.monotonic()
        services = yaml.safe_load(FILE.read_text())["services"]
        first = {services[name]["image"]: name for name in services_here() if "build" in services[name]}
        with _wheels() as env:
            self.run("build", *first.values(), limit_s=BUILD_LIMIT_S, env={"BUILD_NETWORK": "host", **env})
        self.seconds["build"] = time.monotonic() - began

    def up(self) -> None:
        """Start it and wait until all say that they are healthy."""
        began = time.monotonic()
        self.run("up", "--detach", *services_here())
        while waiting := {name for name in services_here() if name != "prepare" and self.health(name) != "healthy"}:
            if time.monotonic() - began > HEALTHY_LIMIT_S:
                raise AssertionError(f"not healthy: {waiting}\n{self.run('logs', '--tail', '50', *waiting)[-8000:]}")
            time.sleep(0.5)
        self.seconds["healthy"] = time.monotonic() - began

    def container(self, service: str) -> str:
        """The id of a service's container."""
        labels = [f"label=com.docker.compose.{key}" for key in (f"project={PROJECT}", f"service={service}")]
        return docker("ps", "--all", "--quiet", *(part for label in labels for part in ("--filter", label)))

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of it."""
        found: dict[str, Any] = json.loads(docker("inspect", self.container(service)))[0]
        return found

    def health(self, service: str) -> str:
        """``starting``, ``healthy`` or ``unhealthy``."""
        return str(self.inspect(service)["State"]["Health"]["Status"])

    def down(self) -> None:
        """Stop it and remove its containers, networks and volumes; images stay."""
        self.run("down", "--volumes")


def docker(*arguments: str) -> str:
    """One docker command."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


@contextmanager
def _wheels() -> Iterator[dict[str, str]]:
    """Build settings for packages that lie in pip's local folder, which a build cannot see."""
    folder = os.environ.get("PIP_FIND_LINKS", "")
    if not Path(folder or "-").is_dir():
        yield {}
        return
    handler = partial(_Quiet, directory=folder)
    try:  # the same address each time, where it is free: it is part of what the engine's cache of layers compares
        server = ThreadingHTTPServer(("127.0.0.1", WHEELS_PORT), handler)
    except OSError:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {"BUILD_PIP_FIND_LINKS": f"http://127.0.0.1:{server.server_port}/", "BUILD_TORCH_INDEX": ""}
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """No line for each request."""
