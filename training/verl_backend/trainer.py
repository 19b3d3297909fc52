"""verl's trainer with our group numbers, our advantages and our journal, and the task that runs it on Ray."""

from __future__ import annotations

import math
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.logging_utils import configure_verl_logging
from verl.utils.tensordict_utils import assign_non_tensor_stack
from verl.workers.rollout.llm_server import LLMServerClient

from training.algorithms.checkpoints import PREFIX, write_whole
from training.algorithms.drawing import task_rows
from training.algorithms.held_out import HeldOut, Tasks
from training.algorithms.job import Job
from training.algorithms.micro_batches import rows_by_update
from training.algorithms.saving import remove_outdated
from training.algorithms.stages import Segment
from training.data.reader import load_rows
from training.errors import Boundary, ErrorInfo, PolicyFault, ProcessLost, SamplerDied, StopRequested, TiltyardError
from training.journal import CheckpointSaved, Event, Journal, LogLine, Metrics, RunFinished
from training.lanes import played_spans
from training.machine import disk_fault, require_room
from training.memory.running import device_fault
from training.policy.check import COPIED, HALF, Probe, SamplerCheck
from training.rewards.scoring import components_of
from training.rollout.holding import FailureShare
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Rollout
from training.verl_backend.adapter import gather_adapter
from training.verl_backend.apart import Samplers, TrainerWorker
from training.verl_backend.beats import Beats, Ranks, beat_in
from training.verl_backend.checkpoints import model_in, save_model, take_saved
from training.verl_backend.cluster import Hold
from training.verl_backend.counting import first_step, rate_of, steps_of
from training.verl_backend.devices import Pools
from training.verl_backend.engine import ServerEngine
from training.verl_backend.figures import Health, fatal_of, played_figures, renamed, rollout_of
from training.verl_backend.folder import JobFolder
from training.verl_backend.lost import LOST, Deaths
from training.verl_backend.updates import Dealt, trained_on, update_loss

FIELDS = ["prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs", "entropy", "extra_fields"]
TRACEBACK_LINES, LOOK_S = 30, 0.2
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def places_of(keys: Sequence[str]) -> list[tuple[int, int]]:
    """Group and index of each row, by its key: verl adds session and part to the group's name."""
    parts = [key.split("_") for key in keys]
    return [(int(name.rpartition("-g")[2]), int(session)) for name, session, _part in parts]


