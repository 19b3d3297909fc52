"""The engine that samples with vLLM, and how the weights get there."""

from __future__ import annotations

import asyncio
import shutil
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from training.errors import SamplerDied, SamplerDisagrees
from training.machine import require_room
from training.policy.attached import without_value_head
from training.policy.engine import EngineFigures, Sample, Turn, draw_turns
from training.policy.vllm_server import Gone, Loop, VllmClient

# Turns sampled by vLLM servers, by token ids. Imports no torch: what it hands over lies on a disk.
#
# 1. An episode stays with the server that has its first turns, whose prefix cache knows them; a new one goes to the
#    server with the fewest episodes, among equals by its name.
# 2. A server that fails leaves the ring until weights are handed over again; its turns are asked for elsewhere, with
#    the same seeds, so the same turns come out. When none is left ``SamplerDied`` ends the step without an update.
# 3. ``weights_changed`` writes the weights, has every server take them, gives them a version and reads it back. The
#    version is read again before and after the turns of a step: a server that was started again has lost it. Whether
#    the weights arrived whole only log-probabilities can say (``check``), so a check is due after each.
# 4. Where it shares a device with the trainer it sleeps from ``rest`` to the next ``weights_changed``. All weights are
#    dropped then (level 2) and handed over when it wakes, before it has its cache again; below an adapter they wait in
#    the processor's memory (level 1), since no handover brings them back.
# 5. A turn is of one version: the handover waits for the turns in flight, and new ones wait for the handover. An
#    episode may continue with the next version, where rollouts are played while the trainer trains.
# 6. ``hand_over`` does this from any thread, and samples the turns that prove the new weights before it lets others in:
#    alone, they are the same bits whenever the weights are the same. ``write_weights`` comes before, while turns are
#    still sampled.

# --- Vllm turns -----------------------------------------------------------------------------------------------------
# Turns of vLLM: who may pass while weights change, and a turn out of a server's answer.

RESUME_HINT = "Nothing was learned from this step. Resume plays it again; what is trained is kept."


class Gate:
    """Turns pass together, a change of weights alone. For the tasks of one event loop."""

    def __init__(self) -> None:
        self._entry = asyncio.Lock()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Together with others like it."""
        async with self._entry:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Once those inside have left; new ones wait."""
        async with self._entry:
            await self._empty.wait()
            yield


def sample_of(answer: dict[str, Any], prompt: list[int], stop_ids: frozenset[int]) -> Sample:
    """A turn out of an answer. Raises ``SamplerDisagrees`` where it is no turn after ``prompt``."""
    try:
        choice = answer["choices"][0]
        ids = [int(token) for token in choice["token_ids"]]
        logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
        echo = choice.get("prompt_token_ids")
    except (KeyError, IndexError, TypeError, ValueError) as exc:
        raise SamplerDisagrees("vLLM answered no token ids with log-probabilities.", hint=RESUME_HINT) from exc
    if echo is not None and list(echo) != prompt:
        raise SamplerDisagrees("vLLM answered another prompt than it was asked.", hint=RESUME_HINT)
    if not ids or len(ids) != len(logprobs):
        text = f"vLLM answered {len(ids)} tokens with {len(logprobs)} log-probabilities."
        raise SamplerDisagrees(text, hint=RESUME_HINT)
    return Sample(ids, logprobs, ids[-1] in stop_ids)


NEUTRAL = {"top_p": 1.0, "top_k": 0, "min_p": 0.0} | dict.fromkeys(("presence_penalty", "frequency_penalty"), 0.0)
NEUTRAL["repetition_penalty"] = 1.0
"""Said each time: a model's generation_config.json would change them otherwise."""


class Handover(NamedTuple):
    """Weights on a disk that servers see too. ``adapter``: a LoRA adapter over the model that they serve."""

    version: str
    folder: Path
    adapter: bool


