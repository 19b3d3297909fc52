"""Makes the job folder of a verl job, where Tiltyard's own packages are: verl's virtualenv lacks some of them."""

from __future__ import annotations

from pathlib import Path

import yaml

from training.algorithms.drawing import reward_components, task_rows
from training.algorithms.held_out import choose_tasks
from training.algorithms.job import Job, row_order
from training.algorithms.loading import fetch_base, load_tokenizer
from training.algorithms.sampler import require_window
from training.config import JobConfig
from training.exports.verl import head_of
from training.exports.verl_options import tree_of
from training.model_check import load_config
from training.policy.vllm_engine import kv_gib
from training.rewards.defaults import said, with_rewards
from training.rollout.templates import require_calls
from training.rollout.tokens import ChatTemplate
from training.verl_backend.adapter import begin_adapter
from training.verl_backend.checkpoints import saved_by_verl
from training.verl_backend.divided import untried
from training.verl_backend.folder import FOLDER_NAME, LOOPS_NAME, SETTINGS_NAME, TOKENIZER_NAME, JobFolder, Plan
from training.verl_backend.settings import LOOP, DeviceKind, ray_settings, require_fit, settings_of


def make_folder(job: Job, device: DeviceKind, *, on_cluster: bool = False) -> JobFolder:
    """Write ``<run>/verl``, and where the run has a checkpoint, the settings that continue from it.

    Raises ``ConfigError`` for what verl cannot do, ``DataError``, ``ModelError`` and ``TemplateError``.
    """
    chosen = job.config
    job.config = config = _with_whole_paths(with_rewards(chosen))
    require_fit(config, device)
    reward_components(config)
    if config.rewards != chosen.rewards:
        job.log(said(chosen))
    folder = JobFolder(job.run_dir.resolve() / FOLDER_NAME)
    checkpoint = job.find_checkpoint()
    rows = task_rows(config)
    model = fetch_base(job, rows).resolve()
    if config.rollout.engine == "vllm":
        require_window(config, load_config(model))
    tokenizer, note = load_tokenizer(model)
    if note:
        job.log(note, "warning")
    if config.run.keep_tokens_mib:
        job.log("verl gives no values of single tokens, so none are kept.")
    for line in untried(config):
        job.log(line)
    template = ChatTemplate(tokenizer)
    require_calls(template, config, rows)
    tasks = choose_tasks(job, rows, template)
    groups = config.run.max_steps // config.updates_per_step * config.rollout.prompts_per_step
    order = row_order(len(tasks.train), groups, seed=config.run.seed, shuffle=config.data.shuffle)
    plan = Plan(
        attempt=job.attempt,
        order=[tasks.train[at] for at in order],
        rows=len(tasks.train),
        eos_id=template.eos_id,
        held_out=tasks.played,
        earlier=tuple(path.resolve() for path in job.earlier),
        checkpoint=checkpoint.resolve() if checkpoint is not None else None,
        base=model,
        resolved=job.resolved,
    )
    folder.write(config, plan)
    tokenizer.save_pretrained(folder.path / TOKENIZER_NAME)
    if config.model.lora_rank:
        begin_adapter(config, model, job.hub_base, folder.adapter)
    resume = str(saved_by_verl(checkpoint, config)) if checkpoint is not None else ""
    settings = settings_of(config, device, folder.path, model, resume)
    settings |= {} if on_cluster else ray_settings(config, device)
    (folder.path / SETTINGS_NAME).write_text(head_of(config) + yaml.safe_dump(tree_of(settings)), encoding="utf-8")
    loop = {"name": LOOP, "_target_": "training.verl_backend.loop.PlayerLoop", "folder": str(folder.path)}
    (folder.path / LOOPS_NAME).write_text(yaml.safe_dump([loop]), encoding="utf-8")
    return folder


def room_for_turns(config: JobConfig, model: Path | None) -> int:
    """GiB of keys and values for the turns of a vLLM on a processor, by the folder of the model."""
    assert model is not None  # noqa: S101 - the job folder was made
    return kv_gib(load_config(model), config.vllm_window * config.rollouts_per_step)


def _with_whole_paths(config: JobConfig) -> JobConfig:
    """The same job for processes that start elsewhere: on every host its files lie under these paths."""
    data = config.data.model_copy(update={"train": _whole(config.data.train)})
    evaluate = config.evaluate.model_copy(update={"data": _whole(config.evaluate.data)})
    return config.model_copy(update={"data": data, "evaluate": evaluate})


def _whole(path: str) -> str:
    return str(Path(path).resolve()) if path else ""
