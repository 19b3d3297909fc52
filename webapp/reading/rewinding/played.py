"""Rollouts of runs that continued from a turn of a recorded one, as branches of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Count, F, Q, QuerySet
from django.utils.translation import gettext as _

from training.errors import EnvironmentTimeout
from training.rollout.rewinding import Rewound
from webapp.common.text import finite
from webapp.common.words import failure
from webapp.environments.models import Environment
from webapp.environments.playground.consumer import leave, take
from webapp.environments.playground.play import Play, PlayRefused, Reach, reach_of
from webapp.evaluation.suites.services import title_of_contestant
from webapp.people.teams.models import User
from webapp.reading.rewinding.models import Branch, Continuation
from webapp.reading.rewinding.scene import Scene, recorded_messages, scene_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.states import TERMINAL

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
    """What those runs played, the newest first; ``only``: the one that this rollout is."""
    rows = _ended_continuations(rollout) if only is None else _ended_continuations(rollout).filter(pk=only)
    rows = rows.select_related("run__created_by", "run__continuation").order_by("-started_at", "-index")
    found = list(rows[:MAX_PLAYED])
    if not found:
        return []
    said, recorded = _messages_by_rollout(found), recorded_messages(rollout)
    return [_branch_of(each, rollout, each.run.continuation, said.get(each.pk, []), recorded) for each in found]


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
    said: list[Messages],
    recorded: Messages,
) -> Branch:
    messages = [message for turn in said for message in turn]
    start = _turn_place(messages, went.turn)
    branch = Branch(
        id=played.pk,
        rollout=origin,
        turn=went.turn,
        player=title_of_contestant(went.contestant),
        messages=messages,
        prompt_length=len(said[0]) if said else 0,
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
    told = failure(played.error)
    return {_("excluded"): f"{told.title} {told.detail}".strip()} if told is not None else {}


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
        said = _("You play this environment already, or four environments at once; end one of them first.")
        raise ValidationError(said)
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
