"""Lists over the API: one way to ask for a part of what is stored, and to continue from there.

``page`` counts rows from the beginning, so rows that come in front shift the pages. ``cursor`` is a place: the values
that the last row is ordered by, and its id, so that of rows with equal values none is lost or repeated. It is signed,
and holds for the address and the filters that it was made for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from django.core import signing
from django.core.exceptions import ValidationError
from django.db.models import F, Q, QuerySet
from django.db.models.expressions import OrderBy
from django.http import HttpRequest
from django.utils.translation import gettext as _
from pydantic import AfterValidator, BaseModel, Field

MAX_PAGE_ROWS = 200
SALT = "api.cursor"
PLACES = {"page", "per_page", "cursor"}
"""Parameters that say which part is asked for; all others choose among the rows."""


def _in_utc(value: datetime) -> datetime:
    """Its moment in UTC, as PostgreSQL knows no zones beyond 16 hours; the first or last one there is beyond those."""
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return (datetime.min if value.year == 1 else datetime.max).replace(tzinfo=UTC)


Time = Annotated[datetime, AfterValidator(_in_utc)]


# --- What is asked for ----------------------------------------------------------------------------------------------
class Paging(BaseModel):
    """Which part of a list."""

    page: int = Field(1, description="counted from the beginning; rows that come in front shift it")
    per_page: int = Field(50, description="at most 200")
    cursor: str = Field("", max_length=2000, description="`next` of the page before, in place of `page`")


class Dated(Paging):
    """A list whose rows know when they were made."""

    created_after: Time | None = Field(None, description="made then or later: an ISO time, UTC where it has no zone")
    created_before: Time | None = Field(None, description="made before that")


class Searched(Dated):
    """A list in which a text is looked for."""

    q: str = Field("", max_length=200, description="contained, whatever its capitals")


class Named(Searched):
    """A list of what has names."""

    name: str = Field("", max_length=200, description="exactly this name")


class LongDated(Dated):
    """A list whose pages have always been long."""

    per_page: int = Field(MAX_PAGE_ROWS, description="at most 200")


class LongNamed(Named):
    """A list whose pages have always been long."""

    per_page: int = Field(MAX_PAGE_ROWS, description="at most 200")


# --- What is answered -----------------------------------------------------------------------------------------------
class Part(NamedTuple):
    """Rows of one page. ``next`` is the cursor of the next one, ``None`` at the end."""

    rows: list[Any]
    page: int
    pages: int
    total: int
    next: str | None

    def body(self, items: Iterable[Any]) -> dict[str, Any]:
        """The answer, with the rows as they are shown."""
        return {
            "items": list(items),
            "page": self.page,
            "pages": self.pages,
            "total": self.total,
            "next": self.next,
        }


def page_of(
    request: HttpRequest, rows: QuerySet[Any], asked: Paging, show: Callable[[Any], Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """One page of a list, whose rows ``show`` completes where their shape needs more than they have; ``fields`` are
    those of ``matching``. Raises ``ValidationError``."""
    part = part_of(request, matching(rows, asked, **fields), asked)
    return part.body(map(show, part.rows) if show else part.rows)


def matching(
    rows: QuerySet[Any], asked: Paging, *, text: Sequence[str] = ("name",), at: str = "created_at"
) -> QuerySet[Any]:
    """The rows that the common filters leave. ``text``: where ``q`` is looked for; ``at``: when a row was made."""
    if isinstance(asked, Dated):
        bounds = {f"{at}__gte": asked.created_after, f"{at}__lt": asked.created_before}
        rows = rows.filter(**{name: value for name, value in bounds.items() if value is not None})
    if isinstance(asked, Searched) and asked.q:
        held = Q()
        for field in text:
            held |= Q(**{f"{field}__icontains": asked.q})
        rows = rows.filter(held)
    if isinstance(asked, Named) and asked.name:
        rows = rows.filter(name=asked.name)
    return rows


def part_of(request: HttpRequest, rows: QuerySet[Any], asked: Paging) -> Part:
    """The rows of a page in their order, and where the next one begins. Raises ``ValidationError`` for a cursor that
    cannot be read, or that was made for another list."""
    keys, total = _order_keys(rows), rows.count()
    size = max(1, min(asked.per_page, MAX_PAGE_ROWS))
    pages = max(1, math.ceil(total / size))
    ordered = rows.annotate(**{key.name: key.value for key in keys}).order_by(*(key.order for key in keys))
    if asked.cursor:
        page, values = _place_of_cursor(request, asked, len(keys))
        first, ordered = 0, ordered.filter(_rows_after(keys, values))
    else:
        page = max(1, min(asked.page, pages))
        first = (page - 1) * size
    found = list(ordered[first : first + size + 1])
    following = _cursor_after(request, page + 1, found[size - 1], keys) if len(found) > size else None
    return Part(found[:size], page, max(page, pages), total, following)


# --- Order and place ------------------------------------------------------------------------------------------------
class Key(NamedTuple):
    """One of the values that rows are ordered by. ``nulls``: rows may have none, and then come last."""

    name: str
    value: Any
    down: bool
    nulls: bool = False

    @property
    def order(self) -> OrderBy:
        """The key as a part of the order."""
        return OrderBy(F(self.name), descending=self.down, nulls_last=self.nulls or None)


def _order_keys(rows: QuerySet[Any]) -> list[Key]:
    """The order of the rows, with their id at its end."""
    ordering = rows.query.order_by or (rows.model._meta.ordering or () if rows.query.default_ordering else ())
    keys, whole = [], False
    for number, item in enumerate(ordering):
        name = f"key_{number}"
        if isinstance(item, OrderBy):
            keys.append(Key(name, item.expression, item.descending, bool(item.nulls_last)))
        else:
            field = str(item).removeprefix("-")
            keys.append(Key(name, F(field), str(item).startswith("-")))
            whole = whole or field in {"pk", rows.model._meta.pk.name}
    return keys if whole else [*keys, Key(f"key_{len(keys)}", F("pk"), False)]


def _rows_after(keys: Sequence[Key], values: Sequence[Any]) -> Q:
    """The rows after a row with these values."""
    wanted, same = Q(), Q()
    for key, value in zip(keys, values, strict=True):
        missing = Q(**{f"{key.name}__isnull": True})
        if value is None:  # only rows with equal values can come after it
            same &= missing
            continue
        later = Q(**{f"{key.name}__{'lt' if key.down else 'gt'}": value})
        wanted |= same & (later | missing if key.nulls else later)
        same &= Q(**{key.name: value})
    first = keys[0]
    if first.nulls:
        return wanted
    # Redundant, but an index scan can begin at it.
    return Q(**{f"{first.name}__{'lte' if first.down else 'gte'}": values[0]}) & wanted


def _cursor_after(request: HttpRequest, page: int, last: Any, keys: Sequence[Key]) -> str:
    values = [_to_json(getattr(last, key.name)) for key in keys]
    return signing.dumps([_list_of(request), page, values], salt=SALT)


def _place_of_cursor(request: HttpRequest, asked: Paging, count: int) -> tuple[int, list[Any]]:
    """The number of the page that a cursor begins, and the values of the row before it."""
    if asked.page != 1:
        raise ValidationError({"cursor": _("Give `cursor` or `page`, not both.")})
    try:
        made_for, page, values = signing.loads(asked.cursor, salt=SALT)
    except signing.BadSignature:
        raise ValidationError({"cursor": _("This cursor cannot be read; begin again without it.")}) from None
    if made_for != _list_of(request) or len(values) != count:
        text = _("This cursor belongs to another list, or to other filters; begin again without it.")
        raise ValidationError({"cursor": text})
    return page, [_from_json(value) for value in values]


def _list_of(request: HttpRequest) -> str:
    """The list that a cursor belongs to: the address and all that chooses among its rows and orders them."""
    chosen = sorted((name, sorted(filter(None, all))) for name, all in request.GET.lists() if name not in PLACES)
    identity = repr((request.path, [pair for pair in chosen if pair[1]]))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


READ: dict[str, Callable[[Any], Any]] = {
    "time": datetime.fromisoformat,
    "id": UUID,
    "microseconds": lambda number: timedelta(microseconds=number),
    "float": float,
}


def _to_json(value: Any) -> Any:
    """A value in a form that JSON keeps without loss; ``_from_json`` reads it."""
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    if isinstance(value, UUID):
        return {"id": str(value)}
    if isinstance(value, timedelta):
        return {"microseconds": value // timedelta(microseconds=1)}
    return {"float": repr(value)} if isinstance(value, float) else value


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    return READ[kind](text)
