"""GRPO: our rollouts, TRL's loss.

Group Relative Policy Optimization: Shao et al. 2024, *DeepSeekMath*; the loss is ``trl.GRPOTrainer`` 1.16. The
dataset's prompt column is just the row's index: TRL hands it to ``rollout_func``, which plays the row. Each reward
component is a TRL reward function that returns the parts our collector stored; an excluded rollout gives ``None`` in
all of them, so TRL leaves it out of the baseline. A job with stages has a trainer for each
(``training/algorithms/stages.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from training.algorithms.base import JournalCallback, common_arguments, one_device, train
from training.algorithms.held_out import HeldOut, choose_tasks
from training.algorithms.job import Job, checkpoint_step, row_order
from training.algorithms.loading import (
    fetch_base,
    load_model,
    load_tokenizer,
    prepare_device,
)
from training.algorithms.sampler import JobSampler
from training.algorithms.stages import Course, StageEnd
from training.algorithms.tasks import reward_components
from training.config import GrpoConfig, JobConfig, RewardComponent
from training.data.schema import Row
from training.journal import PhaseChanged
from training.policy.adapter import lora_config
from training.policy.check import SamplerCheck, trainer_logprobs
from training.policy.engine import Engine
from training.policy.make import AUTOCAST, MEMORY_NOTE
from training.rewards.base import Episode, Score
from training.rewards.combining import term_of
from training.rewards.scoring import score_episode
from training.rollout.collector import Collector
from training.rollout.finished import Rollout, StepRollouts
from training.rollout.holding import wait_for_environment
from training.rollout.players import make_player
from training.rollout.protocols import check_environment
from training.rollout.tokens import ChatTemplate

PARTS_FIELD = "reward_parts"
Scorer = Callable[[Episode], Score]
Loss = Callable[[JobConfig], dict[str, Any]]


def run_grpo(job: Job, *, scorer: Scorer | None = None, engine: Engine | None = None) -> None:
    """Train by GRPO from the job's config. Raises typed errors, ``StopRequested`` among them.

    ``scorer`` and ``engine`` replace the configured rewards and sampler, for tests.
    """
    from training.algorithms.correction import CorrectedTrainer

    run_on_rollouts(job, CorrectedTrainer, lambda config: loss_arguments(config.grpo), scorer=scorer, engine=engine)


def run_on_rollouts(
    job: Job, trainer_class: type[Any], loss: Loss, *, scorer: Scorer | None, engine: Engine | None
) -> None:
    """Train by a policy gradient, stage after stage; ``loss`` gives what of TRL's ``GRPOConfig`` says what
    ``trainer_class`` minimises."""
    job.journal.write(PhaseChanged(phase="preparing", step=0))
    job.keep_replies()
    course = Course(job, job.find_checkpoint())
    while True:
        _train_course(course, trainer_class, loss(job.config), scorer=scorer, engine=engine)
        if not course.goes_on():
            return
        job.check_stop()
        job.journal.write(PhaseChanged(phase="preparing", step=job.step))


def _train_course(
    course: Course, trainer_class: type[Any], loss: dict[str, Any], *, scorer: Scorer | None, engine: Engine | None
) -> None:
    job = course.job
    config, rows = job.config, course.rows
    components = reward_components(config)
    if config.environment.url:
        place = config.environment
        wait_for_environment(lambda: check_environment(place), place, job.journal.write, job.stop)
    job.check_stop()
    device = prepare_device(config)
    folder = job.base or fetch_base(job, course.all_rows)
    tokenizer, note = load_tokenizer(folder)
    if note:
        job.log(note, "warning")
    template = ChatTemplate(tokenizer)
    tasks = choose_tasks(job, rows, template, course.other_rows)
    job.check_stop()
    with ExitStack() as after:
        sampler = after.enter_context(closing(JobSampler(job, folder, device))) if engine is None else None
        model = load_model(config, folder, device)
        callback = JournalCallback(job, config.updates_per_step)
        rollouts = after.enter_context(closing(_Rollouts(job, callback, rows, template, components, scorer)))
        weights = [component.weight for component in components]
        arguments = rollout_arguments(config, job.run_dir, device, weights) | loss
        arguments["ignore_data_skip"] = job.stage is not None  # the order of its prompts begins where it goes on
        dataset = _prompts(job, tasks.train, checkpoint_step(course.checkpoint))
        given = {"model": model, "processing_class": tokenizer, "train_dataset": dataset, "rollout_func": rollouts}
        trainer = _make_trainer(config, trainer_class, arguments, components, callback, **given)
        check = None
        if sampler is not None:
            engine, check = _sampled_by(sampler, trainer, tokenizer)
        assert engine is not None  # noqa: S101 - it was given, or is the sampler's
        rollouts.attach(engine, check)
        job.check_stop()
        course.started(len(tasks.train), device)
        callback.stage_end = stage_end = StageEnd(job, course.stages)
        callback.saver.origin = job.step if job.stage is not None else 0
        if config.evaluate.every:
            copied = check if sampler is not None and sampler.copies else None
            told = stage_end.evaluated
            held_out = HeldOut(job, tasks, components, template, engine, scorer, check=copied, evaluated=told)
            callback.held_out = held_out
            after.enter_context(closing(held_out))
            callback.saver.held_out = held_out.success_of
        train(job, trainer, callback, course.checkpoint)


def _sampled_by(sampler: JobSampler, trainer: Any, tokenizer: Any) -> tuple[Engine, SamplerCheck]:
    """The engine of the trainer's model, and its check."""
    autocast = AUTOCAST.get(trainer.accelerator.mixed_precision)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if sampler.differs(model, autocast):
        trainer.correct()
    return sampler.engine(model, tokenizer, trainer_logprobs(trainer), autocast)


