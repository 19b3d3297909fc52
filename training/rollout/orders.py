"""Orders of people about rollouts in flight: end one, or mark one as failed.

1. The run's supervisor appends them to ``orders.jsonl`` next to its journal, one JSON object a line; only whole
   lines count.
2. A collector looks every ``LOOK_S`` while it plays. A rollout that an order names stops where it is: all that it waits
   for is given up.
3. A rollout ends once. One that ended by itself before keeps its end, and of two orders the first counts; the log
   says that the other came too late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from training.journal import LogLine

T = TypeVar("T")
LOOK_S = 0.25


class Order(BaseModel):
    """An order about a rollout, by its name in the journal: ``end`` excludes it, ``fail`` scores it as failed."""

    rollout: str
    act: Literal["end", "fail"]
    by: str = ""


def too_late(order: Order) -> LogLine:
    """What the log says of an order whose rollout had ended."""
    what = {"end": "to be ended", "fail": "to be marked as failed"}[order.act]
    return LogLine(message=f"{order.rollout} was {what} by {order.by}, but it had ended before.")


class Orders:
    """The orders of one collector. Not thread-safe: used from the thread of its event loop."""

    def __init__(self, path: Path, mark: str, late: Callable[[Order], None]) -> None:
        """``mark`` sets this collector's rollouts apart from others; ``late`` hears of orders that came too late.

        What is in the file already is over: it was for collectors before this one.
        """
        self._path, self._mark, self._late = path, f"-{mark}", late
        self._offset = path.stat().st_size if path.exists() else 0
        self._flying: dict[str, asyncio.Future[Order]] = {}
        self._looked = 0.0

    def look(self) -> None:
        """Hand new orders to the rollouts that they name; called often, it looks every ``LOOK_S``."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        for order in self._read_new_orders():
            cut = self._flying.get(order.rollout)
            if cut is not None and not cut.done():
                cut.set_result(order)
            elif self._mark in order.rollout:
                self._late(order)

    def _read_new_orders(self) -> list[Order]:
        """The orders of the lines that are new. A line that is no order is passed over: only we write them."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found: list[Order] = []
        for line in whole.splitlines():
            try:
                found.append(Order.model_validate_json(line))
            except ValidationError:
                continue
        return found

    async def unless_ordered(self, rollout: str, playing: Coroutine[Any, Any, T]) -> T | Order:
        """The result of ``playing``, or the order that ended it before."""
        task = asyncio.create_task(playing)
        cut = self._flying[rollout] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({task, cut}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return await self._cut(task, cut.result())
            if cut.done():
                self._late(cut.result())
            return task.result()
        finally:
            del self._flying[rollout]
            if not task.done():  # the step is being given up
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _cut(self, task: asyncio.Task[T], order: Order) -> T | Order:
        """End what is being played, and wait until it has let go of its session."""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return order
