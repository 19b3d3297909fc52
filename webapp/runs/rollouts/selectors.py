"""Transcripts as the live view and the pages show them, and as the episodes that reward components score."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from envs.wire import Message
from training.rewards.base import ERROR_PREFIXES, Episode
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutGroup, RolloutStatus, Turn
from webapp.runs.rollouts.words import numbers_of_phrase, texts_of

ALL = slice(None)


def latest_rollouts(*runs: Run) -> QuerySet[Rollout]:
    """The finished rollouts of runs by step, group and index; of a place that two attempts played, the later one's.

    What is filtered further is filtered before the later one is chosen.
    """
    rows = Rollout.objects.filter(run__in=runs).exclude(status=RolloutStatus.RUNNING)
    return rows.order_by("run_id", "step", "group", "index", "-attempt").distinct("run_id", "step", "group", "index")


def current_step(run: Run) -> int | None:
    """The step whose rollouts are the newest: that of the present attempt, else of any."""
    rows = Rollout.objects.filter(run=run, held_out=False)
    newest = rows.filter(attempt=run.attempt).order_by("-step").values_list("step", flat=True).first()
    if newest is None:
        newest = rows.order_by("-attempt", "-step").values_list("step", flat=True).first()
    return newest


def newest_of_step(run: Run, step: int | None) -> QuerySet[Rollout]:
    """The rollouts of one step, as its newest attempt made it, by group and index; ``None`` means ``current_step``."""
    rows = Rollout.objects.filter(run=run, held_out=False)
    if step is None:
        present = rows.filter(attempt=run.attempt).order_by("-step").values("step")[:1]
        newest = rows.order_by("-attempt", "-step").values("step")[:1]
        rows = rows.filter(step=Coalesce(Subquery(present), Subquery(newest)))
    else:
        rows = rows.filter(step=step)
    attempt = Subquery(rows.order_by("-attempt").values("attempt")[:1])
    return rows.filter(attempt=attempt).order_by("group", "index")


def newest_rollouts(run: Run, step: int | None) -> list[Rollout]:
    """``newest_of_step`` as a list."""
    return list(newest_of_step(run, step))


def step_rollouts(run: Run, step: int, shown: slice = ALL) -> dict[str, list[Any]]:
    """``{rollouts, turns, groups}`` of one step, as its newest attempt made it: of its rollouts those that are
    ``shown`` with their turns, and all of its groups."""
    rows = newest_of_step(run, step)
    rollouts = list(rows[shown])
    turns = Turn.objects.filter(rollout__in=[rollout.pk for rollout in rollouts]).order_by("rollout", "number")
    attempt = Subquery(rows.order_by().values("attempt")[:1])
    groups = RolloutGroup.objects.filter(run=run, attempt=attempt, step=step).order_by("group")
    return {"rollouts": rollouts, "turns": list(turns) if rollouts else [], "groups": list(groups)}


# Recorded rollouts as the episodes that reward components score.
#
# What a component sees of a finished trajectory is in the database: its turns, the environment's own reward and parts,
# and the row's place in the dataset. So any reward can be computed later from what is recorded.

BATCH = 500


def episodes_of(rollouts: Sequence[Rollout], rows: Mapping[int, dict[str, Any]]) -> Iterator[tuple[Rollout, Episode]]:
    """Each rollout with its episode, in order. ``rows`` are the dataset's rows by place, as far as they are known.

    A rollout without a prompt turn (its environment never answered) is skipped: there is nothing to score.
    """
    for start in range(0, len(rollouts), BATCH):
        batch = rollouts[start : start + BATCH]
        turns: dict[Any, list[Turn]] = {}
        for turn in Turn.objects.filter(rollout__in=[item.pk for item in batch]).order_by("rollout", "number"):
            turns.setdefault(turn.rollout_id, []).append(turn)
        for rollout in batch:
            if turns.get(rollout.pk):
                row = rows.get(rollout.row, {}) if rollout.row is not None else {}
                yield rollout, episode_of(rollout, turns[rollout.pk], row)


def episode_of(rollout: Rollout, turns: Sequence[Turn], row: dict[str, Any]) -> Episode:
    """One rollout, its turns in order (number 0 is the prompt), and the dataset's row that it played."""
    messages = [Message.model_validate(message) for turn in turns for message in turn.messages]
    return Episode(
        messages=messages,
        prompt_length=sum(len(turn.messages) for turn in turns if turn.number == 0),
        row=row,
        env_reward=rollout.env_reward,
        env_parts=dict(rollout.env_parts),
        parse_errors=rollout.parse_errors,
        truncated=rollout.status == RolloutStatus.TRUNCATED,
        tokens=rollout.tokens,
    )


