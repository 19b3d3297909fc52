"""What a run asks of the worker that trains it, and which workers have it.

A launch writes the needs into the run's row as a short text, ``""`` for none. A worker claims only runs whose needs it
meets, so a run that asks for more than there is waits for such a worker instead of failing on another.
"""

from __future__ import annotations

from typing import NamedTuple

from training.config import JobConfig
from webapp.common.workers.models import Worker

GIGABYTE = 10**9
UNREADABLE = "?"
"""The needs of a row whose config this version cannot read: any worker may take it, and what starts it says why."""


class Needs(NamedTuple):
    """``gpus`` of at least ``memory`` GB whose name contains ``model``.

    ``or_cpu``: a worker without any GPU does as well, only one with too few does not. ``on_cluster``: a worker that
    submits to a Ray cluster needs nothing itself; ``hosts`` above 1 need such a worker.
    """

    gpus: int = 0
    memory: int = 0
    model: str = ""
    or_cpu: bool = False
    on_cluster: bool = False
    hosts: int = 1

    @classmethod
    def of(cls, config: JobConfig) -> Needs:
        """The needs of a job that takes a device."""
        chosen, by_verl = config.hardware, config.by_verl
        sampler = config.vllm.tensor_parallel if config.samples_with_vllm and config.vllm.mode == "managed" else 1
        devices, hosts = (chosen.of_host, chosen.hosts) if by_verl else (sampler, 1)
        if config.run.device == "cpu":
            return cls(on_cluster=True, hosts=hosts) if hosts > 1 else cls()
        or_cpu = config.run.device == "auto" and not config.needs_gpu
        if or_cpu and devices == 1 and hosts == 1:
            return cls()
        return cls(devices, chosen.gpu_memory, chosen.gpu_model.strip(), or_cpu, by_verl, hosts)

    @classmethod
    def parse(cls, text: str) -> Needs:
        """The needs of a row; none where it cannot be read, so that the trainer's own checks decide."""
        parts = text.split("/")
        if len(parts) != len(cls._fields):
            return cls()
        gpus, memory, model, or_cpu, on_cluster, hosts = parts
        return cls(int(gpus), int(memory), model, or_cpu == "1", on_cluster == "1", int(hosts))

    @property
    def text(self) -> str:
        """The needs for a row; empty for none."""
        if self == Needs():
            return ""
        return "/".join(str(int(part) if isinstance(part, bool) else part) for part in self)

    def met_by(self, worker: Worker) -> bool:
        """Whether a run with these needs can be trained there."""
        if self.on_cluster and worker.cluster:
            return True
        if self.hosts > 1:
            return False
        if worker.gpus == 0:
            return self.or_cpu or self.gpus == 0
        enough = worker.gpus >= self.gpus and (worker.gpu_bytes or 0) >= self.memory * GIGABYTE
        return enough and self.model.lower() in worker.gpu.lower()
