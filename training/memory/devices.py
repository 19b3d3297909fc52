"""Devices that jobs run on, with the memory that a program really gets of them."""

from __future__ import annotations

import os
import re
from typing import Literal, NamedTuple

from training.errors import ConfigError

GIB = 1 << 30
BF16_MAJOR = 8
"""CUDA devices below this compute capability emulate bfloat16 (T4 and V100: 7)."""
OTHER = re.compile(r"(?P<name>.+)=(?P<gib>\d+(\.\d+)?)(@(?P<major>\d+)\.\d+)?", re.ASCII)
CLOSE = 0.9
"""Above this share of the device a fit is called close: the table is right to about 15%."""


def gib(size: int) -> str:
    """A size as people read it."""
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / (1 << 20):.0f} MiB"


class Device(NamedTuple):
    """``bytes`` is what a program can use; ``computes_bf16`` says whether bfloat16 is computed and not emulated."""

    key: str
    title: str
    bytes: int
    kind: Literal["cuda", "cpu"] = "cuda"
    computes_bf16: bool = True


def _gpu(key: str, title: str, gib: float, *, bf16: bool = True) -> Device:
    return Device(key, title, round(gib * GIB), "cuda", bf16)


# What nvidia-smi reports as the total of each, in GiB (MiB / 1024).
DEVICES: dict[str, Device] = {
    device.key: device
    for device in (
        _gpu("t4", "NVIDIA T4 16 GB", 15.0, bf16=False),
        _gpu("v100", "NVIDIA V100 32 GB", 31.7, bf16=False),
        _gpu("rtx4090", "NVIDIA RTX 4090 24 GB", 23.9),
        _gpu("a10", "NVIDIA A10 24 GB", 22.5),
        _gpu("l4", "NVIDIA L4 24 GB", 22.5),
        _gpu("rtx5090", "NVIDIA RTX 5090 32 GB", 31.8),
        _gpu("a100-40", "NVIDIA A100 40 GB", 39.6),
        _gpu("l40s", "NVIDIA L40S 48 GB", 45.0),
        _gpu("a100", "NVIDIA A100 80 GB", 79.2),
        _gpu("h100", "NVIDIA H100 80 GB", 79.6),
        _gpu("h200", "NVIDIA H200 141 GB", 139.8),
        _gpu("b200", "NVIDIA B200 192 GB", 178.4),
    )
}


def device_named(key: str) -> Device:
    """The device of a key, ``cpu`` for this machine, or any other as ``name=GiB`` or ``name=GiB@capability``, with its
    compute capability in CUDA; without that, it computes bfloat16. Raises ``ConfigError``.
    """
    if other := OTHER.fullmatch(key):
        major = int(other["major"] or BF16_MAJOR)
        return _gpu(key, other["name"], float(other["gib"]), bf16=major >= BF16_MAJOR)
    if key == "cpu":
        return this_machine()
    if key not in DEVICES:
        known = ", ".join(["cpu", *DEVICES])
        raise ConfigError(f"There is no device {key}: known are {known}.")
    return DEVICES[key]


def this_machine() -> Device:
    """The processor of this machine, with all of its memory."""
    return Device("cpu", "CPU", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "cpu", computes_bf16=False)


def device_here(wanted: str) -> Device:
    """What a job would run on here, by ``run.device``: the GPU that PyTorch sees, else the processor."""
    import torch

    if wanted == "cpu" or not torch.cuda.is_available():
        return this_machine()
    found = torch.cuda.get_device_properties(0)
    able = torch.cuda.is_bf16_supported(including_emulation=False)
    return Device("gpu", found.name, int(found.total_memory), "cuda", able)
