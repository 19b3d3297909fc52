"""Columns against ``combining``, rollout by rollout, and against TRL's own lines."""

from __future__ import annotations

import math
import os
import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.rewards.episodes import episode, says
from tests.training.rewards.test_combining import trl_advantages
from training.config import RewardComponent
from training.rewards.combining import Aggregation, Scale, counts_for, terms_of, total_of
from training.rewards.combining import advantages as advantages_of
from training.rewards.lab import table as table_module
from training.rewards.lab.figures import (
    Scored,
    advantages,
    correlation,
    group_of,
    histogram,
    rank_correlation,
    ranks,
    scored,
    share_of_spread,
    statistics,
)
from training.rewards.lab.scoring import score_set
from training.rewards.lab.table import KNOWN, Column, Table, table_load
from training.rewards.lab.writing import Recorded, SetWriter
from training.words import Sentence

NAMES = "abcd"
KINDS = ("G1", "G2", "")


def made(folder: Path, groups: int, size: int, *, per_step: int = 10, dead: float = 0.1) -> Table:
    """A set of episodes that say nothing; what they are worth is given as columns."""
    rng = random.Random(groups)
    with SetWriter(folder) as writer:
        for number in range(groups * size):
            group, index = divmod(number, size)
            record = Recorded(
                uuid.UUID(int=number),
                step=group // per_step,
                group=group % per_step,
                index=index,
                error="The server died." if rng.random() < dead else "",
            )
            kind = KINDS[group % 3]
            writer.add(record, episode("q", says("x" * index), row={"category": kind} if kind else {}))
        writer.finish()
    return table_load(folder)


def columns(table: Table, rng: random.Random, *, missing: float = 0.05) -> dict[str, Column]:
    found = {}
    for name in NAMES:
        values = [
            math.nan if rng.random() < missing else rng.choice([0.0, 1.0, 0.5, rng.uniform(-2, 2)])
            for _ in range(table.size)
        ]
        found[name] = Column(np.array(values), np.full(table.size, KNOWN, np.int32), [])
    return found


def random_spec(rng: random.Random) -> list[RewardComponent]:
    def some(value: Any) -> Any:
        return value if rng.random() < 0.4 else None

    spec = []
    for name in NAMES:
        low, begin = rng.uniform(-1, 0.4), rng.randint(0, 5)
        spec.append(
            RewardComponent.model_validate(
                {
                    "name": name,
                    "weight": rng.choice([0, 1, -0.5, rng.uniform(-3, 3)]),
                    "clip": some([low, low + rng.random()]),
                    "scale": some([low, low + 0.1 + rng.random()]),
                    "gate": some(
                        {"component": rng.choice([n for n in NAMES if n != name]), "above": rng.uniform(-0.5, 0.8)}
                    ),
                    "schedule": some(
                        {
                            "kind": rng.choice(["linear", "step"]),
                            "begin": begin,
                            "end": begin + rng.randint(0, 9),
                            "first": rng.uniform(-1, 2),
                            "last": rng.uniform(-1, 2),
                        }
                    ),
                    "categories": rng.choice([[], [], [], ["G1"], ["G1", "G2"]]),
                }
            )
        )
    return spec


def test_columns_are_combining_on_random_specs(tmp_path: Path) -> None:
    table, rng = made(tmp_path, 40, 6), random.Random(3)
    for turn in range(60):
        spec, values, fixed = random_spec(rng), columns(table, rng), rng.choice([None, 4])
        found = scored(table, spec, values, fixed)
        for place in range(table.size):
            kinds = set(table.meta["categories"][table.category[place]])
            counting = [item for item in spec if counts_for(item, kinds)]
            parts = {item.name: float(values[item.name].value[place]) for item in counting}
            whole = bool(parts) and not any(map(math.isnan, parts.values())) and not table.excluded[place]
            assert bool(found.included[place]) == whole, (turn, place)
            if not whole:
                assert math.isnan(found.reward[place])
                continue
            terms = terms_of(parts, spec, int(table.step[place]) if fixed is None else fixed)
            mine = {item.name: found.terms[item.name][place] for item in spec}
            assert {name: term for name, term in mine.items() if not math.isnan(term)} == terms
            assert found.reward[place] == pytest.approx(total_of(terms, spec), abs=1e-12)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """1,000 groups of four in two steps, one rollout in seven excluded."""
    return made(tmp_path_factory.mktemp("set"), 1000, 4, per_step=500, dead=0.15)


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_trls_on_1000_groups(thousand: Table, aggregation: Aggregation, scale: Scale) -> None:
    rng, size, table = random.Random(f"{aggregation}{scale}"), 4, thousand
    spec = [RewardComponent(name=name, weight=weight) for name, weight in zip(NAMES, (1, -0.3, 0.25, 2), strict=True)]
    spec[2] = spec[2].model_copy(update={"categories": ["G1"]})
    values = columns(table, rng)
    for group in range(0, 1000, 9):  # groups without a difference
        place = slice(group * size, group * size + size)
        for name in NAMES:
            values[name].value[place] = 0.1
    found = scored(table, spec, values)
    ours = advantages(table, found, aggregation, scale)
    assert 600 < int((~found.included).sum()) < 3000
    for step in (0, 1):
        at = np.flatnonzero(table.step == step)
        terms = [
            {n: float(found.terms[n][i]) for n in NAMES if not math.isnan(found.terms[n][i])}
            if found.included[i]
            else None
            for i in at
        ]
        nan = math.nan
        rows = [[nan] * 4 if row is None else [row.get(name, nan) for name in NAMES] for row in terms]
        theirs = trl_advantages(rows, [item.weight for item in spec], size, aggregation, scale)
        assert np.nan_to_num(ours[at]) == pytest.approx(theirs, abs=1e-6)
        plain = advantages_of(terms, spec, size, aggregation=aggregation, scale=scale)
        assert [None if math.isnan(value) else value for value in ours[at]] == [
            None if value is None else pytest.approx(value, abs=1e-9) for value in plain
        ]


