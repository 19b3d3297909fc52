"""Answers about projects, people and their notifications."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from pydantic import AliasPath, Field

from webapp.common.answers import Answer, Filled, Slug, Time, Username


class Project(Answer):
    """A project."""

    slug: str = Field(description="its name in addresses")
    name: str
    team: str = Field(validation_alias=AliasPath("team", "name"))


class ProjectWithRole(Project):
    """A project and what you may do in it."""

    role: str = Field(description="viewer, editor or owner; with a token at most the token's")


class Team(Answer):
    """A team that you are in."""

    id: UUID = Field(validation_alias=AliasPath("team", "id"))
    name: str = Field(validation_alias=AliasPath("team", "name"))
    role: str = Field(description="viewer, editor or owner")


class Person(Answer):
    """Someone who can log in, or could before they were deactivated."""

    id: UUID
    username: str
    is_active: bool
    is_superuser: bool = Field(description="whether they administrate this installation")
    last_login: Time | None


class Member(Answer):
    """A member of the project's team."""

    username: str = Field(validation_alias=AliasPath("user", "username"))
    role: str = Field(description="viewer, editor or owner")


class HubToken(Answer):
    """A project's Hugging Face token, without the token."""

    since: Time | None = Field(description="when it was set; null: there is none")


class RetentionKind(Answer):
    """The rule of one kind of what runs leave, and what it frees."""

    kind: str = Field(description="words, tokens, logs or checkpoints")
    title: str
    days: int | None = Field(description="for how many days after the end of its run it is kept; null: no limit")
    gib: int | None = Field(description="GiB that the project keeps at most; null: no limit")
    own: bool = Field(description="false: it is the site's rule")
    bytes: int = Field(description="of all runs that have ended")
    runs: int
    kept: int = Field(description="runs of which nothing is removed, because something refers to them")
    now_bytes: int = Field(description="what the rule frees now")
    now_runs: int
    later_bytes: int = Field(description="what it frees within 30 days besides, at the rate of the last 30")


class Freed(Answer):
    """What a rule removed from a run."""

    run: str = Field(validation_alias="run_name")
    kind: str
    bytes: int
    number: int = Field(description="of turns, files or checkpoints")
    at: Time
    why: str = Field(description="the limit that was reached")


class Retention(Answer):
    """What a project's rules of retention free."""

    headline: str
    evidence: list[str] = Field(description="how it was estimated, and what is in no figure")
    freed: str
    kinds: list[RetentionKind]
    lately: list[Freed] = Field(description="the newest removals")


class UsedHours(Answer):
    """Hours in which workers had runs of one person in one project on one day."""

    day: date = Field(description="of the site's time zone")
    project: str
    slug: str = Field(description="the project's name in addresses")
    person: str = Field(description="user name; empty: they are gone")
    pool: str = Field(description="train: with a device; endpoint: without one")
    hours: float
    runs: int


class Usage(Answer):
    """Who used the devices."""

    days: int
    since: Time
    items: list[UsedHours]


class ProjectLimit(Answer):
    """How many devices the runs of a project may have at once, and how much it may store."""

    project: Slug = Field(description="slug")
    devices: int | None = Field(description="null: no limit")
    in_use: int = Field(description="devices that its runs have now")
    storage_gib: int | None = Field(description="no run is launched once it stores so much; null: no limit")
    stored_bytes: int = Field(
        description="whole checkpoints, datasets, and rollouts and logs of ended runs once they are measured"
    )


class TokenAbout(Answer):
    """The rights of a token."""

    name: str
    role: str
    scope: Filled[str] = Field(description="metrics or ingest: it does only that; null: all of its role")
    project: Slug = Field(description="slug of the only project; null: all of yours")
    expires_at: Time | None


class MachineToken(TokenAbout):
    """A token of a machine account."""

    id: UUID
    hint: str = Field(description="how its text begins")
    created_at: Time
    used_at: Time | None = Field(description="when it was used last, to the minute; null: never")
    used_from: str = Field(description="IP address of that; empty where none is known")


class ReachingToken(MachineToken):
    """A person's token that opens a project."""

    username: str = Field(description="whose it is", validation_alias=AliasPath("user", "username"))


class Machine(Answer):
    """A machine account of a team."""

    id: UUID
    name: str
    role: str = Field(description="viewer or editor")
    scope: Filled[str] = Field(description="metrics or ingest: it does only that; null: all of its role")
    project: Slug = Field(description="slug of the only project; null: all of the team's")
    created_by: Username = Field(description="null: they are gone")
    created_at: Time
    tokens: list[MachineToken] = Field(validation_alias=AliasPath("user", "there"))


class MachineTokenMade(Answer):
    """A token that was made."""

    token: MachineToken
    text: str = Field(description="the token itself, in this answer alone")


class MachineMade(MachineTokenMade):
    """A machine account that was made, with its first token."""

    id: UUID
    name: str


class Me(Answer):
    """Who you are."""

    username: str
    token: TokenAbout | None = Field(description="null in a browser")


class Notification(Answer):
    """Something that happened, in your language."""

    id: int
    event: str = Field(validation_alias=AliasPath("event", "kind"))
    project: str = Field(validation_alias=AliasPath("event", "project", "slug"))
    title: str
    text: str
    url: str
    at: Time = Field(validation_alias=AliasPath("event", "created_at"))
    read_at: Time | None


class Read(Answer):
    """How many were not read before."""

    read: int


class Channel(Answer):
    """Where a project's events are posted, without address and secret."""

    id: UUID
    name: str
    kind: str = Field(description="slack, feishu, dingtalk, discord or json")
    host: str
    signed: bool
    events: list[str]
    language: str
    failures: int = Field(description="messages that failed in a row")
    paused_at: Time | None


class Tested(Answer):
    """The result of a test message."""

    ok: bool
    text: str


class HostDrain(Answer):
    """Whether the workers of a host take nothing new."""

    host: str
    draining: bool


class Resumed(Answer):
    """The number of held messages that are sent now."""

    sent: int
