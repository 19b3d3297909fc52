"""Access tokens of environments: encrypted secrets, never shown.

A server that we start gets its token as a file on the keeper's host; one at an address has the token that its
registration was given. The trainer of a run gets it in its environment, with the addresses that are ours although they
are private.
"""

from __future__ import annotations

import json
import secrets
import shutil
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

from training.config import name_in
from training.plain import number_in
from webapp.common.host import write_private
from webapp.common.outbound import NOTHING, Pairs, target_of
from webapp.common.secrets.models import Kind
from webapp.common.secrets.vault import secret_of, secret_set
from webapp.common.storage import environment_dir
from webapp.environments.models import Environment
from webapp.people.teams.models import Project

TOKEN_FILE, CONTAINER_FILE = "token", "token-for-containers"
TOKEN_BYTES = 32


def token_write(environment_id: UUID, token: str = "") -> str:
    """Keep this token, or a new one, and return it."""
    token = token or secrets.token_urlsafe(TOKEN_BYTES)
    secret_set(Kind.ENVIRONMENT_TOKEN, environment_id, token)
    return token


def token_of(environment_id: UUID) -> str:
    """The token, or nothing. Raises ``SecretUnreadable``."""
    return secret_of(Kind.ENVIRONMENT_TOKEN, environment_id)


def site_token(url: str) -> str:
    """The token of the servers that come with an installation (docker-compose.yml), or nothing.

    The operator sets it together with their addresses; no other server may learn it, no matter who registered it. The
    tools server that `up` started has one of its own.
    """
    if settings.TOOLS_URL and urlsplit(url).netloc.lower() == urlsplit(settings.TOOLS_URL).netloc:
        return settings.TOOLS_TOKEN
    listed = {entry.lower() for entry in settings.OUTBOUND_ALLOW if "/" not in entry}
    return settings.ENVIRONMENT_TOKEN if urlsplit(url).netloc.lower() in listed else ""


def token_for(environment: Environment, url: str) -> str:
    """The token that a server of it is shown: its own, or the installation's. Raises ``SecretUnreadable``."""
    return token_of(environment.pk) or ("" if environment.launched else site_token(url))


def token_path(environment_id: UUID) -> str:
    """The file with the token of a server that we start, written for this start; without a token a new one is made."""
    path = environment_dir(environment_id) / TOKEN_FILE
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, token_of(environment_id) or token_write(environment_id))
    return str(path)


def container_token_path(environment_id: UUID) -> str:
    """The token for a container, whose user is none of this machine's.

    The file itself may be read by all, because a bind mount shows it with its own mode; the folder around it is 0700.
    """
    path = environment_dir(environment_id) / CONTAINER_FILE
    token_path(environment_id)
    write_private(path, token_of(environment_id))
    path.chmod(0o444)
    return str(path)


def files_forget(environment_id: UUID) -> None:
    """Remove the files of an environment that was deleted: its servers' token and logs."""
    shutil.rmtree(environment_dir(environment_id), ignore_errors=True)


def ours(environment: Environment) -> Pairs:
    """The ``host:port`` pairs of its replicas, if it was we who started them: exactly those may be private."""
    if not environment.launched:
        return NOTHING
    pairs = (replica.url.removeprefix("http://").rpartition(":") for replica in environment.replicas.all())
    found = ((host, number_in(port)) for host, _colon, port in pairs if host)
    return frozenset((host, port) for host, port in found if port is not None)


def trainer_access(project: Project, *names: str) -> dict[str, str]:
    """What a trainer needs in its environment to play on the environments that its config names by reference.

    Of several, no server is shown the token of another.
    """
    wanted = {name_in("environment", name) for name in names}
    found = list(Environment.objects.filter(project=project, name__in=wanted).order_by("name"))
    access = _token_variables(found)
    if pairs := {pair for environment in found for pair in ours(environment)}:
        access["TILTYARD_OUTBOUND_ALLOW"] = ",".join(sorted(f"{host}:{port}" for host, port in pairs))
    return access


def _token_variables(environments: list[Environment]) -> dict[str, str]:
    if len(environments) == 1:
        token = token_for(environments[0], environments[0].url)
        return {"TILTYARD_ENV_TOKEN": token} if token else {}
    tokens = {
        urlsplit(url).netloc.lower(): token
        for environment in environments
        for url in (environment.url, *(replica.url for replica in environment.replicas.all()))
        if url and (token := token_for(environment, url))
    }
    return {"TILTYARD_ENV_TOKENS": json.dumps(tokens)} if environments else {}


def reach(environment: Environment, url: str) -> None:
    """Whether an address of this environment may be reached. Raises ``OutboundRefused`` with a sentence."""
    target_of(url, ours=ours(environment))
