"""OpenEnv with Tiltyard's own actions and observations: ``envs/wire.py`` over ``/ws``, ``GET /health``."""

from __future__ import annotations

from training.config import EnvironmentConfig
from training.rollout.client import SocketSession, ask_health
from training.rollout.protocols.base import NoOptions, ServerFacts
from training.rollout.session import Session

Options = NoOptions


async def open_session(config: EnvironmentConfig, url: str) -> Session:
    """Connect; one connection is one session."""
    return await SocketSession(config, url).__aenter__()


async def ask_facts(config: EnvironmentConfig, url: str) -> ServerFacts:
    """Our servers report everything."""
    health = await ask_health(config, url)
    free = max(0, health.slots - health.sessions)
    return ServerFacts(health.name, health.version, health.slots, free, health.deterministic)
