"""Saved comparisons, their comments and the links that share them: read, checked and written. Pages and the API call
the same functions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.core.exceptions import TooManyFieldsSent, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Now
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from training.config import kind_in, name_in
from training.plain import number_in
from webapp.common.pages import clean_name
from webapp.common.text import clean_text
from webapp.evaluation.comparison.contestants import LEAST, MOST, Contestant, contestants_of
from webapp.evaluation.comparison.rewards import spec_named
from webapp.evaluation.comparison.tasks import GROUPS
from webapp.evaluation.comparison.views import Comparison, compare
from webapp.evaluation.sharing.models import MAX_COMMENT_CHARS, Comment, SavedComparison, SharedLink
from webapp.people.teams.access import RANK, project_for, role_in
from webapp.people.teams.audit import audit
from webapp.people.teams.logins import TOKEN_BYTES, token_hash
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.rewards.selectors import specs_of
from webapp.runs.models import Run

# --- Queries ---------------------------------------------------------------------------------------------------------
# The query of a saved comparison: read from an address or a body, checked, and turned back into an address.

MAX_CHARS = 4_000
CHANGEABLE = ("spec", "pair", "tasks", "category", "page")
CATEGORY_CHARS = 80


class Query(NamedTuple):
    """A query as it was sent: ids of runs, a spec as addresses name it, the ids of a pair, what is listed."""

    runs: Sequence[str]
    spec: str = ""
    pair: Sequence[str] = ()
    tasks: str = ""
    category: str = ""


@dataclass
class Opened:
    """A saved comparison now: its remaining contestants, the names of deleted ones, and the query of its page.

    ``found`` is ``None`` where fewer than two are left.
    """

    saved: SavedComparison
    contestants: list[Contestant]
    gone: list[str]
    asked: QueryDict
    notes: list[str] = field(default_factory=list)
    found: Comparison | None = None

    @property
    def address(self) -> str:
        """The query of its page as text, without the page of the list."""
        shown = self.asked.copy()
        shown.pop("page", None)
        return shown.urlencode()


def query_of(project: Project, address: str) -> Query:
    """The query of a comparison's page, read as that page reads it: a pair is named by the places of
    those that evaluate. Raises ``ValidationError`` for a text that is not a query."""
    unread = ValidationError({"runs": _("The address of the comparison cannot be read.")})
    if len(address) > MAX_CHARS:
        raise unread
    try:
        asked = QueryDict(address)
    except TooManyFieldsSent as exc:
        raise unread from exc
    runs, group = asked.getlist("c"), asked.get("tasks", "")
    pair = _pair_at(project, runs, asked.get("pair", ""))
    return Query(runs, asked.get("spec", ""), pair, group if group in GROUPS else "", asked.get("category", ""))


def _pair_at(project: Project, runs: Sequence[str], places: str) -> list[str]:
    """The ids of the runs at two places; none where there are none, as on the page, which then takes the first pair."""
    if not places:
        return []
    playing = [str(item.run.pk) for item in contestants_of(project, runs)[0] if item.measured]
    numbers = [number_in(part, 2) for part in places.split("-", 1)]
    found = list(dict.fromkeys(playing[number] for number in numbers if number is not None and number < len(playing)))
    return found if len(found) == 2 else []


def checked(project: Project, query: Query) -> dict[str, Any]:
    """The fields of a ``SavedComparison`` that asks for this. Raises ``ValidationError`` by part of the query."""
    contestants = _checked_contestants(project, query.runs)
    playing = [item for item in contestants if item.measured]
    spec, spec_name = _spec_and_name(project, playing, query.spec)
    if query.tasks and query.tasks not in GROUPS:
        raise ValidationError({"tasks": _("Choose one of: %(groups)s.") % {"groups": ", ".join(GROUPS)}})
    return {
        "contestants": [{"id": str(item.run.pk), "name": item.run.name} for item in contestants],
        "spec": spec,
        "spec_name": spec_name[:200],
        "pair": _checked_pair(playing, query.pair),
        "tasks": query.tasks,
        "category": clean_text(query.category)[:CATEGORY_CHARS],
    }


def _checked_contestants(project: Project, runs: Sequence[str]) -> list[Contestant]:
    wanted = list(dict.fromkeys(text.lower() for text in runs))
    if len(wanted) > MOST:
        sentence = _("%(most)d can be compared at once, and these are %(n)d; choose fewer.")
        raise ValidationError({"runs": sentence % {"most": MOST, "n": len(wanted)}})
    contestants, _notes = contestants_of(project, wanted)
    if missing := len(wanted) - len(contestants):
        sentence = _("Not in this project, or deleted: %(n)d of the %(all)d runs. Choose others.")
        raise ValidationError({"runs": sentence % {"n": missing, "all": len(wanted)}})
    if len(contestants) < LEAST:
        raise ValidationError({"runs": _("Choose at least %(least)d runs of this project.") % {"least": LEAST}})
    return contestants


def _spec_and_name(project: Project, playing: Sequence[Contestant], asked: str) -> tuple[str, str]:
    """The spec with its version, so that a later one changes nothing, and what it is called."""
    if not asked:
        return "", ""
    found = spec_named(project, playing, asked)
    if found is None or len(asked) > 200:
        raise ValidationError({"spec": _("There is no such reward spec, and none of the runs has that id.")})
    if kind_in(asked) != "reward":
        return asked, found.name
    if "@" not in asked:
        newest = specs_of(project).filter(name=name_in("reward", asked)).order_by("-version").first()
        asked = newest.reference if newest else asked
    return asked, name_in("reward", asked)


def _checked_pair(playing: Sequence[Contestant], pair: Sequence[str]) -> list[str]:
    ids = {str(item.run.pk) for item in playing}
    if pair and (len(set(pair)) != 2 or len(pair) != 2 or not set(pair) <= ids):
        raise ValidationError({"pair": _("A pair is two of the evaluations that are compared.")})
    return list(pair)


def opened(saved: SavedComparison, changed: QueryDict | None = None) -> Opened:
    """Read a saved comparison again; ``changed`` is what the reader of its page asks for instead."""
    contestants, _notes = contestants_of(saved.project, saved.run_ids)
    there = [str(item.run.pk) for item in contestants]
    gone = [item["name"] for item in saved.contestants if item["id"] not in there]
    playing = [str(item.run.pk) for item in contestants if item.measured]
    asked = QueryDict(mutable=True)
    asked.setlist("c", there)
    kept = {
        "spec": saved.spec,
        "pair": _pair_address(playing, saved.pair),
        "tasks": saved.tasks,
        "category": saved.category,
    }
    for name in CHANGEABLE:
        value = changed.get(name, "") if changed is not None and name in changed else kept.get(name, "")
        if value:
            asked[name] = str(value)
    made = Opened(saved, contestants, gone, asked)
    if gone:
        made.notes.append(
            _("Deleted since this comparison was saved, and left out of it: %(names)s.") % {"names": ", ".join(gone)}
        )
    if len(contestants) >= LEAST:
        made.found = compare(saved.project, contestants, made.notes, asked)
        _note_lost_spec(made, made.found)
    return made


def _pair_address(playing: Sequence[str], pair: Sequence[str]) -> str:
    """A pair as the address of a page has it: by places, the earlier one first."""
    if not pair or not set(pair) <= set(playing):
        return ""
    first, second = sorted(playing.index(run) for run in pair)
    return f"{first}-{second}"


def _note_lost_spec(made: Opened, found: Comparison) -> None:
    saved = made.saved
    if saved.spec and made.asked.get("spec") == saved.spec and found.rewards and found.rewards.chosen is None:
        found.notes.append(
            _("The reward spec %(name)s, by which all tries were weighed, was deleted.") % {"name": saved.spec_name}
        )


# --- Saving ---------------------------------------------------------------------------------------------------------

MOST_SAVED, MOST_COMMENTS = 200, 500


def own_or_owned(user: Any, item: SavedComparison | Comment | SharedLink) -> None:
    """The maker of a thing may end it, and so may owners of its project. Raises ``PermissionDenied`` for others."""
    project_for(user, item.project.slug, need=Role.EDITOR if item.created_by_id == user.pk else Role.OWNER)


def comparison_save(*, project: Project, user: User, name: str, query: Query) -> SavedComparison:
    """Save a comparison's query under a name. Raises ``ValidationError`` by field and by part of the query."""
    saved = SavedComparison(project=project, name=clean_name(name), created_by=user, **checked(project, query))
    if SavedComparison.objects.filter(project=project).count() >= MOST_SAVED:
        raise ValidationError(_("This project has %(n)d saved comparisons; delete one first.") % {"n": MOST_SAVED})
    try:
        with transaction.atomic():
            saved.save(force_insert=True)
            audit(AuditAction.COMPARISON_SAVED, saved, by=user)
    except IntegrityError as exc:
        raise _name_taken() from exc
    return saved


