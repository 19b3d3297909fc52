"""Our own catalogue: any number of products in the format of WebShop's files, the same for the same seed.

Product ``i`` of a seed does not depend on how many are made, so that a small catalogue is the start of a large one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from envs.webshop.catalogue import Catalogue, Record, build_catalogue

# The words of the generated catalogue: kinds of products, what they are made of and what can be chosen.
#
# Option values hold a colour of ``reward.COLORS`` only as a word of its own ("sage green"), never inside another
# ("titanium" holds "tan"): the reward's colour rule would make such goals unreachable.


class Kind(NamedTuple):
    """One kind of product. Prices are in US dollars."""

    category: str
    query: str
    noun: str
    path: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price: tuple[int, int]


_COLORS = (
    *("black", "white", "navy", "grey", "beige", "burgundy", "teal", "sage green", "olive green", "sky blue"),
    *("royal blue", "dusty pink", "coral", "mustard", "lavender", "charcoal", "ivory", "forest green", "red", "purple"),
)
OPTION_VALUES: dict[str, tuple[str, ...]] = {
    "color": _COLORS,
    "size": ("x-small", "small", "medium", "large", "x-large", "xx-large"),
    "shoe": ("6", "6.5", "7", "7.5", "8", "8.5", "9", "9.5", "10", "11"),
    "bed": ("twin", "full", "queen", "king", "california king"),
    "frame": ("8x10 inch", "11x14 inch", "16x20 inch", "18x24 inch", "24x36 inch"),
    "rug": ("2x3 feet", "3x5 feet", "4x6 feet", "5x8 feet", "8x10 feet"),
    "volume": ("1 fl oz", "2 fl oz", "4 fl oz", "8 fl oz", "16 fl oz"),
    "weight": ("4 ounce", "8 ounce", "12 ounce", "1 pound", "2 pound"),
    "pack": ("pack of 1", "pack of 2", "pack of 3", "pack of 6", "pack of 12"),
    "length": ("3 feet", "6 feet", "10 feet", "15 feet", "25 feet"),
    "storage": ("32gb", "64gb", "128gb", "256gb"),
    "scent": ("vanilla", "coconut", "citrus", "eucalyptus", "unscented", "jasmine"),
    "flavor": ("original", "chili", "sea salt", "honey", "cinnamon", "maple", "garlic"),
}
# What the shop calls an option on its pages, where it is not the name of the list above.
OPTION_NAMES = {
    **dict.fromkeys(("shoe", "bed", "frame", "rug", "volume", "weight", "length", "storage", "pack"), "size"),
    "scent": "scent",
    "flavor": "flavor name",
}

_CLOTHES = ("machine wash", "long sleeve", "elastic waist", "quick drying", "slim fit", "loose fit", "soft cotton")
_WARM = ("hand wash", "crew neck", "button closure", "polyester blend", "daily wear", "tummy control", "high waist")
_SHOES = ("rubber sole", "non slip", "memory foam", "arch support", "lace up", "water resistant", "wide toe")
_SKIN = ("cruelty free", "paraben free", "sensitive skin", "hyaluronic acid", "tea tree", "fragrance free", "dry skin")
_HAIR = ("sulfate free", "damaged hair", "argan oil", "hair growth", "curly hair", "natural ingredients", "leave in")
_SOUND = ("noise cancelling", "long lasting battery", "fast charging", "high definition", "hands free", "stereo sound")
_CABLE = ("gold plated", "high speed", "braided nylon", "plug play", "heavy duty", "dual shielded")
_HOME = (
    "easy assemble",
    "solid wood",
    "space saving",
    "living room",
    "eco friendly",
    "easy clean",
    "assembly required",
)
_SOFT = ("machine washable", "double sided", "super soft", "printing technology", "fade resistant", "stain resistant")
_FOOD = ("gluten free", "non gmo", "dairy free", "low sugar", "plant based", "certified organic", "resealable bag")

_WOMEN = "Clothing, Shoes & Jewelry › Women › Clothing"
_MEN = "Clothing, Shoes & Jewelry › Men › Clothing"
_CARE = "Beauty & Personal Care"
_HOUSE = "Home & Kitchen"
_GROCERY = "Grocery & Gourmet Food"
_TECH = "Electronics"
_DRESS = (*_CLOTHES, *_WARM)
_BATH = (*_SKIN, "long handle")
_ART = (*_HOME, "ready hang")
_RUG = (*_SOFT, "non slip")
_TEA = (*_FOOD, "caffeine free")

KINDS = (
    Kind("fashion", "women's dresses", "Summer Dress", f"{_WOMEN} › Dresses", _DRESS, ("color", "size"), (15, 60)),
    Kind("fashion", "women's sweaters", "Knit Sweater", f"{_WOMEN} › Sweaters", _WARM, ("color", "size"), (18, 70)),
    Kind("fashion", "men's shirts", "Henley Shirt", f"{_MEN} › Shirts", _CLOTHES, ("color", "size"), (12, 45)),
    Kind("fashion", "men's shorts", "Workout Shorts", f"{_MEN} › Shorts", _CLOTHES, ("color", "size"), (10, 35)),
    Kind("fashion", "women's shoes", "Walking Sneakers", f"{_WOMEN} › Shoes", _SHOES, ("color", "shoe"), (25, 90)),
    Kind("fashion", "men's boots", "Hiking Boots", f"{_MEN} › Shoes › Boots", _SHOES, ("color", "shoe"), (40, 140)),
    Kind("beauty", "face moisturizers", "Face Cream", f"{_CARE} › Skin Care › Face", _SKIN, ("volume",), (8, 40)),
    Kind("beauty", "body lotions", "Body Lotion", f"{_CARE} › Body", _SKIN, ("scent", "volume"), (6, 28)),
    Kind("beauty", "shampoo & conditioner", "Shampoo", f"{_CARE} › Hair Care", _HAIR, ("scent", "volume"), (7, 32)),
    Kind("beauty", "hair brushes", "Detangling Brush", f"{_CARE} › Hair Tools", _HAIR, ("color", "pack"), (5, 22)),
    Kind("beauty", "bath brushes", "Bath Brush", f"{_CARE} › Bath & Body", _BATH, ("color",), (6, 24)),
    Kind("electronics", "headphones", "Over Ear Headphones", f"{_TECH} › Headphones", _SOUND, ("color",), (20, 220)),
    Kind("electronics", "bluetooth speakers", "Portable Speaker", f"{_TECH} › Audio", _SOUND, ("color",), (18, 160)),
    Kind("electronics", "hdmi cables", "HDMI Cable", f"{_TECH} › Cables", _CABLE, ("length",), (6, 35)),
    Kind("electronics", "phone chargers", "Wall Charger", f"{_TECH} › Power", _CABLE, ("color", "pack"), (8, 45)),
    Kind("electronics", "tablets", "Android Tablet", f"{_TECH} › Tablets", _SOUND, ("color", "storage"), (70, 420)),
    Kind("garden", "throw pillows", "Throw Pillow Cover", f"{_HOUSE} › Bedding", _SOFT, ("color", "pack"), (8, 35)),
    Kind("garden", "bed sheets", "Bed Sheet Set", f"{_HOUSE} › Bedding › Sheets", _SOFT, ("color", "bed"), (20, 90)),
    Kind("garden", "wall art", "Canvas Wall Art", f"{_HOUSE} › Wall Art", _ART, ("frame",), (15, 120)),
    Kind("garden", "area rugs", "Area Rug", f"{_HOUSE} › Rugs", _RUG, ("color", "rug"), (25, 260)),
    Kind("garden", "console tables", "Console Table", f"{_HOUSE} › Furniture › Tables", _HOME, ("color",), (60, 480)),
    Kind("garden", "storage ottomans", "Storage Ottoman", f"{_HOUSE} › Furniture", _HOME, ("color",), (35, 180)),
    Kind("grocery", "nut snacks", "Roasted Almonds", f"{_GROCERY} › Nuts", _FOOD, ("flavor", "weight"), (6, 30)),
    Kind("grocery", "granola", "Oat Granola", f"{_GROCERY} › Breakfast", _FOOD, ("flavor", "weight"), (5, 24)),
    Kind("grocery", "tea", "Herbal Tea Bags", f"{_GROCERY} › Beverages › Tea", _TEA, ("pack",), (5, 26)),
    Kind("grocery", "hot sauce", "Hot Sauce", f"{_GROCERY} › Condiments", _FOOD, ("flavor", "pack"), (5, 28)),
)

BRAND_STARTS = "al be cor da el fen gra hol ir jo kel lum mar nor or pel qui ros sol tam ul ver wil yar zen".split()  # noqa: SIM905
BRAND_ENDS = "ba den dora field ga la lio mark mere mont nia ra ria ro sen ston ta tex vale via wick wood".split()  # noqa: SIM905
STYLES = (
    *("Classic", "Everyday", "Signature", "Essential", "Deluxe", "Compact", "Coastal", "Nordic", "Urban", "Heritage"),
    *("Studio", "Prairie", "Alpine", "Harbor", "Meadow", "Vintage", "Minimal", "Bold", "Cozy", "Weekend"),
)
PATTERNS = (
    *("Geometric", "Floral", "Striped", "Botanical", "Marble", "Herringbone", "Paisley", "Plaid", "Dotted", "Solid"),
    *("Abstract", "Woven", "Quilted", "Ribbed", "Textured", "Matte", "Glossy", "Two Tone", "Ombre", "Plain"),
)
OCCASIONS = (
    *("everyday use", "travel", "the office", "a weekend trip", "small apartments", "busy mornings", "family dinners"),
    *("outdoor days", "winter evenings", "students", "a birthday gift", "the gym", "guests", "quiet Sundays"),
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
    """What the customer says before options and price. Pattern and style set the product apart from its siblings."""
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
