"""The parts of a job: kinds of tasks that are played side by side, and how the groups of a run are dealt over them.

1. The rows of the parts stand one after the other; a row's place among all of them says which part it is of. A job
   without a mix is one segment without a name.
2. Groups are dealt one after the other: after any number ``h`` of them a part of share ``w`` has had ``h × w``, give or
   take less than one. So a sampling of few groups gives each part its share too, over the samplings.
3. Each part goes through its own tasks in the order in which a run of it alone would.

Both follow from config and rows alone, so a run that goes on finds its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from training.algorithms.job import row_order
from training.config import JobConfig, RewardComponent
from training.data.schema import Row
from training.errors import ConfigError, TiltyardError
from training.policy.engine import Engine
from training.rollout.players import Part, make_players
from training.rollout.scoring import Scorer
from training.rollout.tokens import ChatTemplate
from training.words import _, sentence


class Segment(NamedTuple):
    """The rows from ``begin`` up to ``end`` (exclusive): those of one part of a mix, or all of a job without one.

    ``config`` is that of the part as a job by itself, ``components`` are what scores its rollouts. ``weight`` over the
    sum of all weights is its share of the groups.
    """

    name: str
    config: JobConfig
    components: list[RewardComponent]
    weight: float
    begin: int
    end: int

    def own(self, places: Iterable[int]) -> list[int]:
        """Those of the places that are this part's."""
        return [place for place in places if self.begin <= place < self.end]


def segments_of(
    config: JobConfig,
    rows_of: Callable[[JobConfig], list[Row]],
    scored_by: Callable[[JobConfig], list[RewardComponent]],
) -> tuple[list[Segment], list[Row]]:
    """The parts of a job and the rows of all of them, one part's after the other's."""
    if not config.mix.parts:
        rows = rows_of(config)
        return [Segment("", config, scored_by(config), 1.0, 0, len(rows))], rows
    found: list[Segment] = []
    rows = []
    for part, job in zip(config.mix.parts, config.courses, strict=True):
        own = rows_of(job)
        found.append(Segment(part.name, job, scored_by(job), part.weight, len(rows), len(rows) + len(own)))
        rows = [*rows, *own]
    return found, rows


@contextmanager
def named(part: str) -> Iterator[None]:
    """Whose data is wrong: a run that mixes several has to say it."""
    try:
        yield
    except TiltyardError as error:
        if part:
            error.message = sentence(_("Part {part}: {text}"), part=part, text=error.message)
        raise


def dealt(weights: Sequence[float], count: int) -> list[int]:
    """Which part each of ``count`` groups is of, so that every part has its share of any first ``h`` of them, give or
    take less than one group.

    The ``k``-th group of a part of share ``w`` comes after ``(k - 1) / w`` groups and at the latest as number
    ``k / w``, rounded up; of the parts that may come, the one whose latest number is the lowest does (these are the
    windows of Baruah et al. 1996, *Proportionate progress*, where the earliest deadline first meets all of them). Parts
    of weight 0 get none. Counted in whole numbers, so that no rounding ever decides.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    scale = lcm(*(weight.denominator for weight in exact))
    shares = [int(weight * scale) for weight in exact]
    whole, had, order = sum(shares), [0] * len(shares), []
    for number in range(1, count + 1):
        chosen = -1
        for part, share in enumerate(shares):
            if had[part] * whole < number * share and (
                chosen < 0 or (had[part] + 1) * shares[chosen] < (had[chosen] + 1) * share
            ):
                chosen = part
        had[chosen] += 1
        order.append(chosen)
    return order


def order_of(segments: Sequence[Segment], places: Sequence[int], count: int, seed: int) -> list[int]:
    """The places of ``count`` groups' rows in order; ``places`` are all that are played.

    Raises ``ConfigError`` where a part that has a share has no row to play.
    """
    parts = dealt([segment.weight for segment in segments], count)
    own = [segment.own(places) for segment in segments]
    for segment, found in zip(segments, own, strict=True):
        if segment.weight and not found:
            raise ConfigError(f"Part {segment.name} has no task to learn from.", option="mix.parts")
    orders = [
        iter(row_order(len(found), parts.count(number), seed=seed, shuffle=segment.config.data.shuffle))
        for number, (segment, found) in enumerate(zip(segments, own, strict=True))
    ]
    return [own[part][next(orders[part])] for part in parts]


def parts_of(
    segments: Sequence[Segment],
    played_as: Callable[[JobConfig], JobConfig],
    scorer_of: Callable[[list[RewardComponent]], Scorer],
    engine: Engine,
    template: ChatTemplate,
) -> tuple[Part, list[Part]]:
    """The first of a job's parts, and all of them; none where the job has no mix. ``played_as`` gives the config that a
    part is played with."""
    configs = [played_as(segment.config) for segment in segments]
    players = make_players(configs, engine, template)
    parts = [
        Part(segment.name, segment.begin, config, player, scorer_of(segment.components))
        for segment, config, player in zip(segments, configs, players, strict=True)
    ]
    return parts[0], parts if len(parts) > 1 else []
