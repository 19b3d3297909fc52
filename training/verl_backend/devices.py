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
from verl.single_controller.ray import ResourcePoolManager

from training.errors import ClusterShort
from training.verl_backend.hold import Hold, in_thread
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
    """verl's pools of devices. ``rest`` waits for some seconds, and raises where the job was asked to stop."""

    def __init__(self, made: ResourcePoolManager, hold: Hold, rest: Callable[[float], None]) -> None:
        super().__init__(made.resource_pool_spec, made.mapping)
        self._hold, self._rest = hold, rest

    def _check_resource_available(self) -> None:
        """Take the devices of all pools. Raises ``ClusterShort`` once the patience is spent."""
        for pool in self.resource_pool_dict.values():
            self._take(pool)
        self._hold.end()

    def _take(self, pool: Any) -> None:
        taking = in_thread(pool.get_placement_groups, "take-devices")
        wait([taking], GRACE_S)
        while not taking.done():
            self._hold.wait(ClusterShort(shortage(pool.store, pool.max_colocate_count)), LOOK_S)
            self._rest(LOOK_S)
        taking.result()


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
