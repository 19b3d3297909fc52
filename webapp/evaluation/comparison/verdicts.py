"""Which is better: the answer of a comparison, the sentence on each pair, and what both leave out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.evaluation import FLOOR, Contender, Decided, Interval, answer_of, decide
from webapp.common.text import in_words
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import FIGURE
from webapp.evaluation.comparison.rewards import Evaluations
from webapp.launch.learned import Overlap, overlap_of_held_out, overlaps_of


class Verdict(NamedTuple):
    """A pair, the better one first where ``told`` (the difference is significant).

    ``p_value`` is corrected for all pairs of the page.
    """

    better: Contestant
    worse: Contestant
    told: bool
    text: str
    p_value: float | None


class Headline(NamedTuple):
    """The answer in one sentence. ``leaders`` are those that it names, the best first, ``pair`` those that its figures
    compare, as places among the evaluations. ``left_out`` says in sentences what it does not cover."""

    kind: str
    text: str
    left_out: list[str]
    leaders: list[Contestant]
    pair: tuple[int, int] | None


def conclusions(contestants: Sequence[Contestant], read: Evaluations | None) -> tuple[Headline, list[Verdict]]:
    """The answer, and a verdict for each pair that played the same tasks, those with a significant difference first.

    ``read`` has those of the contestants that are ``measured``.
    """
    others = [item.run.name for item in contestants if not item.measured]
    if read is None:
        found = answer_of([], [], others)
        return Headline(found.kind, in_words(found.text), [], [], None), []
    decided, learned = decide(read.numbers.pairs), _overlaps_of(read.playing)
    verdicts = [_verdict(read, each, learned) for each in decided]
    verdicts.sort(key=lambda verdict: (not verdict.told, 1.0 if verdict.p_value is None else verdict.p_value))
    found = answer_of(_contenders(read), decided, others)
    left_out = _held_out_notes(read.playing) + [in_words(sentence) for sentence in found.left_out]
    left_out += _learned_notes(read.playing, learned)
    pair = (found.pair.better, found.pair.worse) if found.pair is not None else None
    leaders = [read.playing[place] for place in found.leaders]
    return Headline(found.kind, in_words(found.text), left_out, leaders, pair), verdicts


def _contenders(read: Evaluations) -> list[Contender]:
    success = [found.get(FIGURE) for found in read.numbers.intervals]
    return [
        Contender(item.run.name, known.value if known else None, item.played, item.ended)
        for item, known in zip(read.playing, success, strict=True)
    ]


def _overlaps_of(contestants: Sequence[Contestant]) -> dict[UUID, Overlap]:
    """How many of the tasks that each one played its model learned from."""
    found = overlaps_of(item.run for item in contestants if item.evaluates)
    return found | {item.run.pk: overlap_of_held_out(item.run) for item in contestants if not item.evaluates}


def _held_out_notes(contestants: Sequence[Contestant]) -> list[str]:
    """Which weights of runs that train the answer is about."""
    known = [
        _("%(run)s after step %(step)d") % {"run": item.run.name, "step": item.step}
        for item in contestants
        if item.step is not None
    ]
    text = _("By the tasks that they held out, as they were played last: %(runs)s.")
    return [text % {"runs": ", ".join(known)}] if known else []


def _learned_notes(contestants: Sequence[Contestant], learned: Mapping[UUID, Overlap]) -> list[str]:
    """For each contestant, how many of its tasks it learned from."""
    named = [(item.run.name, learned[item.run.pk].words) for item in contestants if item.run.pk in learned]
    return [_("%(run)s: %(learned)s.") % {"run": name, "learned": words} for name, words in named if words]


def _learned_sentence(run: str, overlap: Overlap) -> str:
    """How many of a pair's tasks one of the two learned from; empty where it learned from none."""
    values = {"run": run, "seen": overlap.seen, "tasks": overlap.tasks}
    if overlap.seen is None:
        return _("%(run)s learned from these tasks.") % values
    return _("%(run)s learned from %(seen)d of these %(tasks)d tasks.") % values if overlap.seen else ""


def _verdict(read: Evaluations, decided: Decided, learned: Mapping[UUID, Overlap]) -> Verdict:
    better, worse = read.playing[decided.better], read.playing[decided.worse]
    tries = max(read.numbers.sheets[place].most for place in (decided.better, decided.worse))
    sentences = [_pair_text(better.run.name, worse.run.name, tries, decided)]
    sentences += [_learned_sentence(item.run.name, learned.get(item.run.pk, Overlap())) for item in (better, worse)]
    return Verdict(better, worse, decided.apart, " ".join(filter(None, sentences)), decided.p_value)


def _pair_text(better: str, worse: str, tries: int, decided: Decided) -> str:
    found = decided.found
    values = {
        "better": better,
        "worse": worse,
        "wins": found.wins,
        "losses": found.losses,
        "points": _points_text(found.difference),
        "p": p_text(decided.p_value, floor=at_floor(found.p_value)),
        "n": _count_text(found.tasks, tries),
    }
    if decided.apart:
        text = _(
            "%(better)s solves %(wins)d tasks more often than not that %(worse)s does not; the reverse holds for "
            "%(losses)d: success %(points)s, %(p)s, n = %(n)s."
        )
    elif found.needed is not None:
        values["needed"] = _round_up(found.needed)
        text = _(
            "%(better)s and %(worse)s cannot be told apart: success %(points)s, %(p)s, n = %(n)s. About %(needed)s "
            "tasks would be needed."
        )
    else:
        text = _("%(better)s and %(worse)s cannot be told apart: success %(points)s, %(p)s, n = %(n)s.")
    return text % values


def _points_text(found: Interval) -> str:
    """``+7.8 points (95%: 4.1 to 11.6)``."""
    shown = _("%(value)s points") % {"value": signed(100 * (found.value or 0.0))}
    if found.low is None or found.high is None:
        return shown
    ends = {"low": one_decimal(100 * found.low), "high": one_decimal(100 * found.high)}
    return _("%(points)s (95%%: %(low)s to %(high)s)") % {"points": shown, **ends}


def signed(value: float) -> str:
    """Points with one decimal and a sign."""
    return one_decimal(value) if value < 0 else f"+{one_decimal(value)}"


def one_decimal(value: float) -> str:
    """Points with one decimal."""
    return f"{value + 0.0:.1f}".replace("-", "−")


def at_floor(p_value: float | None) -> bool:
    """Whether a p-value, before it was corrected, is the least that its test can give: then only a bound is known."""
    return p_value is not None and p_value <= FLOOR


def p_text(p_value: float | None, *, floor: bool = False) -> str:
    """A p-value as it is printed, with its sign: never 0, and a bound of one digit where only a bound is known."""
    if p_value is None:
        return "p –"
    if floor and p_value >= 1e-4:
        unit = 10.0 ** math.floor(math.log10(p_value))
        return f"p < {(math.floor(p_value / unit) + 1) * unit:.1g}"
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def _count_text(tasks: int, tries: int) -> str:
    shown = ngettext("%(n)s task", "%(n)s tasks", tasks) % {"n": f"{tasks:,}"}
    return shown if tries <= 1 else f"{shown} × {tries}"


def _round_up(tasks: int) -> str:
    """Two digits: more would be claimed than is known."""
    if tasks > 1_000_000:
        return _("more than a million")
    digits = 10 ** max(0, len(str(tasks)) - 2)
    return f"{-(-tasks // digits) * digits:,}"
