"""One group and its task: its rollouts side by side, why one of them won, its learning signal, and its row of the
dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import JobConfig, RewardComponent
from training.plain import number_in
from training.rewards.combining import Split, reward_std, split_batch, split_group, terms_of
from webapp.common.text import figure
from webapp.common.words import Outcome
from webapp.datasets.models import Dataset
from webapp.datasets.rows import Expected, expected_of, row_of
from webapp.reading.parts import config_for, spec_of, weighed_at
from webapp.reading.turns import Message, TurnPage, message_of
from webapp.runs.config import component_curves, component_titles, config_of, of_step
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import judge_functions, signal_of
from webapp.runs.rollouts.models import Rollout, RolloutGroup, RolloutStatus, Turn

MAX_BATCH = 4_096
"""How many rollouts of a step are read at most to split advantages that depend on the whole batch."""
TOLERANCE = 2e-3
"""How far a recorded advantage may be from its shares' sum, by its size: trainers compute with float32."""


class Bar(NamedTuple):
    """A component's share of an advantage; ``curve`` is the number of its colour, ``None`` for the rest."""

    name: str
    title: str
    curve: int | None
    value: float


class Member(NamedTuple):
    """A rollout of the group, and its advantage by component: empty where it has none or it cannot be split."""

    rollout: Rollout
    bars: list[Bar]
    total: float | None


class Flag(NamedTuple):
    """Something about the whole group that a reader should know: a word, and the sentence why."""

    name: str
    title: str
    text: str


class Group(NamedTuple):
    """A group of a step. ``why`` says what the bars do not show; ``extent`` is the longest side of
    their drawings."""

    members: list[Member]
    mean: float | None
    std: float | None
    flags: list[Flag]
    why: str
    extent: float


def group_rollouts(run: Run, step: int, group: int, attempt: int | None = None) -> list[Rollout]:
    """The rollouts of a group by index, as the newest attempt played them, or the one that is asked for."""
    rows = Rollout.objects.filter(run=run, step=step, group=group, held_out=False)
    if attempt is not None:
        rows = rows.filter(attempt=attempt)
    found = list(rows.order_by("-attempt", "index"))
    newest = [item for item in found if item.attempt == found[0].attempt]
    for item in newest:
        item.run = run
    return newest


def group_of(run: Run, rollouts: Sequence[Rollout]) -> Group:
    """The facts of a group of at least one rollout."""
    first = rollouts[0]
    config = config_for(first)
    components = spec_of(first.run, config)
    split, why = _split_advantages(run, rollouts, components, config)
    titles = component_titles(components)
    curves = component_curves(run)
    members = [_group_member(item, at, split, titles, curves) for at, item in enumerate(rollouts)]
    place = {"run": run, "attempt": first.attempt, "step": first.step, "group": first.group}
    stats = RolloutGroup.objects.filter(**place).first()
    return Group(
        members,
        stats.reward_mean if stats else None,
        stats.reward_std if stats else None,
        _group_flags(rollouts, judge_functions(run), config),
        why or _difference_text(members, config),
        extent_of([[bar.value for bar in member.bars] for member in members]),
    )


def _group_member(
    rollout: Rollout, at: int, split: Split | None, titles: Mapping[str, str], curves: Mapping[str, int]
) -> Member:
    shares = split.shares[at] if split else None
    if split is None or shares is None:
        return Member(rollout, [], None)
    bars = [
        Bar(name, titles.get(name) or _("not of these components"), curves.get(name), value)
        for name, value in zip(split.names, shares, strict=True)
    ]
    return Member(rollout, bars, math.fsum(shares))


def _split_advantages(
    run: Run, rollouts: Sequence[Rollout], components: Sequence[RewardComponent], config: JobConfig | None
) -> tuple[Split | None, str]:
    """The advantages by component, or why they cannot be split."""
    if all(item.status == RolloutStatus.RUNNING for item in rollouts):
        return None, _("The group is still in flight.")
    if config is None or not components:
        return None, _("The run's config does not say which components its rewards are made of.")
    if run.method.learns_from != "rollouts" and all(item.advantage is None for item in rollouts):
        return None, _("Nothing was learned from this group, so its rollouts have no advantages.")
    scale = config.gradient.scale_rewards
    if scale == "values":
        return None, _("PPO gives each token an advantage of its own, so a rollout has none to split.")
    if config.rewards.aggregation == "normalize_then_sum":
        return _split_normalised(run, rollouts, components)
    batch_std = None
    if scale == "batch":
        batch = _step_batch(run, rollouts[0])
        if batch is None:
            return None, _too_large()
        batch_std = reward_std([reward for group in batch.values() for reward, _reward_terms in group])
    terms = [_reward_terms(item, components) for item in rollouts]
    rewards = [_counted_reward(item) for item in rollouts]
    return split_group(rewards, terms, components, scale=scale, batch_std=batch_std), ""


