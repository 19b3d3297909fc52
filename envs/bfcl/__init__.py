"""BFCL's multi-turn function calling, played by EnvTuning's rules: 800 entries whose state decides the reward."""

from __future__ import annotations

NAME = "bfcl"
VERSION = "1.0.0"
DESCRIPTION = (
    "BFCL's multi-turn function calling, played by EnvTuning's rules: 800 entries whose state decides the reward."
)
