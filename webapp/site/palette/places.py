"""Pages and actions of the palette, and the options of a run: only those that the reader may open."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _
from pydantic.fields import FieldInfo

from training.config import DEFAULT_KIND, METHODS, JobConfig
from webapp.common.text import translated
from webapp.launch.forms import option_groups
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project, User
from webapp.people.teams.selectors import teams_owned
from webapp.site.palette.items import Item, fits
from webapp.site.rail import RAIL, pages_for

# Label, icon, address name: what editors and owners may do in a project.
ACTIONS: tuple[tuple[Promise, str, str], ...] = (
    (gettext_lazy("New run"), "play", "run-new"),
    (gettext_lazy("Import a run"), "upload", "run-import"),
    (gettext_lazy("Upload a dataset"), "upload", "dataset-new"),
    (gettext_lazy("Create a reward spec"), "plus", "reward-new"),
    (gettext_lazy("Register a server"), "plus", "environment-new"),
    (gettext_lazy("Register a model"), "plus", "model-new"),
    (gettext_lazy("Add an endpoint"), "plus", "endpoint-new"),
    (gettext_lazy("New suite"), "plus", "suite-new"),
    (gettext_lazy("Start a chat"), "chat", "chat-new"),
)
# The pages of a person, whatever the project.
ACCOUNT: tuple[tuple[Promise, str, str], ...] = (
    (gettext_lazy("Notifications"), "bell", "notification-list"),
    (gettext_lazy("Notification settings"), "bell", "notification-settings"),
    (gettext_lazy("API tokens"), "link", "token-list"),
    (gettext_lazy("Change password"), "user", "set-password"),
)


def pages_of(project: Project) -> Iterator[Item]:
    """The pages of the rail, and what the reader may do in the project."""
    for group in RAIL:
        pages = pages_for(project, group)
        for page in pages:
            about = str(group.label) if len(pages) > 1 else ""
            title = str(page.label if about else group.label)
            yield Item(title, page.url(project), "" if about == title else about, group.icon)
    if can_edit(project):
        yield from (Item(str(label), reverse(name, args=[project.slug]), icon=icon) for label, icon, name in ACTIONS)


def account_pages(user: User) -> Iterator[Item]:
    """The person's own pages, and those of the installation for its administrators."""
    yield Item(_("All projects"), f"{reverse('home')}?all=1", icon="home")
    if teams_owned(user).exists():
        yield Item(_("New project"), reverse("project-new"), icon="plus")
    own = _("Your account")
    yield from (Item(str(label), reverse(name), own, icon) for label, icon, name in ACCOUNT)
    yield Item(_("API reference"), reverse("api-docs"), icon="info")
    yield Item(_("Workers"), reverse("worker-list"), icon="runs")
    yield Item(_("Usage"), reverse("device-usage"), icon="columns")
    if user.is_superuser:
        yield Item(_("This installation"), reverse("site"), icon="settings")


class Option(NamedTuple):
    """An option of a run in the reader's language. ``kind`` is a method that has it, ``words`` what may be typed."""

    path: str
    title: str
    group: str
    kind: str
    words: str


def options_found(project: Project, phrase: str, most: int) -> list[Item]:
    """Options whose name, title or help has the words, those of short titles first, each with its place in the form."""
    found = [each for each in _options(get_language()) if fits(each.words, phrase)]
    found.sort(key=lambda each: (not fits(f"{each.path} {each.title}", phrase), len(each.title)))
    form = reverse("run-new", args=[project.slug])
    return [
        Item(f"{each.group} · {each.title}", f"{form}?kind={each.kind}#id_{each.path}", each.path, "settings")
        for each in found[:most]
    ]


@functools.cache
def _options(_language: str | None) -> tuple[Option, ...]:
    """All options. There are two hundred, and a translation looks each of their texts up."""
    head = [("", None, JobConfig.model_fields["kind"], "kind")]
    grouped = [
        (name, group, info, key) for name, model, group in option_groups() for key, info in model.model_fields.items()
    ]
    return tuple(_option(*each) for each in (*head, *grouped))


def _option(name: str, group: FieldInfo | None, info: FieldInfo, key: str) -> Option:
    title, about = translated(info.title), translated(info.description or "")
    path = f"{name}.{key}" if name else key
    kinds = [kind for kind, method in METHODS.items() if not name or name in method.groups]
    return Option(
        path=path,
        title=title,
        group=translated(group.title) if group is not None else _("New run"),
        kind=DEFAULT_KIND if DEFAULT_KIND in kinds or not kinds else kinds[0],
        words=f"{path} {path.replace('_', ' ')} {title} {about}".casefold(),
    )