class Weights(Protocol):
    """The weights that turns are sampled from, as the trainer has them."""

    @property
    def version(self) -> str:
        """A name that no other weights have: of the run, its attempt and its step."""
        ...

    def write(self) -> Handover:
        """Write them. Raises ``StorageFull``."""
        ...

    def taken(self) -> None:
        """All servers have taken what was written: what is older may go."""
        ...


@dataclass(frozen=True)
class Draw:
    """How turns are drawn. ``stop_ids`` end one."""

    temperature: float
    stop_ids: frozenset[int]


class Server:
    """One server as the ring sees it. ``model`` is what a turn names: what it serves, or the newest adapter."""

    def __init__(self, client: VllmClient, model: str) -> None:
        self.client, self.base, self.model = client, model, model
        self.version = ""
        self.adapter = ""
        self.episodes: set[str] = set()
        self.gone: Gone | None = None

    async def take(self, given: Handover) -> None:
        """Have it take weights, and read their version back. Raises ``Gone``."""
        if given.adapter:
            await self._take_adapter(given)
        else:
            await self._rpc("reload_weights", weights_path=str(given.folder))
            await self.client.post("/reset_prefix_cache", {})
        await self.client.post("/update_weight_version", {"new_version": given.version})
        self.version = given.version
        await self.agree()

    async def agree(self) -> None:
        """Raise ``Gone`` unless it still has the weights that it was given, if it was given any."""
        if not self.version:
            return
        found = (await self.client.get("/weight_info")).get("weight_version")
        if found != self.version:
            raise Gone(f"{self.client.name} has the weights “{found}” and was given “{self.version}”.")

    async def sleep(self, *, keeps: bool) -> None:
        """Leave the device. With ``keeps`` the weights are copied to the processor's memory, else forgotten. Raises
        ``Gone``."""
        await self.client.post(f"/sleep?level={1 if keeps else 2}", {})

    async def wake(self, *tags: str) -> None:
        """Take back what ``tags`` name of the device: ``weights``, ``kv_cache``. Raises ``Gone``."""
        await self.client.post("/wake_up?" + "&".join(f"tags={tag}" for tag in tags), {})

    async def read_any_format(self) -> None:
        """Let one that began with made-up weights read real ones. Raises ``Gone``."""
        await self._rpc("update_config", overrides={"load_config": {"load_format": "auto"}})

    async def _take_adapter(self, given: Handover) -> None:
        name = {"lora_name": given.version}
        await self.client.post("/v1/load_lora_adapter", name | {"lora_path": str(given.folder)})
        old, self.adapter, self.model = self.adapter, given.version, given.version
        if old:
            await self.client.post("/v1/unload_lora_adapter", {"lora_name": old})

    async def _rpc(self, method: str, **named: Any) -> None:
        await self.client.post("/collective_rpc", {"method": method, "kwargs": named})


