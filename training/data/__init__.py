"""Datasets: what a row is, how files of rows are read, and the check of uploaded files in a limited process."""

from training.data.files.sources import ENDINGS, Given, part_of, pick
from training.data.formats import FORMATS
from training.data.formats.bfcl import CLASSES
from training.data.formats.columns import USUAL
from training.data.formats.gsm8k import word_problems
from training.data.learned import CHOSEN, REJECTED, Rendered, RenderedRow, is_off, why_words
from training.data.messages import reasoning_of
from training.data.options import (
    CUT_WORDS,
    CheckOptions,
    ColumnMapping,
    Cut,
    FilterOptions,
    FilterRule,
    MixOptions,
    Options,
    ReadOptions,
)
from training.data.problems import MAX_REASON_CHARS, PROBLEMS, CheckLimits
from training.data.reader import load_rows, read_records
from training.data.schema import Row, RowError, check_tree, conversation_key, row_from_dict, strict_loads
from training.rows import categories_of, category_of, row_value

__all__ = [
    "CHOSEN",
    "CLASSES",
    "CUT_WORDS",
    "ENDINGS",
    "FORMATS",
    "MAX_REASON_CHARS",
    "PROBLEMS",
    "REJECTED",
    "USUAL",
    "CheckLimits",
    "CheckOptions",
    "ColumnMapping",
    "Cut",
    "FilterOptions",
    "FilterRule",
    "Given",
    "MixOptions",
    "Options",
    "ReadOptions",
    "Rendered",
    "RenderedRow",
    "Row",
    "RowError",
    "categories_of",
    "category_of",
    "check_tree",
    "conversation_key",
    "is_off",
    "load_rows",
    "part_of",
    "pick",
    "read_records",
    "reasoning_of",
    "row_from_dict",
    "row_value",
    "strict_loads",
    "why_words",
    "word_problems",
]