def comparison_rename(saved: SavedComparison, name: str) -> None:
    """Give it another name. Raises ``ValidationError`` where that is taken or no name."""
    before, saved.name = saved.name, clean_name(name)
    if saved.name == before:
        return
    try:
        with transaction.atomic():
            saved.save(update_fields=["name"])
            audit(AuditAction.COMPARISON_RENAMED, saved, subject=f"{before} → {saved.name}")
    except IntegrityError as exc:
        saved.name = before
        raise _name_taken() from exc


def _name_taken() -> ValidationError:
    return ValidationError({"name": _("A saved comparison has this name already; choose another one.")})


def comparison_delete(saved: SavedComparison) -> None:
    """Delete it with its comments; links that share it end at once. The runs stay."""
    with transaction.atomic():
        audit(AuditAction.COMPARISON_DELETED, saved)
        saved.delete()


def comment_add(*, saved: SavedComparison, user: User, text: str) -> Comment:
    """Add a comment below a comparison. Raises ``ValidationError`` for ``text``."""
    text = _checked_comment(text)
    if saved.comments.count() >= MOST_COMMENTS:
        raise ValidationError({"text": _("There are %(n)d comments here; delete one first.") % {"n": MOST_COMMENTS}})
    return Comment.objects.create(comparison=saved, created_by=user, text=text)


