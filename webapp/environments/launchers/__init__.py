"""How servers are started: one launcher for each kind. A new kind is one module and one line here."""

from __future__ import annotations

from webapp.environments.launchers.base import Launcher
from webapp.environments.launchers.docker import DockerLauncher
from webapp.environments.launchers.process import ProcessLauncher
from webapp.environments.models import Kind


def launchers() -> dict[str, Launcher]:
    """A launcher of each kind; one set belongs to one keeper or one request."""
    return {Kind.PROCESS: ProcessLauncher(), Kind.DOCKER: DockerLauncher()}
