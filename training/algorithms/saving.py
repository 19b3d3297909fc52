"""The saves of a run: checkpoints and final models, when they are saved, and the card that describes a model."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from training.algorithms.checkpoints import (
    ADAPTER,
    ADAPTER_CONFIG,
    FINAL,
    PREFIX,
    HubModel,
    StageMark,
    outdated,
    remove,
    write_whole,
)
from training.algorithms.drawing import Drawing, Memory
from training.algorithms.job import Job
from training.algorithms.loading import STARTER
from training.errors import ModelError, NotFinite, StorageFull, TiltyardError
from training.journal import CheckpointSaved, CheckpointsRemoved
from training.machine import require_room
from training.metrics import METRICS
from training.model_check import stored_dtype
from training.policy.attached import value_head_of, without_value_head
from training.rewards.scoring import components_of

# The model card that a finished run leaves next to its weights: what it knows for a fact, and no word more.

USE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "path/to/this/folder"
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
tokenizer = AutoTokenizer.from_pretrained(folder)
"""
USE_ADAPTER = """\
from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("path/to/this/folder", dtype="auto")
"""


def card_of(job: Job, step: int, figures: dict[str, float], adapter: bool) -> str:
    """The card as Markdown. ``figures`` are those of the last step; ``adapter``: it is of the LoRA adapter alone."""
    title = "LoRA adapter" if adapter else "Model"
    facts = {**_base(job), **_training(job, step), **_figures(job, step, figures), **_machine(job)}
    parts = [
        _front_matter(job, adapter),
        f"# {title} trained by {job.config.method.short}",
        "Written by the trainer from what it recorded. Intended use, limitations and licence are not recorded.",
        _table(facts),
        f"## Use\n\n```python\n{USE_ADAPTER if adapter else USE}```",
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(job: Job, adapter: bool) -> str:
    library = "peft" if adapter else "transformers"
    lines = ["---", f"library_name: {library}", "pipeline_tag: text-generation"]
    if job.hub_base is not None:
        lines.append(f"base_model: {job.hub_base.name}")
    return "\n".join([*lines, "tags:", "  - tiltyard", f"  - {job.config.kind}", "---"])


def _base(job: Job) -> dict[str, str]:
    model = job.config.model
    if job.hub_base is not None:
        return {"Base model": job.hub_base.name, "Revision of the base model": job.hub_base.commit}
    return {"Base model": model.source if model.source == STARTER else f"a local folder ({Path(model.source).name})"}


def _training(job: Job, step: int) -> dict[str, str]:
    config, lora = job.config, job.config.model
    data = ", ".join(dict.fromkeys(Path(course.data.train).name for course in config.courses))
    facts = {"Method": config.method.title, "Steps": str(step), "Data": data}
    if config.mix.parts:
        facts["Parts"] = ", ".join(f"{part.name} × {part.weight:g}" for part in config.mix.parts)
    if job.stage is not None:
        facts["Last stage"] = f"{job.stage.number}, {job.stage.name}, after step {job.stage.began}"
    elif job.begun is not None and job.begun.rows is not None:
        facts["Rows"] = str(job.begun.rows)
    if config.method.plays:
        facts["Rollouts of a step"] = f"{config.rollout.prompts_per_step} prompts × {config.group_size}"
        parts = components_of(config.courses)
        facts["Rewards"] = ", ".join(f"{part.name} × {part.weight:g}" for part in parts)
        facts["KL β"] = f"{config.gradient.beta:g}"
    else:
        facts["Rows of a step"] = str(config.sft.batch_size)
    facts["Learning rate"] = f"{config.learning_rate:g}"
    facts["LoRA"] = "none: all weights were trained"
    if lora.lora_rank:
        words = f"rank {lora.lora_rank}, alpha {lora.adapter_alpha}, dropout {lora.lora_dropout:g}"
        facts["LoRA"] = f"{words}, on {lora.lora_targets}"
    return facts | {"Seed": str(config.run.seed)}


def _figures(job: Job, step: int, figures: dict[str, float]) -> dict[str, str]:
    """The figures that the run's page shows first, as they were at the last step."""
    shown = [name for name in job.config.method.tiles if name in figures]
    return {f"{METRICS[name].title}, step {step}": f"{figures[name]:.4g}" for name in shown}


def _machine(job: Job) -> dict[str, str]:
    if job.begun is None:
        return {}
    versions = ", ".join(f"{name} {number}" for name, number in sorted(job.begun.versions.items()))
    return {"Device": job.begun.device, "Versions": versions}


def _table(facts: dict[str, str]) -> str:
    rows = [("Fact", "Value"), ("---", "---"), *facts.items()]
    return "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


# What a checkpoint and a final model hold, written from a trainer as it is (``checkpoints`` makes them whole).

README = "README.md"
REFERENCE = "reference/weights.safetensors"
VALUE_HEAD = "value_head/weights.safetensors"


def following_reference(trainer: Any) -> Any:
    """The reference model where it moves with the policy, so that a checkpoint has to hold it; else ``None``."""
    arguments = getattr(trainer, "args", None)
    return trainer.ref_model if getattr(arguments, "sync_ref_model", False) else None


def save_reference(model: Any, folder: Path) -> None:
    """Put the reference's weights into a checkpoint: in a folder of their own, as any program that opens a model takes
    every file of weights next to its config."""
    from safetensors.torch import save_model

    path = folder / REFERENCE
    path.parent.mkdir()
    save_model(model, str(path))


def load_reference(model: Any, folder: Path) -> None:
    """Give the reference the weights that it had at a checkpoint. Raises ``OSError`` where there are none."""
    from safetensors.torch import load_model

    load_model(model, str(folder / REFERENCE), device=str(model.device))


def save_value_head(model: Any, folder: Path) -> None:
    """Put the model's value head, if it has one, into a checkpoint: next to the model, as the reference is."""
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
            f"{folder.name} holds no value head, so no run of PPO can continue from it.",
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
        name_base(folder, base)
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

    A LoRA adapter is kept as well, in ``adapter`` next to the merged model, which is written in ``dtype``, the
    precision of its base: what merging rounds away is still in the adapter. Weights that were all trained stay as they
    are, for the rounding would take small updates back. The adapter names ``base``. ``card`` gives the README's text;
    its argument is whether that is the adapter's. Merging changes the trainer's model, so nothing can be trained after
    this. A base of 4 bits has lost what the one of ``base_folder`` has, so the adapter is merged into that.
    """
    target, model = run_dir / FINAL, trainer.accelerator.unwrap_model(trainer.model)
    merges = hasattr(model, "merge_and_unload")

    def fill(folder: Path) -> None:
        if merges and base_folder is not None and is_quantized(model):
            whole = merged(base_folder, run_dir / ADAPTER)
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
        name_base(folder, base)

    with without_value_head(model):
        if merges:
            write_whole(run_dir / ADAPTER, step, fill_adapter)
        return target, write_whole(target, step, fill)


def is_quantized(model: Any) -> bool:
    """Whether its base has weights of 4 bits."""
    return bool(getattr(model, "is_loaded_in_4bit", False))


def merged(base: Path, adapter: Path) -> Any:
    """The model that an adapter makes of its base, in the base's precision."""
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


def name_base(folder: Path, base: HubModel | None) -> None:
    """Have an adapter name the hub's model that it belongs to, by its commit, and not a folder of this machine.

    PEFT would do so if its config did, and then ask the hub at every save.
    """
    path = folder / ADAPTER_CONFIG
    if base is not None and path.is_file():
        config = json.loads(path.read_bytes()) | {"base_model_name_or_path": base.name, "revision": base.commit}
        path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


# When a checkpoint is saved, what of older ones goes, and what a run that is asked to end still saves.
#
# 1. A run can continue from the weights only at a *border*: when all updates of one sampling are done. Within a
#    generation a trainer that resumes would have to hold the sampled rollouts too. Every step is a border where one
#    update is made of each sampling.
# 2. At a border a checkpoint is due after ``run.save_every`` steps or ``run.save_every_minutes``, whichever comes
#    first, after an evaluation that was the best of the run, where a stage ends, and at the last step, so that the run
#    can be extended.
# 3. A run that is asked to stop, or pauses, saves the last border if it trained since the last save. The weights stay
#    there until the first update of the next sampling; the random states, and what is remembered of tasks, are kept as
#    they were at the border.
# 4. Before a save: weights must be finite, and the disk must have room for it besides the reserve. A run that pauses
#    because the disk is full may take half of the reserve for its last save: that is what it is there for.
# 5. After a save the checkpoints of this attempt and of those before it go that are neither among the newest
#    ``run.keep_last`` nor the best.

BYTES_PER_S = 100e6
"""Written, synced and hashed in a second; taken until a save has been timed."""
LAST_SAVE_SHARE = 0.5
"""Of the reserve, that stays free when a run saves for the last time before it pauses because the disk is full."""


def remove_outdated(job: Job) -> None:
    """Delete the checkpoints of a run that are neither among the newest ``run.keep_last`` nor the best."""
    folders, best = outdated(job.run_dir, job.config.run.keep_last, job.earlier)
    if not folders:
        return
    paths = [job.named(folder) for folder in folders]
    # Journalled first: a page must not offer what is gone. What a crash leaves is found by the next save.
    job.journal.write(CheckpointsRemoved(paths=paths, why="old", best=job.named(best) if best is not None else ""))
    for folder, name in zip(folders, paths, strict=True):
        try:
            remove(folder)
        except OSError as exc:  # the folder of an earlier attempt may be another user's
            job.log(f"{name} could not be removed: {exc.strerror}.", "warning")


class Saver:
    """Saves one trainer's state. ``updates`` is how many updates are made of one sampling, the first of which follows
    step ``origin``; ``held_out`` gives the success of a step's weights on held-out tasks, where they were played;
    ``drawing`` draws tasks by what it remembers of them."""

    def __init__(self, job: Job, updates: int = 1) -> None:
        self.job = job
        self.updates = updates
        self.origin = 0
        self._trainer: Any = None
        self._saved_at = time.monotonic()
        self._bytes = 0
        self._random: dict[str, Any] | None = None
        self._memory: Memory | None = None
        self._rewards: list[float] = []
        self._figures: dict[str, float] = {}
        self.held_out: Callable[[int], float | None] = lambda _step: None
        self.drawing: Drawing | None = None

    def attach(self, trainer: Any) -> None:
        """Take the trainer, and estimate from its parameters what a checkpoint needs."""
        self._trainer = trainer
        trained = [p for p in trainer.model.parameters() if p.requires_grad]
        kept = trained if _is_adapter(trainer) else list(trainer.model.parameters())
        # The weights, and two moments of AdamW for each that is trained.
        self._bytes = sum(p.numel() * p.element_size() for p in kept)
        self._bytes += sum(2 * p.numel() * p.element_size() for p in trained)
        if (reference := following_reference(trainer)) is not None:
            self._bytes += sum(p.numel() * p.element_size() for p in reference.parameters())
        self.job.save_seconds = self._bytes / BYTES_PER_S

    def begin(self) -> None:
        """Training begins now; only now does time count."""
        self._saved_at = time.monotonic()

    def at_border(self, step: int) -> bool:
        """Whether all updates of a sampling are done at ``step``."""
        return self.left_of_sampling(step) == 0

    def left_of_sampling(self, step: int) -> int:
        """Updates of the sampling that ``step`` belongs to which are not done."""
        return -(step - self.origin) % self.updates

    def updated(self, step: int) -> None:
        """An update has been made: at a border what changes before the next update is kept, for a save that comes
        later."""
        if self.at_border(step):
            self._random = random_states()
            self._memory = self.drawing.memory.copied() if self.drawing is not None else None

    def finished(self, step: int, values: dict[str, float], *, wanted: bool = False) -> bool:
        """The metrics of ``step`` are journalled: save if a checkpoint is due. True if it did. ``wanted``: it is due
        whatever the options say, for these are the best weights until now, or another stage continues from them."""
        self._figures = values
        if "reward" in values:
            self._rewards.append(values["reward"])
        if not self.at_border(step) or not (wanted or self._due(step)):
            return False
        self.save(step)
        return True

    def _due(self, step: int) -> bool:
        run = self.job.config.run
        if step == run.max_steps:
            return bool(run.save_every or run.save_every_minutes)
        by_steps = run.save_every and step // run.save_every > self.job.saved_step // run.save_every
        minutes = (time.monotonic() - self._saved_at) / 60
        return bool(by_steps or (run.save_every_minutes and minutes >= run.save_every_minutes))

    def save(self, step: int, reserve_share: float = 1.0) -> None:
        """Save a checkpoint of ``step`` now. Raises ``NotFinite`` or ``StorageFull``, and then leaves nothing."""
        job = self.job
        require_room(job.run_dir, self._bytes, "a checkpoint", reserve_share)
        job.enter("saving", step)
        self.require_finite()
        began = time.monotonic()
        reward, held_out = _mean(self._rewards), self.held_out(step)
        now = random_states()
        restore_random(self._random or now)
        try:
            folder, self._bytes = save_checkpoint(
                self._trainer,
                job.run_dir,
                step,
                reward,
                held_out,
                base=job.hub_base,
                stage=job.stage,
                memory=self._memory,
            )
        finally:
            restore_random(now)
        self._saved_at = time.monotonic()
        job.save_seconds = self._saved_at - began
        job.saved_step, job.saved, self._rewards = step, folder.name, []
        size, seconds = self._bytes, job.save_seconds
        measured = {"seconds": seconds, "reward": reward, "held_out": held_out}
        job.journal.write(CheckpointSaved(step=step, path=folder.name, bytes=size, **measured))
        remove_outdated(job)

    def save_before_leaving(self, why: TiltyardError) -> None:
        """Save what was trained since the last checkpoint, as far as a run can continue from it."""
        job, full = self.job, isinstance(why, StorageFull)
        if job.step <= job.saved_step or isinstance(why, NotFinite) or (full and not self._fits_into_reserve()):
            return
        if not self.at_border(job.step):
            lost = f"steps {job.saved_step + 1} to {job.step} are trained again"
            job.log(f"Stopped between the updates of one sampling: {self._last_good()} is kept, and {lost}.", "warning")
            return
        try:
            self.save(job.step, LAST_SAVE_SHARE if full else 1.0)
        except (NotFinite, StorageFull) as exc:
            job.log(f"The state of step {job.step} could not be saved: {exc.message}", "warning")

    def _fits_into_reserve(self) -> bool:
        """Whether a disk too full to continue has room for one more checkpoint: the reserve is there for it."""
        try:
            require_room(self.job.run_dir, self._bytes, "a checkpoint", LAST_SAVE_SHARE)
        except StorageFull:
            return False
        return True

    def save_model(self, step: int) -> None:
        """Save the final model. Raises ``NotFinite`` or ``StorageFull``."""
        job = self.job
        job.enter("saving", step)
        self.require_finite()
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        needed = sum(p.numel() * p.element_size() for p in model.parameters())
        require_room(job.run_dir, needed, "the final model")
        began = time.monotonic()
        dtype = stored_dtype(job.base) if job.base is not None else ""
        card = partial(card_of, job, step, self._figures)
        folder, size = save_final(
            self._trainer, job.run_dir, step, dtype=dtype, base=job.hub_base, base_folder=job.base, card=card
        )
        adapter = ADAPTER if (job.run_dir / ADAPTER).is_dir() and _is_adapter(self._trainer) else ""
        seconds = time.monotonic() - began
        job.journal.write(
            CheckpointSaved(step=step, path=folder.name, bytes=size, final=True, seconds=seconds, adapter=adapter)
        )

    def require_finite(self) -> None:
        """Raise ``NotFinite`` when a weight is NaN or infinite: such a model is never saved and never sampled."""
        name = not_finite(self._trainer.model)
        if name is not None:
            raise NotFinite(
                f"The weights are not finite after step {self.job.step} ({name}). {self._last_good()} is the last good "
                "checkpoint.",
                hint="Lower the learning rate or the gradient limit, then resume the run from there.",
            )

    def _last_good(self) -> str:
        return self.job.saved or "The base model"


def not_finite(model: Any) -> str | None:
    """The name of a parameter that holds NaN or an infinity, if any."""
    import torch

    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter.detach()).all()):
            return str(name)
    return None


def random_states() -> dict[str, Any]:
    """The states of the random generators that a checkpoint holds."""
    import numpy as np
    import torch

    states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.random.get_rng_state()
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Set the random generators back to ``states``."""
    import numpy as np
    import torch

    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.random.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.random.set_rng_state(states["cuda"])


def _is_adapter(trainer: Any) -> bool:
    return hasattr(trainer.accelerator.unwrap_model(trainer.model), "merge_and_unload")


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
