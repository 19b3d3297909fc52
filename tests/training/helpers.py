"""Stand-ins that the training tests share: a scripted environment, a scripted engine, a tiny model, small rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from envs.wire import Message, ToolCall
from training.config import JobConfig
from training.data.schema import Row
from training.journal import Event, read_events
from training.policy.engine import EngineFigures, Sample

Behaviour = Callable[[ServerConnection, dict[str, Any], int], Awaitable[str | bytes | None]]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "echo",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
    }
]


def observation(*, done: bool = False, reward: Any = None, **fields: Any) -> str:
    """An observation frame as OpenEnv sends it."""
    return json.dumps({"type": "observation", "data": {"observation": fields, "done": done, "reward": reward}})


def error(code: str, message: str = "no") -> str:
    """An error frame as OpenEnv sends it."""
    return json.dumps({"type": "error", "data": {"code": code, "message": message}})


async def echo_behaviour(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
    """A well-behaved environment: answers each call with its text; a message without calls ends with reward 1."""
    if frame["type"] == "reset":
        return observation(messages=[], tools=TOOLS)
    calls = frame["data"]["tool_calls"]
    if not calls and not frame["data"]["parse_error"]:
        return observation(messages=[], done=True, reward=1.0, reward_parts={"task_success": 1.0})
    answers = [
        {"role": "tool", "content": str(call["arguments"].get("text", "")), "tool_call_id": call["id"], "name": "echo"}
        for call in calls
    ] or [{"role": "tool", "content": "Error: unreadable"}]
    return observation(messages=answers)


@contextlib.contextmanager
def scripted_server(behave: Behaviour = echo_behaviour) -> Iterator[str]:
    """A websocket server whose ``behave(socket, frame, turn)`` gives each answer, if any. Yields its URL."""
    ready = threading.Event()
    address: list[int] = []
    stopped = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def session(socket: ServerConnection) -> None:
        turn = 0
        with contextlib.suppress(ConnectionClosed):
            async for text in socket:
                frame = json.loads(text)
                if frame["type"] == "close":
                    return
                answer = await behave(socket, frame, turn)
                turn += 1
                if answer is not None:
                    await socket.send(answer)

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        server = await serve(session, "127.0.0.1", 0, max_size=None, close_timeout=0.1)
        address.append(next(iter(server.sockets)).getsockname()[1])
        ready.set()
        await stopped.wait()
        server.close()

    # `asyncio.run` cancels what hangs on purpose and closes the loop: a task left to the garbage collector ends
    # in whatever test runs then, and breaks it where that parses Python.
    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield f"http://127.0.0.1:{address[0]}"
    finally:
        loops[0].call_soon_threadsafe(stopped.set)
        thread.join(5)


class ScriptedEngine:
    """An engine that answers from a list of texts by turn, in the ids of a tokenizer; remembers what it sampled."""

    def __init__(self, tokenizer: Any, texts: list[str], *, finished: bool = True, delay_s: float = 0.0) -> None:
        self._tokenizer = tokenizer
        self._texts = texts
        self._finished = finished
        self._delay_s = delay_s
        self.sampled: list[tuple[list[int], list[int]]] = []
        self.version = 0
        self.figures = EngineFigures()

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """Answer by how many assistant turns are in the prompt already."""
        await asyncio.sleep(self._delay_s)
        turn = self._tokenizer.decode(prompt_ids).count("<|im_start|>assistant") - 1
        ids = self._tokenizer(self._texts[min(turn, len(self._texts) - 1)], add_special_tokens=False)["input_ids"]
        if self._finished:
            ids = [*ids, self._tokenizer.eos_token_id]
        ids = ids[:max_tokens]
        self.sampled.append((list(prompt_ids), list(ids)))
        return Sample(ids, [-0.5] * len(ids), ids[-1] == self._tokenizer.eos_token_id)

    def release(self, episode: str) -> None:
        """Nothing is kept."""

    @contextlib.contextmanager
    def sampling(self) -> Iterator[None]:
        """As the real engine has it."""
        yield

    def weights_changed(self) -> int:
        """Nothing depends on them."""
        self.version += 1
        return self.version

    def close(self) -> None:
        """Nothing was started."""


class TailedEngine(ScriptedEngine):
    """An engine whose turns have these numbers of tokens: the n-th turn after a prompt has the n-th of them, over and
    over. Its ids and log-probabilities are made up."""

    def __init__(self, lengths: list[int], end: int) -> None:
        """``end`` is the id that ends a turn."""
        super().__init__(None, [])
        self._lengths, self._end = lengths, end
        self._drawn: dict[tuple[int, ...], int] = {}

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """Ids that depend on the seed, and the one that ends a turn."""
        number = self._drawn.get(tuple(prompt_ids), 0)
        self._drawn[tuple(prompt_ids)] = number + 1
        count = self._lengths[number % len(self._lengths)] - 1
        ids = [*(100 + (seed + 7 * place) % 90 for place in range(count)), self._end]
        return Sample(ids, [-4.0] * len(ids), True)


def call_text(text: str) -> str:
    """A Hermes call of ``echo``."""
    return f'<tool_call>{{"name": "echo", "arguments": {{"text": {json.dumps(text)}}}}}</tool_call>'


def demonstration_rows(count: int = 24) -> list[Row]:
    """Small conversations with a call, its answer and a sentence."""
    rows = []
    for number in range(count):
        word = ("red", "green", "blue", "12", "345", "6")[number % 6]
        messages = [
            Message(role="user", content=f"Say {word} please."),
            Message(role="assistant", tool_calls=[ToolCall(id="c1", name="echo", arguments={"text": word})]),
            Message(role="tool", content=word, tool_call_id="c1", name="echo"),
            Message(role="assistant", content=f"It is {word}."),
        ]
        rows.append(Row(messages=messages, tools=TOOLS))
    return rows


def write_rows(path: Path, rows: list[Row], *, prompts_only: bool = False) -> Path:
    """Rows as a JSONL dataset; ``prompts_only`` leaves just the question."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            messages = row.messages[:1] if prompts_only else row.messages
            record: dict[str, Any] = {"messages": [m.model_dump(exclude_none=True) for m in messages]}
            if not prompts_only:
                record["tools"] = row.tools
            file.write(json.dumps(record) + "\n")
    return path


