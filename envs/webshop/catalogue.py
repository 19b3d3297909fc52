"""The products of the shop, read from WebShop's data files or from any other source of records in their format.

A record is one entry of ``items_shuffle*.json``: ``asin``, ``name``, ``full_description``, ``pricing``,
``small_description``, ``customization_options``, ``category``, ``query`` and ``product_category``. Its annotation is
the entry of ``items_ins_v2*.json``: ``attributes`` and, for some, ``instruction`` and ``instruction_attributes``.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

MAX_ASIN_LENGTH = 10
UNKNOWN_PRICE_USD = 100.0
# What upstream gives products without an annotation; the special query ``<a> DUMMY_ATTR`` finds them.
NO_ATTRIBUTES = ("DUMMY_ATTR",)
Record = dict[str, Any]


class CatalogueError(ValueError):
    """The files cannot be played; the text says which and why."""


class HumanInstruction(NamedTuple):
    """An instruction that a person wrote for one product; ``options`` are values without their names."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """One product as pages, search and reward see it. Prices are in US dollars."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    category: str
    query: str
    product_category: str
    pricing: tuple[float, ...]
    options: dict[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()
    human_instructions: tuple[HumanInstruction, ...] = ()

    @property
    def price_tag(self) -> str:
        """The price as pages show it: ``$9.98 to $12.98`` or ``$14.95``."""
        if not self.pricing:
            return f"${UNKNOWN_PRICE_USD}"
        return " to ".join(f"${price}" for price in self.pricing)

    @property
    def price(self) -> float:
        """What the reward compares with the cap: inside the range, always the same for one product.

        Upstream draws it again at every start of the server, so that the same purchase may score differently.
        """
        if len(self.pricing) < 2:
            return self.pricing[0] if self.pricing else UNKNOWN_PRICE_USD
        return random.Random(f"webshop-price:{self.asin}").uniform(*self.pricing)  # noqa: S311 - reproducible

    @property
    def document(self) -> str:
        """What the search index knows of the product."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.title, self.description, self.bullets[0] if self.bullets else "", options)).lower()


@dataclass
class Catalogue:
    """Products in their order, and the ways to find them. ``name`` says which data a session id belongs to."""

    name: str
    products: list[Product]
    by_asin: dict[str, Product] = field(init=False)

    def __post_init__(self) -> None:
        if not self.products:
            raise CatalogueError("The catalogue has no products.")
        self.by_asin = {product.asin: product for product in self.products}

    @cached_property
    def by_attribute(self) -> dict[str, list[Product]]:
        return self._grouped((value, product) for product in self.products for value in product.attributes)

    @cached_property
    def by_category(self) -> dict[str, list[Product]]:
        return self._grouped((product.category, product) for product in self.products)

    @cached_property
    def by_query(self) -> dict[str, list[Product]]:
        return self._grouped((product.query, product) for product in self.products)

    @staticmethod
    def _grouped(pairs: Iterable[tuple[str, Product]]) -> dict[str, list[Product]]:
        groups: dict[str, list[Product]] = defaultdict(list)
        for value, product in pairs:
            # Searches arrive in lower case. The same attribute twice on one product is one hit.
            group = groups[value.lower()]
            if not group or group[-1] is not product:
                group.append(product)
        return dict(groups)


def build_catalogue(
    name: str,
    records: Iterable[tuple[Record, Record | None]],
    human: dict[str, list[Record]] | None = None,
) -> Catalogue:
    """Derive the products of records with their annotations; second and odd ASINs are skipped, as upstream does."""
    return Catalogue(name, list(_products(records, human or {})))


def _products(records: Iterable[tuple[Record, Record | None]], human: dict[str, list[Record]]) -> Iterator[Product]:
    seen: set[str] = set()
    for number, (record, annotation) in enumerate(records):
        try:
            asin = record["asin"]
            if asin == "nan" or len(asin) > MAX_ASIN_LENGTH or asin in seen:
                continue
            seen.add(asin)
            yield product_from(record, annotation, human.get(asin, []))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CatalogueError(f"Product {number} cannot be read: {type(error).__name__}: {error}.") from error


def product_from(record: Record, annotation: Record | None, human: Iterable[Record] = ()) -> Product:
    """One product. ``annotation`` is ``None`` for a product without one."""
    notes = annotation or {}
    bullets = record["small_description"]
    return Product(
        asin=record["asin"],
        title=record["name"],
        description=record["full_description"] or "",
        bullets=tuple(bullets) if isinstance(bullets, list) else (bullets,),
        category=intern(record["category"]),
        query=intern(record["query"].lower().strip()),
        product_category=intern(record["product_category"]),
        pricing=_pricing(record.get("pricing")),
        options=_options(record["customization_options"]),
        attributes=tuple(map(intern, notes.get("attributes", NO_ATTRIBUTES))),
        instruction=notes.get("instruction"),
        instruction_attributes=tuple(map(intern, notes.get("instruction_attributes") or ())),
        human_instructions=tuple(_human(entry) for entry in human),
    )


def _pricing(text: str | None) -> tuple[float, ...]:
    """``$9.98 - $12.98`` as numbers; empty when the price is unknown."""
    if not text:
        return ()
    return tuple(float(re.sub(r"[^\d.]", "", part)) for part in text.split("$")[1:])[:2]


def _options(groups: dict[str, list[Record] | None] | str | None) -> dict[str, tuple[str, ...]]:
    """Option values by lower-case name; a slash would end a URL upstream and is written `` | ``."""
    if not groups or isinstance(groups, str):
        return {}
    return {
        intern(name.lower()): tuple(intern(entry["value"].strip().replace("/", " | ").lower()) for entry in entries)
        for name, entries in groups.items()
        if entries is not None
    }


def _human(entry: Record) -> HumanInstruction:
    return HumanInstruction(
        entry["instruction"], tuple(entry["instruction_attributes"]), tuple(entry["instruction_options"])
    )


def load_catalogue(folder: Path) -> Catalogue:
    """Read ``items_shuffle*.json`` and ``items_ins_v2*.json``, and ``items_human_ins*.json`` where it exists.

    Raises ``CatalogueError`` when a file is missing or is not what it should be.
    """
    products = _read(folder, "items_shuffle", list)
    annotations = _read(folder, "items_ins_v2", dict)
    human = _read(folder, "items_human_ins", dict) if any(folder.glob("items_human_ins*.json")) else {}
    return build_catalogue(
        f"webshop-{len(products)}", ((record, _annotation(record, annotations)) for record in products), human
    )


def _annotation(record: Any, annotations: dict[str, Record]) -> Record | None:
    asin = record.get("asin") if isinstance(record, dict) else None
    return annotations.get(asin) if isinstance(asin, str) else None


def _read(folder: Path, stem: str, kind: type) -> Any:
    paths = sorted(folder.glob(f"{stem}*.json"))
    if len(paths) != 1:
        raise CatalogueError(f"{folder} must hold one file {stem}*.json, and holds {len(paths)}.")
    try:
        value = json.loads(paths[0].read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogueError(f"{paths[0].name} cannot be read: {error}.") from error
    if not isinstance(value, kind):
        raise CatalogueError(f"{paths[0].name} must hold a JSON {'array' if kind is list else 'object'}.")
    return value
