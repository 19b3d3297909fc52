"""Where the episodes are played."""

from __future__ import annotations

from typing import Any, Literal

from training.config.option import Group, option
from training.words import _

Protocol = Literal["openenv", "openenv-mcp", "openenv-text", "agentgym", "virtual", "mcp"]


class EnvironmentConfig(Group):
    """The environment server that plays the episodes, and how long each stage may take."""

    name: str = option(
        "",
        title=_("Environment"),
        help=_("The environment server that answers tool calls. A registered one, or its name with a URL below."),
        basic=True,
        widget="environment",
        max_length=200,
    )
    url: str = option(
        "",
        title=_("Server URL"),
        help=_("http:// or https:// address of the server; filled in from the registration."),
        widget="registration",
        max_length=500,
    )
    protocol: Protocol = option(
        "openenv",
        title=_("Protocol"),
        help=_("Protocol of the server; filled in from the registration."),
        widget="registration",
        choices={
            "openenv": _("OpenEnv with Tiltyard's own actions"),
            "openenv-mcp": _("OpenEnv with MCP tools (list_tools, call_tool)"),
            "openenv-text": _("OpenEnv with a text action"),
            "agentgym": _("AgentGym over HTTP"),
            "virtual": _("StableToolBench's /virtual"),
            "mcp": _("an MCP server over streamable HTTP"),
        },
    )
    options: dict[str, Any] = option(
        dict,
        title=_("Protocol options"),
        help=_("What the protocol needs besides the address."),
        widget="registration",
    )
    replicas: list[str] = option(
        list,
        title=_("Replicas"),
        help=_("Addresses of more servers of the same environment; episodes go to the one with the most free slots."),
        widget="registration",
        max_length=64,
    )
    deterministic: bool = option(
        False,
        title=_("Deterministic"),
        help=_("Task, seed and actions determine the episode, so one that lost its server can be replayed on another."),
        widget="registration",
    )
    connect_timeout_s: float = option(
        10.0, title=_("Connect limit"), help=_("Longest wait for a connection."), unit=_("seconds"), gt=0, le=600
    )
    reset_timeout_s: float = option(
        60.0, title=_("Reset limit"), help=_("Longest wait for a new episode."), unit=_("seconds"), gt=0, le=3600
    )
    step_timeout_s: float = option(
        30.0, title=_("Call limit"), help=_("Longest wait for one answer."), unit=_("seconds"), gt=0, le=3600
    )
    episode_timeout_s: float = option(
        600.0, title=_("Episode limit"), help=_("Longest whole episode."), unit=_("seconds"), gt=0, le=86400
    )
    attempts: int = option(
        2,
        title=_("Connection attempts"),
        help=_("How many times an episode that fails to begin is tried before its rollout is excluded."),
        ge=1,
        le=10,
    )
    sessions: int = option(
        0,
        title=_("Sessions at once"),
        help=_("Maximum number of episodes in flight on each server; the others wait. 0 uses what the server reports."),
        unit=_("sessions"),
        ge=0,
        le=4096,
    )
    patience_s: float = option(
        600.0,
        title=_("Patience"),
        help=_(
            "How long a step is held and retried while the environment is unreachable or full; then the run "
            "pauses. 0 never holds a step."
        ),
        unit=_("seconds"),
        ge=0,
        le=86400,
    )