# What rollouts say: the words around a phrase that was found, the last words of the model, the errors of tools.

AROUND = 80  # characters before and after


class Snippet(NamedTuple):
    """A phrase as a turn says it, with the text before and after it."""

    turn: int
    before: str
    said: str
    after: str


def snippets(rollouts: Sequence[Rollout], phrase: str) -> dict[UUID, Snippet]:
    """For each rollout the first turn that holds the phrase; one query for all."""
    if not phrase or not rollouts:
        return {}
    wanted = Q(rollout=None)
    for run in {item.run_id for item in rollouts}:
        numbers = numbers_of_phrase(run, phrase)
        wanted |= Q(run=run, rollout__in=[item.pk for item in rollouts if item.run_id == run], words__contains=numbers)
    found: dict[UUID, Snippet] = {}
    for turn in Turn.objects.filter(wanted).defer("words").order_by("rollout", "number"):
        if turn.rollout_id not in found and (snippet := snippet_in(turn, phrase)):
            found[turn.rollout_id] = snippet
    return found


def snippet_in(turn: Turn, phrase: str) -> Snippet | None:
    """The first place of a turn that holds the phrase."""
    wanted = re.compile(re.escape(phrase), re.IGNORECASE)  # lower() makes two characters of some, such as İ
    for text in (*texts_of(turn.messages), turn.wrote):
        if (found := wanted.search(text)) is not None:
            at, end = found.span()
            before, after = text[max(0, at - AROUND) : at], text[end : end + AROUND]
            return Snippet(
                turn.number,
                ("…" if at > AROUND else "") + before,
                text[at:end],
                after + ("…" if end + AROUND < len(text) else ""),
            )
    return None


# --- Last words -----------------------------------------------------------------------------------------------------

LAST_CHARS = 240
LAST_TURNS = 3  # which are read: a last turn may hold calls only
LAST_MESSAGE = r"""
SELECT wanted.id, said.text FROM unnest(%s::uuid[]) AS wanted (id), LATERAL (
    SELECT right(message ->> 'content', {longest}) AS text
    FROM (
        SELECT number, messages FROM rollouts_turn WHERE rollout_id = wanted.id AND number > 0
        ORDER BY number DESC LIMIT {turns}
    ) AS turn, jsonb_array_elements(turn.messages) WITH ORDINALITY AS each (message, place)
    WHERE message ->> 'role' = %s AND message ->> 'content' ~ %s
    ORDER BY turn.number DESC, each.place DESC LIMIT 1
) AS said
"""
ERROR_TURNS = 64


def last_words(ids: Sequence[UUID]) -> dict[UUID, str]:
    """The end of the last text that the model wrote in each rollout, by rollout, on one line; one query for all."""
    return _last_messages(ids, "assistant", r"\S", LAST_TURNS)


def last_errors(ids: Sequence[UUID]) -> dict[UUID, str]:
    """The end of the last error that a tool answered with in each rollout, by rollout, on one line; one query for
    all."""
    return _last_messages(ids, "tool", rf"^\s*({'|'.join(ERROR_PREFIXES)})", ERROR_TURNS)


def array_of(ids: Sequence[UUID]) -> str:
    """Ids as PostgreSQL writes an array: ten thousand objects as a parameter would take longer than a query."""
    return f"{{{','.join(map(str, ids))}}}"


def _last_messages(ids: Sequence[UUID], role: str, pattern: str, turns: int) -> dict[UUID, str]:
    if not ids:
        return {}
    with connection.cursor() as cursor:
        statement = LAST_MESSAGE.format(longest=4 * LAST_CHARS, turns=turns)
        cursor.execute(statement, [array_of(ids), role, pattern])
        texts = {rollout: " ".join(text.split()) for rollout, text in cursor.fetchall()}
    return {rollout: text if len(text) <= LAST_CHARS else f"…{text[-LAST_CHARS:]}" for rollout, text in texts.items()}
