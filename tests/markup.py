"""Pages as tests compare them: the formatter of the templates decides where lines end, not what is shown."""

from __future__ import annotations

import re


def dense(page: str) -> str:
    """The page with one space for each white space, and none next to its tags or at their ends."""
    whole = re.sub(r"\s+", " ", page)
    return re.sub(r" ?(<[^<>]*?) ?(/?>) ?", r"\1\2", whole)
