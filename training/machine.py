"""The machine's resources for this process: its share of the processors, memory, and room on a disk.

Part of a disk is never filled (the reserve), so that journals, the database and all else that is there can continue and
the run can still say why it paused.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import tempfile
from pathlib import Path

from training.errors import StorageFailed, StorageFull
from training.plain import number_in, os_reason

RESERVE_VARIABLE = "TILTYARD_DISK_RESERVE_MB"
RESERVE_BYTES_MAX, RESERVE_SHARE = 2 << 30, 0.05
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
DISK_FAULTS = DISK_FULL | {errno.EROFS, errno.EIO}
"""What ends no run and no program: a disk that takes nothing now may do so again. The one list of them."""
TORCH_WRITER = re.compile(r"PytorchStreamWriter failed|unexpected pos \d+ vs \d+|basic_ios::clear")
"""What PyTorch says of an archive that it could not write: the system's own words are lost."""
CGROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """Processors that this process may use: its affinity and the container's quota, not what the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cores()
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def compute_threads() -> int:
    """Threads to compute with on a CPU: what the operator's ``OMP_NUM_THREADS`` says, else the cores."""
    return number_in(os.environ.get("OMP_NUM_THREADS", "").strip()) or cores()


def cgroup_cores(root: Path = CGROUP) -> float | None:
    """The container's processor quota in cores (control groups 2, then 1); ``None`` without one."""
    try:
        quota, period = (root / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):  # "max": no quota
        return None


def memory_left() -> int | None:
    """Bytes of memory that the machine and the container leave; ``None`` where neither says."""
    return min((value for value in (_available(), _container_left()) if value is not None), default=None)


def _available(path: Path = Path("/proc/meminfo")) -> int | None:
    try:
        text = path.read_text()
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _container_left(root: Path = CGROUP) -> int | None:
    """The bytes that the container's limit leaves (cgroup v2, then v1); ``None`` without a limit.

    Its use counts the page cache too, which the kernel gives back: inactive file pages are taken off.
    """
    names = (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    )
    for folder, limit, used in names:
        try:
            most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
            idle = re.search(r"^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
        except (OSError, ValueError):  # not there, or "max"
            continue
        return max(0, most - taken + (int(idle[1]) if idle else 0))
    return None


def reserve_bytes(path: Path) -> int:
    """Bytes to keep free on ``path``'s disk: ``TILTYARD_DISK_RESERVE_MB``, else 2 GiB but at most 5% of the disk."""
    megabytes = number_in(os.environ.get(RESERVE_VARIABLE, "").strip())
    if megabytes is not None:
        return megabytes << 20
    return min(RESERVE_BYTES_MAX, int(shutil.disk_usage(path).total * RESERVE_SHARE))


def require_room(path: Path, needed: int, what: str, reserve_share: float = 1.0) -> None:
    """Raise ``StorageFull``, which names the disk, unless ``needed`` bytes fit and leave that share of the reserve."""
    free, reserve = shutil.disk_usage(path).free, int(reserve_bytes(path) * reserve_share)
    if free >= needed + reserve:
        return
    wanted = f"{_size(needed)} and a reserve of {_size(reserve)}" if needed else f"the reserve of {_size(reserve)}"
    raise StorageFull(
        f"The disk {mount_of(path)} has {_size(free)} free; {what} needs {wanted}.",
        hint=f"Free {_size(needed + reserve - free)} on {mount_of(path)}, so that the run can go on.",
    )


def disk_fault(exc: BaseException, path: Path) -> StorageFull | None:
    """The error of a write to ``path`` that its disk did not take; ``None`` for any other failure."""
    # The libraries that write weights have errors of their own, which only quote the system's words.
    named = (number for number in DISK_FAULTS if os.strerror(number) in str(exc))
    number = exc.errno if isinstance(exc, OSError) and exc.errno else next(named, None)
    if number is None and TORCH_WRITER.search(str(exc)):
        number = _number_now(path)
    if number not in DISK_FAULTS:
        return None
    if number in DISK_FULL:
        mount = mount_of(path)
        free = _size(shutil.disk_usage(mount).free)
        return StorageFull(
            f"The disk {mount} is full ({free} free).", hint=f"Free space on {mount}, so that the run can go on."
        )
    return StorageFailed(
        f"Nothing can be written to {path}: {os_reason(OSError(number, ''))}.",
        hint="Look into the system's log, and mount its disk so that it can be written; then the run can go on.",
    )


def journal_fault(exc: OSError, journal: Path) -> StorageFull:
    """The error that ends a run whose journal takes no line, whatever the reason."""
    return disk_fault(exc, journal) or StorageFull(
        f"The journal cannot be written: {exc}", hint="Free space in the run directory, then resume."
    )


def _number_now(path: Path) -> int:
    """Why the disk of ``path`` took no write a moment ago: what it says of another one, else by its room."""
    place = next(folder for folder in (path, *path.resolve().parents) if folder.is_dir())
    if (refused := write_refusal(place)) is not None:
        return refused.errno or errno.EIO
    return errno.ENOSPC if shutil.disk_usage(place).free < reserve_bytes(place) else errno.EIO


def write_refusal(folder: Path) -> OSError | None:
    """Why nothing can be written below a folder now; ``None`` where a small file was written, and is gone again."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        return exc
    return None


def mount_of(path: Path) -> Path:
    """Where the disk of ``path`` is mounted."""
    place = path.resolve()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return place


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{math.ceil(count / (1 << 20))} MiB"
