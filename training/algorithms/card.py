"""The model card that a finished run leaves beside its weights: what it knows for a fact, and no word more."""

from __future__ import annotations

import re
from pathlib import Path

from training.algorithms.job import Job
from training.algorithms.loading import STARTER
from training.metrics import METRICS
from training.rewards.registry import components_of

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
    """The figures that the run's page shows first, as they stood at the last step."""
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
