"""The machine's share of this process: processors of the container, and a disk that is never filled."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.disks import small_disk
from training.algorithms.loading import autocast_dtype
from training.errors import StorageFull
from training.machine import cgroup_cores, compute_threads, cores, disk_fault, mount_of, require_room, reserve_bytes

GB = 1 << 30


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("TILTYARD_DISK_RESERVE_MB", raising=False)

    def set_up(total: int, free: int) -> None:
        usage = type(shutil.disk_usage("/"))(total, total - free, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    return set_up


def test_the_reserve_is_two_gibibytes_but_at_most_a_twentieth(
    disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk(1000 * GB, 500 * GB)
    assert reserve_bytes(tmp_path) == 2 * GB
    disk(10 * GB, 5 * GB)
    assert reserve_bytes(tmp_path) == GB // 2
    monkeypatch.setenv("TILTYARD_DISK_RESERVE_MB", "100")
    assert reserve_bytes(tmp_path) == 100 << 20


def test_too_little_room_names_the_disk_what_is_free_and_what_is_needed(disk: Any, tmp_path: Path) -> None:
    disk(1000 * GB, 5 * GB)
    require_room(tmp_path, 3 * GB, "a checkpoint")
    with pytest.raises(StorageFull) as caught:
        require_room(tmp_path, 3 * GB + 1, "a checkpoint")
    for words in (str(mount_of(tmp_path)), "5.0 GiB", "3.0 GiB", "2.0 GiB", "a checkpoint"):
        assert words in caught.value.message
    assert caught.value.pauses and caught.value.hint.endswith("so that the run can go on.")


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        (errno.ENOSPC, "storage_full", "is full ("),
        (errno.EDQUOT, "storage_full", "is full ("),
        (errno.EROFS, "storage_failed", "Nothing can be written to"),
        (errno.EIO, "storage_failed", ": the disk failed to read or write."),
    ],
)
def test_what_a_disk_does_not_take_is_named(number: int, code: str, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "made yet"
    for exc in (OSError(number, "x"), RuntimeError(f"Error while writing: {os.strerror(number)} (os error {number})")):
        fault = disk_fault(exc, folder)
        assert fault is not None and fault.info.code == code and fault.pauses
        assert says in fault.message and fault.hint.endswith("the run can go on.")
        assert str(mount_of(tmp_path) if code == "storage_full" else folder) in fault.message


def test_a_disk_that_is_full_while_torch_writes_is_named(tmp_path: Path) -> None:
    """The warm-up of a demo failed for good: PyTorch says "unexpected pos 64 vs 0", and nothing of the disk."""
    with small_disk(folder := tmp_path / "disk", "1m"):
        with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while shutil.disk_usage(folder).free:
                file.write(bytes(4096))
        with pytest.raises(RuntimeError) as caught:
            torch.save({"state": torch.ones(1 << 18)}, folder / "optimizer.pt")
        assert "space" not in str(caught.value)
        others = (
            "PytorchStreamWriter failed writing file data/0: file write failed",
            "basic_ios::clear: iostream error",
        )
        for exc in (caught.value, *map(RuntimeError, others)):
            fault = disk_fault(exc, folder / "checkpoint" / "optimizer.pt")
            assert fault is not None and fault.info.code == "storage_full" and str(folder) in fault.message
        (folder / "filler").unlink()  # there is room again by the time of the next look
        fault = disk_fault(caught.value, folder)
        assert fault is not None and fault.info.code == "storage_failed"


@pytest.mark.parametrize("exc", [OSError(errno.EACCES, "x"), OSError("x"), ValueError("x"), FileNotFoundError(2, "x")])
def test_other_failures_are_no_fault_of_the_disk(exc: Exception, tmp_path: Path) -> None:
    assert disk_fault(exc, tmp_path) is None


def test_a_checkpoint_that_cannot_be_read_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    torch.save({"state": torch.ones(1 << 12)}, tmp_path / "optimizer.pt")
    os.truncate(tmp_path / "optimizer.pt", 4096)
    with pytest.raises(RuntimeError, match="PytorchStreamReader") as caught:
        torch.load(tmp_path / "optimizer.pt", weights_only=True)
    assert disk_fault(caught.value, tmp_path) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container_is_read(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cgroup_cores(tmp_path) == expected


def test_threads_are_the_containers_share_not_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 threads on 2 cores of a container were many times slower than 2."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for quota, expected in ((1.5, 2), (None, 8), (0.2, 1), (16.0, 8)):
        monkeypatch.setattr("training.machine.cgroup_cores", lambda quota=quota: quota)
        assert cores() == expected


def test_an_operator_says_with_how_many_threads_trainers_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several on one machine took all of its cores each."""
    monkeypatch.setattr("training.machine.cores", lambda: 8)
    for setting, expected in ((None, 8), ("3", 3), (" 2 ", 2), ("0", 8), ("-1", 8), ("many", 8), ("", 8)):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if setting is not None:
            monkeypatch.setenv("OMP_NUM_THREADS", setting)
        assert compute_threads() == expected


def test_bfloat16_only_where_the_gpu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was forced on every CUDA device."""
    import torch

    for able, expected in ((True, torch.bfloat16), (False, None)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True, able=able: able)
        assert autocast_dtype("cuda") is expected and autocast_dtype("cpu") is None
