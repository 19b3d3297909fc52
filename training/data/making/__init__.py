"""What is made of checked rows: new datasets (``operations``), and files in other formats (``convert``)."""

from __future__ import annotations

from training.data.making.conversion import COLUMN, GUIDE, OWN, Converted, ConvertOptions, convert, writers
from training.data.making.operations import OPERATIONS, PARTS, Made, make, matching

__all__ = [
    "COLUMN",
    "GUIDE",
    "OPERATIONS",
    "OWN",
    "PARTS",
    "ConvertOptions",
    "Converted",
    "Made",
    "convert",
    "make",
    "matching",
    "writers",
]
