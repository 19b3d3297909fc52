"""What a customer wants: a goal for each session id.

Synthetic goals: each product with an instruction gives one goal for every combination of its option values (option
names sorted), then the list is shuffled with seed 233. That is upstream's order: session ids mean the same here.
A catalogue can have millions of combinations; they are numbered and made when they are asked for.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Literal, get_args

from envs.webshop.catalogue import Catalogue, CatalogueError, HumanInstruction, Product

GoalKind = Literal["synthetic", "human"]
GOAL_KINDS: tuple[GoalKind, ...] = get_args(GoalKind)
SHUFFLE_SEED = 233
PRICE_STEP_USD, LAST_PRICE_USD, CHOICES_OF_CAP = 10, 990, 4
NO_CAP_USD = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One episode's wish. ``options`` are (name, value) pairs; people's instructions give values without names."""

    session_id: int
    product: Product
    text_without_price: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...] | tuple[str, ...]
    price_upper: float

    @property
    def named_options(self) -> dict[str, str]:
        """The wanted values by option name; empty where a person named only values."""
        return {option[0]: option[1] for option in self.options if not isinstance(option, str)}

    @property
    def instruction(self) -> str:
        """What the policy reads."""
        if self.price_upper >= NO_CAP_USD:
            return self.text_without_price
        return f"{self.text_without_price}, and price lower than {self.price_upper:.2f} dollars"


class Goals:
    """All goals of a catalogue by session id."""

    def __init__(self, catalogue: Catalogue, kind: GoalKind = "synthetic") -> None:
        self._kind = kind
        if kind == "human":
            wishes = [(p, wish) for p in catalogue.products for wish in p.human_instructions if wish.attributes]
            self._human: list[tuple[Product, HumanInstruction]] = wishes
            count = len(wishes)
        else:
            self._products = [product for product in catalogue.products if product.instruction]
            sizes = (prod(len(values) for values in product.options.values()) for product in self._products)
            self._ends = array("L", accumulate(sizes))
            count = self._ends[-1] if self._ends else 0
        if not count:
            raise CatalogueError(f"The catalogue has no {kind} goals.")
        self._order = array("L", range(count))
        random.Random(SHUFFLE_SEED).shuffle(self._order)  # type: ignore[arg-type]  # noqa: S311 - upstream's order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, session_id: int) -> Goal:
        if not 0 <= session_id < len(self._order):
            raise IndexError(session_id)
        number = self._order[session_id]
        return self._human_goal(session_id, number) if self._kind == "human" else self._goal(session_id, number)

    def _human_goal(self, session_id: int, number: int) -> Goal:
        product, wish = self._human[number]
        return Goal(
            session_id, product, wish.text.strip("."), wish.attributes, wish.options, price_cap(product, session_id)
        )

    def _goal(self, session_id: int, number: int) -> Goal:
        place = bisect_right(self._ends, number)
        product = self._products[place]
        options = _combination(product, number - (self._ends[place - 1] if place else 0))
        wanted = ", and ".join(f"{name}: {value}" for name, value in options)
        text = f"{product.instruction}{' with ' + wanted if wanted else ''}"
        return Goal(session_id, product, text, product.instruction_attributes, options, price_cap(product, session_id))


def _combination(product: Product, number: int) -> tuple[tuple[str, str], ...]:
    """Combination ``number`` of the option values; the last name changes fastest."""
    chosen = []
    for name in sorted(product.options, reverse=True):
        number, digit = divmod(number, len(product.options[name]))
        chosen.append((name, product.options[name][digit]))
    return tuple(reversed(chosen))


def price_cap(product: Product, session_id: int) -> float:
    """The larger of two of the next four multiples of 10 dollars above the price; ``NO_CAP_USD`` for dear products.

    Upstream draws it unseeded, so a session id has another cap each time; here the session id is the seed.
    """
    first = int(product.price // PRICE_STEP_USD + 1) * PRICE_STEP_USD
    above = range(first, min(LAST_PRICE_USD, first + (CHOICES_OF_CAP - 1) * PRICE_STEP_USD) + 1, PRICE_STEP_USD)
    if len(above) < 2:
        return NO_CAP_USD
    return float(max(random.Random(f"webshop-cap:{session_id}").sample(above, 2)))  # noqa: S311 - reproducible
