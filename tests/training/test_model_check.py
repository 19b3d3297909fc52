"""Hostile model folders are refused by reading them as data, before any library opens them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.helpers import write_weights
from training.errors import ModelError
from training.model_check import check_model_folder, load_config, parameters_of, stored_dtype


@pytest.fixture
def folder(starter_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(starter_folder, tmp_path / "model"))


def edit(folder: Path, **keys: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def weights(folder: Path, data: bytes) -> None:
    (folder / "model.safetensors").write_bytes(data)


def header(entry: object) -> bytes:
    text = json.dumps({"w": entry}).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * 16


HOSTILE: dict[str, Callable[[Path], object]] = {
    "auto_map": lambda f: edit(f, auto_map={"AutoModel": "evil.Model"}),
    "auto_map nested": lambda f: edit(f, text_config={"a": [{"auto_map": {"AutoConfig": "x.y"}}]}),
    "auto_map in the tokenizer": lambda f: (f / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": "x"}}'
    ),
    "attention kernel": lambda f: edit(f, _attn_implementation_internal="evil/kernel"),
    "attention choice": lambda f: edit(f, attn_implementation="evil/kernel"),
    "experts kernel": lambda f: edit(f, _experts_implementation_internal="evil/kernel"),
    "code": lambda f: (f / "modeling_evil.py").write_text("import os"),
    "code in a subfolder": lambda f: ((f / "sub").mkdir(), (f / "sub" / "x.py").write_text("")),
    "shared library": lambda f: (f / "kernel.so").write_bytes(b""),
    "pickle": lambda f: (f / "pytorch_model.bin").write_bytes(b"\x80\x04."),
    "pickle by another name": lambda f: (f / "weights.PKL").write_bytes(b"\x80\x04."),
    "torch file": lambda f: (f / "weights.pt").write_bytes(b""),
    "state of an optimiser in a subfolder": lambda f: (
        (f / "sub").mkdir(),
        (f / "sub" / "optimizer.pt").write_bytes(b""),
    ),
    "link out": lambda f: os.symlink("/etc/passwd", f / "vocab.txt"),
    "link to a folder": lambda f: os.symlink("/etc", f / "extra"),
    "linked weights": lambda f: (
        os.rename(f / "model.safetensors", f.parent / "w"),
        os.symlink(f.parent / "w", f / "model.safetensors"),
    ),
    "pipe": lambda f: os.mkfifo(f / "notes.txt"),
    "huge config": lambda f: edit(f, padding="x" * (2 << 20)),
    "deep config": lambda f: (f / "config.json").write_text('{"a":' * 500 + "1" + "}" * 500),
    "very deep config": lambda f: (f / "config.json").write_text("[" * 100_000),
    "config is a list": lambda f: (f / "config.json").write_text("[]"),
    "config is not JSON": lambda f: (f / "config.json").write_text("{"),
    "no config": lambda f: (f / "config.json").unlink(),
    "no weights": lambda f: (f / "model.safetensors").unlink(),
    "empty weights": lambda f: weights(f, b""),
    "weights with a huge header": lambda f: weights(f, (1 << 62).to_bytes(8, "little") + b"{}"),
    "weights cut off": lambda f: weights(f, (f / "model.safetensors").read_bytes()[:-1000]),
    "weights that lie": lambda f: weights(f, header({"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4]})),
    "weights with negative offsets": lambda f: weights(
        f, header({"dtype": "F32", "shape": [1], "data_offsets": [-4, 4]})
    ),
    "weights with a broken entry": lambda f: weights(f, header("x")),
}


def test_a_clean_folder_passes_and_is_described(folder: Path) -> None:
    facts = check_model_folder(folder)
    assert facts.architecture == "Qwen3ForCausalLM" and facts.model_type == "qwen3"
    assert 300_000 < facts.parameters < 1_000_000 and facts.bytes > 4 * facts.parameters


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_refused(folder: Path, name: str) -> None:
    HOSTILE[name](folder)
    with pytest.raises(ModelError) as caught:
        check_model_folder(folder)
    assert caught.value.message.endswith(".")


def test_a_checkpoint_of_ours_is_a_model_to_begin_with(folder: Path) -> None:
    """What it has for resuming is never opened when its model is loaded."""
    before = check_model_folder(folder)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (folder / name).write_bytes(b"\x80\x04.")
    (folder / "verl" / "global_step_3").mkdir(parents=True)
    (folder / "verl" / "global_step_3" / "model_world_size_2_rank_0.pt").write_bytes(b"\x80\x04.")
    assert check_model_folder(folder) == before
    (folder / "verl" / "x.py").write_text("")
    with pytest.raises(ModelError, match="holds code"):
        check_model_folder(folder)


def test_missing_folder_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        check_model_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["{", '{"model_type": "of-no-library"}', "[]"])
def test_a_config_that_the_library_cannot_read_is_a_model_error(folder: Path, text: str) -> None:
    assert load_config(folder).model_type
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match="The model's config cannot be read"):
        load_config(folder)


def test_links_of_the_hub_cache_are_allowed_only_within_it(folder: Path, tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    os.rename(folder / "model.safetensors", blob)
    os.symlink(blob, folder / "model.safetensors")
    assert check_model_folder(folder, links_within=tmp_path).parameters > 0
    with pytest.raises(ModelError):
        check_model_folder(folder, links_within=tmp_path / "elsewhere")


def test_no_source_file_trusts_remote_code() -> None:
    root = Path(__file__).resolve().parents[2]
    for path in (root / "training").rglob("*.py"):
        assert "trust_remote_code=True" not in path.read_text(encoding="utf-8").replace(" ", ""), path


def test_parameters_are_those_of_the_files_else_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_weights(tmp_path / "model-7B" / "a.safetensors", 3)
    write_weights(tmp_path / "model-7B" / "b.safetensors", 4)
    assert parameters_of(str(tmp_path / "model-7B")) == 7, "what it has, not how it is called"
    (tmp_path / "tiny-14M").mkdir()
    assert parameters_of(str(tmp_path / "tiny-14M")) == 14_000_000
    (tmp_path / "tiny-14M" / "a.safetensors").write_bytes(b"none")
    assert parameters_of(str(tmp_path / "tiny-14M")) == 14_000_000
    names = {"org/Qwen3-0.6B": 600_000_000, "org/Llama-3.1-8B-Instruct": 8_000_000_000, "org/mixtral": None, "": None}
    assert {name: parameters_of(name) for name in names} == names
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "models--org--mixtral" / "snapshots"
    write_weights(folder / "old" / "model.safetensors", 5)
    write_weights(folder / "new" / "model.safetensors", 6)
    os.utime(folder / "old", (1, 1))
    assert parameters_of("org/mixtral") == 6, "of the newest snapshot"


def test_the_precision_of_a_folder_is_that_of_most_of_its_weights(starter_folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    assert stored_dtype(starter_folder) == "float32"
    large, small = torch.zeros(64), torch.zeros(3)
    for kind, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16"), (torch.int8, "")):
        save_file({"a": large.to(kind), "b": small}, tmp_path / "model-1.safetensors")
        save_file({"c": small}, tmp_path / "model-2.safetensors")
        assert stored_dtype(tmp_path) == name
    assert stored_dtype(tmp_path / "nothing") == ""
