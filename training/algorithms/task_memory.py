"""What a run remembers of its tasks, and the tasks that it draws by it (``data.draw``: *pass_rate*).

1. Evidence of a sampling counts from the moment the trainer takes it. A sampling's tasks are drawn right before it
   begins: the next one once the last was taken, and with ``rollout.max_staleness`` s, sampling k once k − s was. They
   are noted as *planned* until they are taken.
2. A checkpoint holds the memory and what is planned as they were at its border, in ``tasks.json``. A run that goes on
   from there plays the planned tasks, and so draws what it would have drawn without the break.
3. Tasks are known by what they ask and expect (``training/data/identity.py``), so evidence outlives a change of stage,
   another order of the rows and another spelling of them; rows that ask the same are counted apart, by their order.
   A change of stage drops what is planned, and the range of the rewards, which are another stage's.
4. The tasks of a refill are those that were drawn after the sampling's own, by the same chances.
5. An outcome is the environment's verdict where a group has any, else the reward between the lowest and the highest
   that the run has seen. Excluded rollouts are no evidence. Those of groups that gave their place to others are.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.algorithms.drawing import (
    HOPELESS,
    NONE,
    SOLVED,
    Evidence,
    added,
    chances,
    drawn,
    expected,
    faded,
    scaled,
    worth,
)
from training.config import DataConfig
from training.data.identity import identity_of
from training.data.schema import Row
from training.rollout.past import mix_seed
from training.rollout.signal import outcomes_of
from training.rollout.trajectory import Rollout

TASKS_NAME = "tasks.json"
_DRAWS = -2
"""Tells the seeds of draws from those of refills and of rollouts."""


class Memory(BaseModel):
    """Evidence by task. ``samplings`` counts those that were taken, in all attempts and stages of the run; ``stage`` is
    the one that they were last taken in; ``low`` and ``high`` are of its rewards; ``planned`` has the tasks of steps
    that were begun."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    version: int = Field(1, ge=1, le=1)
    samplings: int = Field(0, ge=0)
    stage: str = ""
    low: float | None = None
    high: float | None = None
    tasks: dict[str, Evidence] = {}
    planned: dict[int, list[str]] = {}

    def write(self, folder: Path) -> None:
        """Put it into a checkpoint."""
        (folder / TASKS_NAME).write_text(self.model_dump_json(), encoding="utf-8")

    def copied(self) -> Memory:
        """As it is now; the evidence of one task never changes in place."""
        return self.model_copy(update={"tasks": dict(self.tasks), "planned": dict(self.planned)})


def read_memory(folder: Path) -> Memory | None:
    """What a checkpoint remembers; ``None`` where it holds nothing of this version."""
    try:
        return Memory.model_validate_json((folder / TASKS_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def keys_of(rows: Sequence[Row]) -> list[str]:
    """A name for each row that is the same in another order, spelling or version of the dataset."""
    seen: Counter[str] = Counter()
    found = []
    for row in rows:
        numbers = "/".join(map(str, identity_of(row)))
        name = hashlib.blake2b(numbers.encode(), digest_size=12).hexdigest()
        found.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


class Drawing:
    """Draws the tasks of each sampling, and learns how they went. Not thread-safe: the trainer's thread alone asks."""

    def __init__(
        self, options: DataConfig, rows: Sequence[Row], places: Sequence[int], seed: int, memory: Memory | None = None
    ) -> None:
        """``places`` of ``rows`` may be drawn. ``memory`` is that of the stage that goes on (``entered``)."""
        self._options, self._seed = options, seed
        names = keys_of(rows)
        self._keys = {place: names[place] for place in places}
        self._places = {name: place for place, name in self._keys.items()}
        self.memory = memory or Memory()

    @property
    def known(self) -> int:
        """How many of the tasks there is evidence of."""
        return sum(name in self.memory.tasks for name in self._places)

    def tasks_of(self, step: int, count: int, spare: int = 0) -> list[int]:
        """The places of ``count`` tasks that are played for ``step``: drawn now, or when they were first asked for.
        ``spare`` more are drawn after them, for groups that give up their place (``spare_of``)."""
        memory, options = self.memory, self._options
        planned = memory.planned.get(step)
        if planned is None or len(planned) != count + spare or any(name not in self._places for name in planned):
            names = list(self._places)
            worths = [worth(self._evidence(name), options.draw_prior) for name in names]
            by, seed = chances(worths, options.draw_even_share), mix_seed(self._seed, step, _DRAWS)
            planned = [names[number] for number in drawn(by, count + spare, seed)]
            memory.planned[step] = planned
        return [self._places[name] for name in planned[:count]]

    def spare_of(self, step: int, count: int) -> list[int]:
        """The places that were drawn after the ``count`` tasks of a step, which was not taken yet."""
        return [self._places[name] for name in self.memory.planned[step][count:]]

    def took(self, step: int, played: Sequence[Rollout]) -> dict[str, float]:
        """The trainer has taken the sampling of ``step``, with all that was ``played`` for it. Returns the figures."""
        memory = self.memory
        memory.planned.pop(step, None)
        memory.samplings += 1
        groups: dict[int, list[Rollout]] = {}
        for rollout in played:
            groups.setdefault(rollout.row, []).append(rollout)
        new = sum(self._keys[place] not in memory.tasks for place in groups)
        self._widen(list(groups.values()))
        for place, members in groups.items():
            if found := self._outcomes(members):
                name = self._keys[place]
                before = memory.tasks.get(name, NONE)
                memory.tasks[name] = added(before, found, memory.samplings, self._options.draw_half_life)
        return self._figures(new / len(groups) if groups else None)

    def _figures(self, new: float | None) -> dict[str, float]:
        means = [expected(self._evidence(name), self._options.draw_prior) for name in self._places]
        figures = {
            "tasks/drawn_distinct": float(self.known),
            "tasks/solved_share": sum(mean >= SOLVED for mean in means) / len(means),
            "tasks/hopeless_share": sum(mean <= HOPELESS for mean in means) / len(means),
        }
        return figures if new is None else figures | {"tasks/new_share": new}

    def _evidence(self, name: str) -> Evidence:
        memory = self.memory
        found = memory.tasks.get(name)
        return NONE if found is None else faded(found, memory.samplings, self._options.draw_half_life)

    def _widen(self, groups: Sequence[Sequence[Rollout]]) -> None:
        """Take the rewards that stand for outcomes into the range of those that were seen."""
        memory = self.memory
        values = [value for members in groups if not outcomes_of(members) for value in _rewards(members)]
        known = [value for value in (memory.low, memory.high) if value is not None]
        if values:
            memory.low, memory.high = min([*values, *known]), max([*values, *known])

    def _outcomes(self, members: Sequence[Rollout]) -> list[float]:
        if verdicts := outcomes_of(members):
            return [scaled(verdict, 0.0, 1.0) for verdict in verdicts]
        memory = self.memory
        if memory.low is None or memory.high is None:
            return []
        return [scaled(value, memory.low, memory.high) for value in _rewards(members)]


def entered(memory: Memory | None, stage: str) -> Memory | None:
    """A checkpoint's memory where its run goes on in ``stage``, which may be another one."""
    if memory is None or memory.stage == stage:
        return memory
    return memory.model_copy(update={"stage": stage, "low": None, "high": None, "planned": {}})


def _rewards(members: Sequence[Rollout]) -> list[float]:
    return [rollout.reward for rollout in members if rollout.parts is not None and rollout.reward is not None]
