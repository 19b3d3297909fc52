"""The processes of one running Tiltyard: their variables, how each is started, watched, and ended."""

from __future__ import annotations

import http.client
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xmlrpc.client
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from django.conf import settings

from training.children import CERTIFICATES, DEVICES, HUB_ACCESS, MODELS, PLACES, child_env
from training.config import TRACKERS
from webapp.common.env import env_bool, proxy_addresses, settings_names
from webapp.common.host import READY_VARIABLE, SOCKET_PATH_LIMIT, Service, die_with_parent, free_port, write_private
from webapp.common.pools import ENDPOINT, device_env
from webapp.engine.trainer_variables import OURS, judge_keys
from webapp.ops.console import UpError

# The operator's variables that each program of `up` gets: by name, and no others.
#
# A program passes its own on to its children, again by name (``training/children.py``), so each needs its children's.

PYTHON = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "DJANGO_SETTINGS_MODULE")
DOCKER = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "XDG_RUNTIME_DIR")


def site_names() -> tuple[str, ...]:
    """The variables of a process that reads our settings and connects to other servers."""
    return (*settings_names(), *PYTHON, *CERTIFICATES)


def keeper_names() -> tuple[str, ...]:
    """Also the variables for starting containers."""
    return (*site_names(), *DOCKER)


def work_names() -> tuple[str, ...]:
    """Also the variables of processes that check and score jobs: the models' folder, and keys of judges."""
    return (*site_names(), *MODELS, *DEVICES, *OURS, *judge_keys())


def train_names() -> tuple[str, ...]:
    """Also the variables of trainers alone: access to Hugging Face, and all trackers that a run may name."""
    trackers = (name for tracker in TRACKERS.values() for name in tracker.variables)
    return (*work_names(), *HUB_ACCESS, *trackers)


# The processes of one running Tiltyard: how each is started, stopped and found ready.

SERVICES, TOOLS, APP = "services", "tools", "app"
PRIORITY = {SERVICES: 10, TOOLS: 20, APP: 30}  # started upwards, stopped downwards, a group at a time
WS_MAX_BYTES = 65_536
WS_PING_S = 20
WEB_HUNG_S = 120
FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""glibc gives each thread memory of its own (an arena) and keeps in it the most that the thread ever needed."""
CONTAINER_PORT = 8000
UVICORN_JSON = Path(__file__).with_name("uvicorn-json.json")
"""The web server's own lines as JSON: it logs before it has read our settings."""
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
        # A busy one does not hang: uvicorn would end it, with all that it answers, after five seconds.
        "--timeout-worker-healthcheck",
        str(WEB_HUNG_S),
        "--limit-concurrency",
        "1000",
        "--timeout-graceful-shutdown",
        "3",
        "--lifespan",
        "off",
        "--no-access-log",
        *(["--log-config", str(UVICORN_JSON)] if settings.LOG_FORMAT == "json" else []),
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
    # The banner that it leaves out is no line of a log.
    quiet = ["--quiet"] if settings.LOG_FORMAT == "json" else []
    celery = [sys.executable, "-m", "celery", *quiet, "-A", "webapp"]
    worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--pool", "prefork"]
    train = [*worker, "-Q", "train", "-c", "1", "-n"]
    programs: list[tuple[str, list[str], dict[str, str]]] = [("worker-train", [*train, "train@%h"], {})]
    if len(devices) > 1:
        programs = [
            (f"worker-train-{device}", [*train, f"train-{device}@%h"], {"CUDA_VISIBLE_DEVICES": device})
            for device in devices
        ]
    pools = {ENDPOINT: settings.ENDPOINT_PLACES, **settings.POOLS}
    for pool, places in pools.items():
        argv = [*worker, "-Q", pool, "-c", str(places), "-n", f"{pool}@%h"]
        programs.append((f"worker-{pool}", argv, device_env(pool)))
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


def single_programs(
    host: str = "0.0.0.0",  # noqa: S104 - the container decides
    port: int = CONTAINER_PORT,
    device: str = "",
) -> dict[str, Program]:
    """The programs that containers and units run one by one, by name. Each writes in /tmp that it lives.

    ``device`` is the only one of the training worker, whose name it is then part of: a machine has several.
    """
    ready = Path(tempfile.gettempdir())
    web = web_program(host, port, behind_proxy=env_bool("TILTYARD_BEHIND_PROXY", False))
    programs = (web, keeper_program(ready), clock_program(ready), *celery_programs(ready, []))
    found = {program.name: program for program in programs}
    if device:
        train = found["worker-train"]
        argv = [f"train-{device}@%h" if word == "train@%h" else word for word in train.argv]
        found["worker-train"] = replace(train, argv=argv, env=train.env | {"CUDA_VISIBLE_DEVICES": device})
    return found


# supervisord as a child: it starts our programs, starts a crashed one again, and ends all of them.
#
# docs/adr/0001-process-manager.md says why supervisord. It runs in the foreground, in a session of its own (so that
# Ctrl-C reaches `up` only), and the kernel ends it with us. Requests go over a unix socket with a password.

USER = "tiltyard"
LOG_BYTES, LOG_BACKUPS = "10MB", 3
START_TRIES = 1000  # default 3 would give a program up for good after a bad minute; tries are seconds apart
ANSWER_LIMIT_S = 20.0
OUTPUT_BYTES = 1_000_000  # of what supervisord prints besides its log


def _escape_percent(text: str) -> str:
    """Text as supervisord reads it back: ``%`` starts an expansion, so it is doubled."""
    return text.replace("%", "%%")


