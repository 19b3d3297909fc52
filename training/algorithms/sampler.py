"""Who samples a job's turns: the trainer's own process, or vLLM, which starts while the model is loaded."""

from __future__ import annotations

import gc
import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from training.algorithms.job import Job
from training.algorithms.loading import autocast_dtype
from training.config import JobConfig
from training.errors import ConfigError, SamplerDied
from training.model_check import load_config
from training.policy.check import SamplerCheck, TrainingLogprobs, tolerance_for
from training.policy.engine import Engine
from training.policy.make import make_engine, stop_ids
from training.policy.vllm_engine import Draw, Server, VllmEngine, WeightsOnDisk, kv_gib
from training.policy.vllm_server import MODEL, WEIGHTS_NAME, Gone, Loop, Plan, VllmClient, VllmServer
from training.rollout.tokens import turn_ends

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SLEEP_HINT = "Look into vllm.log in the run's folder, or set vllm.sleep to false."
SERVER_HINT = "Start it as docs/sampling.md says, or correct vllm.urls, then resume."


class JobSampler:
    """The sampler of one attempt, with its check. Closing it ends the vLLM that it started."""

    def __init__(self, job: Job, folder: Path, device: str) -> None:
        """``folder`` has the base model. A managed vLLM begins to start. Raises ``SamplerDied``, ``ConfigError``."""
        self._job = job
        self._vllm = job.config.samples_with_vllm
        self._engine: Engine | None = None
        self._loop: Loop | None = None
        self._server: VllmServer | None = None
        self._asleep: Server | None = None
        if self._vllm and job.config.vllm.mode == "managed":
            self._server = VllmServer(plan_of(job.config, folder, device), job.run_dir, job.earlier)
        if self._server is not None and self._server.plan.sleeps:
            try:
                self._asleep = self._put_to_sleep(self._server)
            except BaseException:
                self.close()
                raise

    @property
    def copies(self) -> bool:
        """Whether turns are sampled from a copy of weights that change, so that each copy is to be checked."""
        return self._vllm and self._job.config.method.trains

    def differs(self, model: Any, autocast: torch.dtype | None) -> bool:
        """Whether its probabilities may be others than the trainer's, so that the loss has to correct for that."""
        exact = autocast is None and next(model.parameters()).dtype in (torch.float32, torch.float64)
        return self._job.config.gradient.sampler_correction != "off" and (self._vllm or not exact)

    def engine(
        self, model: Any, tokenizer: PreTrainedTokenizerBase, logprobs: TrainingLogprobs, autocast: torch.dtype | None
    ) -> tuple[Engine, SamplerCheck]:
        """The engine, once it is ready, and the check of what it says. Raises typed errors.

        ``logprobs`` are the trainer's; ``autocast`` is its precision, if it is another than the weights'.
        """
        config, log = self._job.config, self._job.log
        tolerance = tolerance_for(model, autocast, vllm=self._vllm, rounded=self._vllm and config.samples_rounded)
        check = SamplerCheck(logprobs, tolerance, self._job.journal.write, copies=self.copies)
        if not self._vllm:
            self._engine = make_engine(config, model, turn_ends(tokenizer), autocast=autocast, log=log)
            return self._engine, check
        draw = Draw(config.rollout.temperature, frozenset(stop_ids(model, turn_ends(tokenizer))))
        weights = self._weights(model, autocast) if self.copies else None
        self._loop = loop = self._loop or Loop()
        if self._server is not None:
            servers = [self._asleep or self._own_server(loop, self._server)]
        else:
            servers = [self._other_server(loop, url) for url in config.vllm.urls]
        changed = check.renew if weights is not None else _nothing
        more = {"make_room": free_cached_memory} if self._asleep is not None else {}
        self._engine = VllmEngine(loop, servers, draw, weights=weights, log=log, changed=changed, **more)
        return self._engine, check

    def rest(self) -> None:
        """No turn is asked for until the weights have changed."""
        if isinstance(self._engine, VllmEngine):
            self._engine.rest()

    def close(self) -> None:
        """End what was started. Calling it twice does nothing."""
        if self._engine is not None:
            self._engine.close()
        if self._loop is not None:
            self._loop.close()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._job.run_dir / WEIGHTS_NAME, ignore_errors=True)

    def _weights(self, model: Any, autocast: torch.dtype | None) -> WeightsOnDisk:
        job = self._job
        run = hashlib.sha256(str(job.run_dir.resolve()).encode()).hexdigest()[:8]
        dtype = autocast or next(model.parameters()).dtype
        return WeightsOnDisk(model, job.run_dir / WEIGHTS_NAME, f"{run}-{job.attempt}", lambda: job.step, dtype)

    def _put_to_sleep(self, server: VllmServer) -> Server:
        """It has the device to itself while it starts, and leaves it before the trainer's model comes."""
        self._loop = loop = Loop()
        found = self._own_server(loop, server)
        try:
            loop.call(found.sleep(keeps=server.plan.lora_rank > 0))
        except Gone as gone:
            raise SamplerDied(f"vLLM does not sleep: {gone}", hint=SLEEP_HINT) from gone
        return found

    def _own_server(self, loop: Loop, server: VllmServer) -> Server:
        """The server that the run started, once it is ready."""
        client = self._client(loop, "http://vllm", server.socket)
        self._job.log("Waiting for vLLM to start.")
        waited_s = server.wait_ready(client, self._job.config.vllm.start_timeout_s, self._job.stop)
        self._job.log(f"vLLM is ready, after {waited_s:.0f} s.")
        found = Server(client, MODEL)
        if server.plan.blank:
            loop.call(found.read_any_format())
        return found

    def _other_server(self, loop: Loop, url: str) -> Server:
        """A server that runs already. Raises ``SamplerDied`` unless it answers and its window is long enough."""
        client, needed = self._client(loop, url), self._job.config.longest_text
        try:
            models = loop.call(client.get("/v1/models")).get("data") or []
            if self.copies:
                loop.call(client.get("/weight_info"))  # one of the routes that new weights need
        except Gone as gone:
            raise SamplerDied(str(gone), hint=SERVER_HINT) from gone
        base = next((model for model in models if not model.get("parent")), None)
        if base is None:
            raise SamplerDied(f"{client.name} serves no model.", hint=SERVER_HINT)
        if (window := base.get("max_model_len") or needed) < needed:
            text = f"{client.name} has a window of {window} tokens; prompt and episode together may have {needed}."
            raise SamplerDied(text, hint=f"Start it with --max-model-len {needed} or more, then resume.")
        return Server(client, str(base["id"]))

    def _client(self, loop: Loop, url: str, socket: Path | None = None) -> VllmClient:
        config = self._job.config
        limit_s, connections = config.vllm.turn_timeout_s, config.rollouts_per_step
        return VllmClient(loop, url, socket=socket, limit_s=limit_s, connections=connections)


