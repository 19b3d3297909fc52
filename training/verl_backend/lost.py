"""The processes of a verl job that are lost. verl waits without end for what they should have played."""

from __future__ import annotations

from typing import Any

import ray

from training.errors import ProcessLost
from training.words import _, sentence

LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.ObjectLostError,
)
"""A process or a host of the job has gone."""


class Deaths:
    """The actors of this job that have died since this was made."""

    def __init__(self) -> None:
        self._before = set(dead_actors())

    def look(self) -> None:
        """Raise ``ProcessLost`` for one that has."""
        for actor_id, facts in dead_actors().items():
            if actor_id not in self._before:
                text = _("A process of the job was lost: {name}, process {pid} on {host}.")
                name, host = facts["ActorClassName"].rpartition(".")[2], facts["Address"]["IPAddress"]
                raise ProcessLost(sentence(text, name=name, pid=facts["Pid"], host=host))


def dead_actors() -> dict[str, dict[str, Any]]:
    """What Ray knows of the actors of this job that are dead, by their ids."""
    job = ray.get_runtime_context().job_id
    found: dict[str, dict[str, Any]] = ray._private.state.actors(job_id=job, actor_state_name="DEAD")
    return found