def _split_normalised(
    run: Run, rollouts: Sequence[Rollout], components: Sequence[RewardComponent]
) -> tuple[Split | None, str]:
    batch = _step_batch(run, rollouts[0])
    if batch is None:
        return None, _too_large()
    step = weighed_at(rollouts[0])
    groups = [
        [None if reward is None else terms_of(parts, components, step) for reward, parts in batch[number]]
        for number in sorted(batch)
    ]
    return split_batch(groups, components, sorted(batch).index(rollouts[0].group)), ""


Batch = dict[int, list[tuple[float | None, dict[str, float]]]]


def _step_batch(run: Run, first: Rollout) -> Batch | None:
    """Reward and parts of all rollouts of a step by group; ``None`` where they are too many."""
    rows = Rollout.objects.filter(run=run, step=first.step, attempt=first.attempt, held_out=False)
    found: Batch = {}
    read = rows.order_by("group", "index").values_list("group", "status", "reward", "parts")[: MAX_BATCH + 1]
    for count, (group, status, reward, parts) in enumerate(read):
        if count == MAX_BATCH:
            return None
        kept = reward if status != RolloutStatus.EXCLUDED else None
        found.setdefault(group, []).append((kept, {name: v for name, v in parts.items() if v is not None}))
    return found


def _too_large() -> str:
    return _("Its advantages were computed over a whole step, and this step is too large to read here.")


def _counted_reward(rollout: Rollout) -> float | None:
    return None if rollout.status == RolloutStatus.EXCLUDED else rollout.reward


def _reward_terms(rollout: Rollout, components: Sequence[RewardComponent]) -> dict[str, float] | None:
    if _counted_reward(rollout) is None:
        return None
    known = {name: value for name, value in rollout.parts.items() if value is not None}
    return terms_of(known, components, weighed_at(rollout))


def _difference_text(members: Sequence[Member], config: JobConfig | None) -> str:
    """A sentence where recorded advantages are not the sums of the bars; else empty."""
    known = [(item.rollout.advantage, item.total) for item in members if item.total is not None]
    pairs = [(recorded, total) for recorded, total in known if recorded is not None and total is not None]
    if all(abs(recorded - total) <= TOLERANCE * max(1.0, abs(total)) for recorded, total in pairs):
        return ""
    if all(recorded == 0 for recorded, _total in pairs) and config is not None and config.rewards.signal != "all":
        return _(
            "The run did not learn from this group (rewards.signal), so the recorded advantages are 0. The bars show "
            "what the rewards alone would give."
        )
    return _(
        "The recorded advantages differ: the trainer computed them in another way. The bars split the advantages "
        "that follow from the recorded rewards."
    )


def _group_flags(rollouts: Sequence[Rollout], functions: Mapping[str, str], config: JobConfig | None) -> list[Flag]:
    signal = signal_of(rollouts, functions)
    known = [reward for reward in signal.rewards if reward is not None]
    excluded = sum(item.status == RolloutStatus.EXCLUDED for item in rollouts)
    learns = config is None or config.gradient.scale_rewards != "values"
    flags = []
    if signal.flat and learns:
        text = _(
            "All %(n)s rewards are %(reward)s: no rollout is better than another, every advantage is 0 and the group "
            "teaches nothing."
        )
        flags.append(Flag("flat", _("zero variance"), text % {"n": len(known), "reward": figure(known[0])}))
    if signal.phantom:
        flags.append(Flag("phantom", _("phantom"), _phantom_text(next(v for v in signal.verdicts if v is not None))))
    if excluded:
        text = ngettext(
            "%(n)s rollout failed outside the model: it has no reward and no part in the baseline.",
            "%(n)s rollouts failed outside the model: they have no reward and no part in the baseline.",
            excluded,
        )
        flags.append(Flag("excluded", _("excluded"), text % {"n": excluded}))
    return flags