class VllmEngine:
    """Samples from vLLM servers; an ``Engine``. ``weights`` None: the servers have them for good.

    ``changed`` is called after each ``weights_changed``, ``log`` with a sentence where a server leaves the ring.
    ``make_room``: the servers share the trainer's device, and sleep already; it is called before they wake.
    """

    def __init__(
        self,
        loop: Loop,
        servers: Sequence[Server],
        draw: Draw,
        *,
        weights: Weights | None,
        log: Callable[[str, str], None],
        changed: Callable[[], None] = lambda: None,
        make_room: Callable[[], None] | None = None,
    ) -> None:
        self._loop, self._servers, self._draw = loop, list(servers), draw
        self._weights, self._log, self._changed = weights, log, changed
        self._version, self._label = 0, ""
        self._make_room, self._asleep = make_room, make_room is not None
        self._written: Handover | None = None
        self._gate = Gate()
        self._done = EngineFigures()
        self._asking, self._since = 0, 0.0

    @property
    def version(self) -> int:
        """See ``Engine.version``."""
        return self._version

    @property
    def figures(self) -> EngineFigures:
        """See ``Engine.figures``."""
        busy = time.monotonic() - self._since if self._asking else 0.0
        return replace(self._done, busy_seconds=self._done.busy_seconds + busy)

    def weights_changed(self) -> int:
        """See ``Engine.weights_changed``. Weights that the servers have already are not sent again; servers that sleep
        wake up."""
        self._changed()
        label = self._label if self._weights is None else self._weights.version
        if label == self._label and not self._asleep:
            return self._version
        began = time.monotonic()
        if self._asleep and self._make_room is not None:
            self._make_room()
        if self._weights is not None and label != self._label:
            self._loop.call(self._hand_over(self._write_once(self._weights), []))
            self._weights.taken()
            self._written = None
        else:
            self._loop.call(self._wake())
        self._asleep, self._label = False, label
        self._synced(time.monotonic() - began)
        return self._version

    def write_weights(self) -> None:
        """See ``CopyEngine.write_weights``."""
        if self._weights is not None and self._weights.version != self._label:
            began = time.monotonic()
            self._write_once(self._weights)
            self._synced(time.monotonic() - began)

    def hand_over(self, turns: Sequence[Turn]) -> list[Sample]:
        """See ``CopyEngine.hand_over``. What was not written yet is written now. Not where servers sleep: nothing is
        sampled during training there."""
        self._changed()
        self.write_weights()
        given, began = self._written, time.monotonic()
        drawn, drawing_s = self._loop.call(self._hand_over(given, turns))
        if given is not None and self._weights is not None:
            self._weights.taken()
            self._label, self._written = given.version, None
            self._synced(time.monotonic() - began - drawing_s)
        return drawn

    def _write_once(self, weights: Weights) -> Handover:
        """What lies on the disk of these weights; they are written if that is of others."""
        if self._written is None or self._written.version != weights.version:
            self._written = weights.write()
        return self._written

    def rest(self) -> None:
        """No turn is asked for until the weights have changed: servers on the trainer's device leave it."""
        if self._make_room is None or self._asleep:
            return
        began = time.monotonic()
        self._loop.call(self._sleep())
        self._asleep = True
        if not any(server.adapter for server in self._servers):
            self._label = ""  # they have forgotten them
        self._synced(time.monotonic() - began)

    def _synced(self, seconds: float) -> None:
        self._done = replace(self._done, synced_seconds=self._done.synced_seconds + seconds)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """The turns of a step; on the way in and out the servers must have the weights that they were given."""
        if self._asleep:
            self.weights_changed()
        self._loop.call(self._agree())
        yield
        self._loop.call(self._agree())

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """See ``Engine.generate``. Raises ``SamplerDied`` when no server is left."""
        return await self._loop.run(self._turn(self._body(prompt_ids, max_tokens, seed), episode))

    def _body(self, prompt_ids: list[int], max_tokens: int, seed: int) -> dict[str, Any]:
        return {
            "prompt": prompt_ids,
            "max_tokens": max_tokens,
            "seed": seed,
            "temperature": self._draw.temperature,
            "stop_token_ids": sorted(self._draw.stop_ids),
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            **NEUTRAL,
        }

    def release(self, episode: str) -> None:
        """See ``Engine.release``."""
        for server in self._servers:
            server.episodes.discard(episode)

    def close(self) -> None:
        """Drop the connections; the servers are their owner's."""
        if self._servers:
            self._loop.call(self._hang_up())
            self._servers = []

    # --- in the thread of the loop -------------------------------------------------------------------------------

    async def _turn(self, body: dict[str, Any], episode: str) -> Sample:
        async with self._gate.turn():
            return await self._turn_inside(body, episode)

    async def _turn_inside(self, body: dict[str, Any], episode: str) -> Sample:
        self._start_asking()
        try:
            while True:
                server = self._server_of(episode)
                try:
                    answer = await server.client.complete({"model": server.model, **body})
                except Gone as gone:
                    self._lose(server, gone)
                else:
                    sample = sample_of(answer, body["prompt"], self._draw.stop_ids)
                    return self._counted(replace(sample, version=self._version))
        finally:
            self._end_asking()

    def _server_of(self, episode: str) -> Server:
        """The server that has the episode, else the one with the fewest. Raises ``SamplerDied`` where none is left."""
        left = [server for server in self._servers if server.gone is None]
        if not left:
            raise _died(self._servers)
        known = next((server for server in left if episode in server.episodes), None)
        if known is None:
            fewest = min(len(server.episodes) for server in left)
            equals = [server for server in left if len(server.episodes) == fewest]
            known = equals[zlib.crc32(episode.encode()) % len(equals)]
        if episode:
            known.episodes.add(episode)
        return known

    def _lose(self, server: Server, gone: Gone) -> None:
        if server.gone is None:
            server.gone = gone
            server.episodes.clear()
            if any(other.gone is None for other in self._servers):
                self._log(f"{gone} The others go on without it.", "warning")

    async def _hand_over(self, given: Handover | None, turns: Sequence[Turn]) -> tuple[list[Sample], float]:
        """All servers take the weights; one that cannot stays out until the next time, and the rest must do. Gives the
        turns, and the seconds that they took."""

        async def take(server: Server, weights: Handover) -> None:
            server.episodes.clear()
            if not self._asleep:
                await server.take(weights)
            elif weights.adapter:
                await server.wake("weights", "kv_cache")
                await server.take(weights)
            else:
                await server.wake("weights")  # the cache would leave no room to read new ones
                await server.take(weights)
                await server.wake("kv_cache")
            server.gone = None

        async with self._gate.change():
            if given is not None:
                await self._all(partial(take, weights=given))
                self._version += 1
            began = time.monotonic()
            drawn = await draw_turns(
                turns, lambda t: self._turn_inside(self._body(t.prompt_ids, t.max_tokens, t.seed), t.episode)
            )
            if turns:
                await self._agree_inside()
            return drawn, time.monotonic() - began

    async def _wake(self) -> None:
        async with self._gate.change():
            await self._all(lambda server: server.wake("weights", "kv_cache"))

    async def _sleep(self) -> None:
        async with self._gate.change():
            await self._all(lambda server: server.sleep(keeps=bool(server.adapter)))

    async def _all(self, act: Callable[[Server], Awaitable[None]]) -> None:
        """Have all servers do it; one that cannot is left out. Raises ``SamplerDied`` where none is left."""

        async def one(server: Server) -> None:
            try:
                await act(server)
            except Gone as gone:
                self._lose(server, gone)

        await asyncio.gather(*(one(server) for server in self._servers))
        if all(server.gone is not None for server in self._servers):
            raise _died(self._servers)

    async def _agree(self) -> None:
        async with self._gate.turn():
            await self._agree_inside()

    async def _agree_inside(self) -> None:
        left = [server for server in self._servers if server.gone is None]
        found = await asyncio.gather(*(server.agree() for server in left), return_exceptions=True)
        for server, outcome in zip(left, found, strict=True):
            if isinstance(outcome, Gone):
                server.gone = outcome
                raise _died([server])  # what it sampled in this step may be of other weights
            if isinstance(outcome, BaseException):
                raise outcome
        if not left:
            raise _died(self._servers)

    def _start_asking(self) -> None:
        if not self._asking:
            self._since = time.monotonic()
        self._asking += 1

    def _end_asking(self) -> None:
        self._asking -= 1
        if not self._asking:
            spent = time.monotonic() - self._since
            self._done = replace(self._done, busy_seconds=self._done.busy_seconds + spent)

    def _counted(self, sample: Sample) -> Sample:
        tokens = self._done.tokens + len(sample.ids)
        self._done = replace(self._done, turns=self._done.turns + 1, tokens=tokens)
        return sample

    async def _hang_up(self) -> None:
        for server in self._servers:
            await server.client.close()


