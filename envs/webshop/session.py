"""One customer's visit: pages follow actions, and buying ends it with the reward."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from envs.webshop import pages
from envs.webshop.catalogue import Catalogue, Product
from envs.webshop.goals import Goal, GoalKind, Goals
from envs.webshop.pages import Page
from envs.webshop.reward import Reward, Variant, score
from envs.webshop.search import Searcher

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
    """What all sessions share and none changes: products, goals and the search index."""

    def __init__(self, catalogue: Catalogue, *, goals: GoalKind = "synthetic", reward: Variant = "upstream") -> None:
        self.catalogue = catalogue
        self.goals = Goals(catalogue, goals)
        self.searcher = Searcher(catalogue)
        self.variant = reward
        self.score = partial(score, variant=reward)


@dataclass
class Basket:
    """What is chosen on the way to the page that is open."""

    hits: list[Product]
    number: int
    product: Product | None
    options: dict[str, str]


class Turn(NamedTuple):
    """What an action did. ``valid`` is false where it did nothing; ``reward`` is there once something was bought."""

    page: Page
    valid: bool
    reward: Reward | None = None


class Session:
    """The state machine of one visit.

    Searching works from every page, as upstream does it, and starts over; a click must name a clickable of the open
    page and cannot be "search". Anything else does nothing. After the purchase nothing does anything: upstream would
    let the visit go on and be paid again.
    """

    def __init__(self, shop: Shop, goal: Goal) -> None:
        self._shop = shop
        self.goal = goal
        self.page = pages.start_page(goal.instruction)
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
        if button in pages.SUB_PAGES:
            return self._open(pages.sub_page(self.goal.instruction, self._product, pages.SUB_PAGES[button]))
        if button == pages.BUY.lower():
            return self._buy()
        if button == pages.BACK.lower():
            self._basket = Basket([], 1, None, {})
            return self._open(pages.start_page(self.goal.instruction))
        if button == pages.NEXT.lower():
            return self._show_results(basket.hits, basket.number + 1)
        if self.page.kind == "sub":
            return self._show_item()
        return self._show_results(basket.hits, basket.number - (self.page.kind == "results"))

    def _show_results(self, hits: list[Product], number: int) -> Turn:
        """Options are forgotten on the way back to the results, as upstream."""
        self._basket = Basket(hits, number, None, {})
        return self._open(pages.results_page(self.goal.instruction, hits, number))

    def _show_item(self) -> Turn:
        return self._open(pages.item_page(self.goal.instruction, self._product))

    def _buy(self) -> Turn:
        self.reward = self._shop.score(self._product, self._basket.options, self.goal)
        return self._open(pages.done_page(self._product, self._basket.options, self.reward.score))

    def _open(self, page: Page) -> Turn:
        self.page = page
        return Turn(page, True, self.reward)

    @property
    def _product(self) -> Product:
        """The product of the open page; only item and sub pages have buttons that need one."""
        if self._basket.product is None:
            raise RuntimeError("no product is open")
        return self._basket.product
