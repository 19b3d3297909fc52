"""Checkpoints are whole or not there, whenever the writer dies and whatever happens to the files later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from training.algorithms.checkpoints import (
    MANIFEST,
    find_resume,
    outdated,
    remove,
    remove_leftovers,
    verify,
    write_whole,
)
from training.errors import StorageFull
from training.machine import mount_of


def fill(folder: Path) -> None:
    step = folder.name.removesuffix(".staging").rpartition("-")[2]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": int(step) if step.isdigit() else 0}))
    (folder / "weights.safetensors").write_bytes(os.urandom(5000))
    (folder / "sub").mkdir()
    (folder / "sub" / "state.json").write_text("{}")


def test_a_written_folder_is_whole(tmp_path: Path) -> None:
    size = write_whole(tmp_path / "checkpoint-3", 3, fill)
    manifest = verify(tmp_path / "checkpoint-3")
    assert manifest is not None and manifest.step == 3 and size == 5002 + len('{"global_step": 3}')
    assert os.listdir(tmp_path) == ["checkpoint-3"]


def test_writing_again_replaces(tmp_path: Path) -> None:
    write_whole(tmp_path / "model", 3, fill)
    write_whole(tmp_path / "model", 4, fill)
    manifest = verify(tmp_path / "model")
    assert manifest is not None and manifest.step == 4 and os.listdir(tmp_path) == ["model"]


def test_writing_again_replaces_what_a_killed_replacement_left(tmp_path: Path) -> None:
    write_whole(tmp_path / "model", 3, fill)
    (tmp_path / "model.old").mkdir()
    (tmp_path / "model.old" / "weights").write_bytes(b"1")
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
    found = find_resume(tmp_path)
    assert found.folder == tmp_path / "checkpoint-5" and found.step == 5
    assert found.torn == [tmp_path / "checkpoint-10"]
    assert not (tmp_path / "checkpoint-10").exists() and (tmp_path / "checkpoint-10.torn").is_dir()
    again = find_resume(tmp_path)
    assert (again.folder, again.torn) == (found.folder, [])


def test_the_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write_whole(tmp_path / f"checkpoint-{step}", step, fill)
    (tmp_path / "checkpoint-200.staging").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    assert find_resume(tmp_path).folder == tmp_path / "checkpoint-100"
    assert find_resume(tmp_path / "checkpoint-9").folder == tmp_path / "checkpoint-9"
    assert find_resume(tmp_path / "checkpoint-8").folder is None
    assert find_resume(tmp_path / "nowhere").folder is None


def test_a_torn_checkpoint_that_was_named_gives_way_to_the_next_older_one(tmp_path: Path) -> None:
    """It sent the run to step 0, with whole ones next to it, and said "set aside" of a folder that stayed."""
    for step in (3, 6, 9):
        write_whole(tmp_path / f"checkpoint-{step}", step, fill)
    flip(tmp_path / "checkpoint-6" / "weights.safetensors")
    found = find_resume(tmp_path / "checkpoint-6")
    assert found.folder == tmp_path / "checkpoint-3" and (tmp_path / "checkpoint-6.torn").is_dir()
    assert (tmp_path / "checkpoint-9").is_dir()


def test_of_several_attempts_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    """By (attempt, step): a later attempt that began again comes before an earlier one that had come further."""
    for attempt, step in (("1", 30), ("2", 5), ("2", 10), ("10", 12)):
        (tmp_path / attempt).mkdir(exist_ok=True)
        write_whole(tmp_path / attempt / f"checkpoint-{step}", step, fill)
    (tmp_path / "3").mkdir()
    flip(tmp_path / "10" / "checkpoint-12" / "weights.safetensors")
    flip(tmp_path / "2" / "checkpoint-10" / "weights.safetensors")
    found = find_resume(tmp_path)
    assert found.folder == tmp_path / "2" / "checkpoint-5"
    assert found.torn == [tmp_path / "10" / "checkpoint-12", tmp_path / "2" / "checkpoint-10"]
    several = find_resume(tmp_path / "1", tmp_path / "2" / "checkpoint-5")
    assert several.folder == tmp_path / "2" / "checkpoint-5"


def test_a_checkpoint_whose_trainer_state_names_another_step_is_not_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "checkpoint-4", 4, fill)
    os.rename(tmp_path / "checkpoint-4", tmp_path / "checkpoint-5")
    assert find_resume(tmp_path).folder is None


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    for step, reward in ((1, 0.1), (2, 0.9), (3, None), (4, 0.3), (5, 0.2)):
        write_whole(tmp_path / f"checkpoint-{step}", step, fill, reward)
    folders, best = outdated(tmp_path, 2)
    assert [folder.name for folder in folders] == ["checkpoint-3", "checkpoint-1"]
    assert best == tmp_path / "checkpoint-2" and outdated(tmp_path, 0)[0] == []
    for folder in folders:
        remove(folder)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]


def test_of_equally_good_checkpoints_the_older_is_the_best(tmp_path: Path) -> None:
    for step, reward in ((1, 0.1), (2, 0.9), (3, 0.9), (4, 0.2)):
        write_whole(tmp_path / f"checkpoint-{step}", step, fill, reward)
    folders, best = outdated(tmp_path, 1)
    assert best == tmp_path / "checkpoint-2"
    assert [folder.name for folder in folders] == ["checkpoint-3", "checkpoint-1"]


def test_what_a_killed_save_or_removal_left_goes_at_the_next_start(tmp_path: Path) -> None:
    for name in ("checkpoint-3.staging", "checkpoint-1.removed", "checkpoint-2.torn"):
        (tmp_path / name).mkdir()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["checkpoint-2.torn"]


def test_a_removal_that_is_killed_leaves_what_the_next_start_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "checkpoint-1", 1, fill)
    with monkeypatch.context() as patch:
        patch.setattr("training.algorithms.checkpoints.shutil.rmtree", lambda *_args, **_more: None)
        remove(tmp_path / "checkpoint-1")
    assert os.listdir(tmp_path) == ["checkpoint-1.removed"]
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_a_typed_error_and_leaves_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "model", 1, fill)

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageFull) as caught:
        write_whole(tmp_path / "model", 2, full)
    assert str(mount_of(tmp_path)) in caught.value.message
    assert os.listdir(tmp_path) == ["model"]  # what was half written holds no room
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
    """Six kills spread over the act of saving; what has a final name is always whole."""
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
