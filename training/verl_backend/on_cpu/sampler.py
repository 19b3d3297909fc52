"""A sampler by transformers in the place of vLLM: an actor with a copy of the weights, which the trainer hands over.

It draws with our own in-process engine, so a turn depends on ids, weights and seed as it does there.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any, cast

import ray
import torch
from peft import PeftModel, set_peft_model_state_dict
from transformers import AutoModelForCausalLM
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from training.errors import PolicyFault
from training.policy.engine import SamplingParams
from training.policy.transformers_engine import TransformersEngine


def _name(rank: int) -> str:
    return f"cpu_sampler_{rank}"


@ray.remote(num_cpus=0)
class Server:
    """Holds the weights of one replica and samples with them."""

    def __init__(self, path: str, adapter: str | None) -> None:
        """``adapter`` is the one that the job begins with; then the weights that come are an adapter's."""
        torch.set_num_threads(1)
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.adapts = adapter is not None
        self.model = (PeftModel.from_pretrained(model, adapter) if adapter is not None else model).eval()
        self.step = -1
        self.engine: TransformersEngine | None = None
        self.block = ExitStack()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_others: Any
    ) -> TokenOutput:
        wanted = sampling_params
        if self.engine is None:
            params = SamplingParams(wanted["temperature"], wanted["top_p"], max(0, wanted["top_k"]))
            stops = set(wanted["stop_token_ids"])
            self.engine = TransformersEngine(self.model, stop_ids=stops, params=params, autocast=None, parks=False)
            self.block.enter_context(self.engine.sampling())
        sample = await self.engine.generate(list(prompt_ids), max_tokens=wanted["max_tokens"], seed=wanted["seed"])
        return TokenOutput(
            token_ids=sample.ids,
            log_probs=sample.logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )

    async def take(self, weights: dict[str, torch.Tensor], step: int) -> None:
        """The weights after ``step`` steps."""
        if self.adapts:
            loaded: Any = set_peft_model_state_dict(self.model, weights)
            missing, unknown = {name for name in loaded[0] if "lora_" in name}, loaded[1]
        else:
            loaded = self.model.load_state_dict(weights, strict=False)
            missing, unknown = set(loaded[0]) - set(self.model._tied_weights_keys or ()), loaded[1]
        if unknown or missing:
            raise PolicyFault(
                f"The trainer handed other weights over: {sorted(missing)} lack, {sorted(unknown)} do not fit."
            )
        self.block.close()
        self.engine, self.step = None, step

    async def idle(self, **_given: Any) -> None:
        """Asked to sleep, to wake up, to forget: there is nothing to free."""

    sleep = wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = idle
    abort_all_requests = resume_generation = idle


class Adapter(BaseRollout):
    """Hands the weights over: in the trainer's process, or next to a sampler that has devices of its own."""

    def __init__(self, *of_verl: Any, replica_rank: int | None = None, **named: Any) -> None:
        """``replica_rank`` is that of the sampler; without it, the trainer's own rank."""
        super().__init__(*of_verl, **named)
        self._sampler = replica_rank

    async def resume(self, tags: list[str]) -> None:
        """Nothing slept."""

    async def release(self) -> None:
        """Nothing is freed."""

    async def update_weights(
        self,
        weights: Any,
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_others: Any,
    ) -> None:
        taken = {}
        # Every rank that trains has to ask for all of them: each is gathered.
        async for name, weight in ensure_async_iterator(weights):
            full = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
            taken[name] = full.detach().clone()
        rank = torch.distributed.get_rank() if self._sampler is None else self._sampler
        server = ray.get_actor(_name(rank))
        await server.take.remote(taken, global_steps or 0)


class Replica(RolloutReplica):
    """One server a rank."""

    async def launch_servers(self) -> None:
        chosen, named = self.model_config, cast(Any, Server)
        server = named.options(name=_name(self.replica_rank)).remote(chosen.path, chosen.lora_adapter_path)
        self.servers = [server]
        self._server_address, self._server_handle = f"cpu:{self.replica_rank}", server
        await asyncio.wrap_future(server.idle.remote().future())
