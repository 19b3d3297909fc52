"""The devices of a job on Ray, which may not be there yet: they are waited for, and the wait has an end.

verl gives up at once where a cluster has too few free devices in all, and waits without end where there are enough and
no host has its share. Ray is asked for them either way, so that a cluster that grows by demand grows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

import ray
from verl.plugin.platform import get_platform
from verl.single_controller.ray import RayResourcePool, ResourcePoolManager, SubRayResourcePool

from training.errors import ClusterShort
from training.verl_backend.cluster import Hold, in_thread
from training.words import Sentence, _, sentence

SHORT = _(
    "The Ray cluster has no place for {hosts} × {devices} devices with {cpus} CPUs each: it has {all} devices and "
    "{all_cpus} CPUs on {there} hosts, some of which other jobs may use."
)
SHORT_AND_LOST = _(
    "The Ray cluster has no place for {hosts} × {devices} devices with {cpus} CPUs each: it has {all} devices and "
    "{all_cpus} CPUs on {there} hosts, some of which other jobs may use. It has lost {lost}."
)
LOOK_S, GRACE_S = 1.0, 10.0
"""How often is looked, and how long a wait is no news: Ray starts and other jobs end."""


class Pools(ResourcePoolManager):
    """verl's pools of devices. ``rest`` waits for some seconds, and raises where the job was asked to stop.

    ``apart`` devices of each host are for samplers. They are taken with those that train, so that no job has the ones
    and waits for the others.
    """

    def __init__(self, made: ResourcePoolManager, hold: Hold, rest: Callable[[float], None], apart: int = 0) -> None:
        super().__init__(made.resource_pool_spec, made.mapping)
        self._hold, self._rest, self._apart = hold, rest, apart

    def _check_resource_available(self) -> None:
        """Take the devices of all pools. Raises ``ClusterShort`` once the patience is spent."""
        for pool in self.resource_pool_dict.values():
            self._take(pool)
        self._hold.end()

    def _take(self, pool: Any) -> None:
        asked = self._with_samplers(pool) if self._apart else pool
        taking = in_thread(asked.get_placement_groups, "take-devices")
        wait([taking], GRACE_S)
        while not taking.done():
            self._hold.wait(ClusterShort(shortage(asked.store, asked.max_colocate_count)), LOOK_S)
            self._rest(LOOK_S)
        taking.result()
        if asked is not pool:
            pool.pgs = asked.pgs

    def _with_samplers(self, pool: RayResourcePool) -> RayResourcePool:
        """The pool and the devices that sample: those that train are the first ones of each host."""
        sizes = [count + self._apart for count in pool.store]
        return RayResourcePool(sizes, name_prefix=pool.name_prefix, max_colocate_count=pool.max_colocate_count)

    def places(self, size: int) -> list[SubRayResourcePool]:
        """The devices of each sampler of ``size`` devices, host after host."""
        (pool,) = self.resource_pool_dict.values()
        first, end = pool.store[0], pool.store[0] + self._apart
        return [
            SubRayResourcePool(
                placement_groups=[host],
                start_bundle_index=at,
                subgroup_world_size=size,
                process_on_nodes=[end],
                max_colocate_count=pool.max_colocate_count,
            )
            for host in pool.pgs
            for at in range(first, end, size)
        ]


def shortage(hosts: list[int], cpus: int) -> Sentence:
    """What a job asks of the cluster, with ``cpus`` for each device, what there is, and the hosts that were lost."""
    kind, nodes = get_platform().ray_resource_name(), ray.nodes()
    has = ray.cluster_resources()
    values = {
        "hosts": len(hosts),
        "devices": hosts[0],
        "cpus": cpus,
        "all": f"{has.get(kind, 0):g}",
        "all_cpus": f"{has.get('CPU', 0):g}",
        "there": sum(node["Alive"] for node in nodes),
    }
    lost = sorted({node["NodeManagerAddress"] for node in nodes if not node["Alive"]})
    return sentence(SHORT_AND_LOST, **values, lost=", ".join(lost)) if lost else sentence(SHORT, **values)
