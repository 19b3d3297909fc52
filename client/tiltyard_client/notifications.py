"""``tiltyard notify``: what happened in your projects."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tiltyard_client import completing, show
from tiltyard_client.api import Json
from tiltyard_client.base import MISUSED, REFUSED, AsJson, Project, confirm, end, hidden, print_json, site_of
from tiltyard_client.words import gettext as _
from tiltyard_client.words import ngettext

# ``tiltyard notify channel``: where a project's events are posted.

channel_app = typer.Typer(no_args_is_help=True, help="Chats and servers that a project's events are posted to.")
URL_VARIABLE, SECRET_VARIABLE = "TILTYARD_CHANNEL_URL", "TILTYARD_CHANNEL_SECRET"
ChannelName = Annotated[str, typer.Argument(help="The channel's name.", autocompletion=completing.channels)]


class Service(StrEnum):
    """The service whose format the webhook has."""

    slack = "slack"
    feishu = "feishu"
    dingtalk = "dingtalk"
    discord = "discord"
    json = "json"


class Event(StrEnum):
    """The events that may be posted."""

    run_succeeded = "run_succeeded"
    run_failed = "run_failed"
    run_paused = "run_paused"
    run_advisory = "run_advisory"
    evaluation_ready = "evaluation_ready"
    vote_asked = "vote_asked"
    model_production = "model_production"


class Language(StrEnum):
    """Of the messages."""

    en = "en"
    chinese = "zh-hans"


@channel_app.command("list")
def channel_list(project: Project = "", as_json: AsJson = False) -> None:
    """The channels of the project. Their addresses and secrets are never shown."""
    with site_of(project) as site:
        rows = site.channels()
    if as_json:
        return print_json(rows)
    columns = {"name": _("channel"), "kind": _("service"), "host": _("host"), "signed": _("signed")}
    columns |= {"events": _("events"), "language": _("language"), "state": _("state")}
    shown = [row | {"state": show.state("paused") if row["paused_at"] else _("in use")} for row in rows]
    show.table(shown, columns)


@channel_app.command("add")
def channel_add(
    name: Annotated[str, typer.Argument(help="What your team calls it.")],
    kind: Annotated[Service, typer.Option(help="The service.")],
    event: Annotated[list[Event], typer.Option(help="What is posted; may be repeated.")],
    with_secret: Annotated[bool, typer.Option("--with-secret", help="They are signed: ask for the secret.")] = False,
    language: Annotated[Language | None, typer.Option(help="Of the messages.")] = None,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Add a channel (owners). Its address and secret are asked for, never taken from the command line."""
    values: Json = {"name": name, "kind": kind.value, "events": [item.value for item in event], "url": _address()}
    values |= {"secret": _secret()} if with_secret else {}
    values |= {"language": language.value} if language else {}
    with site_of(project) as site:
        made = site.channel_add(**values)
    text = _("{name} was added. Try it: tiltyard notify channel test {name}")
    print_json(made) if as_json else print(text.format(name=made["name"]))


@channel_app.command("edit")
def channel_edit(
    channel: ChannelName,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    kind: Annotated[Service | None, typer.Option(help="Another service.")] = None,
    event: Annotated[list[Event] | None, typer.Option(help="What is posted from now on; may be repeated.")] = None,
    language: Annotated[Language | None, typer.Option(help="Of the messages.")] = None,
    with_address: Annotated[bool, typer.Option("--with-address", help="Ask for another address.")] = False,
    with_secret: Annotated[bool, typer.Option("--with-secret", help="Ask for another secret.")] = False,
    no_secret: Annotated[bool, typer.Option("--no-secret", help="Messages are not signed any more.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Change the given settings of a channel (owners). An address at another server needs its secret again."""
    if with_secret and no_secret:
        end(_("--with-secret or --no-secret, not both."), MISUSED)
    values: Json = {"name": name, "kind": kind and kind.value, "language": language and language.value}
    values |= {"events": [item.value for item in event] if event else None}
    values |= {"url": _address() if with_address else None}
    values |= {"secret": _secret() if with_secret else "" if no_secret else None}
    changes = {key: value for key, value in values.items() if value is not None}
    if not changes:
        end(_("Say what shall change, such as --name, --event or --with-address."), MISUSED)
    with site_of(project) as site:
        made = site.channel_change(site.channel(channel)["id"], **changes)
    print_json(made) if as_json else print(_("{name} was changed.").format(name=made["name"]))


@channel_app.command("test")
def channel_test(channel: ChannelName, project: Project = "", as_json: AsJson = False) -> None:
    """Post a test message now (owners). Exit code 1 where the service does not accept it."""
    with site_of(project) as site:
        found = site.channel(channel)
        tried = site.channel_test(found["id"])
    print_json(tried) if as_json else print(f"{found['name']}: {tried['text']}")
    if not tried["ok"]:
        raise typer.Exit(REFUSED)


@channel_app.command("resume")
def channel_resume(channel: ChannelName, project: Project = "", as_json: AsJson = False) -> None:
    """Post to a paused channel again, with what was held in the last 24 hours (owners)."""
    with site_of(project) as site:
        found = site.channel(channel)
        made = site.channel_resume(found["id"])
    n = made["sent"]
    text = ngettext("{name} is used again; {n} message follows.", "{name} is used again; {n} messages follow.", n)
    print_json(made) if as_json else print(text.format(name=found["name"], n=n))


@channel_app.command("delete")
def channel_delete(
    channel: ChannelName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: Project = "",
    as_json: AsJson = False,
) -> None:
    """Delete a channel and forget its address (owners)."""
    with site_of(project) as site:
        found = site.channel(channel)
        confirm(_("Delete {name} and forget its address?").format(name=found["name"]), yes)
        gone = site.channel_delete(found["id"])
    print_json(gone) if as_json else print(_("{name} was deleted.").format(name=found["name"]))


def _address() -> str:
    return hidden(URL_VARIABLE, _("Address of the webhook")) or end(_("No address was given."), MISUSED)


def _secret() -> str:
    return hidden(SECRET_VARIABLE, _("Secret")) or end(_("No secret was given."), MISUSED)


app = typer.Typer(no_args_is_help=True, help="What happened in your projects.")
app.add_typer(channel_app, name="channel")
OneProject = Annotated[str, typer.Option("--project", "-p", help="A project's slug; else all of yours.")]


@app.command("list")
def notify_list(
    unread: Annotated[bool, typer.Option("--unread", help="Only those that were not read.")] = False,
    most: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    project: OneProject = "",
    as_json: AsJson = False,
) -> None:
    """Your notifications, newest first."""
    with site_of(project) as site:
        rows = site.notifications(project=project, unread=unread, most=most)
    if as_json:
        return print_json(rows)
    shown = [row | {"new": "•" if row["read_at"] is None else " "} for row in rows]
    columns = {"new": "", "id": _("number"), "at": _("when"), "project": _("project"), "title": _("what")}
    show.table([row | {"at": show.cell("read_at", row["at"])} for row in shown], columns)


@app.command("read")
def notify_read(
    numbers: Annotated[list[int] | None, typer.Argument(help="Those with these numbers.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All, or all of --project.")] = False,
    project: OneProject = "",
    as_json: AsJson = False,
) -> None:
    """Mark notifications as read."""
    if bool(numbers) == everything:
        end(_("Say which: their numbers, or --all."), MISUSED)
    with site_of(project) as site:
        made = site.notifications_read(numbers or None, project=project)
    n = made["read"]
    text = ngettext("{n} notification was new; it is read now.", "{n} notifications were new; they are read now.", n)
    print_json(made) if as_json else print(text.format(n=n))
