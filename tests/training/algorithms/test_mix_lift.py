"""What a mix is for: one model learns two environments, where trained on one of them alone it learns but that one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mix import compare, servers
from benchmarks.mix_environment import COLOURS, SHAPES, rows, validate


def test_the_planted_environment_pays_for_right_colours_alone() -> None:
    found = validate()
    assert (found.ok, found.episodes, found.gold_reward, found.bad_reward) == (True, 8, 1.0, 0.0)
    for place, shapes in SHAPES.items():
        made = list(rows(place, 50, 7, answered=True))
        assert {row["shape"] for row in made} == set(shapes) and len(made) == 50
        answers = {row["conversation"][1]["content"] for row in made}
        assert answers == {f"{colour}." for colour in COLOURS.values()}  # a reply knows no colour


@pytest.mark.slow
def test_a_mix_teaches_what_one_environment_alone_does_not(tmp_path: Path) -> None:
    with servers() as urls:
        found = compare(tmp_path, 42, urls, steps=60, warm_up=60)
    assert found["alone"]["share"] == {"north": 1.0, "south": 0.0}
    assert found["mixed"]["share"] == {"north": 0.5, "south": 0.5}
    assert found["alone"]["before"] == found["mixed"]["before"]
    assert found["lift"]["south"] >= 0.4 and found["lift"]["mean"] >= 0.1
