"""An episode that was played, as something to keep: a demonstration, or a test case of rewards."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.common.text import clean_json
from webapp.datasets.appending import dataset_append
from webapp.environments.models import Environment
from webapp.environments.playground.commands import SaveCase, SaveRow
from webapp.environments.playground.episode import Played
from webapp.people.teams.models import User
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase


class Saved(NamedTuple):
    """What was made, and where it is."""

    kind: str
    label: str
    url: str


def save(episode: Played, environment: Environment, user_id: UUID, command: SaveRow | SaveCase) -> Saved:
    """Keep the episode. Raises ``ValidationError``."""
    if not episode.policy_turns:
        raise ValidationError(_("Nothing was played yet: take at least one turn before you save the episode."))
    user = User.objects.filter(pk=user_id).first()
    if isinstance(command, SaveRow):
        return _save_row(episode, environment, user, command)
    return _save_case(episode, environment, user, command)


def _save_row(episode: Played, environment: Environment, user: User | None, command: SaveRow) -> Saved:
    made = dataset_append(
        project=environment.project,
        user=user,
        name=_clean_name(command.dataset),
        rows=[demonstration(episode)],
        file_name="playground.jsonl",
    )
    return Saved("row", str(made), reverse("dataset-detail", args=[environment.project.slug, made.pk]))


def _save_case(episode: Played, environment: Environment, user: User | None, command: SaveCase) -> Saved:
    case = RewardCase(
        name=_clean_name(command.name),
        environment=environment.name,
        prompt_length=episode.prompt_length,
        messages=_message_rows(episode),
        row=clean_json(episode.task),
        env_reward=episode.reward,
        env_parts=dict(episode.parts),
        truncated=not episode.done,
        expected=command.expected,
        total=command.total,
    )
    made = reward_case_create(case=case, project=environment.project, user=user)
    return Saved("case", made.name, reverse("reward-list", args=[environment.project.slug]))


def demonstration(episode: Played) -> dict[str, Any]:
    """The episode as a row that SFT trains on: its conversation, its tools, and where it comes from."""
    row: dict[str, Any] = {"messages": _message_rows(episode)}
    if episode.tools:
        row["tools"] = episode.tools
    row["provenance"] = {
        "source": "playground",
        "environment": episode.environment,
        "task": clean_json(episode.task) if not episode.origin else episode.origin,
        "seed": episode.seed,
        "reward": episode.reward,
        "reward_parts": dict(episode.parts),
        "done": episode.done,
    } | episode.past
    return row


def _clean_name(name: str) -> str:
    """A checked name from a field of the page. Its ``ValidationError`` names no field."""
    try:
        return clean_name(name)
    except ValidationError as exc:
        raise ValidationError(exc.messages) from exc


def _message_rows(episode: Played) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json", exclude_none=True) for message in episode.messages]