def test_groups_ranks_and_figures_by_value(tmp_path: Path) -> None:
    table = made(tmp_path, 3, 4, dead=0.0)
    nan = math.nan
    reward = np.array([1.0, 0.5, 0.5, nan, 0.2, 0.2 + 1e-9, 0.2, 0.2, nan, nan, nan, 7.0])
    seen = statistics(reward, group_of(table), table.groups)
    assert seen.flat.tolist() == [False, True, True] and seen.members.tolist() == [3, 4, 1]
    assert seen.mean == pytest.approx([2 / 3, 0.2, 7.0]) and seen.std[0] == pytest.approx(0.288675, abs=1e-6)
    assert seen.std[1] < 1e-8 and math.isnan(seen.std[2])
    assert ranks(table, reward).tolist() == [1, 2, 2, 0, 1, 1, 1, 1, 0, 0, 0, 1]
    one, other = np.array([1.0, 2, 3, 4, nan]), np.array([2.0, 4, 6, 80, 1])
    assert correlation(one, one * -2) == pytest.approx(-1) and rank_correlation(one, other) == pytest.approx(1)
    assert correlation(one, other) == pytest.approx(np.corrcoef(one[:4], other[:4])[0, 1])
    assert correlation(one, np.ones(5)) is None and correlation(one[:2], other[:2]) is None
    shares = [share_of_spread(part, one + other) for part in (one, other)]
    assert sum(share or 0 for share in shares) == pytest.approx(1) and (shares[1] or 0) > 0.9
    assert histogram(np.array([nan])) == {"edges": [], "counts": []}
    assert histogram(np.array([3.0, 3.0])) == {"edges": [2.5, 3.5], "counts": [2]}
    assert sum(histogram(other)["counts"]) == 5


def test_one_component_missing_excludes_and_no_counting_component_excludes(tmp_path: Path) -> None:
    table = made(tmp_path, 3, 1, dead=0.0)
    spec = [
        RewardComponent(name="a", weight=1, categories=["G1", "G2"]),
        RewardComponent(name="b", weight=1, categories=["G1"]),
    ]
    gone = Column(np.array([1.0, math.nan, 1.0]), np.zeros(3, np.int32), [Sentence("gone")])
    values = {"a": gone, "b": gone}
    found: Scored = scored(table, spec, values)
    assert found.included.tolist() == [True, False, False]
    assert found.missing["a"].tolist() == [False, True, False] and not found.missing["b"].any()


def test_a_set_keeps_the_columns_that_were_computed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, 2, 2, dead=0.0)
    monkeypatch.setattr(table_module, "MAX_COLUMNS", 2)
    specs = [RewardComponent(name="length_budget", weight=1, params={"min_chars": n}) for n in (1, 2, 3)]
    for age, item in enumerate(specs):
        score_set(tmp_path, [item])
        if (path := table_module.column_path(tmp_path, item)).exists():
            os.utime(path, (age, age))
    score_set(tmp_path, [RewardComponent(name="coherence", weight=1)])
    kept = [table_module.column_path(tmp_path, item).exists() for item in specs]
    assert kept == [False, False, True]
    moved = RewardComponent(name="other", function="length_budget", weight=9, params={"min_chars": 3}, clip=[0, 0.5])
    assert (table_module.column_of(table, moved).code == KNOWN).all()