def plan_of(config: JobConfig, folder: Path, device: str) -> Plan:
    """How the job's vLLM is started. Raises ``ModelError`` for a config that cannot be read, and ``ConfigError``
    where the model's own window is too short."""
    model = load_config(folder)
    window = require_window(config, model)
    _require_gpu(config, device)
    half = autocast_dtype(device) is not None or config.model.dtype == "bfloat16"
    copies_all = config.method.trains and not config.model.lora_rank
    return Plan(
        folder.resolve(),
        "bfloat16" if half else "float32",
        window,
        in_flight=config.rollouts_per_step,
        cpu=device == "cpu",
        seed=config.run.seed,
        lora_rank=config.model.lora_rank if config.method.trains else 0,
        blank=copies_all and bool(getattr(model, "tie_word_embeddings", False)),
        gpu_memory_share=config.vllm.gpu_memory_share,
        tensor_parallel=config.vllm.tensor_parallel,
        kv_gib=kv_gib(model, window * config.rollouts_per_step),
        sleeps=config.vllm.sleep,
        quantization=config.vllm.quantization,
    )


def require_window(config: JobConfig, model: Any) -> int:
    """Tokens that vLLM makes room for. Raises ``ConfigError`` where those of the model, by its config, are fewer."""
    window = config.vllm_window
    most = getattr(model.get_text_config(), "max_position_embeddings", None) or window
    if window > most:
        text = f"prompt and episode may have {window} tokens together, and the model's window is {most}."
        option = "vllm.max_model_len" if config.vllm.max_model_len else "rollout.max_completion_tokens"
        raise ConfigError(text, option=option, hint="vLLM refuses what could not fit: lower one of the limits.")
    return window


def _require_gpu(config: JobConfig, device: str) -> None:
    """Raise ``ConfigError`` for what vLLM's CPU build cannot."""
    chosen = config.vllm
    if device == "cpu" and chosen.sleep:
        raise ConfigError("vLLM can sleep on a CUDA GPU only, and there is none here.", option="vllm.sleep")
    if device == "cpu" and chosen.quantization != "none":
        what = "vLLM quantises on a CUDA GPU only, and there is none here."
        raise ConfigError(what, option="vllm.quantization")


def free_cached_memory() -> None:
    """Give back what PyTorch keeps of freed tensors, so that another process of this device can have it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _nothing() -> None:
    """Weights that never change need no check but the first."""
