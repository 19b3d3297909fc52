"""Keys of endpoints: files that only we can read, never columns, never shown.

The process that asks (the trainer of a run, the process of a chat) gets its endpoint's key in its environment, with
the one host that it may be sent to.
"""

from __future__ import annotations

import shutil
from typing import Any
from uuid import UUID

from training.addresses import parse_place
from training.config import EndpointConfig
from webapp.common.host.embedded import write_private
from webapp.common.storage import endpoint_dir
from webapp.endpoints.models import Endpoint
from webapp.people.teams.models import Project

KEY_FILE = "key"
KEY_VARIABLE = "TILTYARD_ENDPOINT_KEY"


def key_write(endpoint_id: UUID, key: str) -> None:
    """Keep this key instead of the one before; an empty one removes it."""
    folder = endpoint_dir(endpoint_id)
    if not key:
        return files_forget(endpoint_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(folder / KEY_FILE, key)


def key_of(endpoint_id: UUID) -> str:
    """The key, or nothing."""
    try:
        return (endpoint_dir(endpoint_id) / KEY_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def has_key(endpoint_id: UUID) -> bool:
    """Whether there is a key."""
    return (endpoint_dir(endpoint_id) / KEY_FILE).is_file()


def files_forget(endpoint_id: UUID) -> None:
    """Remove the key of an endpoint."""
    shutil.rmtree(endpoint_dir(endpoint_id), ignore_errors=True)


def asked_with(endpoint: Endpoint) -> dict[str, Any]:
    """The options of ``EndpointConfig`` that an endpoint fills in, with the variable that will hold its key."""
    return {**endpoint.job_values(), "key_variable": KEY_VARIABLE if has_key(endpoint.pk) else ""}


def key_env(project: Project, config: EndpointConfig) -> dict[str, str]:
    """The variables that let a process use the endpoint that its resolved config names."""
    if config.key_variable != KEY_VARIABLE:
        return {}
    found = Endpoint.objects.filter(project=project, name=config.name, url=config.url).first()
    key = key_of(found.pk) if found is not None else ""
    return {KEY_VARIABLE: key, f"{KEY_VARIABLE}_HOST": parse_place(config.url).host} if key else {}