class _Rollouts:
    """TRL's ``rollout_func``: plays the prompts it is given and hands back ids, masks and reward parts."""

    def __init__(
        self,
        job: Job,
        callback: JournalCallback,
        rows: Sequence[Row],
        template: ChatTemplate,
        components: list[RewardComponent],
        scorer: Scorer | None,
    ) -> None:
        self._job = job
        self._callback = callback
        self._rows = rows
        self._template = template
        self._components = components
        self._scorer = scorer or self._score
        self._step = 0
        self._engine: Engine | None = None
        self._collector: Collector | None = None
        self._check: SamplerCheck | None = None

    def attach(self, engine: Engine, check: SamplerCheck | None) -> None:
        """Give the sampler and its check, which exist only once the trainer has placed the model."""
        player = make_player(self._job.config, engine, self._template)
        self._engine = engine
        self._check = check
        self._collector = Collector(
            self._job.config, self._rows, player, self._scorer, self._job.journal, self._job.stop, self._job.attempt
        )

    def _score(self, episode: Episode) -> Score:
        return score_episode(episode, self._components, step=self._step)

    def close(self) -> None:
        """Close the event loop."""
        if self._collector is not None:
            self._collector.close()

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        assert self._collector is not None and self._engine is not None  # noqa: S101 - attach() ran before training
        self._step = step = trainer.state.global_step + 1
        before = self._engine.figures
        self._engine.weights_changed()
        synced = self._engine.figures.synced_seconds - before.synced_seconds
        with self._engine.sampling():
            result = self._collector.collect(step, [int(prompt) for prompt in prompts])
        if self._engine.figures.memory_retries > before.memory_retries:
            self._job.log(MEMORY_NOTE % step, "warning")
        self._callback.extra = dict(result.figures) | ({"sampling/sync_seconds": synced} if synced else {})
        if self._job.config.rewards.signal != "all":
            left_out = sum(not group.teaches for group in result.groups)
            self._callback.extra["groups/left_out_share"] = left_out / len(result.groups)
        if self._check is not None:
            self._callback.extra |= self._check(step, [rollout.trajectory for rollout in result.rollouts])
        if all(rollout.parts is None for rollout in result.rollouts):
            self._job.log(f"Step {step}: all rollouts are excluded, so the weights stay as they are.", "warning")
        elif not any(group.teaches for group in result.groups):
            self._job.log(f"Step {step}: no group teaches anything, so the weights stay as they are.")
        self._job.journal.write(PhaseChanged(phase="training", step=step))
        return trl_batch(result, self._template.eos_id, mask_truncated=self._job.config.gradient.mask_truncated)