def _died(servers: Sequence[Server]) -> SamplerDied:
    last = next((server.gone for server in reversed(servers) if server.gone is not None), None)
    return SamplerDied(f"The sampler is gone: {last}", hint=RESUME_HINT)


# The trainer's weights on a disk, in the form that vLLM takes them: an adapter, or all of them.
#
# vLLM's CPU build keeps a packed copy of the output layer that it makes once. Where that layer is the embedding (tied),
# new weights would leave the copy as it was, in silence. So the server of a tied model is started as if it were not
# (``Plan.blank``), and the output layer is written next to the embedding, in a file of its own.

ONE_FILE = "1000GB"
OUTPUT_FILE = "output.safetensors"


class WeightsOnDisk:
    """The weights of ``model`` below ``root``, in folders that are named by ``label`` and the ``step`` they are of.

    All weights are written in ``dtype``, the servers' own; an adapter as it is trained.
    """

    def __init__(self, model: Any, root: Path, label: str, step: Callable[[], int], dtype: torch.dtype) -> None:
        self._model, self._root, self._dtype = model, root, dtype
        self._label, self._step = label, step
        self._adapter = hasattr(model, "merge_and_unload")
        self._written = root

    @property
    def version(self) -> str:
        """See ``Weights.version``."""
        return f"{self._label}-{self._step()}"

    def write(self) -> Handover:
        """See ``Weights.write``."""
        self._written = folder = self._root / self.version
        if not self._adapter:
            self.taken(none=True)  # two copies of all weights may be more than the disk has
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        require_room(folder, self._bytes(), "a copy of the weights for vLLM")
        with without_value_head(self._model):
            if self._adapter:
                self._model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
            else:
                self._write_all(folder)
        return Handover(self.version, folder.resolve(), self._adapter)

    def taken(self, *, none: bool = False) -> None:
        """See ``Weights.taken``. An adapter stays: a server that ran out of room for it reads it again."""
        for folder in self._root.iterdir() if self._root.is_dir() else ():
            if none or not self._adapter or folder != self._written:
                shutil.rmtree(folder, ignore_errors=True)

    def _bytes(self) -> int:
        size = torch.empty((), dtype=self._dtype).element_size()
        chosen = (p for p in self._model.parameters() if p.requires_grad or not self._adapter)
        return sum(p.numel() * size for p in chosen)

    def _write_all(self, folder: Path) -> None:
        state = {name: value.to(self._dtype) for name, value in self._model.state_dict().items()}
        self._model.save_pretrained(folder, state_dict=state, max_shard_size=ONE_FILE)
        if not is_tied(self._model):
            return
        from safetensors.torch import save_file

        name, layer = output_layer(self._model)
        save_file({f"{name}.weight": layer.weight.detach().to(self._dtype).clone().cpu()}, folder / OUTPUT_FILE)


def is_tied(model: Any) -> bool:
    """Whether the output layer is the embedding."""
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    return inputs is not None and outputs is not None and inputs.weight is outputs.weight


def output_layer(model: Any) -> tuple[str, Any]:
    """The layer that makes logits, and its name."""
    layer = model.get_output_embeddings()
    return next(name for name, module in model.named_modules() if module is layer), layer


def kv_gib(config: Any, tokens: int) -> int:
    """GiB of keys and values of so many tokens in float32, by a model's config; 1 at least, and 4 where it does not
    say."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or getattr(text, "num_attention_heads", None)
    layers, width = getattr(text, "num_hidden_layers", None), getattr(text, "hidden_size", None)
    if not (heads and layers and width):
        return 4
    size = getattr(text, "head_dim", None) or width // text.num_attention_heads
    return max(1, -(-2 * layers * heads * size * 4 * tokens // (1 << 30)))
