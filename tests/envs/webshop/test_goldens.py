"""Episodes that upstream's own engine played on the real data, replayed page for page and reward for reward."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.webshop.reward import Goal, score
from envs.webshop.session import SEPARATOR, Page, Session, Shop, Target, parse_action

MIN_OVERLAP = 0.9
# The words of one title are not known to the last.
TITLE_TOLERANCE = 0.005
WORD = re.compile(r"[^\W_]*[^\W\d_][^\W_]*")


@pytest.fixture(scope="module")
def goldens(webshop_data: Path) -> list[dict[str, Any]]:
    text = (webshop_data / "golden_transcripts_upstream_engine.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def goal_of(shop: Shop, golden: dict[str, Any]) -> Goal:
    """Upstream draws the cap without a seed; the golden says what it was."""
    return replace(shop.goals[golden["session_id"]], price_upper=golden["goal"]["price_upper"])


def products_of(page: Page) -> set[str]:
    return {name for name, target in page.clickables.items() if target.kind == "product"}


def assert_same_results_page(page: Page, step: dict[str, Any]) -> float:
    """Same layout and same texts for the hits that both have; the share of common hits."""
    mine, theirs = page.observation.split(SEPARATOR), step["observation"].split(SEPARATOR)
    assert len(mine) == len(theirs)
    first = mine.index("Next >") + 1
    assert mine[:first] == theirs[:first]
    ours = dict(zip(mine[first::3], zip(mine[first + 1 :: 3], mine[first + 2 :: 3], strict=True), strict=True))
    wanted = dict(zip(theirs[first::3], zip(theirs[first + 1 :: 3], theirs[first + 2 :: 3], strict=True), strict=True))
    common = ours.keys() & wanted.keys()
    assert {asin: ours[asin] for asin in common} == {asin: wanted[asin] for asin in common}
    return len(common) / len(wanted)


def replay(shop: Shop, golden: dict[str, Any]) -> list[float]:
    """Play a golden; returns the overlaps of its results pages."""
    session = Session(shop, goal_of(shop, golden))
    assert session.goal.instruction == golden["goal"]["instruction_text"]
    overlaps = []
    for step in golden["steps"]:
        turn = session.play(parse_action(step["action"])) if step["action"] else None
        assert session.done is step["done"]
        assert (turn.reward.score if turn and turn.reward else 0.0) == step["reward"]
        assert session.page.available_actions["has_search_bar"] == step["available_actions"]["has_search_bar"]
        if session.page.kind == "results":
            overlaps.append(assert_same_results_page(session.page, step))
            clickables = step["available_actions"]["clickables"]
            # Where a hit differs, the golden's own is put on the page, so that the episode continues as it did.
            session.page.clickables.update({name: Target("product") for name in clickables if name.startswith("b0")})
        else:
            assert session.page.observation == step["observation"]
            assert session.page.available_actions == step["available_actions"]
    return overlaps


def test_goldens_are_reproduced_reward_for_reward_and_page_for_page(
    real_shop: Shop, goldens: list[dict[str, Any]]
) -> None:
    assert len(goldens) == 7
    overlaps = [overlap for golden in goldens for overlap in replay(real_shop, golden)]
    print(f"overlap of hits: mean {sum(overlaps) / len(overlaps):.3f}, least {min(overlaps):.2f}")
    assert min(overlaps) >= MIN_OVERLAP


def test_every_part_of_the_goldens_rewards_is_reproduced(real_shop: Shop, goldens: list[dict[str, Any]]) -> None:
    """The goldens were made without spaCy, with every word that holds a letter for a noun; so is this."""
    for golden in goldens:
        session = Session(real_shop, goal_of(real_shop, golden))
        session._shop = replace_score(real_shop)
        replayed = [session.play(parse_action(step["action"])) for step in golden["steps"][1:]]
        reward = replayed[-1].reward
        assert reward is not None
        expected = dict(golden["reward_info"])
        assert reward.title_score == pytest.approx(expected.pop("title_score"), abs=TITLE_TOLERANCE)
        assert {name: asdict(reward)[name] for name in expected} == expected


def replace_score(shop: Shop) -> Shop:
    copy = object.__new__(Shop)
    copy.__dict__.update(shop.__dict__)
    copy.score = partial(score, tagger=lambda title: WORD.findall(title.lower()))
    return copy
