"""What our servers take from OpenEnv; importing it here leaves OpenEnv's own web page out.

``openenv.core.env_server`` imports that page, and Gradio with it, whether or not it is served: two of three seconds and
120 of 190 MB of every server. OpenEnv goes on without the page where Gradio is not installed, so while it is imported
here, it is not.
"""

from __future__ import annotations

import sys

_PAGE = "gradio"
_hidden = _PAGE not in sys.modules
if _hidden:
    sys.modules[_PAGE] = None  # type: ignore[assignment]  # an import of it raises ModuleNotFoundError
try:
    from openenv.core.env_server import Environment, HTTPEnvServer, Observation
    from openenv.core.env_server.types import Action, ServerMode, State
finally:
    if _hidden:
        del sys.modules[_PAGE]

__all__ = ["Action", "Environment", "HTTPEnvServer", "Observation", "ServerMode", "State"]
