"""A project's Hugging Face token: a file that only we can read, never a column, never shown.

The trainer of a run whose base model is fetched from Hugging Face gets it, and nothing else does: no tracker, no chat,
no environment, no reward code. It fetches into a folder of its own project: from a cache that all projects share,
a project without a token could train what this token opened.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from training.child_env import MODEL_CACHE, MODEL_TOKEN
from training.config import JobConfig
from webapp.common.host import write_private
from webapp.common.storage import project_dir
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project

TOKEN_FILE, CACHE = "hub-token", "hub"
MIN_TOKEN_CHARS, MAX_TOKEN_CHARS = 8, 500
_TOKEN = re.compile(r"[\x21-\x7e]+")


def hub_token_set(*, project: Project, token: str) -> None:
    """Keep this token instead of the one before; runs at work keep theirs. Raises ``ValidationError``."""
    token = token.strip()
    if not MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise ValidationError(
            {"token": _("That is no token: paste it as Hugging Face shows it. It usually begins with hf_.")}
        )
    folder = project_dir(project.pk)
    with transaction.atomic():
        audit(AuditAction.HUB_TOKEN_SET, project)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(folder / TOKEN_FILE, token)


def hub_token_remove(*, project: Project) -> bool:
    """Delete the token. Returns whether there was one. What was fetched with it stays in the project."""
    if hub_token_since(project) is None:
        return False
    with transaction.atomic():
        audit(AuditAction.HUB_TOKEN_REMOVED, project)
        (project_dir(project.pk) / TOKEN_FILE).unlink(missing_ok=True)
    return True


def hub_token_since(project: Project) -> datetime | None:
    """When the token was set; ``None`` where there is none."""
    try:
        return datetime.fromtimestamp((project_dir(project.pk) / TOKEN_FILE).stat().st_mtime, UTC)
    except OSError:
        return None


def hub_env(project: Project, config: JobConfig) -> dict[str, str]:
    """The variables that let the trainer of a resolved config fetch its base model as the project.

    Where the token was removed, what it had fetched can still be used.
    """
    if not (config.needs_model and config.model.from_hub):
        return {}
    cache = project_dir(project.pk) / CACHE
    try:
        token = {MODEL_TOKEN: (project_dir(project.pk) / TOKEN_FILE).read_text(encoding="utf-8").strip()}
    except OSError:
        token = {}
    return {**token, MODEL_CACHE: str(cache)} if token or cache.is_dir() else {}
