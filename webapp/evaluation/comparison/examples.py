"""Where two contestants differ: a few tasks that only one of them solves, with how each of them ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from training.evaluation import SUCCESS_PART
from webapp.datasets.models import Dataset
from webapp.datasets.rows import expected_of, row_of
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import Numbers
from webapp.evaluation.comparison.tasks import SOLVED_FROM, grouped, success_by_task, title_of_group, tries_of
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.said import last_words

SHOWN = 3
"""Tasks of each side."""


class Ending(NamedTuple):
    """How a contestant ended a task: the share of its tries that solve it, the try that is shown, and the last words of
    that one."""

    contestant: Contestant
    share: float
    rollout: Rollout | None
    words: str


class Example(NamedTuple):
    """A task that one of two solves; ``number`` is the try that is shown of both, from 1. No ``expected`` answer where
    its row names none."""

    task: int
    text: str
    expected: str
    number: int
    endings: list[Ending]


class Side(NamedTuple):
    """The tasks that one solves and the other fails: how many there are, and those with the largest difference."""

    title: str
    tasks: int
    examples: list[Example]


def examples_of(playing: Sequence[Contestant], numbers: Numbers, pair: tuple[int, int]) -> list[Side]:
    """The tasks that the better of a pair solves and the worse fails, and the reverse: two queries for all."""
    better, worse = (playing[place] for place in pair)
    shares = [success_by_task(numbers.sheets[place]) for place in pair]
    groups = grouped(numbers.sheets[pair[1]], numbers.sheets[pair[0]])
    chosen = {name: _largest(groups[name], shares) for name in ("gained", "lost")}
    tries = tries_of([better, worse], [task for tasks in chosen.values() for task in tasks])
    drawn = {
        task: _shown_tries(tries, task, (better, worse) if name == "gained" else (worse, better))
        for name, tasks in chosen.items()
        for task in tasks
    }
    words = last_words([item.pk for _number, found in drawn.values() for item in found.values()])
    expected = {task: _expected_answer(better, numbers.datasets[pair[0]], task) for task in drawn}
    return [
        Side(
            title_of_group(name, worse.run.name, better.run.name),
            len(groups[name]),
            [_example((better, worse), task, shares, *drawn[task], words, expected[task]) for task in tasks],
        )
        for name, tasks in chosen.items()
    ]


def _largest(tasks: Sequence[int], shares: Sequence[Mapping[int, float | None]]) -> list[int]:
    """Those with the largest difference, then by their row."""
    first, second = shares
    return sorted(tasks, key=lambda task: (-abs((first[task] or 0.0) - (second[task] or 0.0)), task))[:SHOWN]


def _shown_tries(
    tries: Mapping[tuple[UUID, int], Sequence[Rollout]], task: int, who: tuple[Contestant, Contestant]
) -> tuple[int, dict[UUID, Rollout]]:
    """The number of the first try, from 1, that the first one solves and the second fails, and that try of each.

    Where excluded tries leave none, it is the first that the first one solves.
    """
    solver, failer = (tries.get((item.run.pk, task), []) for item in who)
    solved = [place for place, item in enumerate(solver) if _success(item) > SOLVED_FROM]
    failed = {
        place
        for place, item in enumerate(failer)
        if item.status != RolloutStatus.EXCLUDED and _success(item) <= SOLVED_FROM
    }
    place = next((place for place in solved if place in failed), solved[0] if solved else 0)
    found = {item.run.pk: each[place] for item, each in zip(who, (solver, failer), strict=True) if place < len(each)}
    return place + 1, found


def _success(rollout: Rollout) -> float:
    return float(rollout.env_parts.get(SUCCESS_PART) or 0.0)


def _example(
    who: tuple[Contestant, Contestant],
    task: int,
    shares: Sequence[Mapping[int, float | None]],
    number: int,
    shown: Mapping[UUID, Rollout],
    words: Mapping[UUID, str],
    expected: str,
) -> Example:
    endings = []
    for item, share in zip(who, shares, strict=True):
        rollout = shown.get(item.run.pk)
        said = words.get(rollout.pk, "") if rollout is not None else ""
        endings.append(Ending(item, share[task] or 0.0, rollout, said))
    text = next((rollout.task for rollout in shown.values()), "")
    return Example(task, text, expected, number, endings)


def _expected_answer(contestant: Contestant, dataset: Dataset | None, task: int) -> str:
    """The first expected answer of the task's row; empty where there is none."""
    row = row_of(dataset, task + 1) if dataset is not None else None
    found = expected_of(row, contestant.components) if row else []
    return found[0].text if found else ""
