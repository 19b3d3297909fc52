"""Makes the job folder of a verl job, where Tiltyard's own packages are: verl's virtualenv lacks some of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from training.algorithms.drawing import playable, reward_components, task_rows
from training.algorithms.job import Job, row_order
from training.algorithms.loading import fetch_base, load_tokenizer
from training.config import JobConfig
from training.exports.verl import HEAD
from training.exports.verl_options import tree_of
from training.rewards.defaults import said, with_rewards
from training.rollout.tokens import ChatTemplate
from training.verl_backend.folder import FOLDER_NAME, LOOPS_NAME, SETTINGS_NAME, TOKENIZER_NAME, JobFolder, Plan
from training.verl_backend.settings import LOOP, Devices, require_fit, settings_of


def make_folder(job: Job, devices: Devices, more: Mapping[str, Any] | None = None) -> JobFolder:
    """Write ``<run>/verl``. ``more`` are settings of verl that replace ours.

    Raises ``ConfigError`` for what verl cannot do, ``DataError``, ``ModelError`` and ``TemplateError``.
    """
    chosen = job.config
    job.config = config = _with_whole_paths(with_rewards(chosen))
    require_fit(config, devices)
    reward_components(config)
    if config.rewards != chosen.rewards:
        job.log(said(chosen))
    folder = JobFolder(job.run_dir.resolve() / FOLDER_NAME)
    rows = task_rows(config)
    model = fetch_base(job, rows).resolve()
    tokenizer, note = load_tokenizer(model)
    if note:
        job.log(note, "warning")
    if config.run.keep_tokens_mib:
        job.log("verl gives no values of single tokens, so none are kept.")
    template = ChatTemplate(tokenizer)
    places = playable(job, rows, template)
    groups = config.run.max_steps * config.rollout.prompts_per_step
    order = row_order(len(places), groups, seed=config.run.seed, shuffle=config.data.shuffle)
    folder.write(
        config, Plan(attempt=job.attempt, order=[places[at] for at in order], rows=len(places), eos_id=template.eos_id)
    )
    tokenizer.save_pretrained(folder.path / TOKENIZER_NAME)
    settings = settings_of(config, devices, folder.path, model) | dict(more or {})
    (folder.path / SETTINGS_NAME).write_text(HEAD + yaml.safe_dump(tree_of(settings)), encoding="utf-8")
    loop = {"name": LOOP, "_target_": "training.verl_backend.loop.PlayerLoop", "folder": str(folder.path)}
    (folder.path / LOOPS_NAME).write_text(yaml.safe_dump([loop]), encoding="utf-8")
    return folder


def _with_whole_paths(config: JobConfig) -> JobConfig:
    """The same job for processes that start elsewhere: on every host its files lie under these paths."""
    data = config.data.model_copy(update={"train": str(Path(config.data.train).resolve()) if config.data.train else ""})
    return config.model_copy(update={"data": data})
