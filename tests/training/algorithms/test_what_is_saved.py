"""What a checkpoint and a final model are made of: each part is saved into the folder that becomes it."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.disks import small_disk
from training.algorithms.checkpoints import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    HubModel,
    numbered,
    outdated,
    pin,
    remove,
    staging_of,
    step_of,
    unpin,
    verify,
    write_whole,
)
from training.algorithms.saving import save_checkpoint, save_final
from training.errors import StorageFailed, StorageFull


class Part:
    """A model, its merged form or a tokenizer: it leaves a file with its name."""

    def __init__(self, name: str, *, adapter: bool = False) -> None:
        self.name = name
        if adapter:
            self.merge_and_unload = lambda: Part("merged")

    def save_pretrained(self, folder: Path) -> None:
        (folder / f"{self.name}.txt").write_text(self.name)


def _trainer(model: Part) -> Any:
    def keep(name: str) -> Any:
        return lambda folder: (Path(folder) / name).write_text(name)

    return SimpleNamespace(
        accelerator=SimpleNamespace(unwrap_model=lambda wrapped: wrapped["inner"]),
        model={"inner": model},
        processing_class=Part("tokenizer"),
        _save_optimizer_and_scheduler=keep("optimizer.pt"),
        _save_rng_state=keep("rng.pth"),
        state=SimpleNamespace(save_to_json=lambda path: Path(path).write_text("{}")),
    )


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_holds_all_that_resuming_needs(tmp_path: Path) -> None:
    folder, size = save_checkpoint(_trainer(Part("weights")), tmp_path, 7, 0.5)
    assert folder == tmp_path / "checkpoint-7"
    assert _names(folder) == [MANIFEST, "optimizer.pt", "rng.pth", "tokenizer.txt", "trainer_state.json", "weights.txt"]
    assert size == len("optimizer.ptrng.pthtokenizer{}weights")
    manifest = verify(folder)
    assert manifest is not None and (manifest.step, manifest.reward, manifest.version) == (7, 0.5, 1)
    again = verify(save_checkpoint(_trainer(Part("weights")), tmp_path, 8)[0])
    assert again is not None and again.reward is None


def test_a_final_model_holds_weights_and_tokenizer(tmp_path: Path) -> None:
    folder, size = save_final(_trainer(Part("weights")), tmp_path, 9)
    assert (folder, size) == (tmp_path / "model", len("weightstokenizer"))
    assert _names(folder) == [MANIFEST, "tokenizer.txt", "weights.txt"] and _names(tmp_path) == ["model"]
    manifest = verify(folder)
    assert manifest is not None and manifest.step == 9


def test_an_adapter_is_merged_and_kept(tmp_path: Path) -> None:
    save_final(_trainer(Part("adapter", adapter=True)), tmp_path, 9)
    assert _names(tmp_path / "model") == [MANIFEST, "merged.txt", "tokenizer.txt"]
    assert _names(tmp_path / "adapter") == ["adapter.txt", MANIFEST]
    for name in ("model", "adapter"):
        manifest = verify(tmp_path / name)
        assert manifest is not None and manifest.step == 9


def _empty(folder: Path) -> None:
    (folder / "x").write_text("x")


def test_the_newest_are_chosen_by_number(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write_whole(tmp_path / f"checkpoint-{step}", step, _empty)
    (tmp_path / "checkpoint-11").write_text("a file")
    (tmp_path / "other-12").mkdir()
    assert sorted(step_of(folder) for folder in numbered(tmp_path)) == [9, 10, 100]
    assert outdated(tmp_path, 1) == ([tmp_path / "checkpoint-10", tmp_path / "checkpoint-9"], None)
    assert outdated(tmp_path, 3) == ([], None) and outdated(tmp_path / "nowhere", 1) == ([], None)


def test_the_best_is_found_among_those_that_are_kept_too(tmp_path: Path) -> None:
    for step, reward in ((1, -1.0), (2, 0.0), (3, None)):
        write_whole(tmp_path / f"checkpoint-{step}", step, _empty, reward)
    assert outdated(tmp_path, 1) == ([tmp_path / "checkpoint-1"], tmp_path / "checkpoint-2")
    (tmp_path / "checkpoint-2" / MANIFEST).write_text("{")
    assert outdated(tmp_path, 0) == ([], tmp_path / "checkpoint-1")
    assert outdated(tmp_path, 1) == ([tmp_path / "checkpoint-2"], tmp_path / "checkpoint-1")


def test_what_goes_is_judged_over_all_attempts(tmp_path: Path) -> None:
    """Each attempt kept its own newest, so a run with five attempts held five times what it was set to keep."""
    first, second, third = (tmp_path / name for name in "123")
    for place, step, reward in ((first, 1, 0.1), (first, 2, 0.9), (first, 8, 0.2), (second, 4, 0.3), (third, 5, 0.4)):
        write_whole(place / f"checkpoint-{step}", step, _empty, reward)
    gone, best = outdated(third, 1, (first, second))
    assert best == first / "checkpoint-2"
    assert gone == [second / "checkpoint-4", first / "checkpoint-8", first / "checkpoint-1"]
    assert outdated(third, 2, (first, second))[0] == gone[1:]  # a later attempt's is newer, whatever its step
    assert outdated(third, 0, (first, second)) == ([], best)
    pin(first / "checkpoint-1")
    assert outdated(third, 1, (first, second))[0] == gone[:2]
    unpin(first / "checkpoint-1")
    assert outdated(third, 1, (first, second))[0] == gone


def test_a_manifest_that_is_too_long_is_none(tmp_path: Path) -> None:
    write_whole(tmp_path / "checkpoint-1", 1, _empty)
    manifest = tmp_path / "checkpoint-1" / MANIFEST
    whole = manifest.read_text()
    manifest.write_text(whole + " " * (MAX_MANIFEST_BYTES - len(whole)))
    assert verify(tmp_path / "checkpoint-1") is not None
    manifest.write_text(" " * MAX_MANIFEST_BYTES + whole)
    assert verify(tmp_path / "checkpoint-1") is None


def test_a_removal_and_a_save_pass_over_what_is_left_of_others(tmp_path: Path) -> None:
    write_whole(tmp_path / "checkpoint-1", 1, _empty)
    remove(tmp_path / "checkpoint-1")
    assert _names(tmp_path) == []
    (tmp_path / "checkpoint-2.staging").mkdir()
    (tmp_path / "checkpoint-2.staging" / "half").write_text("h")
    (tmp_path / "checkpoint-2.old").mkdir()
    (tmp_path / "checkpoint-2.old" / "before").write_text("b")
    assert staging_of(tmp_path / "checkpoint-2") == tmp_path / "checkpoint-2.staging"
    for _time in range(2):
        assert write_whole(tmp_path / "checkpoint-2", 2, _empty) == 1
    assert _names(tmp_path / "checkpoint-2") == [MANIFEST, "x"]
    assert not (tmp_path / "checkpoint-2.staging").exists() and not (tmp_path / "checkpoint-2.old").exists()


@pytest.mark.parametrize(
    ("error", "typed"),
    [
        (OSError(errno.ENOSPC, "full"), StorageFull),
        (RuntimeError("write: No space left on device (os error 28)"), StorageFull),
        (OSError(errno.EIO, "I/O error"), StorageFailed),
        (RuntimeError("write: Read-only file system (os error 30)"), StorageFailed),
        (PermissionError(errno.EACCES, "no"), PermissionError),
        (ValueError("28"), ValueError),
    ],
)
def test_only_a_disk_that_takes_nothing_is_called_one(tmp_path: Path, error: Exception, typed: type[Exception]) -> None:
    def fails(folder: Path) -> None:
        _empty(folder)
        raise error

    with pytest.raises(typed) as caught:
        write_whole(tmp_path / "deeper" / "checkpoint-1", 1, fails)
    assert type(caught.value) is typed and _names(tmp_path / "deeper") == []


def test_a_disk_that_a_checkpoint_fills_is_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's error names no disk: the warm-up of a demo failed for good, and its GRPO run with it."""
    import torch

    monkeypatch.delenv("TILTYARD_DISK_RESERVE_MB", raising=False)
    with small_disk(tmp_path / "disk", "2m"):
        with pytest.raises(StorageFull) as caught:
            write_whole(tmp_path / "disk" / "checkpoint-1", 1, lambda to: torch.save(torch.ones(1 << 20), to / "x.pt"))
        assert type(caught.value) is StorageFull and _names(tmp_path / "disk") == []


