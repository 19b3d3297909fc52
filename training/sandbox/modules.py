"""The modules that a custom reward may import. They are loaded before the process is confined; nothing is after it."""

from __future__ import annotations

ALLOWED = (
    "ast",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "heapq",
    "html",
    "itertools",
    "json",
    "keyword",
    "math",
    "numbers",
    "operator",
    "re",
    "statistics",
    "string",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "__future__",
)
# What those load at first use.
LOADED_TOO = ("_strptime", "collections.abc", "html.entities", "json.decoder", "json.encoder")
