"""A recorded rollout as something that can be played again, and rollouts of runs that continued one, as branches of
it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Count, F, Q, QuerySet
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from envs.wire import Message, ResetRequest
from training.config import JobConfig, RewardComponent, name_in
from training.data import Row, RowError, categories_of, row_from_dict
from training.errors import EnvironmentTimeout
from training.rewards.base import Episode
from training.rewards.combining import counts_for, terms_of, total_of
from training.rewards.scorer.wire import Asked
from training.rollout.rewinding import Recording, Rewound, Taken
from webapp.common.errors import TooMany
from webapp.common.text import finite, in_words
from webapp.common.words import failure
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import leave, take
from webapp.environments.playground.play import Play, PlayRefused, Reach, reach_of
from webapp.evaluation.suites.services import title_of_contestant
from webapp.people.teams.models import User
from webapp.reading.groups import task_row
from webapp.reading.parts import config_for, spec_of, weighed_at
from webapp.reading.rewinding.models import Branch, Continuation
from webapp.reading.selectors import seeds_of
from webapp.rewards.scorers import scorers, unscored
from webapp.runs.config import of_step
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.states import TERMINAL

MAX_TURNS = 2_000
MAX_BYTES = 8 << 20


class Scene(NamedTuple):
    """Where a rollout was played and how. ``origin`` names the dataset's row, ``tools`` are those that it brought.
    ``components`` scored it, with the weights that they had at ``step``."""

    environment: Environment
    recording: Recording
    tools: list[dict[str, Any]] | None
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
    return Scene(place, recording, tools, origin, spec_of(rollout.run, config), weighed_at(rollout))


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
        message = _("The environment “%(name)s” is not registered in this project; register it under this name again.")
        raise ValidationError(message % {"name": name[:80] or "–"})
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
        (values,) = scorers.ask(user_id, asked, SCORE_LIMIT_S)
    except TooMany as exc:  # the branch is kept also without a score
        (values,) = unscored(asked, str(exc))
    missing = {name: in_words(one.why) for name, one in values.items() if one.value is None}
    known = {name: one.value for name, one in values.items() if one.value is not None}
    reward = total_of(terms_of(known, counted, step), counted) if counted and not missing else None
    return Scored({name: one.value for name, one in values.items()}, missing, reward)


# --- Branches of runs -----------------------------------------------------------------------------------------------
# Rollouts of runs that continued from a turn of a recorded one, as branches of it.

Messages = list[dict[str, Any]]
MAX_PLAYED = 64
"""How many branches of runs a page lists; the runs' own pages have all."""


class Continuing(NamedTuple):
    """A run that continues from a turn: how many of its rollouts are over, of how many."""

    run: Run
    turn: int
    player: str
    done: int
    wanted: int


def continuing(rollout: Rollout) -> list[Continuing]:
    """The runs that continue from a turn of this rollout and have not ended, the newest first."""
    newest = Q(run__rollouts__attempt=F("run__attempt"))
    over = Count("run__rollouts", filter=newest & ~Q(run__rollouts__status=RolloutStatus.RUNNING))
    rows = Continuation.objects.filter(rollout=rollout).exclude(run__state__in=TERMINAL).annotate(over=over)
    return [
        Continuing(each.run, each.turn, title_of_contestant(each.contestant), each.over, _planned_rollouts(each.run))
        for each in rows.select_related("run").order_by("-run__created_at")
    ]


def _planned_rollouts(run: Run) -> int:
    return int(run.config.get("rollout", {}).get("num_generations") or 0)


def played_of(rollout: Rollout, only: UUID | None = None) -> list[Branch]:
    """The branches that those runs played, the newest first; ``only``: the one that this rollout is."""
    rows = _ended_continuations(rollout) if only is None else _ended_continuations(rollout).filter(pk=only)
    rows = rows.select_related("run__created_by", "run__continuation").order_by("-started_at", "-index")
    found = list(rows[:MAX_PLAYED])
    if not found:
        return []
    messages, recorded = _messages_by_rollout(found), recorded_messages(rollout)
    return [_branch_of(each, rollout, each.run.continuation, messages.get(each.pk, []), recorded) for each in found]


def played_count(rollout: Rollout) -> int:
    """How many of them a page lists."""
    return _ended_continuations(rollout)[:MAX_PLAYED].count()


def _ended_continuations(rollout: Rollout) -> QuerySet[Rollout]:
    """The rollouts that continued from this one and are over, as the newest attempt played them."""
    rows = Rollout.objects.filter(run__continuation__rollout=rollout, attempt=F("run__attempt"))
    return rows.exclude(status=RolloutStatus.RUNNING)


