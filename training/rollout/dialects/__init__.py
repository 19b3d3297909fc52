"""Dialects: how a family of models writes tool calls. A dialect turns completion text into a ``ParsedTurn``.

Adding one is a module beside ``hermes.py`` with a ``parse`` function and a line in ``DIALECTS``.
"""

from __future__ import annotations

from collections.abc import Callable

from training.rollout.dialects import hermes
from training.rollout.dialects.base import ParsedTurn

DIALECTS: dict[str, Callable[[str, str], ParsedTurn]] = {"hermes": hermes.parse}

__all__ = ["DIALECTS", "ParsedTurn"]
