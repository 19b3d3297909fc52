"""WebShop: goals, purchases and the rule baseline against Princeton's own engine.

Of upstream's requirements spaCy's model is on no registry: our list of nouns replaces it on both sides, so the
title score is compared as a formula and not word by word.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from benchmarks.parity.upstream import Skipped, Tally, folder, importable, quiet
from envs.webshop.baseline import run_baseline
from envs.webshop.catalogue import Product, load_catalogue
from envs.webshop.reward import nouns
from envs.webshop.session import Shop

CATALOGUE = ("seed4_webshop", "webshop_1000")
PRODUCTS = 1000
PURCHASES = 15
BASELINE_SESSIONS = 300
SHUFFLE_SEED = 233
SEED = 6


class Engine(NamedTuple):
    """Upstream's reward, its products by ASIN and its goals in session order."""

    get_reward: Callable[..., Any]
    products: dict[str, dict[str, Any]]
    goals: list[dict[str, Any]]


def measure(upstream: Path | None, data: Path) -> dict[str, Any]:
    """The baseline needs only data; the rest upstream's engine."""
    shop = Shop(load_catalogue(folder(data, *CATALOGUE)))
    baseline = run_baseline(shop, range(BASELINE_SESSIONS))
    figures = {"sessions": baseline.episodes, "score": baseline.score, "success": baseline.success}
    try:
        engine = open_engine(upstream, folder(data, *CATALOGUE))
    except Skipped as reason:
        return {"rule baseline": figures, "goals and purchases": {"skipped": str(reason)}}
    return {
        "rule baseline": figures,
        "goals": goals(shop, engine).report(),
        "purchases": purchases(shop, engine),
    }


def open_engine(upstream: Path | None, data: Path) -> Engine:
    """Upstream's modules; what its search, its pages and its progress bar need is left out."""
    root = folder(upstream, "WebShop")
    unused: dict[str, dict[str, Any]] = {
        "cleantext": {},
        "rank_bm25": {"BM25Okapi": None},
        "flask": {"render_template_string": None},
        "pyserini": {},
        "pyserini__search": {},
        "pyserini__search__lucene": {"LuceneSearcher": None},
        "rich": {"print": print},
        "tqdm": {"tqdm": lambda items, **_: items},
        "spacy": {"load": lambda _name: _tagged},
    }
    with importable(root, **unused), quiet():
        goal = importlib.import_module("web_agent_site.engine.goal")
        engine = importlib.import_module("web_agent_site.engine.engine")
        return Engine(goal.get_reward, *_loaded(engine, goal, data))


@cache
def _tagged(title: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(text=word, pos_="NOUN") for word in nouns(title)]


def _loaded(engine: ModuleType, goal: ModuleType, data: Path) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    paths = {"DEFAULT_ATTR_PATH": "items_ins_v2", "HUMAN_ATTR_PATH": "items_human_ins"}
    for name, stem in paths.items():
        setattr(engine, name, str(next(data.glob(f"{stem}*.json"))))
    path = str(next(data.glob("items_shuffle*.json")))
    products, by_asin, prices, _ = engine.load_products(path, num_products=PRODUCTS, human_goals=False)
    made = goal.get_goals(products, prices, human_goals=False)
    random.Random(SHUFFLE_SEED).shuffle(made)
    return by_asin, made


def goals(shop: Shop, engine: Engine) -> Tally:
    """Session by session; upstream draws the cap again at each start, so it and its words are left out."""
    tally = Tally()
    tally.add(len(shop.goals) == len(engine.goals), "number of goals")
    for number, theirs in enumerate(engine.goals):
        own = shop.goals[number]
        text = theirs["instruction_text"].partition(", and price lower than")[0]
        same = (own.product.asin, own.text_without_price) == (theirs["asin"], text)
        same = same and (list(own.attributes), own.named_options) == (theirs["attributes"], theirs["goal_options"])
        tally.add(same, number)
    return tally


def purchases(shop: Shop, engine: Engine) -> dict[str, Any]:
    """Score and every part of it, of right, nearly right and wrong purchases for every goal."""
    rng, tally, full = random.Random(SEED), Tally(), 0
    for number, theirs in enumerate(engine.goals):
        goal = shop.goals[number]
        wanted = {**theirs, "price_upper": goal.price_upper}
        for product, options in _baskets(shop, goal.product, goal.named_options, rng):
            ours = asdict(shop.score(product, options, goal))
            score, info = engine.get_reward(engine.products[product.asin], wanted, product.price, options, verbose=True)
            full += score == 1.0
            found = {name: ours[name] for name in info}
            tally.add(
                ours["score"] == score and found == info, {"goal": number, "asin": product.asin, "upstream": score}
            )
    return tally.report(worth_one=full)


def _baskets(
    shop: Shop, product: Product, wanted: dict[str, str], rng: random.Random
) -> Iterator[tuple[Product, dict[str, str]]]:
    yield product, wanted
    yield product, {}
    alike = [other for other in shop.catalogue.products if other.query == product.query]
    for number in range(PURCHASES - 2):
        other = product if number < 4 else rng.choice(alike if number < 9 else shop.catalogue.products)
        yield other, {name: rng.choice(values) for name, values in other.options.items() if rng.random() < 0.8}
