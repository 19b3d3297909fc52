"""Preference pairs of a run's rollouts: for each group the best against the worst, as rows that DPO learns from.

Read from the journals of the run's attempts, oldest first, in constant memory: a group is held only until it is scored.

1. A pair is made of the highest and the lowest reward of a group, where they differ by at least ``min_gap``.
2. Excluded rollouts have no part in it. Those with calls that could not be read are passed over: older journals have
   what was understood of a turn alone, and texts that no model wrote teach nothing. So are texts that no dataset holds.
3. Both must have been asked the same, and have answered differently. An attempt that trained a step again may have
   played the very same rollouts: equal pairs are made once.
4. Rollouts on held-out tasks are in no group, so they stay out of what is trained on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from envs.wire import Message
from training.config import JobConfig
from training.data.learned import CHOSEN, REJECTED
from training.data.schema import RowError, check_tree, message_dict
from training.errors import ConfigError, DataError
from training.journal import GroupScored, RolloutFinished, RolloutStarted, TurnAdded, read_events

WHOLE_FILE = 1 << 50
WRITTEN_AS_READ = ("auto", "hermes", "text")
"""Dialects whose turns a chat template writes as the model wrote them."""
Value = dict[str, Any]


class PairsMade(NamedTuple):
    """What was written, of how many groups; ``unread`` rollouts had calls that could not be read."""

    pairs: int
    groups: int
    unread: int
    bytes: int


@dataclass
class _Played:
    """One rollout, as far as the journal has come."""

    turns: dict[int, list[Message]] = field(default_factory=dict)
    finished: RolloutFinished | None = None

    @property
    def prompt(self) -> list[Value]:
        return [message_dict(message) for message in self.turns.get(0, [])]

    @property
    def answer(self) -> list[Value]:
        return [message_dict(message) for turn in sorted(self.turns) if turn for message in self.turns[turn]]


def require_pairs(config: JobConfig) -> None:
    """Raise ``ConfigError`` for a job of whose rollouts no pairs can be made."""
    if not config.method.plays:
        raise ConfigError("this run played no rollouts.", option="kind")
    if config.rollout.dialect not in WRITTEN_AS_READ:
        name = config.rollout.dialect
        raise ConfigError(
            f"calls in the dialect {name} are not recorded as they were written.",
            option="rollout.dialect",
            hint="Make pairs of a run whose calls are in the Hermes dialect.",
        )


def write_pairs(
    journals: Sequence[Path],
    output: Path,
    min_gap: float,
    *,
    limit_bytes: int = 0,
    groups: Collection[tuple[int, int]] | None = None,
) -> PairsMade:
    """Write ``output``, which must not exist, as JSON Lines. Raises ``DataError`` where it is empty or too big.

    ``groups``: only of these, each by its step and its number.
    """
    with output.open("xb") as file:
        try:
            return _written(file, _Maker(min_gap, groups), journals, limit_bytes)
        except BaseException:
            output.unlink()
            raise


def _written(file: BinaryIO, maker: _Maker, journals: Sequence[Path], limit_bytes: int) -> PairsMade:
    pairs = size = 0
    for row in maker.rows(journals):
        line = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()
        pairs, size = pairs + 1, size + len(line)
        if limit_bytes and size > limit_bytes:
            raise DataError("The pairs are larger than a dataset may be.", hint="Raise the minimum gap.")
        file.write(line)
    if not pairs:
        raise DataError("No group has two rollouts that differ so much.", hint="Lower the minimum gap.")
    return PairsMade(pairs, maker.groups, maker.unread, size)


class _Maker:
    def __init__(self, min_gap: float, wanted: Collection[tuple[int, int]] | None = None) -> None:
        self._min_gap, self._wanted = min_gap, wanted
        self._open: dict[str, _Played] = {}
        self._tools: dict[str, list[Value]] = {}
        self._made: set[bytes] = set()
        self.groups = self.unread = 0

    def rows(self, journals: Sequence[Path]) -> Iterator[Value]:
        """A row for each pair, in the order of the groups."""
        for path in journals:
            self._open, self._tools = {}, {}
            for _line, event in read_events(path, max_bytes=WHOLE_FILE):
                if isinstance(event, RolloutStarted):
                    self._open[event.rollout] = _Played()  # again, where its environment was lost
                elif isinstance(event, TurnAdded) and event.rollout in self._open:
                    self._open[event.rollout].turns[event.turn] = event.messages
                elif isinstance(event, RolloutFinished) and event.rollout in self._open:
                    self._open[event.rollout].finished = event
                elif isinstance(event, GroupScored):
                    yield from self._row(event)

    def _row(self, event: GroupScored) -> Iterator[Value]:
        if event.tools is not None:
            self._tools[event.tools_digest] = event.tools
        if self._wanted is not None and (event.step, event.group) not in self._wanted:
            for name in event.rollouts:
                self._open.pop(name, None)
            return
        self.groups += 1
        found: list[tuple[float, str, _Played]] = []
        for name in event.rollouts:
            played = self._open.pop(name, None)
            end = played.finished if played is not None else None
            if played is None or end is None or end.reward is None or not math.isfinite(end.reward):
                continue
            if end.parse_errors:
                self.unread += 1
                continue
            found.append((end.reward, name, played))
        if len(found) < 2:
            return
        best, worst = max(found, key=lambda item: item[0]), min(found, key=lambda item: item[0])
        if best[0] - worst[0] < self._min_gap or best[0] == worst[0]:
            return
        row = self._pair(event, best, worst)
        if row is not None:
            yield row

    def _pair(
        self, event: GroupScored, best: tuple[float, str, _Played], worst: tuple[float, str, _Played]
    ) -> Value | None:
        prompt, chosen, rejected = best[2].prompt, best[2].answer, worst[2].answer
        if not prompt or prompt != worst[2].prompt or not chosen or not rejected or chosen == rejected:
            return None
        row: Value = {"messages": prompt}
        if tools := self._tools.get(event.tools_digest):
            row["tools"] = tools
        row |= {CHOSEN: chosen, REJECTED: rejected}
        digest = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=16).digest()
        if digest in self._made:
            return None
        self._made.add(digest)
        try:
            check_tree(row)
        except RowError:  # a model may write a NUL, which no dataset holds
            self.unread += 1
            return None
        return row | {"rewards": [best[0], worst[0]], "rollouts": [best[1], worst[1]], "step": event.step}
