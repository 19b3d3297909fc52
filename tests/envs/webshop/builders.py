"""The smallest shop, by hand."""

from __future__ import annotations

from typing import Any

from envs.webshop.catalogue import Catalogue, Product, build_catalogue
from envs.webshop.reward import Goal
from envs.webshop.session import Session, Shop


def record(**over: Any) -> dict[str, Any]:
    values = {
        "asin": "B000000001",
        "name": "Oak Table For Two",
        "full_description": "A solid table.",
        "pricing": "$35.00",
        "small_description": ["Easy to build ", ""],
        "product_category": "Home › Furniture › Tables",
        "customization_options": {"Color": [{"value": "Dark Blue"}, {"value": "Red/White"}], "Size": [{"value": "XL"}]},
        "category": "garden",
        "query": "Tables ",
        "images": [""],
    }
    return {**values, **over}


NOTES = {
    "attributes": ["solid wood", "easy build"],
    "instruction": "Find me solid wood tables",
    "instruction_attributes": ["solid wood", "easy build"],
}


def product(**over: Any) -> Product:
    return catalogue([(record(**over), NOTES)]).products[0]


def catalogue(records: list[tuple[dict[str, Any], dict[str, Any] | None]] | None = None) -> Catalogue:
    return build_catalogue("by-hand", records or [(record(), NOTES)])


def goal(wanted: Product, **over: Any) -> Goal:
    values: dict[str, Any] = {
        "session_id": 0,
        "product": wanted,
        "text_without_price": "Find me solid wood tables",
        "attributes": ("solid wood", "easy build"),
        "options": (("color", "dark blue"), ("size", "xl")),
        "price_upper": 40.0,
    }
    return Goal(**{**values, **over})


def session() -> Session:
    """A visit to a shop of twelve tables."""
    records: list[Any] = [(record(asin=f"B0000000{n:02}", name=f"Oak Table {n}"), NOTES) for n in range(12)]
    shop = Shop(catalogue(records))
    return Session(shop, shop.goals[0])
