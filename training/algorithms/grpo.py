"""GRPO, PPO and RLOO: our rollouts, TRL's trainer and loss."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from training.algorithms.base import JournalCallback, common_arguments, one_device, train
from training.algorithms.drawing import Drawing, Memory, entered, read_memory, reward_components
from training.algorithms.held_out import HeldOut, choose_tasks
from training.algorithms.job import Job
from training.algorithms.loading import fetch_base, load_model, load_tokenizer, prepare_device
from training.algorithms.rollouts import PARTS_FIELD, Prompts, Rollouts
from training.algorithms.sampler import JobSampler
from training.algorithms.stages import Segment, StageEnd, StageProgress, order_of
from training.algorithms.token_values import TokenRecord, speller
from training.config import GrpoConfig, JobConfig, RewardComponent
from training.data.schema import Row
from training.policy.adapter import lora_config
from training.policy.check import SamplerCheck, trainer_logprobs
from training.policy.engine import Engine
from training.policy.make import AUTOCAST
from training.rewards.combining import term_of
from training.rollout.holding import wait_for_environment
from training.rollout.protocols import check_environment
from training.rollout.scoring import Scorer
from training.rollout.templates import require_calls
from training.rollout.tokens import ChatTemplate

# GRPO: our rollouts, TRL's loss.
#
# Group Relative Policy Optimization: Shao et al. 2024, *DeepSeekMath*; the loss is ``trl.GRPOTrainer`` 1.16. The
# dataset's prompt column is just a place in the run's order: TRL hands it to ``rollout_func``, which plays the row that
# has it, or that is drawn for it. Each reward
# component is a TRL reward function that returns the parts our collector stored; an excluded rollout gives ``None`` in
# all of them, so TRL leaves it out of the baseline. A job with stages has a trainer for each
# (``training/algorithms/stages.py``).

Loss = Callable[[JobConfig], dict[str, Any]]


def run_grpo(job: Job, *, scorer: Scorer | None = None, engine: Engine | None = None) -> None:
    """Train by GRPO from the job's config. Raises typed errors, ``StopRequested`` among them.

    ``scorer`` and ``engine`` replace the configured rewards and sampler, for tests.
    """
    from training.algorithms.values import GroupTrainer

    run_on_rollouts(job, GroupTrainer, lambda config: loss_arguments(config.grpo), scorer=scorer, engine=engine)


def run_on_rollouts(
    job: Job, trainer_class: Callable[..., Any], loss: Loss, *, scorer: Scorer | None, engine: Engine | None
) -> None:
    """Train by a policy gradient, stage after stage; ``loss`` gives what of TRL's ``GRPOConfig`` says what
    ``trainer_class`` minimises."""
    job.enter("preparing", 0)
    job.keep_replies()
    progress = StageProgress(job, job.find_checkpoint())
    while True:
        _train_stage(progress, trainer_class, loss(job.config), scorer=scorer, engine=engine)
        if not progress.enters_next():
            return
        job.check_stop()
        job.enter("preparing", job.step)


def _train_stage(
    progress: StageProgress,
    trainer_class: Callable[..., Any],
    loss: dict[str, Any],
    *,
    scorer: Scorer | None,
    engine: Engine | None,
) -> None:
    job = progress.job
    config, components = job.config, reward_components(job.config)
    segments, rows = progress.parts()
    for segment in segments:
        _wait_for(job, segment)
    job.check_stop()
    device = prepare_device(config)
    folder = job.base or fetch_base(job, progress.all_rows)
    tokenizer, note = load_tokenizer(folder)
    if note:
        job.log(note, "warning")
    template = ChatTemplate(tokenizer)
    for segment in segments:
        require_calls(template, segment.config, rows[segment.begin : segment.end])
    tasks = choose_tasks(job, rows, template, progress.other_rows, segments)
    job.check_stop()
    with ExitStack() as after:
        sampler = after.enter_context(closing(JobSampler(job, folder, device))) if engine is None else None
        model = load_model(config, folder, device)
        callback = JournalCallback(job, config.updates_per_step)
        if config.run.keep_tokens_mib:
            callback.tokens = TokenRecord(job.run_dir, config.run.keep_tokens_mib << 20, speller(tokenizer))
        drawing = callback.saver.drawing = _drawing(job, progress, rows, tasks.train)
        order = _order(job, segments, tasks.train, progress.step)
        prompts = Prompts(order, tasks.train, progress.step if job.stage else 0, progress.last_step, drawing)
        rollouts = after.enter_context(closing(Rollouts(job, callback, rows, prompts, template, segments, scorer)))
        weights = [component.weight for component in components]
        arguments = rollout_arguments(config, job.run_dir, device, weights) | loss
        arguments["ignore_data_skip"] = job.stage is not None  # the order of its prompts begins where it continues
        dataset = _prompts(len(order))
        given = {"model": model, "processing_class": tokenizer, "train_dataset": dataset}
        trainer = _make_trainer(config, trainer_class, arguments, components, callback, rollouts, **given)
        check = None
        if sampler is not None:
            engine, check = _sampled_by(sampler, trainer, tokenizer)
        assert engine is not None  # noqa: S101 - it was given, or is the sampler's
        rollouts.attach(engine, check, sampler.rest if sampler is not None else None)
        job.check_stop()
        progress.started(len(tasks.train), device)
        callback.stage_end = stage_end = StageEnd(job, progress.stages)
        callback.saver.origin = job.step if job.stage is not None else 0
        if config.evaluate.every:
            copied = check if sampler is not None and sampler.copies else None
            held_out = callback.held_out = HeldOut(
                job,
                tasks,
                segments,
                template,
                engine,
                scorer,
                check=copied,
                settle=rollouts.settle,
                evaluated=stage_end.evaluated,
            )
            after.enter_context(closing(held_out))
            callback.saver.held_out = held_out.success_of
        train(job, trainer, callback, progress.checkpoint)


def _wait_for(job: Job, part: Segment) -> None:
    """Hold until the environment of a part answers, where it has one."""
    if (place := part.config.environment).url:
        wait_for_environment(lambda: check_environment(place), place, job.journal.write, job.stop, part.name)


def _sampled_by(sampler: JobSampler, trainer: Any, tokenizer: Any) -> tuple[Engine, SamplerCheck]:
    """The engine of the trainer's model, and its check."""
    autocast = AUTOCAST.get(trainer.accelerator.mixed_precision)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if sampler.differs(model, autocast):
        trainer.correct()
    return sampler.engine(model, tokenizer, trainer_logprobs(trainer), autocast)


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
    """The arguments apart from the loss: prompts × generations rollouts, a mini batch each update, in micro batches."""
    batch = config.rollouts_per_step
    mini = config.optim.mini_batch_size or batch
    # With a limit of tokens each rollout may need a micro batch of its own; those that are not needed stay empty.
    micro = 1 if config.optim.max_tokens_per_micro_batch else config.optim.micro_batch_size or mini
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
        "vllm_importance_sampling_clip_max": config.gradient.sampler_ratio_max,
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
    mode = config.gradient.sampler_correction
    return "token_truncate" if mode == "off" else mode


