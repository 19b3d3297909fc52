"""The real catalogue of 1,000 products: documents, goals, baseline, and what the reward can reach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envs.base.environment import validation_of
from envs.webshop.application import VALIDATED_VISITS
from envs.webshop.baseline import run_baseline
from envs.webshop.catalogue import load_catalogue
from envs.webshop.reward import NO_CAP_USD, Goals, score
from envs.webshop.session import Action, Session, Shop, sub_page
from envs.webshop.validate import validate

BASELINE_SCORE, BASELINE_SUCCESS, TOLERANCE = 0.791, 0.58, 0.02


def test_search_documents_equal_the_staged_ones(real_shop: Shop, webshop_data: Path) -> None:
    lines = (webshop_data / "search_documents_1000.jsonl").read_text(encoding="utf-8").splitlines()
    documents = {row["id"]: row for row in map(json.loads, lines)}
    assert len(documents) == len(real_shop.catalogue.products) == 1000
    for product in real_shop.catalogue.products:
        staged = documents[product.asin]
        assert product.document == staged["contents"]
        assert product.price_tag == staged["product"]["Price"]
        assert {name: list(values) for name, values in product.options.items()} == staged["product"]["options"]
        assert list(product.attributes) == staged["product"]["Attributes"]


def test_the_6910_goals_are_those_of_upstream_in_its_order(real_shop: Shop, webshop_data: Path) -> None:
    lines = (webshop_data / "goals_synthetic_seed233.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(real_shop.goals) == len(lines) == 6910
    for line in lines:
        staged = json.loads(line)
        goal = real_shop.goals[staged["session_id"]]
        assert goal.product.asin == staged["asin"]
        assert goal.text_without_price == staged["instruction_text_without_price"]
        assert list(goal.attributes) == staged["attributes"]
        assert goal.named_options == staged["goal_options"]
        assert (goal.product.title, goal.product.query) == (staged["name"], staged["query"])


def test_the_three_rule_baseline_scores_what_is_published(real_shop: Shop) -> None:
    result = run_baseline(real_shop, range(300))
    assert result.score == pytest.approx(BASELINE_SCORE, abs=TOLERANCE)
    assert result.success == pytest.approx(BASELINE_SUCCESS, abs=TOLERANCE)
    assert result.found_first == pytest.approx(0.57, abs=TOLERANCE)
    assert result.found_on_first_page == pytest.approx(0.90, abs=TOLERANCE)


def test_without_options_the_baseline_hardly_succeeds(real_shop: Shop) -> None:
    rewards = []
    for session_id in range(300):
        session = Session(real_shop, real_shop.goals[session_id])
        page = session.play(Action("search", session.goal.instruction.lower())).page
        session.play(Action("click", list(page.clickables)[2]))
        reward = session.play(Action("click", "buy now")).reward
        assert reward is not None
        rewards.append(reward.score)
    assert sum(rewards) / 300 == pytest.approx(0.574, abs=TOLERANCE)
    assert rewards.count(1.0) / 300 == pytest.approx(0.02, abs=TOLERANCE)


def test_458_goals_cannot_be_reached_upstream_and_all_can_when_fixed(real_shop: Shop) -> None:
    goals = [real_shop.goals[number] for number in range(len(real_shop.goals))]
    upstream = [score(goal.product, goal.named_options, goal).score for goal in goals]
    short = [value for value in upstream if value != 1.0]
    assert len(short) == 458
    assert (round(min(short), 3), round(max(short), 3)) == (0.667, 0.889)
    assert all(score(goal.product, goal.named_options, goal, "fixed").score == 1.0 for goal in goals)


def test_caps_are_above_the_price_and_the_same_each_time(real_shop: Shop, webshop_data: Path) -> None:
    again = Shop(load_catalogue(webshop_data)).goals
    for number in range(0, 6910, 7):
        goal = real_shop.goals[number]
        assert goal == again[number]
        if goal.price_upper < NO_CAP_USD:
            assert 0 < goal.price_upper - goal.product.price <= 40
            assert goal.price_upper % 10 == 0


def test_the_real_data_proves_itself_from_both_sides(real_shop: Shop) -> None:
    """``validate --data`` said false of 12 goals that upstream's reward caps, ``/validate`` true of four others."""
    summary = validate(real_shop, 200)
    assert summary["ok"] is True
    assert (summary["capped"], summary["gold_failures"]) == (12, [])
    assert "932: 0.833" in summary["capped_by_the_reward"]
    assert validation_of(validate(real_shop, VALIDATED_VISITS)).ok is True


def test_a_shop_that_pays_too_little_is_no_proof(real_shop: Shop) -> None:
    """Less than the formula gives, on a goal that the formula caps too."""
    poor = object.__new__(Shop)
    poor.__dict__.update(real_shop.__dict__)
    poor.score = lambda product, options, goal: replace(real_shop.score(product, {}, goal), score=0.2)
    assert validate(poor, 5)["ok"] is False


def test_69_products_have_an_empty_feature_on_their_page(real_shop: Shop) -> None:
    pages = [sub_page("i", product, "Features").observation for product in real_shop.catalogue.products]
    assert sum(page.endswith("[SEP] ") for page in pages) == 69


def test_people_s_goals_are_played_too(real_shop: Shop) -> None:
    goals = Goals(real_shop.catalogue, "human")
    assert len(goals) >= 13
    for number in range(len(goals)):
        goal = goals[number]
        named = {f"option {place}": value for place, value in enumerate(goal.options)}
        reward = score(goal.product, named, goal)  # type: ignore[arg-type]
        assert reward.r_price and reward.r_option in (None, 1.0)
