"""The scaffold of every environment server.

An environment subclasses ``ToolEnvironment`` and never sees OpenEnv. ``envs.base.server`` (slow to import) turns it
into an OpenEnv server; ``envs.base.cli`` is the command line that all servers share.
"""

from __future__ import annotations

from envs.base.environment import EnvironmentRefusal, Facts, ToolEnvironment
from envs.base.settings import ServerSettings, SettingsError

__all__ = ["EnvironmentRefusal", "Facts", "ServerSettings", "SettingsError", "ToolEnvironment"]
