"""Four small tools (calculator, weather, search, clock) with tasks whose answers the environment knows."""

from __future__ import annotations

NAME = "tools"
VERSION = "1.0.0"
DESCRIPTION = "Four small tools (calculator, weather, search, clock) with tasks whose answers the environment knows."
