"""Facts of samplers on devices of their own by value, in verl's virtualenv and without a Ray.

Run with verl's Python: ``python -m tests.training.verl_backend.in_apart``. It names each fact that held.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import torch
from peft import LoraConfig
from verl.checkpoint_engine import CheckpointEngineRegistry
from verl.single_controller.ray import RayResourcePool, ResourcePoolManager
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import PPOTrainerSync

from tests.training.verl_backend.in_trainer import Rows, bare, computed
from training.errors import ClusterShort
from training.verl_backend import apart, cluster, devices
from training.verl_backend.cluster import Hold
from training.verl_backend.on_cpu import handover


def pools(apart_of_host: int, hosts: list[int], rest: Any = None) -> tuple[Any, RayResourcePool, list[Any]]:
    """The pools of a job, the one of those that train, and what is journalled."""
    said: list[Any] = []
    pool = RayResourcePool(hosts, name_prefix="global", max_colocate_count=3)
    made = devices.Pools(ResourcePoolManager({}, {}), Hold(said.append), rest, apart_of_host)
    made.resource_pool_dict = {"global": pool}
    return made, pool, said


def devices_are_taken_together() -> None:
    """A host's devices that train and those that sample are one group, so that the wait is for both."""
    asked: list[list[int]] = []

    def groups(pool: Any) -> list[str]:
        asked.append(pool.store)
        pool.pgs = [f"host {at}" for at in range(len(pool.store))]
        return list(pool.pgs)

    with patch.object(RayResourcePool, "get_placement_groups", groups):
        made, pool, said = pools(3, [2, 2])
        made._check_resource_available()
        assert (asked, said) == ([[5, 5]], [])
        assert (pool.store, pool.world_size, pool.pgs) == ([2, 2], 4, ["host 0", "host 1"]), "they train"
        made, pool, said = pools(0, [2])
        made._check_resource_available()
        assert asked[1:] == [[2]] and pool.pgs == ["host 0"]


def a_wait_names_all_devices() -> None:
    """What lacks is said of those that train and those that sample."""
    wanted: list[tuple[list[int], int]] = []

    def shortage(hosts: list[int], cpus: int) -> str:
        wanted.append((hosts, cpus))
        return "it lacks"

    def never(_pool: Any) -> None:
        time.sleep(5)

    with (
        patch.object(RayResourcePool, "get_placement_groups", never),
        patch.object(devices, "shortage", shortage),
        patch.multiple(devices, GRACE_S=0.02, LOOK_S=0.05),
        patch.object(cluster, "PATIENCE_S", 0.1),
    ):
        made, _pool, said = pools(1, [2], rest=time.sleep)
        try:
            made._check_resource_available()
        except ClusterShort:
            assert wanted[0] == ([3], 3) and said[0].error.code == "cluster_short"
        else:
            raise AssertionError("it waits on")


def places_of_samplers() -> None:
    """Behind those that train, host after host, and none over two hosts."""
    made, pool, _said = pools(4, [2, 2])
    pool.pgs = ["host 0", "host 1"]

    def of(size: int) -> list[tuple[Any, int, int, list[int]]]:
        return [(place.pgs, place.start_bundle_index, place.world_size, place.store) for place in made.places(size)]

    assert of(2) == [([host], at, 2, [6]) for host in ("host 0", "host 1") for at in (2, 4)]
    assert [at for _host, at, _size, _all in of(1)] == [2, 3, 4, 5] * 2
    assert len(of(4)) == 2


class Fake:
    """A kind of replica that begins without a Ray."""

    def __init__(self, replica_rank: int, **given: Any) -> None:
        self.replica_rank, self.given, self.launched = replica_rank, given, False
        self.config, self.model_config = "rollout", "model"

    async def launch_servers(self) -> None:
        self.launched = True


