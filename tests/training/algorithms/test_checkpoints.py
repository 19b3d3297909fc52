"""Checkpoints are whole or not there, whenever the writer dies and whatever happens to the files later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from training.algorithms.checkpoints import MANIFEST, find_resume, newest_whole, verify, write_whole
from training.errors import StorageFull


def fill(folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(os.urandom(5000))
    (folder / "sub").mkdir()
    (folder / "sub" / "state.json").write_text("{}")


def test_a_written_folder_is_whole(tmp_path: Path) -> None:
    size = write_whole(tmp_path / "checkpoint-3", 3, fill)
    manifest = verify(tmp_path / "checkpoint-3")
    assert manifest is not None and manifest.step == 3 and size == 5002
    assert os.listdir(tmp_path) == ["checkpoint-3"]


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_whole(tmp_path / "model", 3, fill)
    write_whole(tmp_path / "model", 4, fill)
    manifest = verify(tmp_path / "model")
    assert manifest is not None and manifest.step == 4 and os.listdir(tmp_path) == ["model"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def link(path: Path) -> None:
    os.rename(path, path.parent.parent / "elsewhere")
    os.symlink(path.parent.parent / "elsewhere", path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bit flipped": lambda f: flip(f / "weights.safetensors"),
    "cut": lambda f: os.truncate(f / "weights.safetensors", 4999),
    "file gone": lambda f: (f / "sub" / "state.json").unlink(),
    "file added": lambda f: (f / "optimizer.pt").write_bytes(b"x"),
    "file linked": lambda f: link(f / "weights.safetensors"),
    "manifest gone": lambda f: (f / MANIFEST).unlink(),
    "manifest cut": lambda f: os.truncate(f / MANIFEST, 20),
    "manifest flipped": lambda f: flip(f / MANIFEST),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_never_picked_and_set_aside(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / "checkpoint-5", 5, fill)
    write_whole(tmp_path / "checkpoint-10", 10, fill)
    DAMAGE[name](tmp_path / "checkpoint-10")
    found, torn = newest_whole(tmp_path)
    assert found == tmp_path / "checkpoint-5"
    assert torn == [tmp_path / "checkpoint-10.torn"] and torn[0].is_dir()
    assert newest_whole(tmp_path) == (found, [])


def test_the_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write_whole(tmp_path / f"checkpoint-{step}", step, fill)
    (tmp_path / "checkpoint-200.staging").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    assert newest_whole(tmp_path)[0] == tmp_path / "checkpoint-100"
    assert find_resume(tmp_path / "checkpoint-9")[0] == tmp_path / "checkpoint-9"
    assert find_resume(tmp_path / "checkpoint-8")[0] is None
    assert find_resume(tmp_path / "nowhere")[0] is None


def test_a_full_disk_is_a_typed_error_and_leaves_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "model", 1, fill)

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageFull):
        write_whole(tmp_path / "model", 2, full)
    manifest = verify(tmp_path / "model")
    assert manifest is not None and manifest.step == 1


WRITER = """
import os, sys
from pathlib import Path
from training.algorithms.checkpoints import write_whole
def fill(folder):
    for i in range(4): (folder / f"part-{i}.safetensors").write_bytes(os.urandom(300_000))
step = 0
print("ready", flush=True)
while True:
    step += 1
    write_whole(Path(sys.argv[1]) / f"checkpoint-{step % 3 + 1}", step, fill)
"""


def test_a_writer_killed_at_any_instant_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    """Six kills spread over the act of saving; what stands under a final name is always whole."""
    for round_ in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.02 + 0.023 * round_)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for folder in tmp_path.iterdir():
            if folder.name.removeprefix("checkpoint-").isdigit():
                assert verify(folder) is not None, folder
        assert newest_whole(tmp_path)[1] == []
