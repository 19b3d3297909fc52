"""The processes of one running Tiltyard: how each is started, stopped and found ready."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from training.child_env import DEVICES, PLACES, child_env
from webapp.common.env import env_bool, proxy_addresses
from webapp.common.host import READY_VARIABLE, Service
from webapp.common.pools import ENDPOINT
from webapp.ops.variables import keeper_names, site_names, train_names, work_names

SERVICES, TOOLS, APP = "services", "tools", "app"
PRIORITY = {SERVICES: 10, TOOLS: 20, APP: 30}  # started upwards, stopped downwards, a group at a time
WS_MAX_BYTES = 65_536
WS_PING_S = 20
WEB_HUNG_S = 120
FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""glibc gives each thread memory of its own (an arena) and keeps in it the most that the thread ever needed."""
CONTAINER_PORT = 8000
ENV = shutil.which("env") or "/usr/bin/env"
STOP_WAIT_S = 25
RUNNERS = ("worker-train", "worker-endpoint")  # the workers that have runs
TRAIN_STOP_WAIT_S = 330  # a trainer may save for up to settings.STOP_GRACE_MAX_S; its supervisor gets some more


@dataclass(frozen=True)
class Program:
    """One supervised process. Of our variables it gets places and those in ``names``, and also ``env``."""

    name: str
    group: str
    argv: list[str]
    user: str = ""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_as_group: bool = True
    stop_wait_s: int = 10
    names: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """Its name in the process manager."""
        return f"{self.group}:{self.name}"

    def environment(self) -> dict[str, str]:
        """All variables that it runs with where we start it ourselves."""
        return child_env(PLACES, self.names, **self.env)

    def command(self, given: Iterable[str]) -> list[str]:
        """The command line for a parent that passes all of ``given`` on: other variables are removed by name, since all
        users of the machine could read values on a command line."""
        rest = sorted(set(given) - {*PLACES, *self.names, *self.env})
        return [ENV, *(word for name in rest for word in ("-u", name)), *self.argv] if rest else self.argv


def gpus() -> list[str]:
    """Ids of the GPUs that trainers here may use. Asked of the driver: importing torch would take seconds."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device.strip() for device in visible.split(",") if device.strip() not in {"", "-1"}]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        known = child_env(PLACES, DEVICES)
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, env=known)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(index) for index in range(sum(line.startswith("GPU ") for line in done.stdout.splitlines()))]


def service_program(service: Service) -> Program:
    """An embedded service. Only its head is signalled: PostgreSQL's own processes leave by its orders."""
    return Program(
        service.name,
        SERVICES,
        service.argv,
        user=service.user,
        stop_signal=service.stop_signal,
        stop_as_group=False,
        stop_wait_s=30,
    )


def tools_program(port: int, token_file: Path) -> Program:
    """The environment server that ships with Tiltyard: behind a token, with an environment of its own.

    The process manager passes its own environment on and cannot remove a variable, so `env -i` does.
    """
    named = [f"{name}={value}" for name, value in child_env(PLACES, PYTHONUNBUFFERED="1").items()]
    argv = [sys.executable, "-m", "envs.tools", "--port", str(port), "--token-file", str(token_file)]
    return Program("tools", TOOLS, [ENV, "-i", *named, *argv])


def web_program(host: str, port: int, *, behind_proxy: bool) -> Program:
    """uvicorn with the limits of docs/reliability.md. No access log: addresses can hold a login token."""
    argv = [
        sys.executable,
        "-m",
        "uvicorn",
        "webapp.asgi:application",
        "--host",
        host,
        "--port",
        str(port),
        "--http",
        "webapp.ops.connections:HttpProtocol",
        "--ws",
        "webapp.ops.connections:SocketProtocol",
        "--ws-max-size",
        str(WS_MAX_BYTES),
        "--ws-ping-interval",
        str(WS_PING_S),
        "--ws-ping-timeout",
        str(WS_PING_S),
        "--ws-per-message-deflate",
        "false",
        "--workers",
        str(settings.WEB_PROCESSES),
        # One that is busy is no hung one: uvicorn would end it, with all that it answers, after five seconds.
        "--timeout-worker-healthcheck",
        str(WEB_HUNG_S),
        "--limit-concurrency",
        "1000",
        "--timeout-graceful-shutdown",
        "3",
        "--lifespan",
        "off",
        "--no-access-log",
        "--no-server-header",
        "--proxy-headers" if behind_proxy else "--no-proxy-headers",
        # Without it uvicorn trusts every client on loopback, and those of our parent's FORWARDED_ALLOW_IPS.
        *(["--forwarded-allow-ips", ",".join(proxy_addresses())] if behind_proxy else []),
    ]
    return Program("web", APP, argv, names=work_names(), env=FEW_ARENAS)


def keeper_program(ready: Path) -> Program:
    """Starts, checks and ends environment servers. Only its head is signalled: it ends its servers itself."""
    argv = [sys.executable, "manage.py", "keep_environments"]
    return Program(
        "keeper",
        APP,
        argv,
        stop_as_group=False,
        stop_wait_s=STOP_WAIT_S,
        names=keeper_names(),
        env={READY_VARIABLE: str(ready / "keeper")},
    )


def clock_program(ready: Path) -> Program:
    """The clockwork: runs its jobs every few seconds, however long people's work takes."""
    argv = [sys.executable, "manage.py", "run_clockwork"]
    return Program("clock", APP, argv, names=site_names(), env={READY_VARIABLE: str(ready / "clock")})


def celery_programs(ready: Path, devices: Sequence[str]) -> list[Program]:
    """A training worker for each device (one where there is none), one for runs and chats that ask an endpoint, and one
    for each pool of people's work.

    A worker's runs see its device alone, those of endpoints none. Only a worker's head is signalled: its children would
    die in the middle of a task.
    """
    celery = [sys.executable, "-m", "celery", "-A", "webapp"]
    worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--pool", "prefork", "--loglevel", "INFO"]
    train = [*worker, "-Q", "train", "-c", "1", "-n"]
    programs: list[tuple[str, list[str], dict[str, str]]] = [("worker-train", [*train, "train@%h"], {})]
    if len(devices) > 1:
        programs = [
            (f"worker-train-{device}", [*train, f"train-{device}@%h"], {"CUDA_VISIBLE_DEVICES": device})
            for device in devices
        ]
    pools = {ENDPOINT: settings.ENDPOINT_PLACES, **settings.POOLS}
    for pool, places in pools.items():
        env = {"CUDA_VISIBLE_DEVICES": ""} if pool == ENDPOINT else {}
        programs.append((f"worker-{pool}", [*worker, "-Q", pool, "-c", str(places), "-n", f"{pool}@%h"], env))
    return [
        Program(
            name,
            APP,
            argv,
            stop_as_group=False,
            stop_wait_s=TRAIN_STOP_WAIT_S if name.startswith(RUNNERS) else STOP_WAIT_S,
            names=train_names() if name.startswith(RUNNERS) else work_names(),
            env={**env, READY_VARIABLE: str(ready / name)},
        )
        for name, argv, env in programs
    ]


def container_programs() -> dict[str, Program]:
    """The programs of containers, by name: each runs by itself on all addresses, and writes in /tmp that it lives."""
    ready = Path(tempfile.gettempdir())
    behind_proxy = env_bool("TILTYARD_BEHIND_PROXY", False)
    web = web_program("0.0.0.0", CONTAINER_PORT, behind_proxy=behind_proxy)  # noqa: S104 - the container decides
    programs = (web, keeper_program(ready), clock_program(ready), *celery_programs(ready, []))
    return {program.name: program for program in programs}