def comment_edit(comment: Comment, text: str) -> None:
    """Change a comment's text. Raises ``ValidationError`` for ``text``."""
    text = _checked_comment(text)
    if text != comment.text:
        Comment.objects.filter(pk=comment.pk).update(text=text, edited_at=Now())


def comment_delete(comment: Comment) -> None:
    """Delete a comment."""
    with transaction.atomic():
        who = comment.created_by.username if comment.created_by else "–"
        audit(AuditAction.COMMENT_DELETED, comment, subject=f"{comment.comparison.name} · {who}")
        comment.delete()


def _checked_comment(text: str) -> str:
    text = clean_text(text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if not text:
        raise ValidationError({"text": _("Write something first.")})
    if len(text) > MAX_COMMENT_CHARS:
        sentence = _("At most %(most)d characters; these are %(n)d.")
        raise ValidationError({"text": sentence % {"most": MAX_COMMENT_CHARS, "n": len(text)}})
    return text


# --- Links ----------------------------------------------------------------------------------------------------------
# Links that open a saved comparison without an account: made on a page, shown once, stored as a hash.
#
# A link never shows more than its maker may see at that moment: it stops working when they are deactivated, leave the
# team or lose the right to write, as it does when it is revoked, ends, or its comparison or project is deleted.

DAYS = (1, 7, 30, 90)
HINT_CHARS = 4
MOST_LINKS = 50


def link_create(*, saved: SavedComparison, user: User, days: int) -> tuple[SharedLink, str]:
    """Make a link and return it with its secret, which is nowhere else. Raises ``ValidationError`` by field."""
    if days not in DAYS:
        choices = ", ".join(str(number) for number in DAYS)
        raise ValidationError(
            {"days": _("A link is valid for one of these numbers of days: %(days)s.") % {"days": choices}}
        )
    now = timezone.now()
    if SharedLink.objects.filter(comparison=saved, revoked_at=None, expires_at__gt=now).count() >= MOST_LINKS:
        raise ValidationError(_("This comparison has %(n)d links; revoke one first.") % {"n": MOST_LINKS})
    secret = secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        link = SharedLink.objects.create(
            comparison=saved,
            created_by=user,
            secret_hash=token_hash(secret),
            hint=secret[:HINT_CHARS],
            expires_at=now + timedelta(days=days),
        )
        audit(AuditAction.COMPARISON_SHARED, saved, by=user)
    return link, secret


def link_revoke(link: SharedLink) -> None:
    """End a link at once; its row stays for the record. Idempotent."""
    with transaction.atomic():
        if SharedLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=Now()):
            audit(AuditAction.SHARE_REVOKED, link.comparison)


