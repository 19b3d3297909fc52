"""ToolBench: answer a user's query with the APIs at hand, by the wire of StableToolBench's virtual API server.

A clean implementation of what the published systems do: same names, function forms, cache files, routes and error
strings. It plays the real tool documents, caches and queries where there are some, and a small world of its own where
not.
"""

from __future__ import annotations

NAME = "toolbench"
VERSION = "1.0.0"
DESCRIPTION = (
    "ToolBench: answer a user's query with the APIs at hand, by the wire of StableToolBench's virtual API server."
)
