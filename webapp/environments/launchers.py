"""How servers are started, inspected and stopped: the interface of launchers, and one launcher for each kind. Only the
keeper starts and stops; pages read logs.
"""

from __future__ import annotations

import itertools
import math
import os
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psutil
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.children import PLACES, child_env
from training.errors import EnvironmentFault
from training.plain import number_in
from training.redaction import redact
from training.sessions import folder_id
from webapp.common.host import Known, Ledger, alive, die_with_parent, free_port, known, send, write_private
from webapp.common.storage import environments_dir, replica_log
from webapp.common.text import clean_text, os_words
from webapp.environments.builtin import Option, arguments_argv, builtins
from webapp.environments.models import Environment, Kind, Replica
from webapp.environments.tokens import container_token_path, token_path

if TYPE_CHECKING:
    from docker import DockerClient

Handle = dict[str, Any]
LOG_LINES, LOG_BYTES, LINE_CHARS = 200, 128 << 10, 1_000
HOST = "127.0.0.1"


class LaunchError(EnvironmentFault):
    """A server could not be started or inspected; the sentence says what to do."""


class Started(NamedTuple):
    """A server that was started: its launcher's handle, and the address where it will answer."""

    handle: Handle
    url: str


class Owned(NamedTuple):
    """Something of ours that runs, whether or not a row still names it."""

    environment_id: str
    number: int
    handle: Handle


class Launcher(Protocol):
    """One way to run servers. Every method may raise ``LaunchError``; none waits long."""

    def start(self, replica: Replica) -> Started:
        """Begin a server, at the address that it had before where that is possible."""
        ...

    def stop(self, handle: Handle, *, force: bool = False) -> None:
        """Ask it to end, or end it now. No error if it has ended already."""
        ...

    def alive(self, handle: Handle) -> bool:
        """Whether it still runs."""
        ...

    def logs(self, replica: Replica, lines: int = LOG_LINES) -> list[str]:
        """The last lines that it printed, without secrets."""
        ...

    def list_owned(self) -> list[Owned]:
        """Everything of this installation that runs."""
        ...


class Place(NamedTuple):
    """Where a server listens, the name that others know it by, and its port."""

    listens: str
    name: str
    port: int

    @property
    def url(self) -> str:
        """The address that runs and checks are given."""
        return f"http://{self.name}:{self.port}"


def place_for(replica: Replica) -> Place:
    """The place of a server that is about to start, which keeps the port that it had. Raises ``LaunchError``.

    Under ``TILTYARD_REPLICA_HOST`` other hosts and containers reach it, and our servers keep out who lacks their token:
    those of others stay on loopback.
    """
    if settings.REPLICA_HOST == HOST or replica.environment.built_in is None:
        return Place(HOST, HOST, _port_for(replica, HOST))
    anywhere = "0.0.0.0"  # noqa: S104
    return Place(anywhere, settings.REPLICA_HOST, _port_for(replica, anywhere))


def _port_for(replica: Replica, listens: str) -> int:
    kept, allowed = _kept_port(replica), settings.REPLICA_PORTS
    if not allowed:
        return free_port(kept, listens)
    # A server that was started a moment ago does not listen yet: its row alone says which port it has.
    others = Replica.objects.exclude(environment__kind=Kind.URL).exclude(pk=replica.pk)
    taken = {_kept_port(other) for other in others.only("url")}
    for port in (kept, *allowed):
        if port in allowed and port not in taken and free_port(port, listens) == port:
            return port
    raise LaunchError(
        _("All %(count)s ports for servers are taken: %(first)s to %(last)s.")
        % {"count": len(allowed), "first": allowed[0], "last": allowed[-1]},
        hint=_("Stop servers that are not needed, or ask the administrator for more ports: TILTYARD_REPLICA_PORTS."),
    )


def _kept_port(replica: Replica) -> int:
    """The port that the replica had before, or 0."""
    return number_in(replica.url.rpartition(":")[2]) or 0


