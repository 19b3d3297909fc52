from __future__ import annotations

from itertools import islice
from pathlib import Path

from envs.webshop.baseline import run_baseline
from envs.webshop.catalogue import load_catalogue
from envs.webshop.generator import generate, generated_catalogue, write_catalogue
from envs.webshop.reward import score
from envs.webshop.session import Shop
from envs.webshop.validate import validate


def test_the_same_seed_gives_the_same_products_and_another_seed_others() -> None:
    assert list(generate(300, 5)) == list(generate(300, 5))
    assert list(generate(300, 5)) != list(generate(300, 6))


def test_a_small_catalogue_is_the_start_of_a_large_one() -> None:
    assert list(generate(50, 1)) == list(islice(generate(5000, 1), 50))


def test_asins_are_different_and_fit() -> None:
    asins = [record["asin"] for record, _ in generate(5000)]
    assert len(set(asins)) == 5000
    assert {len(asin) for asin in asins} == {10}


def test_written_files_are_the_catalogue(tmp_path: Path) -> None:
    write_catalogue(tmp_path, 120, 3)
    assert load_catalogue(tmp_path).products == generated_catalogue(120, 3).products


def test_every_goal_can_be_reached_under_both_rewards() -> None:
    shop = Shop(generated_catalogue())
    assert len(shop.catalogue.products) == 1000
    assert len(shop.goals) > 1000
    for number in range(len(shop.goals)):
        goal = shop.goals[number]
        options = goal.named_options
        assert score(goal.product, options, goal).score == 1.0, goal
        assert score(goal.product, options, goal, "fixed").score == 1.0, goal


def test_the_catalogue_is_varied_and_not_trivial(shop: Shop) -> None:
    assert len(shop.catalogue.by_category) == 5
    result = run_baseline(shop, range(200))
    assert 0.4 < result.success < 0.95
    assert result.score > result.success


def test_validation_holds(shop: Shop) -> None:
    summary = validate(shop, 40)
    assert summary["ok"], summary
    assert summary["gold_score_mean"] == 1.0
