"""A starter model in the models folder, and chats with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.training.helpers import demonstration_rows
from webapp.chat.models import Chat
from webapp.chat.services import chat_create
from webapp.people.teams.models import Project, User
from webapp.runs.registry.models import ModelKind, RegisteredModel


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
    """A folder under MODELS_DIR with an untrained starter model."""
    from training.starter import build_starter

    folder = Path(settings.MODELS_DIR) / "tiny"
    build_starter(demonstration_rows(), folder, seed=3)
    return folder


@pytest.fixture
def tiny(project: Project, tiny_folder: Path) -> RegisteredModel:
    """It, registered."""
    return RegisteredModel.objects.create(project=project, name="tiny", kind=ModelKind.FOLDER, source=tiny_folder.name)


@pytest.fixture
def make_chat(project: Project, alice: User, tiny: RegisteredModel) -> Callable[..., Chat]:
    """``make_chat(**fields)``: a chat of alice with the starter."""
    numbers = itertools.count(1)

    def make(contestants: list[dict[str, Any]] | None = None, **more: Any) -> Chat:
        next(numbers)
        chosen = contestants or [{"source": "model:tiny"}]
        return chat_create(project=project, user=alice, contestants=chosen, **more)

    return make
