"""Limits of everything that reads a dataset, each with its unit in the name."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LINE_BYTES = 4 << 20
"""Longest JSONL line."""
MAX_FIELD_BYTES = 1 << 20
"""Longest single text or key of a row, in UTF-8: some 250,000 tokens, twice the window of the models trained here. A
longer one is more likely a file's worth of text that a quote never closed. A row ends at ``MAX_LINE_BYTES``."""
MAX_DEPTH = 32
"""Deepest nesting of lists and objects, the row itself being 1."""
MAX_COLUMNS = 200
"""Most top-level keys of a row, and most different ones that a report names."""
MAX_BAD_ROWS_LISTED = 100
MAX_REASON_CHARS = 200
"""A reason never echoes more than this."""
MAX_FINDINGS_LISTED = 100
"""Remarks listed one by one; all are counted."""
MAX_REMARKS_WRITTEN = 100_000
"""Remarks that the file of a check's findings holds; bad rows are all in it."""
MAX_HASHES = 1_000_000
"""Rows that are remembered to find duplicates and tasks that two datasets share."""
MAX_CATEGORIES = 200
MAX_HUB_BYTES = 4 << 30
"""Largest file that is fetched from Hugging Face."""
MAX_PARQUET_LEAVES = 2000
"""Most leaf columns of a parquet file."""
PARQUET_DECODED_BYTES = 2 << 30
"""Decoded parquet data at most; the lower bound of ``100 x file size + 64 MB`` holds too (see ``parquet.py``)."""
PARQUET_RATIO = 100
PARQUET_ALLOWANCE_BYTES = 64 << 20


@dataclass(frozen=True)
class CheckLimits:
    """What one dataset check may take. The child applies all but ``wall_s``, which the parent watches."""

    max_rows: int = 1_000_000
    memory_bytes: int = 1536 << 20
    cpu_s: int = 600
    open_files: int = 64
    wall_s: float = 900.0


PREVIEW_LIMITS = CheckLimits(cpu_s=10, wall_s=15.0)
"""What a look at the first rows may take."""