def _phantom_text(verdict: float) -> str:
    """Why a phantom group is one, by what all its rollouts came to."""
    if verdict >= 1:
        return _(
            "All rollouts solved the task, but their rewards differ: only shaping terms distinguish them. This "
            "teaches form, not the task."
        )
    if verdict > 0:
        return _(
            "All rollouts came equally far with the task, but their rewards differ: only shaping terms distinguish "
            "them. This teaches form, not the task."
        )
    return _(
        "No rollout solved the task, but their rewards differ: only shaping terms distinguish them, so the run "
        "learns to fail more nicely."
    )


# --- Drawing --------------------------------------------------------------------------------------------------------
# Small drawings: signed shares as a stack on both sides of a line, shares over steps as a curve. Numbers only.

WIDTH, HEIGHT = 200, 14
SPARK_WIDTH, SPARK_HEIGHT = 240, 36


class Piece(NamedTuple):
    """One share in a stack, in units of the drawing."""

    curve: int | None
    x: float
    width: float


class Stack(NamedTuple):
    """The shares of one advantage; ``middle`` is the place of 0, ``total`` where they add up to."""

    pieces: list[Piece]
    middle: float
    total: float


class Spark(NamedTuple):
    """A curve with its points; ``here`` is the point of the step that is shown."""

    points: str
    dots: list[tuple[float, float]]
    here: tuple[float, float] | None


def extent_of(rows: Sequence[Sequence[float]]) -> float:
    """The longest side that a stack of any of these has."""
    sides = [abs(sum(value for value in row if (value > 0) is up)) for row in rows for up in (True, False)]
    return max(sides, default=0.0)


def stack_of(shares: Sequence[tuple[int | None, float]], extent: float) -> Stack:
    """Shares from the middle outwards, positive ones to the right; ``extent`` is half of the width."""
    middle = WIDTH / 2
    unit = middle / extent if extent else 0.0
    right = left = middle
    pieces = []
    for curve, value in shares:
        width = abs(value) * unit
        if value < 0:
            left -= width
        pieces.append(Piece(curve, round(left if value < 0 else right, 2), round(width, 2)))
        if value > 0:
            right += width
    return Stack(pieces, middle, round(middle + sum(value for _curve, value in shares) * unit, 2))


def spark_of(shares: Sequence[float | None], here: int | None) -> Spark | None:
    """Shares from 0 to 1 in order; ``None`` with fewer than two that are known."""
    known = [(at, share) for at, share in enumerate(shares) if share is not None]
    if len(known) < 2:
        return None
    step = SPARK_WIDTH / max(1, len(shares) - 1)
    places = {at: (round(at * step, 1), round((1 - share) * (SPARK_HEIGHT - 6) + 3, 1)) for at, share in known}
    points = " ".join(f"{x},{y}" for x, y in places.values())
    return Spark(
        points, list(places.values()) if len(known) <= 40 else [], places.get(here) if here is not None else None
    )


# --- Task -----------------------------------------------------------------------------------------------------------
# The task behind a rollout: its row of the dataset, and the row's expected answer.


class TaskRow(NamedTuple):
    """The row that a rollout played. ``number`` counts from 1, as pages of datasets do; ``row`` is empty where the file
    is gone."""

    dataset: Dataset
    number: int
    row: dict[str, Any]
    expected: list[Expected]


def dataset_of(rollout: Rollout, config: JobConfig | None) -> Dataset | None:
    """The dataset whose row was played, if it is one of the project's: no other path is read."""
    path = _rows_path(config, rollout.held_out) if rollout.row is not None else None
    known = _id_in(path)
    if known is None:
        return None
    found = Dataset.objects.filter(pk=known, project=rollout.run.project_id).first()
    return found if found is not None and found.rows_path == path else None


def task_row(rollout: Rollout, config: JobConfig | None, components: Sequence[RewardComponent]) -> TaskRow | None:
    """The row of a rollout; ``None`` where its environment drew the task, or its dataset is not known any more."""
    dataset = dataset_of(rollout, config)
    if dataset is None or rollout.row is None:
        return None
    row = row_of(dataset, rollout.row + 1) or {}
    return TaskRow(dataset, rollout.row + 1, row, expected_of(row, components))


