"""A recorded rollout as something that can be played again: the present registration of its environment, and its
calls.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import Message, ResetRequest
from training.config import JobConfig, RewardComponent, name_in
from training.data import Row, RowError, row_from_dict
from training.rewards.base import Episode
from training.rewards.combining import counts_for, terms_of, total_of
from training.rewards.scorer.wire import Asked
from training.rollout.rewinding import Recording, Taken
from training.rollout.tokens import Tools
from training.rows import categories_of
from webapp.common.errors import TooMany
from webapp.common.text import in_words
from webapp.environments.models import Environment
from webapp.reading.facts import seeds_of
from webapp.reading.parts import config_for, spec_of, weighed_at
from webapp.reading.rows import task_row
from webapp.rewards.scorers.asking import scorers, unscored
from webapp.runs.config import of_step
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

MAX_TURNS = 2_000
MAX_BYTES = 8 << 20


class Scene(NamedTuple):
    """Where a rollout was played and how. ``origin`` names the dataset's row, ``tools`` are those that it brought.
    ``components`` scored it, with the weights that they had at ``step``."""

    environment: Environment
    recording: Recording
    tools: Tools | None
    origin: str
    components: list[RewardComponent]
    step: int

    @property
    def last(self) -> int:
        """The last turn that another player can take: one after the recorded turns where the episode had not ended."""
        turns = self.recording.turns
        return len(turns) + (not turns or bool(turns[-1].answer))

    def kept(self, turn: int) -> int:
        """How many recorded turns come before ``turn``. Raises ``ValidationError`` where there is no such turn."""
        if not 1 <= turn <= self.last:
            raise ValidationError({"turn": _("This rollout has turns 1 to %(last)s.") % {"last": self.last}})
        return turn - 1


def scene_of(rollout: Rollout) -> Scene:
    """The scene of a rollout. Raises ``ValidationError`` with the reason why it cannot be played again."""
    run, config = rollout.run, config_for(rollout)
    if run.imported_from:
        raise ValidationError(_("Another trainer played this rollout; its environment is not known here."))
    seeds = seeds_of(rollout, config)
    if config is None or seeds is None:
        raise ValidationError(_("The seed of this rollout is not known, so it cannot be played again."))
    if not config.environment.url:
        raise ValidationError(_("This rollout was played without an environment: there is nothing to rewind."))
    turns = _recorded_turns(rollout)
    raw, own, origin = _played_task(rollout, config)
    reset = ResetRequest(task=raw, seed=seeds.episode, episode_id=f"rewind-{uuid.uuid4().hex}")
    prompt = own.messages if own is not None else []
    ended = rollout.status == RolloutStatus.COMPLETED
    taken = taken_of(turns)
    recording = Recording(reset, prompt, _turn_messages(turns[0]), taken, rollout.env_reward if ended else None)
    tools = own.tools if own is not None else None
    place = _registered_environment(run, rollout.step, rollout.part)
    return Scene(place, recording, tools, origin, spec_of(rollout, config), weighed_at(rollout))


def environment_of(rollout: Rollout) -> Environment:
    """The registration that a rollout would be played on. Raises ``ValidationError``."""
    return _registered_environment(rollout.run, rollout.step, rollout.part)


def _recorded_turns(rollout: Rollout) -> list[Turn]:
    """The recorded turns, the prompt first."""
    rows = Turn.objects.filter(rollout=rollout).defer("words").order_by("number")
    found = list(rows[: 2 * MAX_TURNS + 2])
    if not found:
        raise ValidationError(_("No turn of this rollout was recorded."))
    size = sum(len(str(turn.messages)) for turn in found)
    if len(found) > 2 * MAX_TURNS + 1 or size > MAX_BYTES:
        limits = {"turns": f"{MAX_TURNS:,}", "mb": MAX_BYTES >> 20}
        raise ValidationError(_("Rollouts beyond %(turns)s turns or %(mb)s MB are not rewound.") % limits)
    return found


def recorded_messages(rollout: Rollout) -> list[dict[str, Any]]:
    """The whole recorded conversation as it was written, as far as ``MAX_TURNS``."""
    rows = Turn.objects.filter(rollout=rollout).defer("words").order_by("number")
    return [message for turn in rows[: 2 * MAX_TURNS + 1] for message in turn.written]


def first_other(rollout: Rollout, start: int) -> int:
    """The number of the recorded turn after the first ``start`` messages."""
    rows = Turn.objects.filter(rollout=rollout).order_by("number").values_list("number", "messages")
    seen = 0
    for number, messages in rows[: 2 * MAX_TURNS + 1]:
        if seen >= start:
            return int(number)
        seen += len(messages)
    return 2**31


def taken_of(turns: Sequence[Turn]) -> list[Taken]:
    """The policy's turns, each with what the environment answered; ``turns`` begin with the prompt."""
    found: list[Taken] = []
    for turn in turns[1:]:
        messages = _turn_messages(turn)
        if messages and messages[0].role == "assistant":
            found.append(Taken(messages[0], [], turn.parse_error or None, turn.wrote or None))
        elif found:
            found[-1].answer.extend(messages)
    return found


