"""Our own catalogue: any number of products in the format of WebShop's files, the same for the same seed.

Product ``i`` of a seed does not depend on how many are made, so that a small catalogue is the start of a large one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from envs.webshop.catalogue import Catalogue, Record, build_catalogue
from envs.webshop.vocabulary import (
    BRAND_ENDS,
    BRAND_STARTS,
    KINDS,
    OCCASIONS,
    OPTION_NAMES,
    OPTION_VALUES,
    PATTERNS,
    STYLES,
    Kind,
)

Difficulty = Literal["full", "starter"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
DEFAULT_PRODUCTS = 1000
MAX_PRODUCTS = 2_000_000
INSTRUCTION_SHARE = 0.45
# Those with values of one word: to the reward, "sage green" is alike "forest green" and "pack of 6" alike "pack of 12".
STARTER_KINDS = tuple(kind for kind in KINDS if kind.options[0] in ("color", "scent", "flavor"))
_ASIN_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASIN_SPAN = 36**8
# Odd and not a multiple of 3, so that numbers and ASINs map one to one.
_ASIN_STEP = 1_664_525_000_023


def generate(
    products: int = DEFAULT_PRODUCTS, seed: int = 0, difficulty: Difficulty = "full"
) -> Iterator[tuple[Record, Record]]:
    """Records with their annotations. ``starter`` products are so short that a tiny model reads their pages."""
    draw = draw_starter if difficulty == "starter" else draw_product
    return (draw(seed, number) for number in range(products))


def generated_catalogue(products: int = DEFAULT_PRODUCTS, seed: int = 0, difficulty: Difficulty = "full") -> Catalogue:
    """A catalogue in memory, without files."""
    kind = "generated" if difficulty == "full" else difficulty
    return build_catalogue(f"{kind}-{products}-{seed}", generate(products, seed, difficulty))


def write_catalogue(
    folder: Path, products: int = DEFAULT_PRODUCTS, seed: int = 0, difficulty: Difficulty = "full"
) -> None:
    """Write the two files that ``catalogue.load_catalogue`` reads, one product a line. Raises ``OSError``."""
    folder.mkdir(parents=True, exist_ok=True)
    records = (folder / f"items_shuffle_{products}.json").open("w", encoding="utf-8")
    notes = (folder / f"items_ins_v2_{products}.json").open("w", encoding="utf-8")
    with records, notes:
        for number, (record, annotation) in enumerate(generate(products, seed, difficulty)):
            comma = ",\n" if number else ""
            records.write(f"{comma or '['}{json.dumps(record, ensure_ascii=False)}")
            entry = f"{json.dumps(record['asin'])}: {json.dumps(annotation, ensure_ascii=False)}"
            notes.write(f"{comma or '{'}{entry}")
        records.write("]\n")
        notes.write("}\n")


def draw_product(seed: int, number: int) -> tuple[Record, Record]:
    """Product ``number`` of the catalogue that ``seed`` names, with its annotation."""
    rng = random.Random(f"webshop-product:{seed}:{number}")  # noqa: S311 - reproducible on purpose, guards nothing
    kind = rng.choice(KINDS)
    attributes = rng.sample(kind.attributes, rng.randint(2, 5))
    brand = (rng.choice(BRAND_STARTS) + rng.choice(BRAND_ENDS)).capitalize()
    style, pattern = rng.choice(STYLES), rng.choice(PATTERNS)
    shown = [attribute.title() for attribute in attributes[:2]]
    record: Record = {
        "asin": _asin(number),
        "name": f"{brand} {style} {kind.noun}, {pattern} {kind.noun}, {', '.join(shown)}",
        "full_description": _description(rng, kind, brand, attributes),
        "pricing": _pricing(rng, kind),
        "images": [""],
        "product_category": kind.path,
        "average_rating": "",
        "small_description": _bullets(rng, kind, attributes),
        "customization_options": _options(rng, kind),
        "category": kind.category,
        "query": kind.query,
        "page": number,
    }
    annotation: Record = {"attributes": attributes}
    # The first always has one, so that the smallest catalogue can be played.
    if rng.random() < INSTRUCTION_SHARE or number == 0:
        wanted = rng.sample(attributes, min(len(attributes), rng.randint(1, 4)))
        annotation |= {"instruction": _instruction(wanted, kind, pattern, style), "instruction_attributes": wanted}
    return record, annotation


def draw_starter(seed: int, number: int) -> tuple[Record, Record]:
    """Product ``number`` of a starter catalogue: one attribute, one option of one value, a short title.

    The first ``len(STARTER_KINDS)`` products are all of different kinds.
    """
    rng = random.Random(f"webshop-starter:{seed}:{number}")  # noqa: S311 - reproducible on purpose, guards nothing
    kinds = random.Random(f"webshop-starter:{seed}").sample(STARTER_KINDS, len(STARTER_KINDS))  # noqa: S311
    kind = kinds[number % len(kinds)]
    attribute, option = rng.choice(kind.attributes), kind.options[0]
    value = rng.choice([value for value in OPTION_VALUES[option] if value.isalpha()])
    record: Record = {
        "asin": _asin(number),
        "name": f"{(rng.choice(BRAND_STARTS) + rng.choice(BRAND_ENDS)).capitalize()} {kind.noun}",
        "full_description": "",
        "pricing": f"${rng.randint(*kind.price) - 0.01:.2f}",
        "images": [""],
        "product_category": kind.path,
        "average_rating": "",
        "small_description": [f"{attribute} {kind.query}"],
        "customization_options": {
            OPTION_NAMES.get(option, option).title(): [{"value": value.title(), "asin": "", "is_selected": False}]
        },
        "category": kind.category,
        "query": kind.query,
        "page": number,
    }
    instruction = f"Find me {attribute} {kind.query}"
    return record, {"attributes": [attribute], "instruction": instruction, "instruction_attributes": [attribute]}


def _asin(number: int) -> str:
    """Ten characters that look like a shop's number; different for each of the first 36**8 products."""
    value = (number * _ASIN_STEP + 777_777_777) % _ASIN_SPAN
    digits = []
    for _ in range(8):
        value, digit = divmod(value, 36)
        digits.append(_ASIN_DIGITS[digit])
    return "T0" + "".join(reversed(digits))