def link_open(secret: str) -> SharedLink | None:
    """The link with this secret, if it opens now."""
    links = SharedLink.objects.filter(secret_hash=token_hash(secret), revoked_at=None, expires_at__gt=timezone.now())
    links = links.filter(comparison__project__removed_at=None)
    link = links.select_related("comparison__project__team", "created_by").first()
    return link if link is not None and maker_may_share(link) else None


def maker_may_share(link: SharedLink) -> bool:
    """Whether who made it is still there and may still write in the project."""
    role = role_in(link.created_by, link.project)
    return role is not None and RANK[role] >= RANK[Role.EDITOR]


def link_count(link: SharedLink) -> None:
    """Note that it was opened."""
    SharedLink.objects.filter(pk=link.pk).update(opened=F("opened") + 1, opened_at=Now())


# --- Reading --------------------------------------------------------------------------------------------------------
# Reading saved comparisons, their comments and their links.


class SavedLine(NamedTuple):
    """A saved comparison in a list; ``gone`` are the names of runs that were deleted since."""

    saved: SavedComparison
    there: list[str]
    gone: list[str]
    comments: int
    links: int


class LinkLine(NamedTuple):
    """A shared link in a list. ``state`` is open, expired, revoked, or left: its maker may not share any more."""

    link: SharedLink
    state: str


def comparisons_of(project: Project) -> QuerySet[SavedComparison]:
    """The saved comparisons of a project, newest first."""
    return (
        SavedComparison.objects.filter(project=project)
        .select_related("project__team", "created_by")
        .order_by("-created_at", "pk")
    )


def saved_lines(project: Project) -> list[SavedLine]:
    """All of them, as the page to choose from lists them."""
    live = Q(links__revoked_at=None, links__expires_at__gt=timezone.now())
    rows = list(
        comparisons_of(project).annotate(
            said=Count("comments", distinct=True), shared=Count("links", filter=live, distinct=True)
        )
    )
    named = {run for row in rows for run in row.run_ids}
    present = {str(pk) for pk in Run.objects.filter(project=project, pk__in=named).values_list("pk", flat=True)}
    return [
        SavedLine(
            row,
            [item["name"] for item in row.contestants if item["id"] in present],
            [item["name"] for item in row.contestants if item["id"] not in present],
            row.said,
            row.shared,
        )
        for row in rows
    ]


def comments_of(saved: SavedComparison) -> QuerySet[Comment]:
    """The comments below it, the newest last."""
    return Comment.objects.filter(comparison=saved).select_related("created_by")


def links_of(saved: SavedComparison) -> QuerySet[SharedLink]:
    """The links that share it, newest first."""
    return SharedLink.objects.filter(comparison=saved).select_related("created_by", "comparison__project")


def link_lines(links: Iterable[SharedLink]) -> list[LinkLine]:
    """Links with their present state."""
    now = timezone.now()
    lines, may = [], {}
    for link in links:
        if link.created_by_id not in may:
            may[link.created_by_id] = maker_may_share(link)
        state = "open" if may[link.created_by_id] else "left"
        if not link.open_at(now):
            state = "revoked" if link.revoked_at else "expired"
        lines.append(LinkLine(link, state))
    return lines


def links_open(saved: SavedComparison) -> int:
    """How many links that have not ended share it."""
    return SharedLink.objects.filter(comparison=saved, revoked_at=None, expires_at__gt=timezone.now()).count()