def option_words(environment: Environment, place: Callable[[Option, Path], str] | None = None) -> list[str]:
    """The chosen options of a server of ours, as words of its command line."""
    program = environment.built_in
    try:
        return arguments_argv(program.options, environment.arguments, place) if program else []
    except ValidationError as exc:
        faults = "; ".join(f"{name}: {' '.join(texts)}" for name, texts in exc.message_dict.items())
        raise LaunchError(
            _("A server option is no longer possible: %(why)s") % {"why": faults},
            hint=_("Put the data back, or choose other options on the environment's page."),
        ) from exc


def last_lines(raw: bytes, lines: int) -> list[str]:
    """Output as a page may show it."""
    text = raw[-LOG_BYTES:].decode("utf-8", "replace").splitlines()[-lines:]
    return [redact(clean_text(line[:LINE_CHARS])) for line in text if line.strip()]


# --- Processes ------------------------------------------------------------------------------------------------------
# Built-in servers as our own processes: ``python -m envs.<program>``, ended by the kernel with the keeper.
#
# Limits are those that the system gives to one process: ``RLIMIT_DATA`` for memory (``RLIMIT_AS`` would count address
# space that numpy and threads only reserve), ``RLIMIT_NOFILE`` for sockets, an affinity for CPUs. There is none for CPU
# time, because a server lives for weeks, and none for pids: ``RLIMIT_NPROC`` counts all processes of a user.

MAX_LOG_BYTES = 5 << 20
SPARE_FILES = 512
# One thread for numerical libraries: a server's concurrency is its sessions.
FIXED = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


class ProcessLauncher:
    """Remembers its processes by pid and start time in a ledger, so that the next keeper can end what is left."""

    def __init__(self) -> None:
        environments_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
        self._ledger = Ledger(environments_dir() / "processes.json")
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._places = itertools.count()

    def start(self, replica: Replica) -> Started:
        """Begin the server. Call it from a thread that lives as long as we do: the kernel ends a child with it."""
        environment = replica.environment
        if environment.program not in builtins():
            raise LaunchError(
                _("There is no built-in environment “%(name)s”.") % {"name": environment.program},
                hint=_("Register it again with one of the built-in servers."),
            )
        place = place_for(replica)
        log = replica_log(environment.pk, replica.number)
        token = token_path(environment.pk)
        _prepare_log(log)
        argv = [
            sys.executable,
            "-m",
            f"envs.{environment.program}",
            "--host",
            place.listens,
            "--port",
            str(place.port),
            "--slots",
            str(environment.slots),
            "--token-file",
            token,
            *option_words(environment),
        ]
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    argv,
                    cwd=settings.BASE_DIR,
                    env=program_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except OSError as exc:
            raise LaunchError(
                _("The server's process could not be started: %(why)s.") % {"why": os_words(exc)}
            ) from exc
        self._children[child.pid] = child
        self._set_limits(child.pid, environment)
        who = self._add_to_ledger(child.pid, f"{environment.pk}/{replica.number}")
        return Started(_handle_of(who), place.url)

    def stop(self, handle: Handle, *, force: bool = False) -> None:
        """SIGTERM, or SIGKILL, to its process group."""
        one = _known_process(handle)
        if one is None:
            return
        send([one], signal.SIGKILL if force else signal.SIGTERM)
        if force:
            self._reap_child(one.pid, wait_s=5)

    def alive(self, handle: Handle) -> bool:
        """Whether the same process still runs."""
        one = _known_process(handle)
        if one is None:
            return False
        self._reap_child(one.pid)
        return one.process() is not None

    def logs(self, replica: Replica, lines: int = LOG_LINES) -> list[str]:
        """The end of its log file."""
        try:
            with replica_log(replica.environment_id, replica.number).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
                return last_lines(file.read(), lines)
        except OSError:
            return []

    def list_owned(self) -> list[Owned]:
        """Those of the ledger that still run; the others are forgotten, and logs that grew too large are cut."""
        living = alive(self._ledger.read())
        self._ledger.write(set(living))
        owned = []
        for one in living:
            environment_id, _slash, number = one.name.partition("/")
            with suppress(ValueError):
                _cut_log(replica_log(environment_id, int(number)))  # type: ignore[arg-type]
                owned.append(Owned(environment_id, int(number), _handle_of(one)))
        return owned

    def _add_to_ledger(self, pid: int, name: str) -> Known:
        """Write the process down before anything else can go wrong."""
        found = known(psutil.Process(pid)) if psutil.pid_exists(pid) else None
        one = Known(pid, found.started if found else 0.0, name)
        self._ledger.write({*alive(self._ledger.read()), one})
        return one

    def _set_limits(self, pid: int, environment: Environment) -> None:
        """Set what this system can limit; a child that has gone already is noticed later."""
        memory, files = environment.memory_mb << 20, environment.slots * 2 + SPARE_FILES
        with suppress(OSError, ValueError):
            if hasattr(resource, "prlimit"):
                resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, AttributeError):
            here = sorted(os.sched_getaffinity(0))
            count = min(math.ceil(environment.cpus), len(here))
            # Replicas begin at different CPUs, so that four with one CPU each do not share the first.
            first = next(self._places) * count
            os.sched_setaffinity(pid, {here[(first + at) % len(here)] for at in range(count)})

    def _reap_child(self, pid: int, wait_s: float = 0.0) -> None:
        """Take the exit code of a child of ours, so that it does not stay as a zombie."""
        child = self._children.get(pid)
        if child is None:
            return
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=wait_s)
            del self._children[pid]


