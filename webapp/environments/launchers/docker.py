"""Environment images as containers: read-only, without privileges, on a network of their own, published to loopback.

Only images that ``TILTYARD_ENVIRONMENT_IMAGES`` names are started, and only those that are on this machine already:
nothing is pulled. A server of our own protocol gets our options; any other runs as its image says.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext as _

from training.sessions import folder_id
from webapp.common.host import free_port, write_private
from webapp.common.storage import environments_dir
from webapp.environments.launchers.base import (
    HOST,
    LOG_LINES,
    Handle,
    LaunchError,
    Owned,
    Started,
    kept_port,
    last_lines,
    option_words,
)
from webapp.environments.models import Environment, Replica
from webapp.environments.options import Option
from webapp.environments.tokens import container_token_path

if TYPE_CHECKING:
    from docker import DockerClient

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
            port = free_port(kept_port(replica))
            container = engine.containers.run(
                image.id,
                detach=True,
                network=network,
                **_container_limits(environment),
                **_server_arguments(environment),
                name=f"tiltyard-{installation_id()[:6]}-{environment.pk.hex[:8]}-{replica.number}",
                ports={inside: (HOST, port)},
                labels=_container_labels(environment, replica.number),
            )
        return Started({"container": container.id}, f"http://{HOST}:{port}")

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
