from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.webshop.catalogue import CatalogueError, load_catalogue
from envs.webshop.reward import NO_CAP_USD, Goals, price_cap
from tests.envs.webshop.builders import NOTES, catalogue, product, record


def test_a_record_becomes_a_product() -> None:
    found = product()
    assert found.options == {"color": ("dark blue", "red | white"), "size": ("xl",)}
    assert (found.query, found.price_tag, found.price) == ("tables", "$35.0", 35.0)
    assert found.document == (
        "oak table for two a solid table. easy to build  color: dark blue, red | white, and size: xl"
    )


@pytest.mark.parametrize(
    ("pricing", "tag", "prices"),
    [
        ("$9.98 - $12.98", "$9.98 to $12.98", (9.98, 12.98)),
        ("$1,299.00", "$1299.0", (1299.0,)),
        ("", "$100.0", ()),
        (None, "$100.0", ()),
    ],
)
def test_prices(pricing: str | None, tag: str, prices: tuple[float, ...]) -> None:
    found = product(pricing=pricing)
    assert (found.price_tag, found.pricing) == (tag, prices)
    low, high = (prices[0], prices[-1]) if prices else (100.0, 100.0)
    assert low <= found.price <= high
    assert found.price == product(pricing=pricing).price


def test_second_and_odd_asins_are_skipped() -> None:
    asins = ["B1", "B1", "nan", "B0123456789", "B2"]
    found = catalogue([(record(asin=asin), NOTES) for asin in asins])
    assert [item.asin for item in found.products] == ["B1", "B2"]


def test_options_that_are_none_and_bullets_that_are_text() -> None:
    found = product(customization_options={"Color": None, "Fit": [{"value": "Slim"}]}, small_description="One text")
    assert found.options == {"fit": ("slim",)}
    assert found.bullets == ("One text",)


def test_a_product_without_annotation_has_the_dummy_attribute_and_no_goal() -> None:
    found = catalogue([(record(), None), (record(asin="B2"), NOTES)])
    assert found.products[0].attributes == ("DUMMY_ATTR",)
    goals = Goals(found)
    assert [goals[number].product.asin for number in range(len(goals))] == ["B2", "B2"]


def test_a_catalogue_without_goals_or_products_is_refused() -> None:
    with pytest.raises(CatalogueError, match="no synthetic goals"):
        Goals(catalogue([(record(), None)]))
    with pytest.raises(CatalogueError, match="no products"):
        catalogue([(record(asin="nan"), None)])


@pytest.mark.parametrize("session_id", [-1, 2, 10**9])
def test_there_is_no_goal_beyond_the_last(session_id: int) -> None:
    with pytest.raises(IndexError):
        Goals(catalogue())[session_id]


def test_a_product_dearer_than_all_caps_has_none() -> None:
    assert price_cap(product(pricing="$985.00"), 0) == NO_CAP_USD
    assert price_cap(product(pricing="$975.00"), 0) == 990.0
    assert price_cap(product(pricing="$40.00"), 0) in (60.0, 70.0, 80.0)


def write(folder: Path, products: Any, notes: Any) -> Path:
    (folder / "items_shuffle_2.json").write_text(json.dumps(products), encoding="utf-8")
    (folder / "items_ins_v2_2.json").write_text(json.dumps(notes), encoding="utf-8")
    return folder


def test_files_are_read_without_people_s_instructions(tmp_path: Path) -> None:
    found = load_catalogue(write(tmp_path, [record()], {"B000000001": NOTES}))
    assert (found.name, found.products[0].instruction) == ("webshop-1", NOTES["instruction"])


@pytest.mark.parametrize("products", [{}, [{}], [5], [{**record(), "name": None, "query": 5}], [record(pricing="$x")]])
def test_broken_files_are_refused_with_a_sentence(tmp_path: Path, products: Any) -> None:
    with pytest.raises(CatalogueError):
        load_catalogue(write(tmp_path, products, {}))


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"one file items_shuffle\*\.json, and holds 0"):
        load_catalogue(tmp_path)
