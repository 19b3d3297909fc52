"""Tags of a run: short words that a team sorts its runs by."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.core.exceptions import ValidationError
from django.db.models import F, Func, QuerySet
from django.utils.translation import gettext as _

from webapp.runs.models import Run

MOST, LONGEST = 10, 30
_ONE = re.compile(rf"[\w][\w.:/+-]{{0,{LONGEST - 1}}}")
_BETWEEN = re.compile(r"[\s,;，、；]+")


def tags_of(given: str | Iterable[str]) -> list[str]:
    """What a person typed, or a list, as tags: small letters, each once, in their order.

    Raises ``ValidationError`` for the field ``tags`` where one is no tag.
    """
    parts = _BETWEEN.split(given) if isinstance(given, str) else [part.strip() for part in given]
    found = list(dict.fromkeys(part.lower() for part in parts if part))
    for tag in found:
        if not _ONE.fullmatch(tag):
            raise ValidationError({"tags": _not_a_tag(tag)})
    return found


def checked(tags: list[str]) -> list[str]:
    """The tags of one run. Raises ``ValidationError`` for the field ``tags`` where they are too many."""
    if len(tags) > MOST:
        raise ValidationError({"tags": _("A run has at most %(n)d tags.") % {"n": MOST}})
    return tags


def _not_a_tag(tag: str) -> str:
    return _("“%(tag)s” cannot be a tag: use letters, digits and . : / + - _, at most %(n)d characters.") % {
        "tag": tag[: LONGEST + 10],
        "n": LONGEST,
    }


def tags_of_rows(rows: QuerySet[Run]) -> list[str]:
    """Every tag of these runs, by name."""
    tags = (
        rows.exclude(tags=[]).order_by().annotate(one=Func(F("tags"), function="unnest")).values_list("one", flat=True)
    )
    return sorted(set(tags.distinct()))
