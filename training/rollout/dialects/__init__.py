"""Dialects: how a family of models writes tool calls. A dialect turns completion text into a ``ParsedTurn``.

Adding one is a module beside ``hermes.py`` with a ``parse`` function, a line in ``DIALECTS`` and its name in
``training.config.Dialect``. Dialects only read: sampled ids are carried through, so nothing is written back.
"""

from __future__ import annotations

from collections.abc import Callable

from training.config import JobConfig
from training.rollout.dialects import bfcl, hermes, text, toolbench, webshop
from training.rollout.dialects.base import ParsedTurn

Parse = Callable[[str, str], ParsedTurn]
DIALECTS: dict[str, Parse] = {
    "hermes": hermes.parse,
    "toolbench": toolbench.parse,
    "bfcl": bfcl.parse,
    "webshop": webshop.parse,
    "text": text.parse,
}
TEXT_PROTOCOLS = frozenset({"openenv-text", "agentgym"})

__all__ = ["DIALECTS", "Parse", "ParsedTurn", "choose_dialect", "dialect_name"]


def dialect_name(config: JobConfig) -> str:
    """The job's dialect; ``auto`` reads no calls where the environment's action is a text."""
    if config.rollout.dialect != "auto":
        return config.rollout.dialect
    text_actions = bool(config.environment.url) and config.environment.protocol in TEXT_PROTOCOLS
    return "text" if text_actions else "hermes"


def choose_dialect(config: JobConfig) -> Parse:
    """What reads the model's turns."""
    return DIALECTS[dialect_name(config)]
