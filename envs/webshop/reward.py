"""The customer's goal, and the score of a purchase."""

from __future__ import annotations

import random
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Literal, get_args

from rapidfuzz import fuzz
from rapidfuzz.utils import default_process

from envs.webshop.catalogue import Catalogue, CatalogueError, HumanInstruction, Product

# What a customer wants: a goal for each session id.
#
# Synthetic goals: each product with an instruction gives one goal for every combination of its option values (option
# names sorted), then the list is shuffled with seed 233. That is upstream's order: session ids mean the same here.
# A catalogue can have millions of combinations; they are numbered and made when they are asked for.

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
        """The text that the policy reads."""
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


# What a purchase is worth.
#
# ``r = r_type * (attributes met + options met + [price <= cap]) / (attributes + options + 1)``
#
# - An attribute is met when one of the product's is alike (token set ratio over 85), or when the title, the features or
#   the description hold it.
# - An option is met when one that was chosen is alike; of both sides only the first colour of a list counts, where they
#   hold one.
# - ``r_type`` says whether it is the right kind of product: 1, .5, .1 or 0 by search query, categories and title.
#
# ``upstream`` compares a chosen value with the **(name, value) pair** of the goal, as the published code does. A pair
# "holds" a colour only when that is its value, so 'r.brown2070' becomes 'brown' on one side and stays on the other: 458
# of the 6,910 goals cannot reach 1.0. ``fixed`` compares values with values, and all can. Under both, "large" is alike
# "x-large": all its words are in it.

# --- Nouns ----------------------------------------------------------------------------------------------------------
# Nouns of a product title, for the title score.
#
# Upstream asks spaCy's English model, which is not on PyPI. In titles, where every word has a capital, it takes nearly
# all of them for nouns or names, so this takes every word with a letter that is not a function word in lower case.
# Measured on sessions 0 to 299: the three-rule baseline scores .792; .741 when capitals do not save a function word.

_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = frozenset(
    """
a about above across after against all also am among an and any are around as at be because been before being below
between both but by can could did do does doing down during each either every few for from further had has have having
he her here hers him his how i if in inside into is it its itself just like many may me might more most much must my
neither no nor not of off on once only onto or other our ours out outside over own per she should so some such than that
the their theirs them then there these they this those through to too under until up upon us very via was we were what
when where which while who whom whose why will with within without would you your yours s t d ll m re ve
""".split()  # noqa: SIM905 - 150 quoted words cannot be read
)


def nouns(title: str) -> list[str]:
    """The nouns in lower case, in order and with repeats."""
    return [word.lower() for word in _WORD.findall(title) if word not in _FUNCTION_WORDS and not word.isdigit()]


Variant = Literal["upstream", "fixed"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
ALIKE_PERCENT = 85
CATEGORY_MARK = "›"
NEUTRAL_TITLE_SCORE = 0.2
POOR_TITLE_SCORE = 0.1

# The order decides which colour of "dark blue" counts. A word list of WebShop (MIT); other colours change the scores.
COLORS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel
champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim
eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki
lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard
natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver
skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow
""".split()  # noqa: SIM905 - 100 quoted words cannot be read
_LATIN_1 = dict.fromkeys(range(128, 256))
Option = str | tuple[str, str]


@dataclass(frozen=True)
class Reward:
    """The score of a purchase and its parts. ``w_`` parts are the weights; without options they have no score."""

    score: float
    r_type: float
    r_att: float
    w_att: float
    query_match: bool
    category_match: bool
    title_score: float
    r_option: float | None
    w_option: float
    r_price: bool
    w_price: float

    @property
    def parts(self) -> dict[str, float]:
        """The parts that the wire carries."""
        found = {"r_type": self.r_type, "r_att": self.r_att, "r_price": float(self.r_price)}
        if self.r_option is not None:
            found["r_option"] = self.r_option
        return {**found, "task_success": float(self.score == 1.0), "score": self.score}


def score(
    product: Product,
    options: dict[str, str],
    goal: Goal,
    variant: Variant = "upstream",
    tagger: Callable[[str], list[str]] = nouns,
) -> Reward:
    """Score buying ``product`` with the chosen ``options`` (value by name)."""
    wanted: list[Option] = list(goal.options)
    if variant == "fixed":
        wanted = [option if isinstance(option, str) else option[1] for option in wanted]
    attributes = sum(_meets(product, attribute) for attribute in goal.attributes)
    chosen = [_processed(normalize_color(value)) for value in options.values()]
    met = sum(_any_alike(chosen, _processed(normalize_color(option))) for option in wanted)
    in_budget = product.price <= goal.price_upper
    total = len(goal.attributes) + len(wanted) + 1
    kind = _kind(product, goal.product, tagger)
    return Reward(
        score=kind.r_type * ((attributes + met + in_budget) / total),
        r_type=kind.r_type,
        r_att=attributes / len(goal.attributes) if goal.attributes else 0.0,
        w_att=len(goal.attributes) / total,
        query_match=kind.query_match,
        category_match=kind.category_match,
        title_score=kind.title_score,
        r_option=met / len(wanted) if wanted else None,
        w_option=len(wanted) / total,
        r_price=in_budget,
        w_price=1 / total,
    )


def normalize_color(option: Option) -> Option:
    """The first colour that the option holds, or the option. A pair holds only what is equal to one of its two."""
    return next((color for color in COLORS if color in option), option)


def _meets(product: Product, attribute: str) -> bool:
    if _any_alike(map(_processed, product.attributes), _processed(attribute)):
        return True
    return any(attribute in text.lower() for text in (product.title, " ".join(product.bullets), product.description))


def _any_alike(candidates: Iterable[str], wanted: str) -> bool:
    return any(round(fuzz.token_set_ratio(candidate, wanted)) > ALIKE_PERCENT for candidate in candidates)


def _processed(text: object) -> str:
    """As thefuzz prepares its input: printed (a pair with its quotes), without Latin-1 letters, words only."""
    return default_process(str(text).translate(_LATIN_1))


@dataclass(frozen=True)
class _Kind:
    r_type: float
    query_match: bool
    category_match: bool
    title_score: float


def _kind(bought: Product, wanted: Product, tagger: Callable[[str], list[str]]) -> _Kind:
    """Whether it is the right kind of product."""
    query_match = bought.query == wanted.query
    category_match = len(_categories(bought) & _categories(wanted)) >= 2
    words = tagger(wanted.title)
    title_score = len(set(words) & set(tagger(bought.title))) / len(words) if words else NEUTRAL_TITLE_SCORE
    r_type = 1.0 if query_match or category_match or title_score > NEUTRAL_TITLE_SCORE else 0.5
    if title_score < POOR_TITLE_SCORE:
        r_type = 0.1
    if title_score == 0:
        # Even where the query matches: upstream's last word.
        r_type = 0.0
    return _Kind(r_type, query_match, category_match, title_score)


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split(CATEGORY_MARK)}
