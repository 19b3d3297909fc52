"""The shop's search: BM25 over the products' documents, and WebShop's four special queries.

The analyser does what Lucene's English one does: words of Unicode text, possessives off, lower case, its 33 stop words
out, Porter's stemmer. Ties are broken by document order. Lucene keeps document lengths in one byte, this does not, so
hits with almost the same score may change places.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable
from functools import lru_cache

import bm25s
import numpy as np
import Stemmer

from envs.webshop.catalogue import Catalogue, Product

K1, B = 0.9, 0.4
MAX_HITS = 50
# A query has some 40 words; a policy that writes thousands must not cost more than any other.
MAX_QUERY_TOKENS = 256
CACHED_QUERIES = 4096

_WORD = re.compile(r"\w+(?:(?:(?<=[^\W\d_])['’.·:](?=[^\W\d_])|(?<=\d)[.,;'](?=\d))\w+)*")
_STOP_WORDS = frozenset(
    """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
""".split()  # noqa: SIM905 - 33 quoted words cannot be read
)
_stemmer = Stemmer.Stemmer("porter")

# The library says at every index that it is building one.
logging.getLogger("bm25s").setLevel(logging.WARNING)


def words(text: str) -> list[str]:
    """The words of a text before stemming."""
    found = []
    for word in _WORD.findall(text.lower()):
        plain = word[:-2] if word.endswith(("'s", "’s")) else word
        if plain not in _STOP_WORDS:
            found.append(plain)
    return found


def analyse(text: str) -> list[str]:
    """The terms under which a text is found."""
    return _stemmer.stemWords(words(text))


class SearchIndex:
    """BM25 over numbered documents."""

    def __init__(self, documents: Iterable[str]) -> None:
        self._terms: dict[str, int] = {}
        self._scorer = bm25s.BM25(k1=K1, b=B, method="lucene")
        self._scorer.index((self._corpus(documents), self._terms), create_empty_token=False, show_progress=False)
        self._cached = lru_cache(CACHED_QUERIES)(self._search)

    def _corpus(self, documents: Iterable[str]) -> list[list[int]]:
        """Documents as term numbers. Each word is stemmed once for all documents: a large catalogue repeats few."""
        numbers: dict[str, int] = {}
        corpus = []
        for document in documents:
            row = []
            for word in words(document):
                number = numbers.get(word)
                if number is None:
                    number = numbers[word] = self._terms.setdefault(_stemmer.stemWord(word), len(self._terms))
                row.append(number)
            corpus.append(row)
        return corpus

    def search(self, query: str) -> tuple[int, ...]:
        """The numbers of at most ``MAX_HITS`` documents, best first; only documents that share a term."""
        terms = (self._terms.get(term) for term in analyse(query)[:MAX_QUERY_TOKENS])
        # Sorted, so that the order of words changes neither the cached entry nor how rounding falls.
        return self._cached(tuple(sorted(term for term in terms if term is not None)))

    def _search(self, terms: tuple[int, ...]) -> tuple[int, ...]:
        if not terms:
            return ()
        scores = self._scorer.get_scores_from_ids(list(terms))
        worst = 0.0
        if len(scores) > MAX_HITS:
            worst = float(np.partition(scores, -MAX_HITS)[-MAX_HITS])
        hits = np.flatnonzero((scores >= worst) & (scores > 0))
        best = hits[np.argsort(-scores[hits], kind="stable")][:MAX_HITS]
        return tuple(int(number) for number in best)


class Searcher:
    """The search of ``search[...]``: the index, or one of the special queries ``<r> <a> <c> <q>``."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._index = SearchIndex(product.document for product in catalogue.products)

    def find(self, query: str, random_seed: str) -> list[Product]:
        """Products for a query in lower case; ``random_seed`` decides what ``<r>`` shows.

        An attribute, category or query that nothing has gives no hits. Upstream answers those with a server error.
        """
        special, _, value = query.partition(" ")
        catalogue = self._catalogue
        if special == "<r>":
            count = min(MAX_HITS, len(catalogue.products))
            return random.Random(f"webshop-r:{random_seed}").sample(catalogue.products, count)  # noqa: S311
        if special == "<a>":
            return catalogue.by_attribute.get(value.strip(), [])
        if special == "<c>":
            return catalogue.by_category.get(value.split(" ")[0].strip(), [])
        if special == "<q>":
            return catalogue.by_query.get(value.strip(), [])
        return [catalogue.products[number] for number in self._index.search(query)]
