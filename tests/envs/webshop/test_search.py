from __future__ import annotations

import pytest

from envs.webshop.catalogue import Catalogue
from envs.webshop.search import MAX_HITS, Searcher, SearchIndex, analyse
from envs.webshop.session import Shop
from tests.envs.webshop.builders import NOTES, catalogue, record


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The men's running shoes", ["men", "run", "shoe"]),
        ("wi-fi 2.4ghz 1,000 pieces", ["wi", "fi", "2.4ghz", "1,000", "piec"]),
        ("don’t stop, it's U.S.A. made", ["don’t", "stop", "u.s.a", "made"]),
        ("café 水 ❤", ["café", "水"]),
        ("", []),
        ("the and of", []),
    ],
)
def test_the_analyser_is_lucene_s_english_one(text: str, terms: list[str]) -> None:
    assert analyse(text) == terms


def test_hits_share_a_term_and_ties_keep_the_order_of_documents() -> None:
    index = SearchIndex(["red shoe", "blue shoe", "red hat", "green coat", "red shoe"])
    assert index.search("red shoes") == (0, 4, 1, 2)
    assert index.search("shoes red") == (0, 4, 1, 2)
    assert index.search("nothing like this") == index.search("") == index.search("the") == ()


def test_a_word_said_twice_counts_twice() -> None:
    index = SearchIndex(["red hat", "blue shoe", "other thing"])
    assert index.search("red blue blue")[0] == 1
    assert index.search("red red blue")[0] == 0


def test_at_most_fifty_hits(shop: Shop) -> None:
    assert len(shop.searcher.find("women's men's a for everyday use style", "0")) == MAX_HITS


@pytest.fixture
def searcher() -> Searcher:
    return Searcher(tables())


def tables() -> Catalogue:
    return catalogue([(record(asin=f"B{n}", category="garden" if n % 2 else "beauty"), NOTES) for n in range(60)])


def test_special_queries(searcher: Searcher) -> None:
    assert len(searcher.find("<a> solid wood", "0")) == 60
    assert len(searcher.find("<q> tables", "0")) == 60
    assert {product.category for product in searcher.find("<c> garden", "0")} == {"garden"}
    assert len(searcher.find("<c> garden and more", "0")) == 30


@pytest.mark.parametrize(
    "query", ["<a>", "<a> no such", "<c>", "<c> no", "<q>", "<q> none", " ", "<", "[]", "\x00", "\ud800"]
)
def test_queries_that_find_nothing_are_no_error(searcher: Searcher, query: str) -> None:
    assert searcher.find(query, "0") == []


def test_random_products_depend_on_the_seed_alone(searcher: Searcher) -> None:
    first = searcher.find("<r>", "1:1")
    assert len(first) == MAX_HITS == len({product.asin for product in first})
    assert first == searcher.find("<r>", "1:1")
    assert first != searcher.find("<r>", "1:2")


def test_random_products_of_a_small_shop_are_all_of_them() -> None:
    assert len(Searcher(catalogue()).find("<r>", "0")) == 1