class GroupTrainer(PPOTrainerSync):
    """The synchronous trainer: a sampling is played, learned from, and the weights handed to the samplers.

    1. A group is named by its step and number, so names and seeds are those of a run on one device.
    2. The processes that play know each rollout's advantage; verl's own are computed and then replaced.
    3. verl's ``global_steps`` count samplings. Each update of one is a step of the run, with figures of its own, and
       the learning rate changes with each.
    4. An update in which nothing teaches leaves the weights as they are: a mean over no token would be no number.
    5. Weights are handed over, held-out tasks are played and checkpoints are written when all updates are done.
    6. The devices that train also sample, unless ``hardware.sampler_devices`` leaves that to others. Either way these
       wait while those work.
    """

    resource_pool_manager: Any

    def __init__(self, config: DictConfig, job: Job, folder: JobFolder) -> None:
        self._apart = job.config.hardware.sampler_devices
        self._enable_hybrid_replicas = not self._apart  # verl's name for samplers on the devices that train
        self._samplers: Samplers | None = None
        super().__init__(config)
        self._job, self._folder = job, folder
        exact = OmegaConf.select(config, "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype") == "fp32"
        self._check = SamplerCheck(self._trained_logprobs, COPIED if exact else HALF, self._write, copies=True)
        self._old: dict[tuple[int, ...], list[float]] = {}
        self._rollouts: list[Rollout] = []
        self._updates = job.config.updates_per_step
        self._dealt = Dealt([], 0.0, 0.0)
        self._tokens: list[int] = []
        self._entropies: list[float] = []
        self._rate: float | None = None
        self._last: dict[str, Any] = {}
        self._gaps: dict[str, float] = {}
        self._failures = FailureShare(job.config.rollout, self._write, self._rest)
        self._health = Health(job.config.run, self._write)
        self._held_out: HeldOut | None = None
        self._rewards: list[float] = []
        self._bytes = 0
        self._began = self._mark = self._saved_at = time.monotonic()

    def _write(self, event: Event) -> None:
        self._job.journal.write(event)

    def _phase(self, phase: Any, step: int = 0) -> None:
        self._job.enter(phase, step or self._first)

    @property
    def _first(self) -> int:
        """The step of the run that the sampling at hand begins with."""
        return first_step(self.global_steps, self._updates)

    def _init_dataloader(self) -> None:
        """verl takes its samplings for the updates over which the learning rate changes."""
        super()._init_dataloader()
        self.config.actor_rollout_ref.actor.optim.total_training_steps = self._job.config.run.max_steps

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self._apart:
            self.role_worker_mapping[Role.Actor] = ray.remote(TrainerWorker)
        hold = Hold(self._write)
        self.resource_pool_manager = Pools(self.resource_pool_manager, hold, self._rest_or_stop, self._apart)

    def _setup(self) -> None:
        super()._setup()
        if self._apart:
            places = self.resource_pool_manager.places(self._job.config.vllm.tensor_parallel)
            self._samplers = Samplers.create(self.config, places)
            self.checkpoint_manager = self._samplers.taking_from(self.actor_rollout_wg)

    def get_llm_client(self) -> LLMServerClient:
        """What deals turns to the samplers."""
        return (self._samplers or self.llm_server_manager).get_client()

    def _rest_or_stop(self, seconds: float) -> None:
        if self._rest(seconds):
            raise StopRequested("The run was asked to stop.")

    # --- The walk of a step ---

    def on_train_begin(self) -> None:
        """The run begins, or continues after the steps that its checkpoint holds."""
        self._watch_processes()
        actor, beta = self.config.actor_rollout_ref.actor, self._job.config.grpo.beta
        own = omega_conf_to_dataclass(OmegaConf.merge(actor, {"use_kl_loss": False}))
        self.actor_rollout_wg.set_loss_fn(partial(update_loss, config=own, kl_weight=beta))
        self._job.started(self._folder.plan.rows, self.config.trainer.device, self._first - 1)
        self._ranks = Ranks(self._ask, self.config.trainer.device)
        for ask in [self._ask, *([self._samplers.ask] if self._samplers else [])]:
            ask(beat_in, str(self._folder.path))
        Beats(self._folder.path, partial(self._job.log, level="warning"), self._end_without_word).watch()
        if self._job.config.evaluate.every:
            self._held_out = self._held_out_tasks()
            self._evaluate(self._first - 1)

    def _watch_processes(self) -> None:
        """From here on none of the job's processes ends by itself. verl waits for rollouts by looking for them again
        and again; so does this."""
        self._deaths, wait = Deaths(), self.replay_buffer._wait_for_next_poll

        def watched(*given: Any) -> Any:
            self._deaths.look()
            return wait(*given)

        self.replay_buffer._wait_for_next_poll = watched

    def _end_without_word(self, why: str) -> None:
        """End this process, and with it the job: what waits for a suspended process cannot be interrupted."""
        self._job.log(why, "error")
        self._job.journal.close()
        os._exit(1)

    def on_sample_end(self) -> None:
        """All rollouts have come; those of a process that was lost are no rollouts to learn from. verl's samplers sleep
        while their devices train."""
        self._deaths.look()
        super().on_sample_end()

    def _ask(self, function: Callable[..., Any], *given: Any) -> list[Any]:
        """See ``ranks.Ask``."""
        workers = self.actor_rollout_wg.workers
        return list(ray.get([worker.__ray_call__.remote(function, *given) for worker in workers]))

    def _rest(self, seconds: float) -> bool:
        """Wait; whether the job was asked to stop."""
        ends = time.monotonic() + seconds
        while not self._folder.asked_to_stop and (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))
        return self._folder.asked_to_stop

    def on_step_begin(self) -> None:
        """A job that was asked to stop ends here: between two steps nothing is lost."""
        self._rest_or_stop(0)
        self._began = self._mark = time.monotonic()
        self._job.lane.begin()
        self._phase("generating")

    def _fetch_one_gen_batch(self) -> TensorDict:
        batch = super()._fetch_one_gen_batch()
        prompts = self.config.data.train_batch_size
        # The first part of a row's key, which verl parts by underscores.
        names = [f"s{self._first}-g{int(place) % prompts}" for place in list(batch["place"])]
        assign_non_tensor_stack(batch, "uid", names)
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        self._phase("training")
        return super()._compute_old_log_prob(batch, metrics)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        rows = self._rows(batch)
        played = sorted(zip(places_of(batch.keys), rows["extra_fields"], strict=True), key=itemgetter(0))
        self._rollouts = [rollout_of(fields["facts"]) for _place, fields in played]
        self._fill_lane()
        self._failures.check(self._first, self._rollouts, time.monotonic() - self._began)
        self._prove(rows)
        masks = [mask.float() for mask in rows["response_mask"].unbind()]
        self._tokens = [int(mask.sum()) for mask in masks]
        self._entropies = [float((row * mask).sum()) for row, mask in zip(rows["entropy"].unbind(), masks, strict=True)]
        self._dealt = self._deal(batch.keys)
        if self._dealt.share_of_tokens:
            batch = super()._compute_advantage(batch, metrics)
        advantages = [fields["advantage"] * mask for fields, mask in zip(rows["extra_fields"], masks, strict=True)]
        nested = torch.nested.as_nested_tensor(advantages, layout=torch.jagged)
        given = TensorDict({"advantages": nested, "returns": nested}, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=given)

    def _fill_lane(self) -> None:
        """What the devices did while the trainer waited for the rollouts: they sample, too, unless others do."""
        if self._apart:
            return
        tried = [rollout.trajectory for rollout in self._rollouts]
        sampled = [turn for trajectory in tried for turn in trajectory.sampled]
        self._job.lane.fill(played_spans(sampled, [trajectory.ended for trajectory in tried], 0.0, math.inf))

    def on_step_end(self) -> None:
        """The weights are handed over."""
        self._job.lane.turn("handover")
        super().on_step_end()

    def _deal(self, keys: Sequence[str]) -> Dealt:
        """The rows of each update."""
        config, tokens = self._job.config, self._tokens
        at = sorted(range(len(keys)), key=places_of(keys).__getitem__)
        each = config.rollouts_per_step // config.mini_batches
        rows = rows_by_update([tokens[row] > 0 for row in at], config.mini_batches, config.run.seed, self._first)
        return Dealt.of([[at[place] for place in own] for own in rows], tokens, each)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Make all updates of the sampling. The figures of the last one wait until its weights are handed over."""
        steps = steps_of(self.global_steps, self._updates)
        for step in steps:
            figures = self._update(batch, step)
            if step == self._first:
                figures = self._entropy() | figures | {"timing_s/gen": self.timing_raw["gen"]}
            if step == steps[-1]:
                self._last = figures
            else:
                self._report(step, figures)
                self._end_lane(step)
        return batch

    def _entropy(self) -> dict[str, float]:
        """The mean over the tokens of an only update, known before it: of several each computes its own."""
        tokens = sum(self._tokens)
        return {"actor/entropy": sum(self._entropies) / tokens} if tokens and self._updates == 1 else {}

    def _update(self, batch: Any, step: int) -> dict[str, Any]:
        """Make the update of a step; verl's figures of it, under its names."""
        dealt, number = self._dealt, (step - self._first) % len(self._dealt.rows)
        if not dealt.teaching(number):
            self._job.log(f"Step {step}: no rollout of its update teaches anything, so the weights stay as they are.")
            return {"actor/loss": 0.0, "actor/grad_norm": 0.0}
        began = time.monotonic()
        asked = dealt.asked(number) | {"temperature": self.config.actor_rollout_ref.rollout.temperature}
        asked["calculate_entropy"] = self._job.config.needs_entropy
        figures = trained_on(self.actor_rollout_wg, batch, dealt.rows[number], asked, self._job.config.hardware.shares)
        # verl names the rate of the update to come.
        rate, self._rate = self._rate, float(figures["actor/lr"])
        figures["actor/lr"] = rate_of(self._job.config, step) if rate is None else rate
        return figures | {"timing_s/update": time.monotonic() - began}

    def _report(self, step: int, figures: dict[str, Any]) -> None:
        """Journal a step's figures. Raises what pauses a run that learns nothing."""
        now = time.monotonic()
        values = renamed(figures | {"timing_s/step": now - self._mark})
        self._mark = now
        if step == self._first:
            values |= played_figures(self._rollouts, self._job.config, step) | self._gaps
            self._rewards += [values["reward"]] if "reward" in values else []
        self._job.step = step
        self._write(Metrics(step=step, values=values))
        self._health.look(step, float(figures["actor/loss"]), float(figures["actor/grad_norm"]))

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], timing_raw: Any, **of_step: Any) -> None:
        if self._dealt.share_of_tokens:  # verl's own figures are of the tokens that are learned from
            super()._compute_metrics(batch, metrics, timing_raw, **of_step)
        step = steps_of(self.global_steps, self._updates)[-1]
        handed = {"timing_s/update_weights": timing_raw["update_weights"]} if "update_weights" in timing_raw else {}
        self._report(step, self._last | handed)
        if self._evaluate(step) or self._save_is_due(step):
            self._save(step)
        self._end_lane(step)

    def _end_lane(self, step: int) -> None:
        for event in self._ranks.steps(step, self._job.lane.finish()):
            self._write(event)

    # --- Its checkpoints ---

    def _save_is_due(self, step: int) -> bool:
        run = self._job.config.run
        if self._folder.asked_to_stop or step == run.max_steps:
            return True
        minutes = (time.monotonic() - self._saved_at) / 60
        by_time = bool(run.save_every_minutes) and minutes >= run.save_every_minutes
        return by_time or bool(run.save_every and step // run.save_every > self._job.saved_step // run.save_every)

    def _save(self, step: int) -> None:
        """A checkpoint as any run leaves it, made of verl's own; of the last step also the model."""
        job = self._job
        require_room(job.run_dir, self._bytes, "a checkpoint")
        self._phase("saving", step)
        began = time.monotonic()
        self._save_checkpoint()
        saved = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        if job.config.model.lora_rank:
            gather_adapter(saved / "actor", self._folder.adapter)
        if step == job.config.run.max_steps:
            self._write(save_model(model_in(saved), job.run_dir, step, job.base))
        reward = sum(self._rewards) / len(self._rewards) if self._rewards else None
        held_out = self._held_out.success_of(step) if self._held_out is not None else None
        chosen = job.config.hardware
        fill = partial(take_saved, saved, step, chosen.training, layout=chosen.layout)
        target = job.run_dir / f"{PREFIX}{step}"
        self._bytes = write_whole(target, step, fill, reward, held_out)
        self._saved_at = time.monotonic()
        job.saved_step, self._rewards = step, []
        known: dict[str, Any] = {"seconds": self._saved_at - began, "reward": reward, "held_out": held_out}
        self._write(CheckpointSaved(step=step, path=target.name, bytes=self._bytes, **known))
        remove_outdated(job)

    # --- Held-out tasks ---

    def _held_out_tasks(self) -> HeldOut:
        """Held-out tasks are played by this process, with verl's samplers, as they are on one device."""
        config = self._job.config
        rows = load_rows(Path(config.evaluate.data)) if config.evaluate.data else task_rows(config)
        template = ChatTemplate(self.tokenizer)
        whole = Segment("", config, components_of([config]), 1.0, 0, len(rows))
        engine = ServerEngine.of(self.get_llm_client(), config, template, LOST)
        return HeldOut(self._job, Tasks([], rows, self._folder.plan.held_out), [whole], template, engine)

    def _evaluate(self, step: int) -> bool:
        """Play the held-out tasks if that is due; whether no weights of a step before had as high a success."""
        if self._held_out is None or not self._held_out.due(step):
            return False
        return self._held_out.evaluate(step) and step > 0

    # --- Its rows ---

    def _rows(self, batch: Any) -> dict[str, Any]:
        """What the processes that play have given for each row, and the trainer's own log-probabilities.

        Raises the error that ends the run, and ``PolicyFault`` where rows are missing: verl would fill them up.
        """
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
        extra = [getattr(fields, "data", fields) for fields in rows["extra_fields"]]
        if (error := fatal_of([fields["facts"] for fields in extra])) is not None:
            raise error
        wanted, filled = self._job.config.rollouts_per_step, [tag for tag in batch.tags if tag.get("is_padding")]
        if filled or len(batch) != wanted:
            raise PolicyFault(
                f"{wanted - len(batch) + len(filled)} of {wanted} rollouts of step {self._first} did not come.",
                hint="The end of the verl job's log says why.",
            )
        return {name: rows[name] for name in FIELDS if name != "extra_fields"} | {"extra_fields": extra}

    def _prove(self, rows: dict[str, Any]) -> None:
        """Hold the samplers' log-probabilities against the trainer's, over ids that it has just computed itself."""
        names = ("prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs")
        probes = []
        self._old = {}
        for row in zip(*(rows[name].unbind() for name in names), strict=True):
            prompt, completion, mask, sampled, trained = (part.tolist() for part in row)
            self._old[(*prompt, -1, *completion)] = trained
            probes.append(Probe(prompt, completion, mask, sampled))
        self._check.renew()
        self._gaps = self._check(self._first, probes)

    def _trained_logprobs(self, prompt: list[int], completion: list[int]) -> list[float]:
        return self._old[(*prompt, -1, *completion)]


@ray.remote(num_cpus=1)
class TaskRunner:
    """verl's task with our trainer in it. Writes the first and the last word of the run."""

    def run(self, config: DictConfig) -> None:
        """Train to the end, or to a stop or a failure that we know. Raises any other, once the journal has it.

        A process of the job that died says nothing of the job: no last word is written, so that another attempt
        continues from its last checkpoint.
        """
        configure_verl_logging()
        folder = JobFolder(Path(config.data.train_files))
        folder.take_variables()
        plan, stop = folder.plan, threading.Event()
        job = Job(folder.config, folder.run_dir, Journal(folder.own_journal), stop, plan.attempt, earlier=plan.earlier)
        job.base, job.resolved = plan.base, plan.resolved
        job.enter("preparing", 0)
        try:
            self._train(config, job, folder)
        except StopRequested:
            job.journal.write(RunFinished(status="stopped", step=job.step))
        except TiltyardError as error:
            if error.code == ProcessLost.code:
                job.log(error.message, "error")
                raise
            status: Any = "paused" if error.pauses else "failed"
            job.journal.write(RunFinished(status=status, step=job.step, error=error.info))
        except Exception as exc:  # the last boundary: nothing may end without a word
            if (fault := fault_of(exc, job.run_dir)) is not None:
                job.log(f"{fault} {_where(exc)}".strip(), "error")
                job.journal.write(RunFinished(status="paused", step=job.step, error=fault.info))
            elif isinstance(cause_of(exc), LOST):
                job.log(f"A process of the job was lost: {_in_one_line(exc)}", "error")
                raise
            else:
                job.journal.write(_crashed(exc, job))
                raise
        else:
            job.journal.write(RunFinished(status="succeeded", step=job.step))
        finally:
            job.journal.close()

    def _train(self, config: DictConfig, job: Job, folder: JobFolder) -> None:
        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        tq.init(config.transfer_queue)
        try:
            trainer = GroupTrainer(config, job, folder)
            trainer.init()
            loops = AgentLoopManagerTQ.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=trainer.get_teacher_client(),
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            trainer.fit(loops)
        finally:
            tq.close()


def _crashed(exc: Exception, job: Job) -> RunFinished:
    """The last word of a run that ended by a defect; of one in another process, by that process' own."""
    lines = COLOURS.sub("", "".join(traceback.format_exception(exc))).splitlines()
    for line in lines[-TRACEBACK_LINES:]:
        job.journal.write(LogLine(level="error", message=line))
    cause = cause_of(exc)
    error = ErrorInfo(
        code="trainer_crashed",
        boundary=Boundary.TRAINER,
        message=f"The trainer crashed: {type(cause).__name__}: {_in_one_line(cause)}",
        hint="The end of the log has the traceback.",
    )
    return RunFinished(status="failed", step=job.step, error=error)


def fault_of(exc: Exception, run_dir: Path) -> TiltyardError | None:
    """The name of an error of a disk, of memory, of a GPU or of a sampler, in whichever process of the job; ``None``
    for others."""
    cause = cause_of(exc)
    return cause if isinstance(cause, SamplerDied) else disk_fault(cause, run_dir) or device_fault(cause)


def _where(exc: Exception) -> str:
    """The process and the host that an error came from, where it was another than this one."""
    return f"(process {exc.pid} on {exc.ip})" if isinstance(exc, ray.exceptions.RayTaskError) else ""


def cause_of(exc: Exception) -> BaseException:
    """What was raised in the process where it was raised."""
    return exc.cause if isinstance(exc, ray.exceptions.RayTaskError) else exc


def _in_one_line(exc: BaseException) -> str:
    return " ".join(COLOURS.sub("", str(exc)).split())[:300]