def _handle_of(one: Known) -> Handle:
    return {"pid": one.pid, "started": one.started, "folder": folder_id(environments_dir())}


def _known_process(handle: Handle) -> Known | None:
    """The process of a row; none where the row was restored from a backup: it names a process of the original."""
    if handle.get("folder") != folder_id(environments_dir()):
        return None
    return Known(int(handle["pid"]), float(handle["started"]))


def program_environment() -> dict[str, str]:
    """A program of ours learns places and its language, never addresses of services or secrets."""
    return child_env(PLACES, **FIXED)


def _prepare_log(log: Path) -> None:
    """Make the log private, and cut what earlier starts wrote if it is long."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _cut_log(log)
    log.touch(mode=0o600)


def _cut_log(log: Path) -> None:
    """Keep the end of a log that grew too large. Its writer appends, so it continues at the new end."""
    with suppress(OSError):
        if log.stat().st_size <= MAX_LOG_BYTES:
            return
        with log.open("r+b") as file:
            file.seek(-LOG_BYTES, os.SEEK_END)
            end = file.read()
            file.truncate(0)
            file.seek(0)
            file.write(end)


# --- Containers -----------------------------------------------------------------------------------------------------
# Environment images as containers: read-only, without privileges, on a network of their own, with one published port.
#
# Only images that ``TILTYARD_ENVIRONMENT_IMAGES`` names are started, and only those that are on this machine already:
# nothing is pulled. A server of our own protocol gets our options; any other runs as its image says.

OWNER, ENVIRONMENT, REPLICA = "tiltyard.owner", "tiltyard.environment", "tiltyard.replica"
TOKEN_PLACE = "/run/secrets/tiltyard_env_token"  # noqa: S105 - where our images look for it
DATA_PLACE = "/run/tiltyard"
CALL_LIMIT_S = 10
LOG_LIMITS = {"max-size": "5m", "max-file": "2"}
SCRATCH = {"/tmp": "rw,noexec,nosuid,size=64m"}  # noqa: S108 - inside the container


def image_allowed(image: str) -> bool:
    """Whether the administrator lets this image be started; a tag or digest does not matter."""
    name = image.partition("@")[0]
    head, colon, tail = name.rpartition(":")
    name = head if colon and "/" not in tail else name
    return any(fnmatchcase(name, pattern) for pattern in settings.ENVIRONMENT_IMAGES)


def require_allowed(image: str) -> None:
    """Raises ``LaunchError`` with a sentence for an image that may not be started."""
    if not image_allowed(image):
        raise LaunchError(
            _("Images named “%(image)s” may not be started here.") % {"image": image},
            hint=_("The administrator can allow it by a pattern in TILTYARD_ENVIRONMENT_IMAGES."),
        )


def installation_id() -> str:
    """The owner label of everything that this installation starts.

    The file names the folder that it lies in: a copy of the data folder makes itself a new id, and leaves the
    containers of its original alone.
    """
    path = environments_dir() / "installation"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    here = folder_id(path.parent)
    known = path.read_text(encoding="utf-8").split() if path.exists() else []
    if known[1:] != [here]:
        # 0.1.0 wrote the id alone.
        known = [known[0] if len(known) == 1 else secrets.token_hex(8), here]
        write_private(path, " ".join(known))
    return known[0]


class DockerLauncher:
    """Speaks to the engine of ``DOCKER_HOST``, or of this machine."""

    def __init__(self) -> None:
        self._engine: DockerClient | None = None

    def start(self, replica: Replica) -> Started:
        """Begin a container; what an earlier one of the same replica left is removed first."""
        environment = replica.environment
        require_allowed(environment.image)
        with self._speaking() as engine:
            for old in self._containers(engine, environment=str(environment.pk), replica=str(replica.number)):
                old.remove(force=True)
            image = engine.images.get(environment.image)
            inside = _exposed_port(environment.image, image.attrs)
            network = self._network(engine, environment)
            place = place_for(replica)
            container = engine.containers.run(
                image.id,
                detach=True,
                network=network,
                **_container_limits(environment),
                **_server_arguments(environment),
                name=f"tiltyard-{installation_id()[:6]}-{environment.pk.hex[:8]}-{replica.number}",
                ports={inside: (place.listens, place.port)},
                labels=_container_labels(environment, replica.number),
            )
        return Started({"container": container.id}, place.url)

    def stop(self, handle: Handle, *, force: bool = False) -> None:
        """SIGTERM, or removal; the last container of an environment takes its network along."""
        with self._speaking() as engine:
            container = _own_container(engine, handle)
            if container is None:
                return
            if container.status == "running" and not force:
                container.kill(signal="SIGTERM")
                return
            labels = container.labels
            container.remove(force=True)
            if not self._containers(engine, environment=labels.get(ENVIRONMENT, "")):
                for network in engine.networks.list(filters={"label": f"{ENVIRONMENT}={labels.get(ENVIRONMENT)}"}):
                    network.remove()

    def alive(self, handle: Handle) -> bool:
        """Whether the container runs."""
        with self._speaking() as engine:
            container = _own_container(engine, handle)
            return container is not None and container.status in {"created", "running"}

    def logs(self, replica: Replica, lines: int = LOG_LINES) -> list[str]:
        """The end of its output, as long as the container is there."""
        with self._speaking() as engine:
            found = self._containers(engine, environment=str(replica.environment_id), replica=str(replica.number))
            return last_lines(found[0].logs(tail=lines), lines) if found else []

    def list_owned(self) -> list[Owned]:
        """All containers with our owner label, running or not."""
        with self._speaking() as engine:
            return [
                Owned(one.labels.get(ENVIRONMENT, ""), int(one.labels.get(REPLICA, "0")), {"container": one.id})
                for one in self._containers(engine)
            ]

    @contextmanager
    def _speaking(self) -> Iterator[DockerClient]:
        """The engine; every error of it is raised as a ``LaunchError`` with a sentence."""
        import docker
        from docker.errors import APIError, DockerException, ImageNotFound
        from requests import RequestException

        try:
            if self._engine is None:
                engine = docker.from_env(timeout=CALL_LIMIT_S)
                engine.ping()
                self._engine = engine
            yield self._engine
        except ImageNotFound as exc:
            raise LaunchError(
                _("The image is not on this machine."), hint=_("Build or pull it first; Tiltyard pulls nothing.")
            ) from exc
        except APIError as exc:
            reason = str(exc.explanation or exc)[:300]
            raise LaunchError(_("Docker refused: %(why)s") % {"why": reason}) from exc
        except (DockerException, RequestException, OSError) as exc:
            self._engine = None
            raise LaunchError(
                _("Docker does not answer on this machine."),
                hint=_("Start the Docker engine, or choose a built-in server or an address."),
            ) from exc

    def _containers(self, engine: DockerClient, **labels: str) -> list[Any]:
        wanted = [f"{OWNER}={installation_id()}", *(f"tiltyard.{key}={value}" for key, value in labels.items())]
        return list(engine.containers.list(all=True, filters={"label": wanted}))

    def _network(self, engine: DockerClient, environment: Environment) -> str:
        """A bridge for this environment alone, on which its replicas do not see each other either."""
        name = f"tiltyard-{installation_id()[:6]}-{environment.pk.hex[:8]}"
        if not engine.networks.list(names=[name]):
            engine.networks.create(
                name,
                driver="bridge",
                options={"com.docker.network.bridge.enable_icc": "false"},
                labels={OWNER: installation_id(), ENVIRONMENT: str(environment.pk)},
            )
        return name


def _own_container(engine: DockerClient, handle: Handle) -> Any:
    """The container, if it is ours; a row that was restored from a backup names one of the original installation."""
    from docker.errors import NotFound

    with suppress(NotFound):
        container = engine.containers.get(str(handle.get("container", "none")))
        return container if container.labels.get(OWNER) == installation_id() else None
    return None


def _exposed_port(name: str, attributes: dict[str, Any]) -> str:
    """The one port that the image says it listens on, as ``8101/tcp``."""
    ports = [port for port in (attributes.get("Config", {}).get("ExposedPorts") or {}) if port.endswith("/tcp")]
    if len(ports) != 1:
        raise LaunchError(
            _("The image “%(image)s” does not say on which one port it listens.") % {"image": name},
            hint=_("Give its Dockerfile one EXPOSE line."),
        )
    return str(ports[0])


def _container_labels(environment: Environment, number: int) -> dict[str, str]:
    return {OWNER: installation_id(), ENVIRONMENT: str(environment.pk), REPLICA: str(number)}


def _container_limits(environment: Environment) -> dict[str, Any]:
    from docker.types import LogConfig

    memory = f"{environment.memory_mb}m"
    return {
        "nano_cpus": int(environment.cpus * 1e9),
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": environment.pids,
        "read_only": True,
        "tmpfs": SCRATCH,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "restart_policy": {"Name": "no"},  # the keeper restarts, and counts
        "log_config": LogConfig(type=LogConfig.types.JSON, config=LOG_LIMITS),
    }


def _server_arguments(environment: Environment) -> dict[str, Any]:
    """Options and token for a server of our own protocol."""
    from docker.types import Mount

    if environment.protocol != "openenv":
        return {}
    token = {container_token_path(environment.pk): {"bind": TOKEN_PLACE, "mode": "ro"}}
    command = ["--host", "0.0.0.0", "--token-file", TOKEN_PLACE, "--slots", str(environment.slots)]  # noqa: S104
    data: list[Mount] = []

    def mounted(option: Option, path: Path) -> str:
        """Data is shown to the container read-only, at a place of its option."""
        inside = f"{DATA_PLACE}/{option.name}"
        data.append(Mount(inside, str(path), type="bind", read_only=True))
        return inside

    command += option_words(environment, mounted)
    return {"volumes": token, "mounts": data, "command": command}


# --- Kinds ----------------------------------------------------------------------------------------------------------


def launchers() -> dict[str, Launcher]:
    """A launcher of each kind; one set belongs to one keeper or one request."""
    return {Kind.PROCESS: ProcessLauncher(), Kind.DOCKER: DockerLauncher()}
