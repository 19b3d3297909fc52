"""The columns that the list of runs can show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.utils.translation import gettext_noop as _

from webapp.people.teams.models import Project, User
from webapp.runs.models import RunColumns


class Column(NamedTuple):
    """A column; pages translate its title. ``sort`` is how it is sorted when it is first clicked: a key of
    ``listing.SORTS``, with ``-`` for the highest first; empty where it cannot be."""

    key: str
    title: str
    sort: str = ""
    figure: bool = False

    @property
    def up(self) -> str:
        """Its order with the lowest first."""
        return self.sort.removeprefix("-")

    @property
    def down(self) -> str:
        """Its order with the highest first."""
        return f"-{self.up}"


COLUMNS = {
    column.key: column
    for column in (
        Column("state", _("State"), "state"),
        Column("success", _("Task success"), "-success", figure=True),
        Column("heldout", _("Held-out success"), "-heldout", figure=True),
        Column("reward", _("Reward"), "-reward", figure=True),
        Column("trend", _("Trend")),
        Column("spec", _("Reward spec"), "spec"),
        Column("model", _("Model"), "model"),
        Column("dataset", _("Dataset"), "dataset"),
        Column("tags", _("Tags")),
        Column("owner", _("Owner"), "owner"),
        Column("step", _("Step"), "-step", figure=True),
        Column("duration", _("Duration"), "-duration", figure=True),
        Column("device", _("Device time"), "-device", figure=True),
        Column("started", _("Started"), "-started"),
        Column("created", _("Created"), "-created"),
    )
}
USUAL = ("state", "success", "heldout", "reward", "trend", "tags", "owner", "step", "created")
SHORT = ("state", "success", "reward", "trend", "owner", "step", "created")
"""Of a project's newest runs on its own page."""


def columns_named(keys: Iterable[str]) -> list[Column]:
    """The columns of these keys in the list's order; unknown keys are left out."""
    wanted = set(keys)
    return [column for key, column in COLUMNS.items() if key in wanted]


def columns_asked(text: str) -> list[Column]:
    """The columns that an address names, separated by commas."""
    return columns_named(text[:400].split(","))


def columns_for(project: Project, user: User, asked: str = "") -> list[Column]:
    """Those that the address asks for, else those that the person chose for this project, else the usual ones."""
    if found := columns_asked(asked):
        return found
    kept = RunColumns.objects.filter(project=project, user=user).first()
    return columns_named(kept.columns if kept else USUAL)


def columns_keep(*, project: Project, user: User, keys: Iterable[str]) -> list[Column]:
    """Keep a person's choice for this project; nothing that is known, or the usual ones, forgets it."""
    found = columns_named(keys)
    chosen = [column.key for column in found]
    if not found or set(chosen) == set(USUAL):
        RunColumns.objects.filter(project=project, user=user).delete()
        return columns_named(USUAL)
    RunColumns.objects.update_or_create(project=project, user=user, defaults={"columns": chosen})
    return found