def trl_batch(result: StepRollouts, eos_id: int, *, mask_truncated: bool) -> dict[str, list[Any]]:
    """The step in the shape of TRL's ``rollout_func``: one entry for each rollout, ids and masks of equal length.

    An excluded rollout becomes the shortest row TRL can hold, with an all-zero mask. Truncated rollouts are masked here
    when asked for, because TRL would not see those that were cut off between turns: their last id is an end-of-turn.
    So are those of groups that are not learned from; their rewards still count where a baseline spans the batch.
    """
    size = len(result.rollouts) // len(result.groups)
    masked = [
        not result.groups[place // size].teaches or (mask_truncated and rollout.trajectory.status == "truncated")
        for place, rollout in enumerate(result.rollouts)
    ]
    rows = [_trl_row(rollout, eos_id, hidden) for rollout, hidden in zip(result.rollouts, masked, strict=True)]
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", PARTS_FIELD)
    return {name: [row[position] for row in rows] for position, name in enumerate(names)}


def _trl_row(rollout: Rollout, eos_id: int, masked: bool) -> tuple[Any, ...]:
    trajectory = rollout.trajectory
    if rollout.parts is None or not trajectory.completion_ids:
        return [eos_id], [eos_id], [0.0], [0], rollout.parts
    mask = [0] * len(trajectory.mask) if masked else trajectory.mask
    return trajectory.prompt_ids, trajectory.completion_ids, trajectory.logprobs, mask, rollout.parts


def reward_function(component: RewardComponent) -> Callable[..., list[float | None]]:
    """A TRL reward function that returns the term of the component's stored part.

    ``None`` for excluded rollouts, and for rows that the component does not count for.
    """

    def stored(**kwargs: Any) -> list[float | None]:
        step = kwargs["trainer_state"].global_step + 1
        return [None if parts is None else term_of(component, parts, step) for parts in kwargs[PARTS_FIELD]]

    stored.__name__ = component.name  # TRL names the metric after it
    return stored


def grpo_arguments(config: JobConfig, run_dir: Path, device: str, weights: list[float]) -> dict[str, Any]:
    """Arguments of TRL's ``GRPOConfig`` for a GRPO job."""
    return rollout_arguments(config, run_dir, device, weights) | loss_arguments(config.grpo)


def rollout_arguments(config: JobConfig, run_dir: Path, device: str, weights: list[float]) -> dict[str, Any]:
    """What does not hang on the loss: prompts × generations rollouts, a mini batch each update, in micro batches."""
    batch = config.rollouts_per_step
    mini = config.optim.mini_batch_size or batch
    micro = config.optim.micro_batch_size or mini
    return common_arguments(config, run_dir, device) | {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": mini // micro,
        "steps_per_generation": batch // micro,
        "num_generations": config.rollout.num_generations,
        "max_completion_length": config.rollout.max_completion_tokens,
        "temperature": config.rollout.temperature,
        "reward_weights": weights,
        "multi_objective_aggregation": config.rewards.aggregation,
        "shuffle_dataset": False,  # row_order() has done it, and a resumed run must see the same order
        "use_vllm": False,  # TRL's own; ours samples behind rollout_func, and CorrectedTrainer says what is like it
        "vllm_importance_sampling_mode": _correction_mode(config),
        "vllm_importance_sampling_clip_max": config.grpo.sampler_ratio_max,
        "log_completions": False,
    }


def loss_arguments(options: GrpoConfig) -> dict[str, Any]:
    """The part of TRL's ``GRPOConfig`` that says what is minimised."""
    follows = options.ref_sync_steps > 0
    return {
        "num_iterations": options.num_iterations,
        "beta": options.beta,
        "epsilon": options.epsilon,
        "epsilon_high": options.ratio_ceiling if options.loss_type == "cispo" else options.epsilon_high or None,
        "delta": options.delta or None,
        "entropy_coef": options.entropy_coef,
        "importance_sampling_level": options.importance_sampling,
        "loss_type": options.loss_type,
        "scale_rewards": options.scale_rewards,
        "sapo_temperature_pos": options.sapo_temperature_pos,
        "sapo_temperature_neg": options.sapo_temperature_neg,
        "vespo_k_pos": options.vespo_k_pos,
        "vespo_lambda_pos": options.vespo_lambda_pos,
        "vespo_k_neg": options.vespo_k_neg,
        "vespo_lambda_neg": options.vespo_lambda_neg,
        "top_entropy_quantile": options.top_entropy_share,
        "off_policy_mask_threshold": options.off_policy_limit or None,
        "sync_ref_model": follows,
        "ref_model_sync_steps": options.ref_sync_steps or 1,
        "ref_model_mixup_alpha": options.ref_sync_share,
    }


def _correction_mode(config: JobConfig) -> str:
    """The name that TRL knows; where the correction is off it is never asked for."""
    mode = config.grpo.sampler_correction
    return "token_truncate" if mode == "off" else mode


def _prompts(job: Job, places: list[int], step: int) -> Any:
    """The whole run's prompts in order: the places of rows, as texts. Of a stage, those that follow ``step``."""
    from datasets import Dataset

    config, began = job.config, job.stage.began if job.stage is not None else 0
    generations = -(-(config.run.max_steps - began) // config.updates_per_step)
    done = (step - began) // config.updates_per_step if job.stage is not None else 0
    size = config.rollout.prompts_per_step
    count = max(generations, done + 1) * size  # a trainer that has nothing left to do still wants a prompt
    order = row_order(len(places), count, seed=config.run.seed, shuffle=config.data.shuffle)[done * size :]
    return Dataset.from_dict({"prompt": [str(places[place]) for place in order]})


def _make_trainer(
    config: JobConfig,
    trainer_class: type[Any],
    arguments: dict[str, Any],
    components: list[RewardComponent],
    callback: JournalCallback,
    **given: Any,
) -> Any:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl import GRPOConfig

    trainer = trainer_class(
        reward_funcs=[reward_function(component) for component in components],
        args=one_device(GRPOConfig(**arguments)),
        callbacks=[callback],
        peft_config=lora_config(config),
        **given,
    )
    trainer.callback = callback
    callback.attach(trainer)
    return trainer
