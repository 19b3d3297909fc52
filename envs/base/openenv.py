"""What our servers take from OpenEnv; importing it here leaves out what OpenEnv also loads and no server uses.

``openenv.core.env_server`` imports a web page (Gradio and, with it, pandas) and the clients of MCP servers (fastmcp and
mcp), whether or not they are used: most of three seconds, 120 of 190 MB of every server's memory and 400 MB of its
image. OpenEnv does without the page where Gradio is not installed, so Gradio is hidden during the import here. Of the
MCP clients it wants three names, which only its ``MCPEnvironment`` would use; while it is imported, they are empty
classes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_PAGE = "gradio"
_CLIENTS = {
    "fastmcp": ("Client",),
    "fastmcp.client": (),
    "fastmcp.client.client": ("CallToolResult",),
    "mcp": (),
    "mcp.types": ("TextContent",),
}


@contextmanager
def _without_page_and_clients() -> Iterator[None]:
    """What is loaded already stays; afterwards all code imports the real modules again."""
    hidden: dict[str, ModuleType | None] = {_PAGE: None}  # an import of None raises ModuleNotFoundError
    for name, classes in _CLIENTS.items():
        hidden[name] = ModuleType(name)
        hidden[name].__dict__.update({item: type(item, (), {}) for item in classes})
    hidden = {name: module for name, module in hidden.items() if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _without_page_and_clients():
    from openenv.core.env_server import Environment, HTTPEnvServer, Observation
    from openenv.core.env_server.types import Action, EnvironmentMetadata, SchemaResponse, ServerMode, State

__all__ = [
    "Action",
    "Environment",
    "EnvironmentMetadata",
    "HTTPEnvServer",
    "Observation",
    "SchemaResponse",
    "ServerMode",
    "State",
]
