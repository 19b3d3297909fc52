"""An OpenEnv server with a typed text action, made with the ``openenv`` package's own parts; run as a script.

``python text_environment.py PORT [SLOTS]``: without SLOTS it takes what such servers take by default, one session. The
question is in a field that no list of usual names has.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import uvicorn
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    """The only moves that there are."""

    move: Literal["left", "right"]


class Seen(Observation):
    """What the player sees."""

    riddle: str = ""


class Corridor(Environment[Move, Seen, State]):
    """The treasure is on the right."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **task: Any) -> Seen:
        return Seen(riddle="Where is the treasure, left or right?")

    def step(self, action: Move, timeout_s: float | None = None, **kwargs: Any) -> Seen:
        found = action.move == "right"
        return Seen(riddle="There it is." if found else "Nothing here.", done=found, reward=float(found))

    @property
    def state(self) -> State:
        return State()


if __name__ == "__main__":
    port, slots = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    app = create_fastapi_app(Corridor, Move, Seen, max_concurrent_envs=slots, env_name="corridor")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
