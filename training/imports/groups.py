"""Which rollouts of a step belong together: those with the same id, or else with the same prompt.

A prompt that a step draws twice gives twice as many rollouts as the others have. Its rollouts are split then, in the
order of their rows, into groups as large as those of the others; where that does not come out even, the report says so.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from training.imports.base import Notes, Sampled
from training.words import counted, ngettext

GROUP_KEYS = ("uid", "group_id", "prompt_id", "example_id", "_ng_task_index", "task_idx", "group_index")
"""Columns that say which rollouts belong together."""
_NAMED = "#"
"""Before the key of rollouts whose row says which belong together."""
_SPLIT = ngettext(
    "One prompt occurs several times in a step: its rollouts were split into groups of {size}, as the others have.",
    "{n} prompts occur several times in a step: their rollouts were split into groups of {size}, as the others have.",
)
_ODD = ngettext(
    "In step {step} one prompt has {rows} rollouts, where others have {size}: they are one group, whose advantages may "
    "not be those of the run.",
    "{n} prompts have more rollouts than others, which have {size}: in step {step} one has {rows}. Each is one group, "
    "whose advantages may not be those of the run.",
)


def group_key(row: dict[str, Any], prompt: str) -> str:
    """What the rollouts of a group have in common."""
    named = next((str(row[name]) for name in GROUP_KEYS if row.get(name) not in (None, "")), None)
    found = hashlib.blake2b((named or prompt).encode(), digest_size=12).hexdigest()
    return _NAMED + found if named is not None else found


class Sizes:
    """How large the groups of an import are that only their prompt holds together: in each step as most of its prompts
    have it, the smaller of two that are as frequent; where a step has one prompt, as in all steps."""

    def __init__(self, groups: Counter[tuple[int, str]]) -> None:
        by_prompt = {place: count for place, count in groups.items() if not place[1].startswith(_NAMED)}
        in_step: dict[int, list[int]] = {}
        for (step, _key), count in by_prompt.items():
            in_step.setdefault(step, []).append(count)
        usual = _usual(by_prompt.values())
        self.of = {step: _usual(sizes) if len(sizes) > 1 else usual for step, sizes in in_step.items()}
        larger = {place: count for place, count in by_prompt.items() if count > self.of[place[0]] > 1}
        self.split = {place for place, count in larger.items() if count % self.of[place[0]] == 0}
        self.odd = {place: count for place, count in larger.items() if place not in self.split}
        self.seen: Counter[tuple[int, str]] = Counter()

    def say(self, notes: Notes) -> None:
        """Say what was done about prompts that a step has drawn several times."""
        if self.split:
            notes.say(counted(_SPLIT, len(self.split), size=self.of[min(self.split)[0]]))
        if self.odd:
            (step, _key), rows = max(self.odd.items(), key=lambda item: item[1])
            notes.say(counted(_ODD, len(self.odd), rows=rows, step=step, size=self.of[step]))


def _usual(sizes: Iterable[int]) -> int:
    found = Counter(sizes)
    most = max(found.values(), default=0)
    return min((size for size, count in found.items() if count == most), default=0)


def placed(value: Sampled, notes: Notes) -> Sampled:
    """A rollout in its group."""
    if notes.shared.sizes is None:
        notes.shared.sizes = Sizes(notes.shared.groups)
    sizes: Sizes = notes.shared.sizes
    place = (value.step, value.key)
    if place in sizes.odd or place in sizes.split:
        sizes.say(notes)
    if place not in sizes.split:
        return value
    number = sizes.seen[place] // sizes.of[value.step]
    sizes.seen[place] += 1
    return value._replace(key=f"{value.key}/{number}") if number else value