def replicas_get_their_devices() -> None:
    """Each the place of its number; its processes are ours, which take an adapter as one."""
    made: Any = apart.placed(Fake)(places=["a", "b"], replica_rank=1, gpus_per_node=3)  # type: ignore[arg-type]
    assert made.resource_pool == "b" and made.given == {"gpus_per_node": 3}
    group = Mock(return_value=SimpleNamespace(workers=["w"]))
    with patch.object(apart, "RayWorkerGroup", group), patch.object(apart.ray, "remote", lambda kind: kind):
        asyncio.run(made.init_standalone())
    given = group.call_args.kwargs
    assert given["resource_pool"] == "b" and given["name_prefix"] == "sampler_1_" and made.launched
    made_of = given["ray_cls_with_init"]
    assert made_of.cls is apart.SamplerWorker and made.workers == ["w"]
    assert made_of.kwargs == {"rollout_config": "rollout", "model_config": "model", "replica_rank": 1}


def weights_are_handed_over_whole() -> None:
    """Gathered and in one piece. An adapter is asked for alone, and taken as the adapter that the job begins with."""
    sharded = SimpleNamespace(full_tensor=lambda: torch.arange(6.0).view(2, 3).t())
    (first, gathered), (second, plain) = apart.whole([("a", sharded), ("b", torch.ones(2))], "cpu")  # type: ignore[list-item]
    assert (first, second) == ("a", "b") and plain.tolist() == [1.0, 1.0]
    assert gathered.is_contiguous() and gathered.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]

    sent: list[Any] = []

    async def send(weights: Any, step: int) -> dict[str, Any]:
        sent.append((dict(weights), step))
        return {}

    asked = Mock(return_value=([("a", torch.ones(1))], {}))
    trainer: Any = SimpleNamespace(
        actor=SimpleNamespace(engine=SimpleNamespace(get_per_tensor_param=asked)),
        checkpoint_engine=SimpleNamespace(send_weights=send),
    )
    with patch.object(apart, "get_device_id", lambda: "cpu"):
        assert asyncio.run(apart.TrainerWorker.update_weights(trainer, global_steps=4)) == {}
    assert asked.call_args.kwargs == {"base_sync_done": True} and sent[0][1] == 4 and list(sent[0][0]) == ["a"]

    taken: list[Any] = []

    async def take(weights: Any, **named: Any) -> None:
        taken.append((weights, named))

    with tempfile.TemporaryDirectory() as folder:
        LoraConfig(r=4, target_modules=["q_proj"]).save_pretrained(folder)
        for path in (folder, None):
            sampler: Any = SimpleNamespace(
                checkpoint_engine=SimpleNamespace(receive_weights=lambda step: f"of step {step}"),
                model_config=SimpleNamespace(lora_adapter_path=path),
                server_adapter=SimpleNamespace(update_weights=take),
            )
            asyncio.run(apart.SamplerWorker.update_weights(sampler, global_steps=4))
    (weights, named), (_weights, of_all) = taken
    assert weights == "of step 4" and of_all == {"global_steps": 4}
    assert named["base_sync_done"] and named["global_steps"] == 4
    assert named["peft_config"]["r"] == 4 and set(named["peft_config"]["target_modules"]) == {"q_proj"}


