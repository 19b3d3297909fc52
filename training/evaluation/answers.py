"""Which contestant is better: the verdict on each pair, and one answer for all, of figures that were computed before.

A pair differs where its p-value, corrected for all pairs of the comparison (Holm), is at most ``ALPHA``. The answer
claims nothing that these verdicts do not: the best contestant is named where it is better than every other one, else
those that no other is better than. What the answer leaves out is named next to it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

from training.evaluation.comparisons import ALPHA, Interval, Paired, holm
from training.words import Sentence, _, counted, ngettext, sentence

Kind = Literal["better", "leaders", "ahead", "equal", "circle", "nothing"]
"""``better``: one is better than every other. ``leaders``: none is better than any of these. ``ahead``: none is better
than this one, but it is not better than all. ``equal``: no pair differs. ``circle``: each is worse than another one.
``nothing``: no two can be compared."""

WIDE = 10
"""Points: an interval as wide as this has no decimals."""


class Contender(NamedTuple):
    """An evaluation of a comparison, or a run that held out tasks. ``success`` is its mean over its own tasks.

    ``played`` is equal for two that played the same tasks, and ``None`` where these are not known."""

    name: str
    success: float | None = None
    played: Hashable = None
    ended: bool = True


class Decided(NamedTuple):
    """The verdict on a pair, with the places of the two; ``better`` has the higher success of the tasks of both.

    ``found`` compares the better one with the worse one. ``p_value`` is corrected for all pairs; ``apart``: they
    differ.
    """

    better: int
    worse: int
    found: Paired
    p_value: float | None
    apart: bool


class Answer(NamedTuple):
    """``leaders`` are the places of those that it names, the best first. ``pair`` is the one that the figures of
    ``text`` are of. ``left_out`` says in sentences what the answer does not cover."""

    kind: Kind
    text: Sentence
    left_out: list[Sentence]
    leaders: tuple[int, ...] = ()
    pair: Decided | None = None


def decide(pairs: Mapping[tuple[int, int], Paired]) -> list[Decided]:
    """The verdict on each pair ``(a, b)``, in the same order."""
    corrected = holm([found.p_value for found in pairs.values()])
    decided = []
    for ((a, b), found), p_value in zip(pairs.items(), corrected, strict=True):
        swap = (found.difference.value or 0.0) < 0
        better, worse = (a, b) if swap else (b, a)
        apart = p_value is not None and p_value <= ALPHA
        decided.append(Decided(better, worse, turned(found) if swap else found, p_value, apart))
    return decided


def turned(found: Paired) -> Paired:
    """The same pair, compared the other way round."""
    value, low, high, tasks = found.difference
    difference = Interval(_negated(value), _negated(high), _negated(low), tasks)
    return found._replace(wins=found.losses, losses=found.wins, difference=difference)


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


def answer_of(contenders: Sequence[Contender], decided: Sequence[Decided], others: Sequence[str] = ()) -> Answer:
    """The answer for all contenders. ``others`` names what is compared with them, but played no tasks to compare by."""
    compared = _largest_group(len(contenders), decided)
    if len(compared) < 2:
        return Answer("nothing", _reason(contenders), [])
    verdicts = [each for each in decided if each.better in compared]
    ranking = _ranking(contenders, compared, verdicts)
    text = _text(ranking, [contender.name for contender in contenders], len(compared))
    left_out = _left_out(contenders, compared, ranking.pair, others)
    return Answer(ranking.kind, text, left_out, ranking.leaders, ranking.pair)


def _largest_group(count: int, decided: Sequence[Decided]) -> list[int]:
    """The places of the most contenders that pairs connect; of two groups as large, the first one."""
    group = list(range(count))
    for each in decided:
        joined, left = sorted((group[each.better], group[each.worse]))
        group = [joined if number == left else number for number in group]
    largest = max(group, key=lambda number: (group.count(number), -number), default=None)
    return [place for place in range(count) if group[place] == largest]


class _Ranking(NamedTuple):
    """``open``: the places that the only leader is not better than."""

    kind: Kind
    leaders: tuple[int, ...] = ()
    pair: Decided | None = None
    open: tuple[int, ...] = ()


def _ranking(contenders: Sequence[Contender], compared: Sequence[int], decided: Sequence[Decided]) -> _Ranking:
    """Who leads, and the pair that shows how far: the closest of the one that is better, else the widest."""
    beats = {(each.better, each.worse) for each in decided if each.apart}
    beaten = {worse for _better, worse in beats}
    unbeaten = [place for place in compared if place not in beaten]
    if not unbeaten:
        return _Ranking("circle")
    if len(unbeaten) > 1:
        between = [each for each in decided if {each.better, each.worse} <= set(unbeaten)]
        kind: Kind = "equal" if len(unbeaten) == len(compared) else "leaders"
        return _Ranking(kind, _best_first(contenders, unbeaten, between), max(between, key=_points, default=None))
    best = unbeaten[0]
    rest = tuple(place for place in compared if place != best and (best, place) not in beats)
    if rest:
        return _Ranking("ahead", (best,), open=rest)
    return _Ranking("better", (best,), min((each for each in decided if each.better == best), key=_points))


def _best_first(contenders: Sequence[Contender], places: Sequence[int], decided: Sequence[Decided]) -> tuple[int, ...]:
    """By success, unknown last; two in the order of their verdict, which counts only the tasks of both."""
    if len(places) == 2 and decided:
        return decided[0].better, decided[0].worse
    known = {place: contenders[place].success for place in places}
    return tuple(sorted(places, key=lambda place: math.inf if known[place] is None else -(known[place] or 0.0)))


def _points(decided: Decided) -> float:
    return 100 * (decided.found.difference.value or 0.0)


# --- Sentences ------------------------------------------------------------------------------------------------------


def _text(ranking: _Ranking, names: Sequence[str], compared: int) -> Sentence:
    leaders, figures = [names[place] for place in ranking.leaders], _figures(ranking.pair, names)
    match ranking.kind:
        case "better" if compared == 2:
            return sentence(_("{first} is better: {points} points of success ({detail})"), **figures)
        case "better":
            template = _("{first} is the best of {n}: {points} points of success over {second}, the closest ({detail})")
            return sentence(template, n=compared, **figures)
        case "ahead":
            rest = _joined([names[place] for place in ranking.open])
            template = _("{best} leads, but no difference from {others} can be shown")
            return sentence(template, best=leaders[0], others=rest)
        case "leaders":
            claim = sentence(_("{names} lead; no difference between them can be shown"), names=_joined(leaders))
        case "equal" if compared == 2:
            claim = sentence(_("No difference can be shown"))
        case "equal":
            claim = sentence(_("No difference between the {n} can be shown"), n=compared)
        case _:
            return sentence(_("None of the {n} leads: each is worse than another one"), n=compared)
    return _with_figures(claim, ranking, figures)


def _with_figures(claim: Sentence, ranking: _Ranking, figures: Mapping[str, str]) -> Sentence:
    """That no difference can be shown, and the one that was seen."""
    if ranking.pair is None:
        return claim
    if abs(_points(ranking.pair)) < 1e-9:
        template = _("{claim}: they succeed equally often ({detail})")
    elif len(ranking.leaders) == 2:
        template = _("{claim}: {points} points of success for {first} ({detail})")
    else:
        template = _("{claim}; the largest is {points} points of success, {first} over {second} ({detail})")
    return sentence(template, claim=claim, **figures)


def _figures(pair: Decided | None, names: Sequence[str]) -> dict[str, str]:
    """The names of a pair, its difference in points, and the interval with the number of tasks."""
    if pair is None:
        return {}
    value, low, high, count = pair.found.difference
    tasks = counted(ngettext("{n} task", "{n} tasks"), count)
    points, *ends = _rounded([100 * each for each in (value or 0.0, low, high) if each is not None])
    detail = (
        sentence(_("95% interval {low} to {high}, {tasks}"), low=ends[0], high=ends[1], tasks=tasks) if ends else tasks
    )
    return {"first": names[pair.better], "second": names[pair.worse], "points": f"+{points}", "detail": detail}


def _rounded(points: Sequence[float]) -> list[str]:
    """Points as texts: whole ones where the interval is ``WIDE`` and none of them would become a 0 that it is not."""
    wide = len(points) < 3 or points[2] - points[1] >= WIDE
    whole = wide and all(round(each) or not each for each in points)
    return [f"{each + 0.0:.{0 if whole else 1}f}".replace("-", "−") for each in points]


def _joined(names: Sequence[str]) -> str:
    """Names as a sentence lists them."""
    if len(names) < 2:
        return "".join(names)
    return sentence(_("{names} and {last}"), names=", ".join(names[:-1]), last=names[-1])


def _reason(contenders: Sequence[Contender]) -> Sentence:
    """Why no two contenders can be compared, and what to do."""
    if not contenders:
        return sentence(
            _(
                "No answer: none of these runs is an evaluation or has played held-out tasks. Evaluate their models on "
                "the same tasks, then compare those."
            )
        )
    if len(contenders) == 1:
        template = _(
            "No answer: only {name} is an evaluation or has played held-out tasks. Evaluate the others on the same "
            "tasks, then compare those."
        )
        return sentence(template, name=contenders[0].name)
    played = [contender.played for contender in contenders if contender.played is not None]
    if len(set(played)) == len(played):
        return sentence(
            _("No answer: each played other tasks. Evaluate the models on the same tasks, then compare those.")
        )
    if not all(contender.ended for contender in contenders):
        return sentence(_("No answer yet: no task has a try of two of them that counts. Wait until more are played."))
    return sentence(
        _(
            "No answer: no task has a success of two of them. Either their tries failed outside the policy, or their "
            "environment reports no success: open the rollouts to see which."
        )
    )


def _left_out(
    contenders: Sequence[Contender], compared: Sequence[int], pair: Decided | None, others: Sequence[str]
) -> list[Sentence]:
    names = [contender.name for contender in contenders]
    sentences = []
    if pair is not None and pair.found.alone:
        texts = ngettext(
            "{n} task is left out: only one of {first} and {second} has a try of it that counts.",
            "{n} tasks are left out: only one of {first} and {second} has a try of them that counts.",
        )
        sentences.append(counted(texts, pair.found.alone, first=names[pair.better], second=names[pair.worse]))
    if unended := [names[place] for place in compared if not contenders[place].ended]:
        sentences.append(sentence(_("Not final, because not ended: {names}."), names=_joined(unended)))
    if apart := [name for place, name in enumerate(names) if place not in compared]:
        sentences.append(
            sentence(
                _("Left out, because they share no task that counts with the others: {names}."), names=_joined(apart)
            )
        )
    if others:
        template = _("Left out, because they are no evaluations and have played no held-out tasks: {names}.")
        sentences.append(sentence(template, names=_joined(others)))
    return sentences
