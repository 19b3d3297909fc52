"""Disks that a test may fill or make read-only: mounts of its own, which need root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*arguments: str) -> None:
    """Mount, or skip the test where mounting is not allowed."""
    if os.geteuid() != 0 or subprocess.run(["mount", *arguments], capture_output=True).returncode:
        pytest.skip("mounting a disk of its own needs root")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """The folder is a disk of its own meanwhile; ``size`` as ``mount`` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """What is opened below the folder meanwhile can only be read. Files that are open already can be written, as those
    of a server whose disk lies elsewhere."""
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