class Adapted(Part):
    """A model with an adapter, whose library leaves a config with a path and a README with gaps."""

    def __init__(self) -> None:
        super().__init__("adapter", adapter=True)
        self.made: list[Any] = []

        def merge() -> Any:
            return SimpleNamespace(to=lambda dtype: self.made.append(dtype) or Part("merged"))

        self.merge_and_unload = merge  # type: ignore[assignment]

    def save_pretrained(self, folder: Path) -> None:
        super().save_pretrained(folder)
        (folder / "adapter_config.json").write_text('{"r": 8, "base_model_name_or_path": "/a/cache", "revision": null}')
        (folder / "README.md").write_text("[More Information Needed]")


def test_an_adapter_names_its_base_and_states_facts(tmp_path: Path) -> None:
    import torch

    model, base = Adapted(), HubModel("team/base", "c0ffee")
    save_final(_trainer(model), tmp_path, 9, dtype="bfloat16", base=base, card=lambda adapter: f"card {adapter}")
    assert model.made == [torch.bfloat16]
    assert (tmp_path / "model" / "README.md").read_text() == "card False"
    assert (tmp_path / "adapter" / "README.md").read_text() == "card True"
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config == {"r": 8, "base_model_name_or_path": "team/base", "revision": "c0ffee"}
    assert verify(tmp_path / "adapter") is not None and verify(tmp_path / "model") is not None
    folder, _bytes = save_checkpoint(_trainer(Adapted()), tmp_path, 4, base=base)
    assert not (folder / "README.md").exists() and verify(folder) is not None
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "team/base"
    folder, _bytes = save_checkpoint(_trainer(Adapted()), tmp_path, 5)
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "/a/cache"


def test_weights_that_were_all_trained_keep_their_precision(tmp_path: Path) -> None:
    """Half of an update can be less than the distance of two numbers in bfloat16: it would be rounded back."""
    save_final(_trainer(Part("weights")), tmp_path, 9, dtype="bfloat16")  # it has no ``to`` to be called
    assert (tmp_path / "model" / "weights.txt").is_file()
