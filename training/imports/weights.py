"""TRL's ``reward_weights``: its recorded completions hold each reward as it was, and the run summed them by weight.

They stand in the run's config (YAML, JSON, or what Weights & Biases keeps of it), which may be given beside the other
files. No YAML is parsed for it: the list is looked for.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from training.data.files.sniff import open_regular
from training.errors import DataError
from training.words import _

MAX_BYTES = 256 << 10
MAX_WEIGHTS = 64
_LIST = re.compile(
    r"\breward_weights[\"']?\s{0,20}[:=]\s{0,20}(?:(?:desc:[^\n]{0,200}\n)?\s{0,20}[\"']?value[\"']?:\s{0,20})?"
    r"(?:\[([^\]]{1,2000})\]|((?:-[ \t]{1,8}[-+.\deE]{1,24}\s{1,20}){1,64}))"
)
KIND = "trl_config"


def weights_in(path: Path) -> list[float]:
    """The weights that a config names; none where it names none or is no text. Raises ``DataError`` for others."""
    with open_regular(path) as file:
        data = file.read(MAX_BYTES)
    found = _LIST.search(data.decode("utf-8", "replace") + "\n")
    return weights_of(found[1] or found[2]) if found else []


def weights_of(text: str) -> list[float]:
    """Weights in one text, with commas or line ends between them. Raises ``DataError``."""
    try:
        weights = [float(part.strip().removeprefix("- ")) for part in re.split(r"[,\n]", text) if part.strip()]
    except ValueError:
        weights = [math.nan]
    if not weights or len(weights) > MAX_WEIGHTS or not all(map(math.isfinite, weights)):
        raise DataError(_("`reward_weights` is not a list of numbers."), hint=_("Write it as 1.0, 0.5."))
    return weights