def write_weights(path: Path, elements: int) -> None:
    """A safetensors file with one float32 tensor of so many zeros."""
    entry = {"dtype": "F32", "shape": [elements], "data_offsets": [0, 4 * elements]}
    header = json.dumps({"weight": entry}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4 * elements))


def job_config(**groups: dict[str, Any] | str) -> JobConfig:
    """A small config on the CPU; ``groups`` override it group by group.

    One thread: with several, each waits for the others by spinning, which costs five times the processor time where
    other workers want the same cores.
    """
    base: dict[str, Any] = {
        "rollout": {"prompts_per_step": 2, "num_generations": 4, "max_turns": 3, "max_turn_tokens": 24},
        "rewards": {"components": [{"name": "task_success", "weight": 1.0}]},
        "run": {"device": "cpu", "threads": 1, "max_steps": 2, "seed": 7},
        "optim": {"learning_rate": 1e-3},
    }
    for name, group in groups.items():
        base[name] = {**base.get(name, {}), **group} if isinstance(group, dict) else group
    return JobConfig.model_validate(base)


def events(run_dir: Path) -> list[Any]:
    """All events of a run's journal."""
    found: list[Event] = [event for _, event in read_events(run_dir / "journal.jsonl", max_bytes=1 << 30)]
    return found


def of_type(run_dir: Path, kind: str) -> list[Any]:
    """The journal's events of one type."""
    return [event for event in events(run_dir) if event.type == kind]
