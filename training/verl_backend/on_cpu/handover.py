"""A checkpoint engine for processors: weights go from the devices that train to the samplers by Ray's object store.

verl imports this module by its name in the settings, in every process that makes an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any, cast

import ray
import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

NAME = "objects"


@ray.remote(num_cpus=0)
class Box:
    """The parts of a handover in their order; an empty one is the last."""

    def __init__(self) -> None:
        self._parts: list[list[Any]] = []
        self._more = asyncio.Condition()

    async def put(self, part: list[Any]) -> None:
        """Add a part: a list with the reference of its weights, which so stays one."""
        async with self._more:
            self._parts.append(part)
            self._more.notify_all()

    async def part(self, number: int) -> list[Any]:
        """One part, once it is there."""
        async with self._more:
            await self._more.wait_for(lambda: len(self._parts) > number)
            return self._parts[number]

    async def empty(self) -> None:
        """Forget all parts: all have taken them."""
        self._parts.clear()


@CheckpointEngineRegistry.register(NAME)
class ObjectStore(CheckpointEngine):
    """The first device that trains puts the weights into a box, in parts of about ``bucket_size`` bytes; each sampler
    takes all of them. The other devices that train help to gather them."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._size, self._sends = bucket_size, is_master
        self._box: Any = None

    def prepare(self) -> Any:
        """The box, of the device that fills it."""
        if self._sends and self._box is None:
            self._box = cast(Any, Box).remote()
        return self._box if self._sends else None

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Everyone gets the box."""
        box = metadata[0]
        return {"box": [box] * actor_wg_world_size}, {"box": [box] * rollout_world_size}

    def init_process_group(self, box: Any) -> None:
        """Keep the box."""
        self._box = box

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, Any]:
        """Put them into the box. The last part is empty."""
        part: dict[str, torch.Tensor] = {}
        for name, weight in weights:  # every device has to ask for all of them: each is gathered
            if not self._sends:
                continue
            part[name] = weight.detach().cpu().clone()
            if sum(each.nbytes for each in part.values()) >= self._size:
                await self._box.put.remote([ray.put(part)])
                part = {}
        if self._sends:
            for last in ([ray.put(part)], []):
                await self._box.put.remote(last)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Yield the names and weights that were sent."""
        number = 0
        while part := await self._box.part.remote(number):
            for name, weight in (await part[0]).items():
                yield name, weight
            number += 1

    def finalize(self) -> None:
        """All have taken them, so the box is emptied."""
        if self._sends:
            ray.get(self._box.empty.remote())
