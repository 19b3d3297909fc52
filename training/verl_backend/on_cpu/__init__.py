"""verl on a CPU, for small models and for tests: a platform, a sampler by transformers, and two patches.

Named in ``VERL_USE_EXTERNAL_MODULES``, so verl loads it in every process, while its own package is half made: what
needs more of verl is done once that part is loaded.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch.distributed

from training.verl_backend.on_cpu import platform as _platform  # noqa: F401 - registers itself

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


AFTER: dict[str, Callable[[Any], None]] = {
    "verl.workers.engine": _engine,
    "verl.workers.engine.fsdp.transformer_impl": _offload,
    "verl.workers.rollout.base": _adapter,
    "verl.workers.rollout.replica": _replica,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Runs a function once a module has been loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        load, then = spec.loader.exec_module, AFTER[name]

        def exec_module(module: ModuleType) -> None:
            load(module)
            then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())

# verl asks for `cpu:gloo` and for its device's backend, which is the same here; torch takes a device once.
_init = torch.distributed.init_process_group


def _once(backend: str | None = None, *args: Any, **named: Any) -> Any:
    if backend is not None and len(set(backend.split(","))) < len(backend.split(",")):
        backend = "gloo"
    return _init(backend, *args, **named)


torch.distributed.init_process_group = _once
