"""The words of the generated catalogue: kinds of products, what they are made of and what can be chosen.

Option values hold a colour of ``reward.COLORS`` only as a word of its own ("sage green"), never inside another
("titanium" holds "tan"): the reward's colour rule would make such goals unreachable.
"""

from __future__ import annotations

from typing import NamedTuple


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
