"""Protocols: how an environment server is spoken to. ``open_session`` is the one entry for episodes;
``opening`` and ``heard`` are what a policy hears in them.

Adding one is a module next to ``agentgym.py`` with ``Options``, ``open_session`` and ``ask_facts``, its name in
``training.config.Protocol`` and a line in ``_MODULES``. Every session offers reset, step and close in the models of
``envs/wire.py`` and raises only typed errors.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from training.config import EnvironmentConfig, Protocol
from training.errors import TiltyardError
from training.rollout.protocols import agentgym, mcp, openenv, openenv_foreign, openenv_mcp, openenv_text, virtual
from training.rollout.protocols.base import ServerFacts, read_options
from training.rollout.session import Session, heard, opening

__all__ = [
    "PROTOCOL_OPTIONS",
    "STATELESS",
    "ServerFacts",
    "Session",
    "addresses",
    "ask_server",
    "check_environment",
    "check_options",
    "check_server",
    "heard",
    "open_session",
    "opening",
    "probe_slots",
]

_MODULES: dict[Protocol, Any] = {
    "openenv": openenv,
    "openenv-mcp": openenv_mcp,
    "openenv-text": openenv_text,
    "agentgym": agentgym,
    "virtual": virtual,
    "mcp": mcp,
}
PROTOCOL_OPTIONS: dict[Protocol, type[BaseModel]] = {name: module.Options for name, module in _MODULES.items()}

STATELESS: frozenset[Protocol] = frozenset({"mcp", "virtual"})
"""Protocols whose servers keep no episode: a call that was made is not made again."""


async def open_session(config: EnvironmentConfig, url: str | None = None) -> Session:
    """A session with the environment, or with the replica at ``url``. Raises environment errors and ``ConfigError``."""
    session: Session = await _MODULES[config.protocol].open_session(config, url or config.url)
    return session


def check_options(protocol: Protocol, options: dict[str, Any]) -> None:
    """Whether a protocol takes these options. Raises ``ConfigError`` that names the one that is wrong."""
    read_options(_MODULES[protocol].Options, options)


async def ask_server(config: EnvironmentConfig, url: str | None = None) -> ServerFacts:
    """Who answers at the address, in the environment's protocol. Raises environment errors."""
    facts: ServerFacts = await _MODULES[config.protocol].ask_facts(config, url or config.url)
    return facts


def check_server(config: EnvironmentConfig, url: str | None = None) -> ServerFacts:
    """``ask_server`` for callers that are not asynchronous."""
    return asyncio.run(ask_server(config, url))


def addresses(config: EnvironmentConfig) -> list[str]:
    """The environment's address and those of its replicas, each once."""
    return list(dict.fromkeys([config.url, *config.replicas]))


def check_environment(config: EnvironmentConfig) -> list[ServerFacts | TiltyardError]:
    """What each address answers, in their order, asked all at once. Raises the first's error when none answers."""
    check_options(config.protocol, config.options)
    answers = asyncio.run(_ask_all(config))
    if isinstance(answers[0], TiltyardError) and all(isinstance(answer, TiltyardError) for answer in answers):
        raise answers[0]
    return answers


def probe_slots(config: EnvironmentConfig) -> int | None:
    """How many sessions a server takes that shows it only when it refuses one; ``None`` where two are no problem.

    Two connections are enough to find OpenEnv's default of one session. Raises nothing.
    """
    if config.protocol not in ("openenv-text", "openenv-mcp"):
        return None
    return asyncio.run(openenv_foreign.slots_shown(config, config.url))


async def _ask_all(config: EnvironmentConfig) -> list[ServerFacts | TiltyardError]:
    return list(await asyncio.gather(*(_ask_or_error(config, url) for url in addresses(config))))


async def _ask_or_error(config: EnvironmentConfig, url: str) -> ServerFacts | TiltyardError:
    try:
        return await ask_server(config, url)
    except TiltyardError as error:
        return error
