"""All that a socket waits for ends when the socket does, at any moment.

Python 3.11's ``asyncio.wait_for`` swallows a cancellation that comes as what it waits for ends: the cancelled task
continues. It is banned from the product (pyproject.toml), and redis-py must not use it for the channel layer.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest
from channels.layers import channel_layers

from webapp.environments.playground.consumer import PlayConsumer
from webapp.live import feed
from webapp.live.consumers import RunConsumer


async def _cancel(task: asyncio.Task[None], after: int) -> bool:
    """Cancel after so many rounds of the loop; whether it then ended in time, as a cancelled task does."""
    for _ in range(after):
        await asyncio.sleep(0)
    over = task.done()
    task.cancel()
    await asyncio.wait([task], timeout=3)
    return over or task.cancelled()


@pytest.mark.parametrize("rounds", range(0, 120, 4))
async def test_a_listener_at_redis_ends_when_it_is_cancelled(rounds: int) -> None:
    layer = channel_layers.make_backend("default")
    for after in range(rounds, rounds + 4):
        listener = asyncio.ensure_future(layer.receive(await layer.new_channel()))
        assert await _cancel(listener, after), f"still listening: cancelled after {after} rounds of the loop"
        await layer.close_pools()


async def test_an_ear_goes_with_its_last_socket() -> None:
    heard = feed.Feed()
    for after in range(20):
        run, wake = uuid.uuid4(), asyncio.Event()
        await heard.subscribe(run, wake)
        ear = heard._ears[run]
        for _ in range(after):
            await asyncio.sleep(0)
        heard.unsubscribe(run, wake)
        await asyncio.wait([ear], timeout=3)
        assert ear.cancelled(), after


@pytest.mark.parametrize("consumer", [RunConsumer, PlayConsumer])
@pytest.mark.parametrize("after", range(5))
async def test_a_frame_on_its_way_does_not_keep_a_closed_socket(
    consumer: type[RunConsumer] | type[PlayConsumer], after: int
) -> None:
    socket, taken = consumer(), asyncio.get_running_loop().create_future()

    async def slow(*_args: object, **_values: object) -> None:
        await taken

    socket.send = slow  # type: ignore[method-assign]
    saying = socket._send("{}") if isinstance(socket, RunConsumer) else socket._send_frame("state")
    task = asyncio.ensure_future(saying)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    taken.set_result(None)
    assert await _cancel(task, after)
    with contextlib.suppress(asyncio.CancelledError):
        await task
