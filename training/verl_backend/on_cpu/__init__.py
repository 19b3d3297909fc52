"""verl on a CPU, for small models and for tests: a platform, a sampler by transformers, vLLM's build for processors,
and two changes.

Named in ``VERL_USE_EXTERNAL_MODULES``, so verl loads it in every process, while its own package is half made: what
needs more of verl is done once that part is loaded.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import torch.distributed

from training.verl_backend.on_cpu import platform as _platform  # noqa: F401 - registers itself
from training.verl_backend.on_cpu import vllm
from training.verl_backend.patches import change_after

NAME = "hf"


def _engine(engine: Any) -> None:
    registered = engine.EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")
    registered(engine.fsdp.FSDPEngineWithLMHead)


def _offload(implementation: Any) -> None:
    """The reference lies in the memory of the host, which is pinned for a device only."""
    offload = implementation.CPUOffloadPolicy
    implementation.CPUOffloadPolicy = lambda **_named: offload(pin_memory=False)


def _adapter(base: Any) -> None:
    base._ROLLOUT_REGISTRY[(NAME, "async")] = "training.verl_backend.on_cpu.sampler.Adapter"


def _replica(replica: Any) -> None:
    def load() -> type[Any]:
        from training.verl_backend.on_cpu.sampler import Replica

        return Replica

    replica.RolloutReplicaRegistry.register(NAME, load)


importlib.metadata.version = vllm.version
change_after(
    {
        "verl.workers.engine": _engine,
        "verl.workers.engine.fsdp.transformer_impl": _offload,
        "verl.workers.rollout.base": _adapter,
        "verl.workers.rollout.replica": _replica,
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer": vllm.copy_weights,
        "verl.workers.rollout.vllm_rollout.utils": vllm.reload_weights,
    }
)

# verl asks for `cpu:gloo` and for its device's backend, which is the same here; torch takes a device once.
_init = torch.distributed.init_process_group


def _once(backend: str | None = None, *args: Any, **named: Any) -> Any:
    if backend is not None and len(set(backend.split(","))) < len(backend.split(",")):
        backend = "gloo"
    return _init(backend, *args, **named)


torch.distributed.init_process_group = _once