def played_branch(pk: UUID) -> Branch | None:
    """The branch that a rollout is; ``None`` where it continued from nothing."""
    rollout = Rollout.objects.filter(run__continuation__rollout__isnull=False, pk=pk).first()
    if rollout is None:
        return None
    origin = Rollout.objects.filter(continuations__run=rollout.run_id).first()
    return next(iter(played_of(origin, pk)), None) if origin is not None else None


def _messages_by_rollout(rollouts: Sequence[Rollout]) -> dict[UUID, list[Messages]]:
    """The messages of each rollout's turns, in order."""
    found: dict[UUID, list[Messages]] = {}
    for turn in Turn.objects.filter(rollout__in=rollouts).defer("words").order_by("rollout", "number"):
        found.setdefault(turn.rollout_id, []).append(turn.written)
    return found


def _branch_of(
    played: Rollout,
    origin: Rollout,
    went: Continuation,
    turns: list[Messages],
    recorded: Messages,
) -> Branch:
    messages = [message for turn in turns for message in turn]
    start = _turn_place(messages, went.turn)
    branch = Branch(
        id=played.pk,
        rollout=origin,
        turn=went.turn,
        player=title_of_contestant(went.contestant),
        messages=messages,
        prompt_length=len(turns[0]) if turns else 0,
        start=start,
        done=played.status == RolloutStatus.COMPLETED,
        env_reward=finite(played.env_reward),
        env_parts=played.env_parts,
        parts=played.parts,
        missing=_missing_parts(played),
        reward=finite(played.reward),
        outcome=played.outcome,
        same=messages[:start] == recorded[:start],
        created_by=played.run.created_by,
        created_at=played.finished_at or played.started_at,
    )
    branch.played = played
    return branch


def _turn_place(messages: Messages, turn: int) -> int:
    """The place of the policy's ``turn``th message, or the end of those that has fewer."""
    places = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    return places[turn - 1] if len(places) >= turn else len(messages)


def _missing_parts(played: Rollout) -> dict[str, str]:
    shown = failure(played.error)
    return {_("excluded"): f"{shown.title} {shown.detail}".strip()} if shown is not None else {}


# --- Replay view ----------------------------------------------------------------------------------------------------
# What a replay found, as the socket, the API and pages show it.

TEXT_MAX = 4_000


def check_view(found: Rewound) -> dict[str, Any]:
    """The turns that were taken again, whether their answers are the recorded ones, and else the first other one."""
    other = found.difference
    return {
        "turns": found.turns,
        "checked": found.checked,
        "over": found.over,
        "seconds": found.seconds,
        "differing": found.differing,
        "difference": None
        if other is None
        else {
            "turn": other.turn,
            "what": other.what,
            "recorded": _shorten(other.recorded),
            "now": _shorten(other.now),
        },
    }


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]} … (+{len(text) - TEXT_MAX})"


# --- Replaying ------------------------------------------------------------------------------------------------------
# One replay of a rollout without a continuation: to see whether its environment still answers as it did.

REPLAY_LIMIT_S = 60.0


def replay(rollout: Rollout, user: User, turn: int | None = None) -> dict[str, Any]:
    """Play a rollout again up to a turn of the policy, or whole, and give the session back.

    Raises ``ValidationError`` where that cannot be done, and environment errors.
    """
    scene = scene_of(rollout)
    kept = len(scene.recording.turns) if turn is None else scene.kept(turn)
    with seated(scene.environment, user) as reach:
        return asyncio.run(_replay_once(reach, scene, kept))


@contextmanager
def seated(environment: Environment, user: User) -> Iterator[Reach]:
    """A person's seat at an environment as long as the block lasts. Raises ``ValidationError``."""
    try:
        reach = reach_of(environment)
    except PlayRefused as refused:
        raise ValidationError(str(refused)) from refused
    if not take(user.pk, environment.pk):
        message = _("You play this environment already, or four environments at once; end one of them first.")
        raise ValidationError(message)
    try:
        yield reach
    finally:
        leave(user.pk, environment.pk)


async def _replay_once(reach: Reach, scene: Scene, kept: int) -> dict[str, Any]:
    play = Play(reach, scene.environment.name)
    try:
        async with asyncio.timeout(REPLAY_LIMIT_S):
            found = await play.rewind(scene.recording, kept, tools=scene.tools, origin=scene.origin, again=False)
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"The replay was not finished within {REPLAY_LIMIT_S:g} s.") from exc
    finally:
        await play.end()
    episode = play.episode
    messages = [] if episode is None else [message.model_dump(mode="json") for message in episode.messages]
    return {"environment": scene.environment.name, "messages": messages, **check_view(found)}
