"""What a checkpoint and a final model hold, written from a trainer as it stands (``checkpoints`` makes them whole)."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from training.algorithms.checkpoints import ADAPTER, ADAPTER_CONFIG, FINAL, PREFIX, HubModel, StageMark, write_whole
from training.algorithms.task_memory import Memory
from training.errors import ModelError
from training.policy.attached import value_head_of, without_value_head

README = "README.md"
REFERENCE = "reference/weights.safetensors"
VALUE_HEAD = "value_head/weights.safetensors"


def following_reference(trainer: Any) -> Any:
    """The reference model where it moves with the policy, so that a checkpoint has to hold it; else ``None``."""
    arguments = getattr(trainer, "args", None)
    return trainer.ref_model if getattr(arguments, "sync_ref_model", False) else None


def save_reference(model: Any, folder: Path) -> None:
    """Put the reference's weights into a checkpoint: in a folder of their own, as whatever opens a model takes every
    file of weights beside its config."""
    from safetensors.torch import save_model

    path = folder / REFERENCE
    path.parent.mkdir()
    save_model(model, str(path))


def load_reference(model: Any, folder: Path) -> None:
    """Give the reference the weights that it had at a checkpoint. Raises ``OSError`` where there are none."""
    from safetensors.torch import load_model

    load_model(model, str(folder / REFERENCE), device=str(model.device))


def save_value_head(model: Any, folder: Path) -> None:
    """Put the model's value head, if it has one, into a checkpoint: beside the model, as the reference is."""
    from safetensors.torch import save_file

    if (head := value_head_of(model)) is not None:
        path = folder / VALUE_HEAD
        path.parent.mkdir()
        save_file({name: value.contiguous() for name, value in head.state_dict().items()}, path)


def load_value_head(model: Any, folder: Path) -> None:
    """Give the model's value head the weights of a checkpoint. Raises ``ModelError`` where there are none."""
    from safetensors.torch import load_file

    head, path = value_head_of(model), folder / VALUE_HEAD
    assert head is not None  # noqa: S101 - asked by the trainer that attached it
    if not path.is_file():
        raise ModelError(
            f"{folder.name} holds no value head, so no run of PPO can go on from it.",
            hint="Resume from a checkpoint of a PPO run, or begin with its model as model.source.",
        )
    head.load_state_dict(load_file(path))


def save_checkpoint(
    trainer: Any,
    run_dir: Path,
    step: int,
    reward: float | None = None,
    held_out: float | None = None,
    *,
    base: HubModel | None = None,
    stage: StageMark | None = None,
    memory: Memory | None = None,
) -> tuple[Path, int]:
    """Everything that resuming needs: weights, optimiser, schedule, random states, step. Returns (folder, bytes).

    The layout is the one that ``transformers.Trainer`` resumes from; it loads these files with ``weights_only=True``,
    and we hand it a folder only after checking its manifest. With LoRA the weights are the adapter alone, which names
    ``base``. ``memory`` is what the run knows of its tasks.
    """
    target = run_dir / f"{PREFIX}{step}"

    def fill(folder: Path) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        with without_value_head(model):
            model.save_pretrained(folder)
        save_value_head(model, folder)
        _describe(folder, None)
        _name_base(folder, base)
        trainer.processing_class.save_pretrained(folder)
        trainer._save_optimizer_and_scheduler(str(folder))
        trainer._save_rng_state(str(folder))
        trainer.state.save_to_json(str(folder / "trainer_state.json"))
        if (reference := following_reference(trainer)) is not None:
            save_reference(reference, folder)
        if memory is not None:
            memory.write(folder)

    return target, write_whole(target, step, fill, reward, held_out, stage)


def save_final(
    trainer: Any,
    run_dir: Path,
    step: int,
    *,
    dtype: str = "",
    base: HubModel | None = None,
    base_folder: Path | None = None,
    card: Callable[[bool], str] | None = None,
) -> tuple[Path, int]:
    """The trained model as safetensors with its tokenizer; adapters are merged in. Returns (folder, bytes).

    A LoRA adapter is kept as well, in ``adapter`` beside the merged model, which is written in ``dtype``, the precision
    of its base: what merging rounds away is still in the adapter. Weights that were all trained stay as they are, for
    the rounding would take small updates back. The adapter names ``base``. ``card`` gives the text of the README; it is
    told whether that is the adapter's. Merging changes the trainer's model, so nothing can be trained after this. A
    base of 4 bits has lost what the one of ``base_folder`` has, so the adapter is merged into that.
    """
    target, model = run_dir / FINAL, trainer.accelerator.unwrap_model(trainer.model)
    merges = hasattr(model, "merge_and_unload")

    def fill(folder: Path) -> None:
        if merges and base_folder is not None and is_quantized(model):
            whole = _merged(base_folder, run_dir / ADAPTER)
        else:
            whole = model.merge_and_unload() if merges else model
        if merges and dtype:
            whole = whole.to(getattr(import_module("torch"), dtype))
        whole.save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)
        _describe(folder, card and card(False))

    def fill_adapter(folder: Path) -> None:
        model.save_pretrained(folder)
        _describe(folder, card and card(True))
        _name_base(folder, base)

    with without_value_head(model):
        if merges:
            write_whole(run_dir / ADAPTER, step, fill_adapter)
        return target, write_whole(target, step, fill)


def is_quantized(model: Any) -> bool:
    """Whether its base has weights of 4 bits."""
    return bool(getattr(model, "is_loaded_in_4bit", False))


def _merged(base: Path, adapter: Path) -> Any:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    safe = {"trust_remote_code": False, "use_safetensors": True, "local_files_only": True}
    whole = AutoModelForCausalLM.from_pretrained(base, dtype="auto", **safe)
    return PeftModel.from_pretrained(whole, adapter).merge_and_unload()


def _describe(folder: Path, text: str | None) -> None:
    """Our README in place of the one with gaps to fill in that PEFT writes."""
    if text:
        (folder / README).write_text(text, encoding="utf-8")
    else:
        (folder / README).unlink(missing_ok=True)


def _name_base(folder: Path, base: HubModel | None) -> None:
    """Have an adapter name the hub's model that it belongs to, by its commit, and not a folder of this machine.

    PEFT would do so if its config did, and then ask the hub at every save.
    """
    path = folder / ADAPTER_CONFIG
    if base is not None and path.is_file():
        config = json.loads(path.read_bytes()) | {"base_model_name_or_path": base.name, "revision": base.commit}
        path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
