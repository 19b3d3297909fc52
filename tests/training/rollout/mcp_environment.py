"""An OpenEnv server with MCP tools, made with the ``openenv`` package's own ``MCPEnvironment``; run as a script.

The task is the word to say. ``echo`` gives 1 and ends the episode when it says the word; ``fail`` always fails.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State


class Echo(MCPEnvironment):
    """Says what it receives, and knows the word that it waits for."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server: Any = FastMCP("echo")
        self.word, self.heard = "", ""

        @server.tool
        def echo(text: str) -> str:
            """Say a text."""
            self.heard = text
            return f"You said {text}."

        @server.tool
        def fail(reason: str = "no reason") -> str:
            """Fail."""
            raise ValueError(reason)

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **task: Any) -> Observation:
        self.word, self.heard = task.get("word", "red"), ""
        return Observation(metadata={"prompt": f"Say {self.word} please."})

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        answer = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        if isinstance(answer, CallToolObservation):
            answer.reward = 1.0 if self.heard == self.word else 0.0
            answer.done = self.heard == self.word
        return answer

    def _step_impl(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State()

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="echo-tools", description="Says words.", version="0.3")


if __name__ == "__main__":
    app = create_app(Echo, CallToolAction, CallToolObservation, env_name="echo-tools", max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
