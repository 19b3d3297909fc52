"""The query of a saved comparison: read from an address or a body, checked, and turned back into an address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.core.exceptions import TooManyFieldsSent, ValidationError
from django.http import QueryDict
from django.utils.translation import gettext as _

from training.config import kind_in, name_in
from training.plain import number_in
from webapp.common.text import clean_text
from webapp.evaluation.comparison.contestants import LEAST, MOST, Contestant, contestants_of
from webapp.evaluation.comparison.rewards import spec_named
from webapp.evaluation.comparison.tasks import GROUPS
from webapp.evaluation.comparison.views import Comparison, compare
from webapp.evaluation.sharing.models import SavedComparison
from webapp.people.teams.models import Project
from webapp.rewards.selectors import specs_of

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
    those that evaluate. Raises ``ValidationError`` for what is no query."""
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
    playing = [str(item.run.pk) for item in contestants_of(project, runs)[0] if item.evaluates]
    numbers = [number_in(part, 2) for part in places.split("-", 1)]
    found = list(dict.fromkeys(playing[number] for number in numbers if number is not None and number < len(playing)))
    return found if len(found) == 2 else []


def checked(project: Project, query: Query) -> dict[str, Any]:
    """The fields of a ``SavedComparison`` that asks for this. Raises ``ValidationError`` by part of the query."""
    contestants = _checked_contestants(project, query.runs)
    playing = [item for item in contestants if item.evaluates]
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
    playing = [str(item.run.pk) for item in contestants if item.evaluates]
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