def _instruction(wanted: list[str], kind: Kind, pattern: str, style: str) -> str:
    """What the customer says before options and price. Pattern and style tell the product from its many siblings."""
    before, after = wanted[:2], wanted[2:]
    text = f"Find me {', '.join(before)} {kind.query} in {_article(style)} {style.lower()} {pattern.lower()} look"
    return f"{text} with {', '.join(after)}" if after else text


def _article(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"


def _pricing(rng: random.Random, kind: Kind) -> str:
    """One price in dollars, a range, or for a few products none."""
    low = rng.randint(*kind.price) - 0.01
    draw = rng.random()
    if draw < 0.05:
        return ""
    return f"${low:.2f} - ${low * rng.uniform(1.1, 1.5):.2f}" if draw < 0.25 else f"${low:.2f}"


def _options(rng: random.Random, kind: Kind) -> Record | str:
    """Each option of the kind with some of its values; some products come as they are."""
    if rng.random() < 0.15:
        return ""
    groups = {}
    for option in kind.options:
        values = OPTION_VALUES[option]
        chosen = set(rng.sample(values, rng.randint(2, min(5, len(values)))))
        groups[OPTION_NAMES.get(option, option).title()] = [
            {"value": value.title(), "asin": "", "is_selected": False} for value in values if value in chosen
        ]
    return groups


def _description(rng: random.Random, kind: Kind, brand: str, attributes: list[str]) -> str:
    first, second = rng.sample(OCCASIONS, 2)
    return (
        f"This {kind.noun.lower()} by {brand} is {attributes[0]} and {attributes[1]}, and made for {first}. "
        f"People choose it for {second}, and come back for the {rng.choice(STYLES).lower()} look."
    )


def _bullets(rng: random.Random, kind: Kind, attributes: list[str]) -> list[str]:
    texts = [f"{attribute.upper()} - a {kind.noun.lower()} for {rng.choice(OCCASIONS)}" for attribute in attributes]
    return [*texts, f"{rng.choice(PATTERNS)} finish, {rng.choice(STYLES).lower()} style"]