class Played(Protocol):
    """What says which row a rollout played: a ``Rollout``, or as much of one."""

    @property
    def pk(self) -> UUID: ...
    @property
    def run(self) -> Run: ...
    @property
    def step(self) -> int: ...
    @property
    def part(self) -> str: ...
    @property
    def row(self) -> int | None: ...
    @property
    def held_out(self) -> bool: ...
    @property
    def expected(self) -> str: ...


def expected_answers(rollouts: Sequence[Played]) -> dict[UUID, str]:
    """The expected answer of each rollout, by rollout: what an imported run says, else the first that its row names;
    those without one are left out.

    One query for all, and each row is read once.
    """
    found = {item.pk: item.expected for item in rollouts if item.expected}
    asked = [item for item in rollouts if item.row is not None and not item.expected]
    courses = _courses_of(asked)
    texts: dict[tuple[Any, ...], str] = {}
    for item in asked:
        config, dataset = courses[_course_key(item)]
        if dataset is None or item.row is None:
            continue
        key = id(dataset), id(config), item.row
        if key not in texts:
            answers = expected_of(row_of(dataset, item.row + 1) or {}, spec_of(item.run, config))
            texts[key] = _plain_answer(answers[0]) if answers else ""
        if texts[key]:
            found[item.pk] = texts[key]
    return found


def _plain_answer(answer: Expected) -> str:
    """The answer's text; of an object that says which words an answer must hold, as tasks of our tools do, these."""
    held = answer.value.get("contains") if isinstance(answer.value, dict) else None
    if isinstance(held, list) and held and all(isinstance(word, str) for word in held):
        return ", ".join(held)
    return answer.text


CourseKey = tuple[int, int, str, bool]


def _course_key(item: Played) -> CourseKey:
    """What decides config and dataset of a rollout: its run, as an object, because ids of rows hash slowly; its step,
    the part of a mix, and whether it was held out."""
    return id(item.run), item.step, item.part, item.held_out


def _courses_of(rollouts: Sequence[Played]) -> dict[CourseKey, tuple[JobConfig | None, Dataset | None]]:
    """The config of each course that was played, and the dataset whose rows were."""
    firsts = {_course_key(item): item for item in rollouts}
    configs = {id(item.run): config_of(item.run) for item in {id(each.run): each for each in firsts.values()}.values()}
    paths: dict[CourseKey, tuple[JobConfig | None, Path | None]] = {}
    for key, item in firsts.items():
        config = configs[id(item.run)]
        course = of_step(item.run, config, item.step, item.part) if config is not None else None
        paths[key] = course, _rows_path(course, item.held_out)
    ids = [pk for _config, path in paths.values() if (pk := _id_in(path)) is not None]
    projects = {item.run.project_id for item in firsts.values()}
    datasets = Dataset.objects.filter(pk__in=ids, project__in=projects)
    known = {(dataset.project_id, dataset.rows_path): dataset for dataset in datasets}
    return {
        key: (config, known.get((firsts[key].run.project_id, path)) if path is not None else None)
        for key, (config, path) in paths.items()
    }


def _rows_path(config: JobConfig | None, held_out: bool) -> Path | None:
    """The file whose rows were played."""
    if config is None:
        return None
    return Path((held_out and config.evaluate.data) or config.data.train)


def _id_in(path: Path | None) -> UUID | None:
    """The id of the dataset whose rows are at a path; ``None`` for another file."""
    try:
        return UUID(path.parent.name) if path is not None else None
    except ValueError:
        return None


# --- Columns --------------------------------------------------------------------------------------------------------
# Transcripts of a group side by side, turn by turn, with the first turn in which they differ.

MOST_COLUMNS = 4
ROWS = 24
TEXT_CHARS = 4_000
MOST_SEARCHED = 480
"""Turns in which the first difference is looked for."""


class Row(NamedTuple):
    """A turn of several rollouts. ``same``: they are equal in all of them; ``first``: the first turn of all in which
    they are not. A rollout that had ended before has no messages."""

    number: int
    messages: list[list[Message]]
    same: bool
    first: bool


