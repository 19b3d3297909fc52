"""A stand-in for vLLM's server: the same routes, over real HTTP, with a model of ours behind them or none.

``Stub.fail`` plants what goes wrong at the next requests of a path: ``drop`` (hang up without an answer), ``hang``, or
a status. ``dead`` hangs up on everything; while ``answers`` is not set turns wait; ``stale`` keeps the weights as they
are, in silence, as vLLM does with a packed output layer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SampleTurn = Callable[[dict[str, Any], Any], tuple[list[int], list[float]]]
Take = Callable[[Path], Any]


def counting(body: dict[str, Any], _weights: Any) -> tuple[list[int], list[float]]:
    """Ids that depend on prompt and seed alone, and end with the stop id."""
    stop = body.get("stop_token_ids", [2])[0]
    ids = [(body["seed"] + len(body["prompt"]) + place) % 50 + 10 for place in range(3)]
    ids = [*ids, stop][: body["max_tokens"]]
    return ids, [-0.5] * len(ids)


class Stub:
    """One server. ``asked`` has every request as (path, body), in order. ``take`` reads weights from a folder, and
    ``sample`` gets what it gave, or None as long as the server has those that it began with."""

    def __init__(
        self, sample: SampleTurn = counting, *, take: Take = Path, window: int = 4096, delay_s: float = 0.0
    ) -> None:
        self.sample, self.take, self.window, self.delay_s = sample, take, window, delay_s
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.faults: dict[str, deque[Any]] = {}
        self.version = "default"
        self.adapters: dict[str, Any] = {}
        self.weights: Any = None
        self.stale = False
        self.healthy = True
        self.url = ""
        self.dead = False
        self.answers = threading.Event()
        self.answers.set()
        self.asleep: set[str] = set()
        self.level = 0
        self._lock = threading.Lock()

    def fail(self, path: str, *faults: Any) -> None:
        """What goes wrong at the next requests of a path."""
        self.faults.setdefault(path, deque()).extend(faults)

    def restart(self) -> None:
        """As a server that was restarted: no adapters, no version, its first weights."""
        self.version, self.adapters, self.weights = "default", {}, None

    def paths(self, *without: str) -> list[str]:
        """The paths that were asked, in order."""
        return [path for path, _body in self.asked if path not in without]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive until either side hangs up."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split()[1]
                lengths = [
                    line.split(":")[1] for line in head.lower().splitlines() if line.startswith("content-length")
                ]
                raw = await reader.readexactly(int(lengths[0])) if lengths else b""
                answer = await self._reply(path, json.loads(raw) if raw else {})
                if answer is None:
                    break
                status, data = answer[0], json.dumps(answer[1]).encode()
                writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        writer.close()

    async def _reply(self, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        self.asked.append((path, body))
        fault = self.faults[path].popleft() if self.faults.get(path) else None
        if self.dead:
            return None
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "drop":
            return None
        return (fault, {"error": {"message": "planted"}}) if fault else await self._answer(path, body)

    async def _answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        match path:
            case "/health":
                return (200 if self.healthy else 503), {}
            case "/v1/models":
                return 200, {"data": [{"id": "policy", "max_model_len": self.window, "parent": None}]}
            case "/weight_info":
                return 200, {"weight_version": self.version}
            case "/update_weight_version":
                self.version = body["new_version"]
            case "/v1/load_lora_adapter":
                if body["lora_name"] in self.adapters:
                    return 400, {"error": {"message": "has already been loaded"}}
                kept = list(self.adapters.values())[-1:] if self.stale else []
                self.adapters[body["lora_name"]] = kept[0] if kept else self.take(Path(body["lora_path"]))
            case "/v1/unload_lora_adapter":
                del self.adapters[body["lora_name"]]
            case "/collective_rpc" if "weights" in self.asleep:
                return 500, {"error": {"message": "there is no memory to read weights into"}}
            case "/collective_rpc":
                if body["method"] == "reload_weights" and not self.stale:
                    self.weights = self.take(Path(body["kwargs"]["weights_path"]))
            case "/reset_prefix_cache":
                pass
            case "/sleep?level=1" | "/sleep?level=2":
                if self.asleep:
                    return 500, {"error": {"message": "it sleeps already"}}
                self.asleep, self.level = {"weights", "kv_cache"}, int(path[-1])
                if self.level == 2:
                    self.weights, self.adapters = "forgotten", {}
            case _ if path.startswith("/wake_up?tags="):
                self.asleep -= set(path.partition("?tags=")[2].split("&tags="))
            case "/v1/completions":
                return await asyncio.to_thread(self._turn, body)
            case _:
                return 404, {}
        return 200, {}

    def _turn(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.asleep:
            return 500, {"error": {"message": "it sleeps"}}
        if body["model"] not in ("policy", *self.adapters):
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        if len(body["prompt"]) + body["max_tokens"] > self.window:
            return 400, {"error": {"message": "too long"}}
        threading.Event().wait(self.delay_s)
        assert self.answers.wait(60)
        with self._lock:
            ids, logprobs = self.sample(body, self.adapters.get(body["model"], self.weights))
        ended = "stop" if ids[-1] in body.get("stop_token_ids", ()) else "length"
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": ended}
        return 200, {"choices": [choice | {"prompt_token_ids": body["prompt"]}]}


@contextlib.contextmanager
def serving(stub: Stub, socket: Path | None = None) -> Iterator[Stub]:
    """The stub on a port of its own, as ``stub.url``, or on a Unix socket."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def run() -> None:
        if socket is not None:
            server = await asyncio.start_unix_server(stub.serve, socket)
        else:
            server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
            stub.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await stopped.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    stopped = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield stub
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(5)
        loop.close()