def _program_section(program: Program, root: Path, logs: Path, given: Iterable[str]) -> list[str]:
    lines = [
        f"[program:{program.name}]",
        f"command={_escape_percent(shlex.join(program.command(given)))}",
        f"directory={_escape_percent(str('/' if program.user else root))}",
        f"stdout_logfile={_escape_percent(str(logs / program.name))}.log",
        f"stdout_logfile_maxbytes={LOG_BYTES}",
        f"stdout_logfile_backups={LOG_BACKUPS}",
        f"stopsignal={program.stop_signal.name.removeprefix('SIG')}",
        f"stopwaitsecs={program.stop_wait_s}",
        f"stopasgroup={str(program.stop_as_group).lower()}",
        "redirect_stderr=true",
        "autostart=false",
        "autorestart=true",
        f"startretries={START_TRIES}",
        "startsecs=1",
        "killasgroup=true",
    ]
    if program.user:
        lines.append(f"user={program.user}")
    if program.env:
        pairs = ",".join(f'{name}="{value}"' for name, value in program.env.items())
        lines.append(f"environment={_escape_percent(pairs)}")
    return lines


class Manager:
    """Writes the configuration, runs supervisord, and asks it."""

    def __init__(self, data: Path, root: Path, programs: Iterable[Program]) -> None:
        self.data, self.root, self.logs = data, root, data / "logs"
        self.programs = {program.full_name: program for program in programs}
        self._password = secrets.token_urlsafe(24)
        socket_path = data / "supervisor.sock"
        long_path = len(str(socket_path)) + 10 > SOCKET_PATH_LIMIT  # it binds to <path>.<pid> first
        self._address = f"http://127.0.0.1:{free_port()}" if long_path else f"unix://{socket_path}"
        self.child: subprocess.Popen[bytes] | None = None

    # --- configuration ---
    def _configuration(self, given: Iterable[str] = ()) -> str:
        login = [f"username={USER}", f"password={self._password}"]
        if self._address.startswith("unix"):
            server = [
                "[unix_http_server]",
                f"file={_escape_percent(self._address.removeprefix('unix://'))}",
                "chmod=0700",
            ]
        else:
            server = ["[inet_http_server]", f"port={self._address.removeprefix('http://')}"]
        head = [
            "[supervisord]",
            "nodaemon=true",
            "silent=true",
            "umask=077",
            "logfile_maxbytes=5MB",
            "logfile_backups=1",
            f"logfile={_escape_percent(str(self.logs))}/supervisord.log",
            f"pidfile={_escape_percent(str(self.data))}/supervisord.pid",
            *(["user=root"] if os.geteuid() == 0 else []),
            "[rpcinterface:supervisor]",
            "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
        ]
        sections = [*server, *login, *head]
        for program in self.programs.values():
            sections += _program_section(program, self.root, self.logs, given)
        for group, priority in PRIORITY.items():
            names = ",".join(program.name for program in self.programs.values() if program.group == group)
            if names:
                sections += [f"[group:{group}]", f"programs={names}", f"priority={priority}"]
        return "\n".join(sections) + "\n"

    # --- life ---
    def start(self, env: dict[str, str]) -> None:
        """Start supervisord with all variables of its programs, since it passes its own on; no program runs yet."""
        self.logs.mkdir(mode=0o700, exist_ok=True)
        configuration = self.data / "supervisord.conf"
        write_private(configuration, self._configuration(env))
        self.child = subprocess.Popen(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(configuration)],
            cwd=self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        output = cast(IO[bytes], self.child.stdout)
        threading.Thread(target=self._keep_output, args=(output,), name="supervisord.out", daemon=True).start()
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while True:
            with suppress(OSError, http.client.HTTPException, xmlrpc.client.Error):
                self._call("getState")
                return
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise UpError("The process manager did not start.", log=self.logs / "supervisord.out")
            time.sleep(0.05)

    def _keep_output(self, output: IO[bytes]) -> None:
        """Write what supervisord prints into a file. By a pipe: it prints what it cannot log, and where it could not
        print either, as to a file on a full disk, it would close the channel of the program that it logs."""
        path, left = self.logs / "supervisord.out", OUTPUT_BYTES
        with suppress(OSError):
            path.write_bytes(b"")
        for line in output:
            left -= len(line)
            if left >= 0:
                with suppress(OSError), path.open("ab") as file:
                    file.write(line)

    @property
    def alive(self) -> bool:
        """Whether supervisord runs."""
        return self.child is not None and self.child.poll() is None

    def _call(self, method: str, *arguments: Any) -> Any:
        """One call on a connection of its own: a kept one is closed by the server when it idles."""
        from supervisor.xmlrpc import SupervisorTransport

        transport = SupervisorTransport(USER, self._password, self._address)
        try:
            proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
            return getattr(proxy.supervisor, method)(*arguments)
        finally:
            transport.close()

    def run(self, *programs: Program) -> None:
        """Start programs without waiting for them; one that runs already stays."""
        for program in programs:
            try:
                self._call("startProcess", program.full_name, False)
            except xmlrpc.client.Fault as fault:
                if "ALREADY_STARTED" not in fault.faultString:
                    raise UpError(f"{program.name}: {fault.faultString}", log=self.log_of(program)) from fault

    def states(self) -> dict[str, dict[str, Any]]:
        """The state of each program in supervisord: ``statename``, ``pid``, ``spawnerr``, ``exitstatus`` …"""
        try:
            return {f"{entry['group']}:{entry['name']}": entry for entry in self._call("getAllProcessInfo")}
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return {}

    def pid_of(self, program: Program) -> int:
        """Its process; 0 where it does not run."""
        return int(self.states().get(program.full_name, {}).get("pid") or 0)

    def log_of(self, program: Program) -> Path:
        """The file of its output."""
        return self.logs / f"{program.name}.log"
