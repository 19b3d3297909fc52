"""The pages of the shop as text: what is visible, joined by `` [SEP] ``, and what can be clicked.

Both follow the text mode of upstream's pages to the letter, faults included: chosen options are not visible, ``Next >``
stays after the last page, and the page after a purchase says "instuction".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from envs.webshop.catalogue import Product

SEPARATOR = " [SEP] "
HITS_PER_PAGE = 10
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
DESCRIPTION, FEATURES, REVIEWS = "Description", "Features", "Reviews"
SUB_PAGES = {name.lower(): name for name in (DESCRIPTION, FEATURES, REVIEWS)}
RATING = "N.A."
HTML_SPACE = " \n\t\f\r"

PageKind = Literal["start", "results", "item", "sub", "done"]


class Target(NamedTuple):
    """What a click leads to: a button, a product, or a value of the option ``option``."""

    kind: Literal["button", "product", "option"]
    option: str = ""


@dataclass(frozen=True)
class Page:
    """One page: its visible texts in order and its clickables by lower-case name."""

    kind: PageKind
    texts: tuple[str, ...]
    clickables: dict[str, Target] = field(default_factory=dict)

    @property
    def observation(self) -> str:
        return SEPARATOR.join(text.strip() for text in self.texts)

    @property
    def has_search_bar(self) -> bool:
        return self.kind == "start"

    @property
    def available_actions(self) -> dict[str, bool | list[str]]:
        """As AgentGym's route gives it."""
        return {"has_search_bar": self.has_search_bar, "clickables": list(self.clickables)}


def start_page(instruction: str) -> Page:
    """The page with the search bar."""
    return Page("start", ("WebShop", *_heading(instruction), "Search"), _buttons("Search"))


def results_page(instruction: str, hits: list[Product], number: int) -> Page:
    """Page ``number``, from 1, of the hits; past the last one it is empty."""
    shown = hits[(number - 1) * HITS_PER_PAGE : number * HITS_PER_PAGE]
    buttons = (PREVIOUS, NEXT) if number > 1 else (NEXT,)
    count = f"Page {number} (Total results: {len(hits)})"
    products = [text for hit in shown for text in (hit.asin, hit.title, hit.price_tag)]
    clickables = _buttons(BACK, *buttons) | {hit.asin.lower(): Target("product") for hit in shown}
    return Page("results", (*_heading(instruction), BACK, count, *buttons, *_visible(products)), clickables)


def item_page(instruction: str, product: Product) -> Page:
    """One product with its options."""
    options = [text for name, values in product.options.items() for text in (name, *values)]
    details = (product.title, f"Price: {product.price_tag}", f"Rating: {RATING}")
    buttons = (DESCRIPTION, FEATURES, REVIEWS, BUY)
    clickables = _buttons(BACK, PREVIOUS, *buttons)
    for name, values in product.options.items():
        # A value of two options belongs to the later one, as upstream.
        clickables |= {value: Target("option", name) for value in values}
    return Page("item", (*_heading(instruction), BACK, PREVIOUS, *_visible([*options, *details]), *buttons), clickables)


def sub_page(instruction: str, product: Product, name: str) -> Page:
    """The description, features or reviews of a product; the data has no reviews."""
    # Upstream's template has a space before each feature, so that an empty one is still a text.
    features = tuple(f" {bullet}" for bullet in product.bullets)
    texts = {DESCRIPTION: (product.description,), FEATURES: features, REVIEWS: ()}[name]
    return Page("sub", (*_heading(instruction), BACK, PREVIOUS, *_visible(texts)), _buttons(BACK, PREVIOUS))


def done_page(product: Product, options: dict[str, str], reward: float) -> Page:
    """The end. Nothing of the goal is filled in."""
    thanks = ("Thank you for shopping with us!", "Your code:", "None", "(Paste it in your MTurk interface.)")
    bought = ("Purchased", "asin", product.asin, "options", _script_json(options))
    nothing = ("attrs", "None", "category", "None", "query", "None", "product category", "None")
    target = ("Target", "asin", "options", "attrs", "price upper", "instuction text", "category", "product category")
    score = ("query", "Goal", "None", "Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details", "None")
    return Page("done", (*thanks, *bought, *nothing, *target, *score))


def _heading(instruction: str) -> tuple[str, str]:
    return "Instruction:", instruction


def _buttons(*names: str) -> dict[str, Target]:
    return {name.lower(): Target("button") for name in names}


def _visible(texts: tuple[str, ...] | list[str]) -> list[str]:
    """An empty text leaves no trace on a page, and neither does blank space with a line end; spaces alone do."""
    return [text for text in texts if text and (text.strip(HTML_SPACE) or "\n" not in text)]


def _script_json(options: dict[str, str]) -> str:
    """JSON as templates write it into a page: sorted, and without characters that mean something in HTML."""
    text = json.dumps(options, sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("'", "\\u0027")