def _order(job: Job, segments: list[Segment], places: list[int], step: int) -> list[int]:
    """The rows of the whole run in order, one a group. Of a stage, those that follow ``step``."""
    config, began = job.config, job.stage.began if job.stage is not None else 0
    generations = -(-(config.run.max_steps - began) // config.updates_per_step)
    done = (step - began) // config.updates_per_step if job.stage is not None else 0
    size = config.rollout.prompts_per_step
    count = max(generations, done + 1) * size  # a trainer that has nothing left to do still wants a prompt
    return order_of(segments, places, count, config.run.seed)[done * size :]


def _drawing(job: Job, progress: StageProgress, rows: list[Row], places: list[int]) -> Drawing | None:
    """What draws the tasks, where that is not their order: it remembers what the checkpoint does."""
    checkpoint = progress.checkpoint
    config, stage = job.config, job.stage.name if job.stage is not None else ""
    if config.data.draw == "order":
        return None
    memory = entered(read_memory(checkpoint), stage) if checkpoint is not None else None
    drawing = Drawing(config.data, rows, places, config.run.seed, memory or Memory(stage=stage))
    text = f"Tasks are drawn by their pass rate: {drawing.known} of {len(places)} have been played before."
    draws = -(-(progress.last_step - progress.step) // config.updates_per_step) * config.rollout.prompts_per_step
    if draws <= len(places):
        text += f" At most {draws} are drawn from here on, so hardly any comes twice, and little is gained by it."
    if checkpoint is not None and memory is None:
        job.log(f"{text} {checkpoint.name} remembers no tasks.", "warning")
    else:
        job.log(text)
    return drawing


def _prompts(count: int) -> Any:
    """Places of the order as texts, the prompts of TRL's dataset."""
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [str(place) for place in range(count)]})