class Local:
    """An actor in this process: what a method gives is awaited or fetched."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Awaitable[Any]] = getattr(self.actor, name)
        return SimpleNamespace(remote=lambda *given: asyncio.ensure_future(method(*given)))


def parts_of_a_handover() -> None:
    """As large as is asked for; a sampler that waits gets each as soon as it is there, and the box is empty after."""
    box = handover.Box.__ray_actor_class__()
    stored: list[dict[str, Any]] = []

    def put(part: dict[str, Any]) -> Any:
        stored.append(part)
        found = asyncio.get_running_loop().create_future()
        found.set_result(part)
        return found

    engine = CheckpointEngineRegistry.get(handover.NAME)
    sends, helps, takes = (engine(8, is_master=first) for first in (True, False, False))  # type: ignore[call-arg]
    given: Any = engine.build_topology(2, 1, ["box", None, None])
    assert given == ({"box": ["box", "box"]}, {"box": ["box"]})
    weights = [(name, torch.full((size,), float(size))) for name, size in (("a", 1), ("b", 1), ("c", 3), ("d", 1))]
    pulled: list[str] = []

    def pull() -> Any:
        for name, weight in weights:
            pulled.append(name)
            yield name, weight

    async def all_of_it() -> list[tuple[str, list[float]]]:
        for each in (sends, helps, takes):
            each.init_process_group(box=Local(box))

        async def take() -> list[tuple[str, list[float]]]:
            return [(name, weight.tolist()) async for name, weight in takes.receive_weights(1)]

        taking = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        await helps.send_weights(pull(), 1)
        assert pulled == ["a", "b", "c", "d"] and not stored, "it helps to gather them"
        await sends.send_weights(pull(), 1)
        found = await taking
        assert len(box._parts) == 4 and box._parts[-1] == []
        await box.empty()
        assert box._parts == []
        return found

    with patch.object(handover.ray, "put", put):
        found = asyncio.run(all_of_it())
    assert found == [(name, weight.tolist()) for name, weight in weights]
    assert [list(part) for part in stored] == [["a", "b"], ["c"], ["d"]]


def the_trainer_with_samplers_apart() -> None:
    """Its devices have our process, its turns go to the samplers, and these take the weights of those that train."""
    for own in (0, 2):
        made = bare()
        made._apart, made._samplers, made._write, made._rest_or_stop = own, None, None, None
        made._job.config.vllm = SimpleNamespace(tensor_parallel=1)
        made.role_worker_mapping = {Role.Actor: "verl's"}
        made.resource_pool_manager = ResourcePoolManager({"global": [1]}, {})
        made.actor_rollout_wg, made.checkpoint_manager = "group", "verl's own"
        made.llm_server_manager = SimpleNamespace(get_client=lambda: "on the devices that train")
        samplers = SimpleNamespace(taking_from=lambda group: f"from {group}", get_client=lambda: "apart")
        create = Mock(return_value=samplers)
        with (
            patch.object(PPOTrainerSync, "_init_resource_pool_mgr", lambda _made: None),
            patch.object(PPOTrainerSync, "_setup", lambda _made: None),
            patch.object(devices.Pools, "places", lambda _pools, size: [f"{size} device"]),
            patch.object(apart.Samplers, "create", create),
        ):
            made._init_resource_pool_mgr()
            made._setup()
        assert made.resource_pool_manager._apart == own
        if own:
            assert made.role_worker_mapping[Role.Actor] != "verl's" and create.call_args.args[1] == ["1 device"]
            assert (made.checkpoint_manager, made.get_llm_client()) == ("from group", "apart")
        else:
            assert made.role_worker_mapping[Role.Actor] == "verl's" and not create.called
            assert (made.checkpoint_manager, made.get_llm_client()) == ("verl's own", "on the devices that train")


def devices_that_only_train_wait() -> None:
    """Turns are sampled elsewhere, as the lane of such a device says."""
    made = bare()
    made._apart = 1
    made._job.lane.turn("waiting")
    made.at = 10.0
    made._job.lane.turn("training")
    computed(made, Rows())
    made.at = 12.0
    assert made._job.lane.finish() == [("waiting", 0, 10), ("training", 10, 12)]


FACTS = (
    devices_are_taken_together,
    a_wait_names_all_devices,
    places_of_samplers,
    replicas_get_their_devices,
    weights_are_handed_over_whole,
    parts_of_a_handover,
    the_trainer_with_samplers_apart,
    devices_that_only_train_wait,
)


def main() -> int:
    """Check all of them."""
    for fact in FACTS:
        fact()
        print(f"HELD {fact.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
