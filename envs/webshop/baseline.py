"""A policy of three rules, to be shown next to every trained one.

It searches for the whole instruction, opens the first hit, clicks the options that the instruction names and buys. It
reads what a policy reads: the instruction and the pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from envs.webshop.catalogue import Product
from envs.webshop.reward import Reward
from envs.webshop.session import Action, Session, Shop


@dataclass(frozen=True)
class BaselineResult:
    """Figures over episodes: mean score and the shares (0 to 1) that succeed and find the goal's product."""

    episodes: int
    score: float
    success: float
    found_first: float
    found_on_first_page: float


def run_baseline(shop: Shop, session_ids: Iterable[int]) -> BaselineResult:
    """Play the rules on each session."""
    scores, first, page = [], 0, 0
    for session_id in session_ids:
        session = Session(shop, shop.goals[session_id])
        hits = search_instruction(session)
        wanted = session.goal.product.asin.lower()
        first += hits[:1] == [wanted]
        page += wanted in hits
        reward = buy_first(session, hits)
        scores.append(reward.score if reward else 0.0)
    count = max(len(scores), 1)
    successes = sum(value == 1.0 for value in scores)
    return BaselineResult(len(scores), sum(scores) / count, successes / count, first / count, page / count)


def search_instruction(session: Session) -> list[str]:
    """Search for the whole instruction; the clickable names of the first page's hits."""
    turn = session.play(Action("search", session.goal.instruction.lower()))
    return [name for name, target in turn.page.clickables.items() if target.kind == "product"]


def buy_first(session: Session, hits: list[str]) -> Reward | None:
    """Open the first hit, click what the instruction names, buy."""
    if not hits:
        return None
    session.play(Action("click", hits[0]))
    product = session.product
    for value in wanted_options(session.goal.instruction, product) if product else ():
        session.play(Action("click", value))
    return session.play(Action("click", "buy now")).reward


def wanted_options(instruction: str, product: Product) -> list[str]:
    """The values of the product's options that the instruction asks for, written there as ``size: x-large``."""
    text = instruction.lower()
    wanted = []
    for name, values in product.options.items():
        named = [value for value in values if f"{name}: {value}" in text]
        if named:
            # "color: dark blue" also holds "color: dark".
            wanted.append(max(named, key=len))
    return wanted