def _make_trainer(
    config: JobConfig,
    trainer_class: Callable[..., Any],
    arguments: dict[str, Any],
    components: list[RewardComponent],
    callback: JournalCallback,
    rollouts: Rollouts,
    **given: Any,
) -> Any:
    from training.algorithms.seam import GRPOConfig, plays_by

    trainer = trainer_class(
        reward_funcs=[reward_function(component) for component in components],
        args=one_device(GRPOConfig(**arguments)),
        callbacks=[callback],
        peft_config=lora_config(config),
        **plays_by(rollouts),
        **given,
    )
    trainer.callback = callback
    trainer.micro_tokens = config.optim.max_tokens_per_micro_batch
    if config.optim.packing:
        _join_rows(trainer)
    callback.attach(trainer)
    return trainer


def _join_rows(trainer: Any) -> None:
    """Let the rows of a micro batch follow each other. Raises ``ConfigError`` for a model that would mix them up."""
    from training.algorithms.micro_batches import require_apart
    from training.policy.attention import attend_by_rows

    trainer.join_rows = True
    for model in (trainer.model, trainer.ref_model):
        if model is not None:
            attend_by_rows(model)
    require_apart(trainer, "optim.packing")


# PPO: our rollouts, and TRL's GRPO trainer with a value head (``trainers``).
#
# Proximal Policy Optimization: Schulman et al. 2017. The rollouts, rewards, journal and clipped loss are GRPO's; a
# token's worth comes from values that are learned with the policy, not from the other rollouts of its task.


def run_ppo(job: Job, *, scorer: Scorer | None = None, engine: Engine | None = None) -> None:
    """Train by PPO from the job's config. Raises typed errors, ``StopRequested`` among them.

    ``scorer`` and ``engine`` replace the configured rewards and sampler, for tests.
    """
    from training.algorithms.trainers import ActorCriticTrainer

    def make(*args: Any, **given: Any) -> ActorCriticTrainer:
        trainer = ActorCriticTrainer(*args, config=job.config, **given)
        if not job.config.ppo.critic_learning_rate:
            job.resolved["ppo.critic_learning_rate"] = f"{trainer.head_rate:.3g}"
        return trainer

    run_on_rollouts(job, make, clipped_arguments, scorer=scorer, engine=engine)


def clipped_arguments(config: JobConfig) -> dict[str, Any]:
    """The part of TRL's ``GRPOConfig`` that says what is minimised besides the value loss."""
    options = config.ppo
    return {
        # TRL asks for two at least; the trainer gets the real number once the whole step has been divided.
        "num_generations": config.rollouts_per_step,
        "num_iterations": options.num_iterations,
        "beta": options.beta,
        "epsilon": options.epsilon,
        "entropy_coef": options.entropy_coef,
        "loss_type": "dapo",
        "scale_rewards": "none",
    }


# RLOO: our rollouts, and TRL's GRPO trainer with advantages of its own (``trainers``).


def run_rloo(job: Job, *, scorer: Scorer | None = None, engine: Engine | None = None) -> None:
    """Train by RLOO from the job's config. Raises typed errors, ``StopRequested`` among them.

    ``scorer`` and ``engine`` replace the configured rewards and the in-process sampler, for tests.
    """
    from training.algorithms.trainers import RlooTrainer

    run_on_rollouts(job, RlooTrainer, _arguments, scorer=scorer, engine=engine)


def _arguments(config: JobConfig) -> dict[str, Any]:
    return {
        "loss_type": "luspo",
        # With advantages of tokens each has to have a ratio of its own; it is 1, and the derivative is the same.
        "importance_sampling_level": "sequence" if config.rloo.credit == "rollout" else "token",
        "scale_rewards": "none",
        "beta": config.rloo.beta,
    }
