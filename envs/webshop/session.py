"""One customer's visit: pages follow actions, and buying ends it with the reward."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from envs.webshop.catalogue import Catalogue, Product
from envs.webshop.reward import Goal, GoalKind, Goals, Reward, Variant, score
from envs.webshop.search import Searcher

# The pages of the shop as text: what is visible, joined by `` [SEP] ``, and what can be clicked.
#
# Both follow the text mode of upstream's pages to the letter, faults included: chosen options are not visible, ``Next
# >`` stays after the last page, and the page after a purchase says "instuction".

SEPARATOR = " [SEP] "
HITS_PER_PAGE = 10
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
DESCRIPTION, FEATURES, REVIEWS = "Description", "Features", "Reviews"
SUB_PAGES = {name.lower(): name for name in (DESCRIPTION, FEATURES, REVIEWS)}
RATING = "N.A."
HTML_SPACE = " \n\t\f\r"

PageKind = Literal["start", "results", "item", "sub", "done"]


class Target(NamedTuple):
    """The target of a click: a button, a product, or a value of the option ``option``."""

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


# --- Actions --------------------------------------------------------------------------------------------------------
# What a policy may do: ``search[words]`` and ``click[value]``.

ActionKind = Literal["search", "click"]
MAX_ARGUMENT_LENGTH = 4096
# What a model ended on decides, so of a longer message only the end is read.
MAX_MESSAGE_LENGTH = 65_536

# Values of options may hold one level of brackets themselves. Nothing is given back: what ends an argument is no part
# of one.
_INSIDE = re.compile(r"\b(search|click)\[((?:[^\[\]\n]++|\[[^\[\]\n]*+\])++)\]", re.IGNORECASE)
_MARK = re.compile(r"action\s*:", re.IGNORECASE)


class Action(NamedTuple):
    """One action; the argument is in lower case, as all names in the shop are."""

    kind: ActionKind
    argument: str


def parse_action(text: str) -> Action | None:
    """Read an action as an AgentGym client sends it; ``None`` for anything else.

    It is what upstream's ``re.match(r"(.+)\\[(.+)\\]", text)`` finds, in linear time: in the first line, the argument
    ends at the last closing bracket and begins at the last opening one that leaves it a character. So a value with
    brackets cannot be named, and two actions are none.
    """
    line = text.partition("\n")[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(end - 1, 0))
    if start < 0 or line[:start] not in ("search", "click"):
        return None
    return _action(line[:start], line[start + 1 : end])


def find_action(message: str) -> Action | None:
    """The action in what a model wrote: the last one after the last ``Action:``, else the last one anywhere.

    Upstream's client prefers a search to a later click; here the last one counts, for that is what the model ended on.
    """
    message = message[-MAX_MESSAGE_LENGTH:]
    marks = list(_MARK.finditer(message))
    scopes = [message[marks[-1].end() :], message] if marks else [message]
    for scope in scopes:
        matches = list(_INSIDE.finditer(scope))
        if matches:
            return _action(matches[-1][1].lower(), matches[-1][2])
    return None


def _action(name: str, argument: str) -> Action:
    return Action("search" if name == "search" else "click", argument.lower()[:MAX_ARGUMENT_LENGTH])


class Shop:
    """The data that all sessions share and none changes: products, goals and the search index."""

    def __init__(self, catalogue: Catalogue, *, goals: GoalKind = "synthetic", reward: Variant = "upstream") -> None:
        self.catalogue = catalogue
        self.goals = Goals(catalogue, goals)
        self.searcher = Searcher(catalogue)
        self.variant = reward
        self.score = partial(score, variant=reward)


@dataclass
class Basket:
    """The choices on the way to the page that is open."""

    hits: list[Product]
    number: int
    product: Product | None
    options: dict[str, str]


class Turn(NamedTuple):
    """An action's outcome. ``valid`` is false where it did nothing; ``reward`` is there once something was bought."""

    page: Page
    valid: bool
    reward: Reward | None = None


class Session:
    """The state machine of one visit.

    Searching works from every page, as upstream does it, and starts over; a click must name a clickable of the open
    page and cannot be "search". Anything else does nothing. After the purchase nothing does anything: upstream would
    let the visit continue and be paid again.
    """

    def __init__(self, shop: Shop, goal: Goal) -> None:
        self._shop = shop
        self.goal = goal
        self.page = start_page(goal.instruction)
        self._basket = Basket([], 1, None, {})
        self._searches = 0
        self.reward: Reward | None = None

    @property
    def done(self) -> bool:
        return self.page.kind == "done"

    @property
    def options(self) -> dict[str, str]:
        """The chosen values by option name."""
        return dict(self._basket.options)

    @property
    def product(self) -> Product | None:
        """The product whose page is open, or was when it was bought."""
        return self._basket.product

    def play(self, action: Action | None) -> Turn:
        """Do one action."""
        if action is None or self.done:
            return Turn(self.page, False)
        if action.kind == "search":
            return self._search(action.argument)
        target = self.page.clickables.get(action.argument)
        if target is None or action.argument == "search":
            return Turn(self.page, False)
        if target.kind == "product":
            self._basket.product = self._shop.catalogue.by_asin[action.argument.upper()]
            return self._show_item()
        if target.kind == "option":
            self._basket.options[target.option] = action.argument
            return self._show_item()
        return self._press(action.argument)

    def _search(self, query: str) -> Turn:
        self._searches += 1
        hits = self._shop.searcher.find(query, f"{self.goal.session_id}:{self._searches}")
        return self._show_results(hits, 1)

    def _press(self, button: str) -> Turn:
        basket = self._basket
        if button in SUB_PAGES:
            return self._open(sub_page(self.goal.instruction, self._product, SUB_PAGES[button]))
        if button == BUY.lower():
            return self._buy()
        if button == BACK.lower():
            self._basket = Basket([], 1, None, {})
            return self._open(start_page(self.goal.instruction))
        if button == NEXT.lower():
            return self._show_results(basket.hits, basket.number + 1)
        if self.page.kind == "sub":
            return self._show_item()
        return self._show_results(basket.hits, basket.number - (self.page.kind == "results"))

    def _show_results(self, hits: list[Product], number: int) -> Turn:
        """Options are forgotten on the way back to the results, as upstream."""
        self._basket = Basket(hits, number, None, {})
        return self._open(results_page(self.goal.instruction, hits, number))

    def _show_item(self) -> Turn:
        return self._open(item_page(self.goal.instruction, self._product))

    def _buy(self) -> Turn:
        self.reward = self._shop.score(self._product, self._basket.options, self.goal)
        return self._open(done_page(self._product, self._basket.options, self.reward.score))

    def _open(self, page: Page) -> Turn:
        self.page = page
        return Turn(page, True, self.reward)

    @property
    def _product(self) -> Product:
        """The product of the open page; only item and sub pages have buttons that need one."""
        if self._basket.product is None:
            raise RuntimeError("no product is open")
        return self._basket.product