class Sides(NamedTuple):
    """The rollouts that are shown, their turns from ``first`` on, and where the parts before and after begin."""

    shown: list[Member]
    rows: list[Row]
    first: int
    before: int | None
    after: int | None
    differs: int | None


def chosen_of(members: Sequence[Member], asked: Sequence[str]) -> list[Member]:
    """The rollouts that an address names by index; without any the best and the worst of the group."""
    indices = {number_in(text, 5) for text in asked}
    found = [member for member in members if member.rollout.index in indices][:MOST_COLUMNS]
    if found:
        return found
    known = [member for member in members if member.rollout.reward is not None]
    if len(known) < 2:
        return list(members[:2])
    best = max(known, key=lambda member: member.rollout.reward or 0.0)
    worst = min((item for item in known if item is not best), key=lambda member: member.rollout.reward or 0.0)
    return [best, worst]


def beside(shown: Sequence[Member], first: int) -> Sides:
    """The turns of these rollouts from number ``first`` on, ``ROWS`` of them."""
    ids = [member.rollout.pk for member in shown]
    found = _turn_messages(ids, first, first + ROWS)
    differs = _first_difference(ids)
    rows = []
    for number in range(first, first + ROWS):
        messages_of_each = [found.get((pk, number), []) for pk in ids]
        if any(messages_of_each):
            same = len(ids) < 2 or all(messages == messages_of_each[0] for messages in messages_of_each)
            drawn = [
                [message_of(raw, at, TEXT_CHARS) for at, raw in enumerate(messages)] for messages in messages_of_each
            ]
            rows.append(Row(number, drawn, same, number == differs))
    more = Turn.objects.filter(rollout__in=ids, number__gte=first + ROWS).exists()
    before = max(0, first - ROWS) if first else None
    return Sides(list(shown), rows, first, before, first + ROWS if more else None, differs)


class Winner(NamedTuple):
    """A rollout of the same group that solved the task, next to one that did not: its messages by the number of their
    turn, its turns after the other's last one, and the first turn in which they differ."""

    rollout: Rollout
    turns: dict[int, list[Message]]
    rest: list[list[Message]]
    differs: int | None


def winner_of(rollout: Rollout) -> Rollout | None:
    """The best rollout of its group that solved the task; ``None`` where it did so itself, or none did."""
    if rollout.outcome not in (Outcome.FAILED, Outcome.PARTLY):
        return None
    names = ("run_id", "attempt", "step", "group", "held_out")
    rows = Rollout.objects.filter(**{name: getattr(rollout, name) for name in names}, outcome=Outcome.SOLVED)
    return rows.order_by(F("reward").desc(nulls_last=True), "index").first()


def beside_winner(rollout: Rollout, winner: Rollout, shown: TurnPage) -> Winner:
    """The winner's turns next to those that a page shows."""
    last = max((turn.number for turn in shown.turns), default=shown.first - 1)
    end = last + 1 if shown.after is not None else last + 1 + ROWS
    found = _turn_messages([winner.pk], shown.first, end)
    drawn = {
        number: [message_of(raw, at, TEXT_CHARS) for at, raw in enumerate(messages)]
        for (_pk, number), messages in sorted(found.items(), key=lambda item: item[0][1])
    }
    rest = [messages for number, messages in drawn.items() if number > last]
    return Winner(winner, drawn, rest, _first_difference([rollout.pk, winner.pk]))


def _turn_messages(ids: Sequence[UUID], first: int, end: int) -> dict[tuple[UUID, int], list[dict[str, Any]]]:
    rows = Turn.objects.filter(rollout__in=ids, number__gte=first, number__lt=end).defer("words")
    return {(turn.rollout_id, turn.number): turn.written for turn in rows}


def _first_difference(ids: Sequence[UUID]) -> int | None:
    """The number of the first turn in which they differ; ``None`` where they are the same."""
    if len(ids) < 2:
        return None
    for start in range(0, MOST_SEARCHED, ROWS):
        found = _turn_messages(ids, start, start + ROWS)
        if not found:
            return None
        for number in range(start, start + ROWS):
            messages_of_each = [found.get((pk, number)) for pk in ids]
            if any(messages != messages_of_each[0] for messages in messages_of_each):
                return number
    return None