def _turn_messages(turn: Turn) -> list[Message]:
    return [Message.model_validate(message) for message in turn.messages]


def _played_task(rollout: Rollout, config: JobConfig) -> tuple[dict[str, Any], Row | None, str]:
    """The task that the environment was given, the row, and where that is from."""
    if config.draws_tasks and not rollout.held_out:
        return {}, None, ""
    task = task_row(rollout, config, [])
    if task is None or not task.row:
        raise ValidationError(_("The dataset's row that this rollout played is gone, so it cannot be played again."))
    try:
        return task.row, row_from_dict(task.row), f"{task.dataset.reference}#{task.number}"
    except RowError as exc:
        raise ValidationError(_("Row %(number)s cannot be read.") % {"number": task.number}) from exc


def _registered_environment(run: Run, step: int, part: str) -> Environment:
    """The registration that the run names at a step, or for a part of its mix: its resolved config
    has the server's address instead."""
    try:
        named = of_step(run, JobConfig.model_validate(run.config), step, part).environment.name
    except ShapeError:
        named = ""
    name = name_in("environment", named)
    found = Environment.objects.filter(project=run.project_id, name=name).select_related("project").first()
    if found is None:
        said = _("The environment “%(name)s” is not registered in this project; register it under this name again.")
        raise ValidationError(said % {"name": name[:80] or "–"})
    return found


# --- Scoring --------------------------------------------------------------------------------------------------------
# A branch's reward by the spec that scored the rollout: each component by itself, so that the failure of one does not
# affect others.

SCORE_LIMIT_S = 5.0


class Scored(NamedTuple):
    """Values by component, ``None`` where one is missing, and why; ``reward`` is missing where one of them is."""

    parts: dict[str, float | None]
    missing: dict[str, str]
    reward: float | None


def scored(episode: Episode, components: Sequence[RewardComponent], step: int, user_id: object) -> Scored:
    """Score within ``SCORE_LIMIT_S``. Judges, reward models and custom code are not asked: they are missing."""
    counted = [part for part in components if counts_for(part, categories_of(episode.row))]
    asked = [Asked(episode=episode, components=counted, weighed=True)]
    try:
        (said,) = scorers.ask(user_id, asked, SCORE_LIMIT_S)
    except TooMany as exc:  # the branch is kept also without a score
        (said,) = unscored(asked, str(exc))
    missing = {name: in_words(one.why) for name, one in said.items() if one.value is None}
    known = {name: one.value for name, one in said.items() if one.value is not None}
    reward = total_of(terms_of(known, counted, step), counted) if counted and not missing else None
    return Scored({name: one.value for name, one in said.items()}, missing, reward)
