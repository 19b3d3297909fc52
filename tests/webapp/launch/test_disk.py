"""The forecast of the disk: known sizes, by hand."""

from __future__ import annotations

import json
import struct
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from training.config import JobConfig
from webapp.launch import preflight
from webapp.launch.estimates import disk_forecast, disk_sentence

Usage = namedtuple("Usage", "total used free")


def config(
    source: str = "acme/Small-1B", *, keep: int = 3, minutes: float = 10.0, keep_tokens: int = 256, **over: Any
) -> JobConfig:
    """100 steps of 64 rollouts of at most 512 tokens; a checkpoint every 10 steps, of which ``keep`` stay."""
    groups: dict[str, Any] = {"model": {"source": source}, "run": {"save_every": 10, "max_steps": 100}} | over
    groups["model"] = {"source": source} | over.get("model", {})
    made = JobConfig.model_validate(groups)
    object.__setattr__(made.run, "keep_last", keep)
    object.__setattr__(made.run, "keep_tokens_mib", keep_tokens)
    object.__setattr__(made.run, "save_every_minutes", minutes)
    return made


def _weights(folder: Path, shapes: dict[str, list[int]], **values: Any) -> Path:
    """A model folder of these tensors in float16, whose header is all that is read."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * at)
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def test_full_weights_cost_three_times_themselves_a_checkpoint() -> None:
    found = disk_forecast(config())
    assert found is not None
    assert (found.checkpoints, found.each, found.model, found.bounded) == (4, 12 * 10**9, 4 * 10**9, True)
    assert found.records == 2 * 100 * 64 * (2000 + 4 * 512) + 6 * 100 * 64 * (1024 + 512)
    some = disk_forecast(config(keep_tokens=10))
    assert some is not None and some.records == 2 * 100 * 64 * (2000 + 4 * 512) + 10 * 2**20
    assert found.total == 4 * 12 * 10**9 + 4 * 10**9 + found.records
    every = disk_forecast(config(keep=0))
    assert every is not None and (every.checkpoints, every.bounded) == (10, False)
    half = disk_forecast(config(keep=0, minutes=0, model={"dtype": "bfloat16"}))
    assert half is not None and (half.each, half.model, half.bounded) == (6 * 10**9, 2 * 10**9, True)


def test_the_header_counts_and_an_adapter_is_small(tmp_path: Path) -> None:
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128}
    folder = _weights(tmp_path / "model-7B", {"a": [1000, 64], "b": [10]}, **shape)
    found = disk_forecast(config(str(folder), keep=1))
    assert found is not None and (found.checkpoints, found.model, found.each) == (2, 64_010 * 4, 64_010 * 12)
    lora = disk_forecast(config(str(folder), keep=1, model={"lora_rank": 8}))
    adapter = 2 * 8 * (4 * 128 + 3 * (64 + 128))
    assert lora is not None and (lora.model, lora.each) == (64_010 * 4, adapter * 12)


def test_what_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    assert disk_forecast(config("acme/mystery")) is None
    assert disk_forecast(config(str(tmp_path))) is None
    assert disk_forecast(config(kind="sample", sample={"policies": []})) == (0, 0, 0, 2 * 6400 * 4048, True)


def test_the_check_says_what_fits_and_warns_of_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: Usage(0, 0, 60 * 1024**3))
    check = preflight._check_disk(config())
    assert check.ok and not check.hint and not check.hard
    assert check.message.replace("\xa0", " ") == (
        "About 48.5 GB: 4 checkpoints of 11.2 GB (the last 3 and the best) + the final model of 3.7 GB + "
        "records of at most 105.7 MB. 60.0 GB are free for checkpoints and records."
    )
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: Usage(0, 0, 50 * 1024**3))
    late = preflight._check_disk(config())
    assert not late.ok and not late.hard and "keep fewer checkpoints" in late.hint
    unknown = preflight._check_disk(config("acme/mystery"))
    assert unknown.ok and unknown.message.replace("\xa0", " ") == "50.0 GB are free for checkpoints and records."
    assert "None" not in disk_sentence(config(), disk_forecast(config()))  # type: ignore[arg-type]
