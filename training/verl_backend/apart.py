"""Samplers on devices of their own: the devices that train hold none, and hand their weights over to them.

1. A sampler is one of verl's replicas on the devices that ``Pools`` has left for it, on one host.
2. Next to each of its devices is a process that takes the weights, by the checkpoint engine that the settings name,
   and gives them to the sampler as a trainer on the same device would.
3. An adapter is handed over alone, as on shared devices. verl by itself would hand over the base below it, which the
   samplers have, and never the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import ray
import torch
from omegaconf import DictConfig
from peft import PeftConfig
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.device import get_device_id, get_device_name
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.rollout.replica import RolloutMode, RolloutReplica, get_rollout_replica_class


class TrainerWorker(ActorRolloutRefWorker):
    """The process of a device that only trains."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> dict[str, Any]:
        """Hand over what is trained: all weights, or the adapter."""
        weights, _adapter = self.actor.engine.get_per_tensor_param(base_sync_done=True)
        return await self.checkpoint_engine.send_weights(whole(weights, get_device_id()), global_steps) or {}


def whole(weights: Iterable[tuple[str, torch.Tensor]], device: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors as a checkpoint engine takes them: gathered, in one piece and on the device."""
    for name, weight in weights:
        full = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
        yield name, full.detach().to(device).contiguous()


class SamplerWorker(CheckpointEngineWorker):
    """The process next to a sampler's device that takes the weights for it."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None) -> None:
        """Give the sampler what the devices that train hand over."""
        weights = self.checkpoint_engine.receive_weights(global_steps)
        adapter = adapter_of(self.model_config.lora_adapter_path)
        await self.server_adapter.update_weights(weights, global_steps=global_steps, **adapter)


def adapter_of(folder: str | None) -> dict[str, Any]:
    """How a sampler reads weights that are an adapter's: as the one in ``folder``, which the job begins with."""
    if folder is None:
        return {}
    return {"peft_config": PeftConfig.from_pretrained(folder).to_dict(), "base_sync_done": True}


def placed(kind: type[RolloutReplica]) -> type[RolloutReplica]:
    """A kind of replica that gets its devices, instead of asking the cluster for some."""

    class Placed(kind):  # type: ignore[valid-type, misc]
        def __init__(self, *, places: Sequence[RayResourcePool], **of_verl: Any) -> None:
            super().__init__(**of_verl)
            self.resource_pool = places[self.replica_rank]

        async def init_standalone(self) -> None:
            self.rollout_mode = RolloutMode.STANDALONE
            group = RayWorkerGroup(
                resource_pool=self.resource_pool,
                ray_cls_with_init=self.get_ray_class_with_init_args(),
                bin_pack=False,
                name_prefix=f"sampler_{self.replica_rank}_",
                device_name=get_device_name(),
            )
            self.workers = group.workers
            await self.launch_servers()

        def get_ray_class_with_init_args(self) -> RayClassWithInitArgs:
            given = {"rollout_config": self.config, "model_config": self.model_config}
            return RayClassWithInitArgs(cls=ray.remote(SamplerWorker), replica_rank=self.replica_rank, **given)

    return Placed


class Samplers(LLMServerManager):
    """The samplers of a job, one on each of ``places``. Made by ``create``."""

    def __init__(self, config: DictConfig, places: Sequence[RayResourcePool]) -> None:
        kind: Any = placed(get_rollout_replica_class(config.actor_rollout_ref.rollout.name))
        self.rollout_replica_class = partial(kind, places=places)
        super().__init__(config)

    def ask(self, function: Callable[..., Any], *given: Any) -> list[Any]:
        """Call a function in each of their processes, with the process' actor and what else is given."""
        actors = [actor for replica in self.rollout_replicas for actor in (*replica.workers, *replica.servers)]
        return list(ray.get([actor.__ray_call__.remote(function, *given) for actor in actors]))

    def taking_from(self, trainers: RayWorkerGroup) -> CheckpointEngineManager:
        """What hands the weights of the devices that train over to them."""
        chosen = omega_conf_to_dataclass(self.rollout_config.checkpoint_engine)
        return CheckpointEngineManager(config=chosen, actor_wg=trainers, replicas=self.rollout_replicas)
