"""The CPU as a device of verl's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*_args: Any, **_named: Any) -> int:
    return 0


def _module() -> ModuleType:
    """What verl asks its device's module for: it has no memory of its own."""
    made = ModuleType("cpu_device")
    names = """
        empty_cache synchronize set_device current_device manual_seed manual_seed_all max_memory_allocated
        max_memory_reserved memory_allocated memory_reserved reset_peak_memory_stats
    """
    for name in names.split():
        setattr(made, name, _nothing)
    made.get_device_name = lambda *_args: "cpu"  # type: ignore[attr-defined]
    made.is_available = lambda: False  # type: ignore[attr-defined]
    made.device_count = lambda: 1  # type: ignore[attr-defined]
    made.mem_get_info = lambda *_args: (0, 0)  # type: ignore[attr-defined]
    made.get_rng_state = torch.get_rng_state  # type: ignore[attr-defined]
    made.set_rng_state = torch.set_rng_state  # type: ignore[attr-defined]
    return made


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """Ray knows it as a GPU, so that its placement is the one of a GPU job."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """There is one."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing is in flight."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """There are none."""

    def empty_cache(self) -> None:
        """There is none."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        """No profile."""

    def profiler_stop(self) -> None:
        """No profile."""

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None
