"""The rollouts that a trainer learns from: TRL's ``rollout_func``, and the shape in which TRL takes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, cast

from training.algorithms.base import JournalCallback
from training.algorithms.drawing import Drawing
from training.algorithms.job import Job
from training.algorithms.stages import Segment, parts_of
from training.algorithms.values import CREDIT_FIELD
from training.config import RewardComponent
from training.data.schema import Row
from training.lanes import DevicePhase
from training.policy.check import MOST_ROLLOUTS, Probe, SamplerCheck, as_probes, draw_probes, probe_turns
from training.policy.engine import CopyEngine, Engine
from training.policy.make import MEMORY_NOTE
from training.rewards.scoring import score_episode
from training.rollout.collector import Collector
from training.rollout.scoring import Scorer, credit_figures, token_credit
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Rollout, StepRollouts

# --- Ahead ----------------------------------------------------------------------------------------------------------
# Rollouts of the next samplings, played in a thread while the trainer trains on the last one.
#
# 1. Samplings are played one after another, never two at once. That of step k begins when the trainer asks for the
#    rollouts of the sampling ``most`` before it, so its weights miss at most ``most`` samplings' updates: nothing that
#    is too old is ever played, and nothing has to be thrown away.
# 2. What a sampling raises is raised when the trainer asks for it.
# 3. ``settle`` waits until nothing is being played: an evaluation has the sampler for itself.
#
# See docs/adr/0006-overlap.md.

Rows = Sequence[int]
Collect = Callable[[int, Rows], StepRollouts]


class Ahead:
    """``collect`` plays the rows of a step; it is only called from one thread. ``abandon`` has it end soon."""

    def __init__(self, collect: Collect, abandon: Callable[[], None]) -> None:
        self._collect, self._abandon = collect, abandon
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollouts")
        self._begun: dict[int, tuple[Rows, Future[StepRollouts]]] = {}

    def begin(self, step: int, rows: Rows) -> None:
        """Play the rollouts of a step once those before it are played. One that has begun is not begun again."""
        if step not in self._begun:
            self._begun[step] = rows, self._thread.submit(self._collect, step, rows)

    def has(self, step: int) -> bool:
        """Whether the rollouts of a step were begun, and not taken yet."""
        return step in self._begun

    def take(self, step: int, rows: Rows) -> StepRollouts:
        """The rollouts of a step that was begun, once they are played. Raises as ``collect`` does."""
        began, played = self._begun.pop(step)
        if list(began) != list(rows):
            raise AssertionError(f"step {step} was played with other tasks than it trains on")
        return played.result()

    def settle(self) -> None:
        """Wait until everything that was begun is played. What it raised is raised when it is taken."""
        wait([played for _rows, played in self._begun.values()])

    def close(self) -> None:
        """Give up what is being played. Calling it twice does nothing."""
        self._abandon()
        self._thread.shutdown(wait=True, cancel_futures=True)


PARTS_FIELD = "reward_parts"
HANDOVER = "timing/handover"
"""The time that the trainer itself spends on new weights for the sampler, and on their proof."""


class Prompts(NamedTuple):
    """The rows that a trainer is given, one a group, in the order of its samplings.

    The first of them are played for the step after ``begin``; none is played for a step beyond ``last_step``. ``tasks``
    are all that there are, whatever part of them the order reaches. With ``drawing`` it is the tasks of a sampling that
    are drawn when it begins, and of the order only its length counts.
    """

    order: list[int]
    tasks: list[int]
    begin: int
    last_step: int
    drawing: Drawing | None = None


class Rollouts:
    """TRL's ``rollout_func``: plays the rows that the places it is given have, and hands back ids, masks and parts.

    With ``rollout.max_staleness`` those of the next samplings are played meanwhile
    (``training/algorithms/rollouts.py``); ``prompts`` says which they are. New weights are then written while the old
    ones still play, and loaded and asked in a thread of their own while the trainer continues; the next sampling begins
    once they are there. What they answered is judged before the first update that follows (``require_arrived``), when
    the trainer still has the weights that were handed over: nothing is ever learned from rollouts whose weights were
    not proved.
    """

    def __init__(
        self,
        job: Job,
        callback: JournalCallback,
        rows: Sequence[Row],
        prompts: Prompts,
        template: ChatTemplate,
        segments: Sequence[Segment],
        scorer: Scorer | None,
    ) -> None:
        self._job = job
        self._callback = callback
        self._rows = rows
        self._prompts = prompts
        self._template = template
        self._segments = segments
        self._scorer = scorer
        self._step = 0
        self._engine: Engine | None = None
        self._collector: Collector | None = None
        self._check: SamplerCheck | None = None
        self._rest: Callable[[], None] | None = None
        self._ahead: Ahead | None = None
        self._trained: dict[int, int] = {}
        self._probed: list[list[int]] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="handover")
        self._coming: tuple[int, Future[list[Probe]]] | None = None
        self._synced = 0.0

    def attach(self, engine: Engine, check: SamplerCheck | None, rest: Callable[[], None] | None = None) -> None:
        """Give the sampler and its check, which exist only once the trainer has placed the model. ``rest`` is called
        when no turn is asked for until the weights have changed."""
        self._rest = rest
        first, parts = parts_of(self._segments, lambda config: config, self._scorer_of, engine, self._template)
        self._engine = engine
        self._check = check
        job, ahead = self._job, self._job.config.rollout.max_staleness > 0
        self._collector = collector = Collector(
            job.config,
            self._rows,
            first.player,
            first.scorer,
            job.journal,
            job.stop,
            job.attempt,
            ahead=ahead,
            trained=self._trained.get,
            spare=self._prompts.tasks,
            parts=parts,
        )
        if ahead:
            self._ahead = Ahead(self._collect_ahead, collector.abandon)
            self._callback.before_update = self.require_arrived

    def _scorer_of(self, components: list[RewardComponent]) -> Scorer:
        return self._scorer or (lambda episode: score_episode(episode, components, step=self._step))

    def settle(self) -> None:
        """Wait until nothing is being played."""
        if self._ahead is not None:
            self._ahead.settle()

    def close(self) -> None:
        """End what is being played, and close the event loop."""
        if self._ahead is not None:
            self._ahead.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._collector is not None:
            self._collector.close()

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        assert self._engine is not None  # noqa: S101 - attach() ran before training
        step = trainer.state.global_step + 1
        before = self._engine.figures
        self._synced = before.synced_seconds
        if [int(prompt) for prompt in prompts] != self._places_of(step):
            raise AssertionError(f"step {step} was given other places of the order than its own")
        result, figures = self._play(step, self._rows_of(step))
        if self._rest is not None:
            self._rest()
        if self._engine.figures.memory_retries > before.memory_retries:
            self._job.log(MEMORY_NOTE % step, "warning")
        self._callback.extra = result.figures | figures | self._sync_figures()
        by_turns = self._job.config.gradient.credit == "turns"
        if by_turns:
            self._callback.extra |= credit_figures(result.rollouts, result.groups)
        if self._job.config.rewards.signal != "all":
            left_out = sum(not group.teaches for group in result.groups)
            self._callback.extra["groups/left_out_share"] = left_out / len(result.groups)
        if all(rollout.parts is None for rollout in result.rollouts):
            self._job.log(f"Step {step}: all rollouts are excluded, so the weights stay as they are.", "warning")
        elif not any(group.teaches for group in result.groups):
            self._job.log(f"Step {step}: no group teaches anything, so the weights stay as they are.")
        if self._callback.tokens is not None:
            self._callback.tokens.sampled(step, result)
        self._job.enter("training", step)
        masks = self._job.config.gradient.mask_truncated
        return trl_batch(result, self._template.eos_id, mask_truncated=masks, by_turns=by_turns)

    def _play(self, step: int, rows: list[int]) -> tuple[StepRollouts, dict[str, float]]:
        """The rollouts of a step, and the figures of how they came."""
        if self._ahead is not None:
            return self._take(self._ahead, step, rows)
        began, lane = time.monotonic(), self._job.lane
        lane.turn("handover")
        self._hand_over(step)
        handing = time.monotonic() - began
        lane.turn("waiting")
        result = self._collect(step, rows)
        self._fill_lane(result, "generation")  # with what comes before the first turn and after the last score
        lane.turn("handover" if self._copies is not None else "training")
        figures = self._took(step, result)
        if self._check is None:
            return result, figures
        began = time.monotonic()
        figures |= self._check(step, [rollout.trajectory for rollout in result.played or result.rollouts])
        if self._check.copies:
            self._check.prove(step, self._probes(result))
            figures |= {HANDOVER: handing + time.monotonic() - began}
        return result, figures

    def _take(self, ahead: Ahead, step: int, rows: list[int]) -> tuple[StepRollouts, dict[str, float]]:
        """Those that were played meanwhile; the next ones begin, with the weights as they are now."""
        lane = self._job.lane
        self._job.enter("generating", step)
        lane.turn("handover")
        began = time.monotonic()
        if not ahead.has(step):  # the first of an attempt
            self._hand_over(step)
            ahead.begin(step, rows)
        if self._copies is not None:
            self._copies.write_weights()
        written = time.monotonic()
        lane.turn("waiting")
        result = ahead.take(step, rows)
        self._fill_lane(result, "waiting")
        lane.turn("handover")
        taken = time.monotonic()
        figures = self._staleness(step, result) | self._took(step, result)
        if self._copies is not None:
            self._trained[self._copies.version + 1] = step - 1  # a turn may be over before the handover is
            self._coming = step, self._thread.submit(self._arrive, self._copies, step, self._asked(result))
        else:
            self._hand_over(step)
        for later in self._later(step):
            ahead.begin(later, self._rows_of(later))
        times = {"timing/waiting": taken - written, HANDOVER: written - began + time.monotonic() - taken}
        return result, figures | times

    def _fill_lane(self, result: StepRollouts, rest: DevicePhase) -> None:
        """What the trainer's device did while the trainer waited: it samples, too, unless servers elsewhere do."""
        if not self._job.config.samples_with_vllm or self._job.config.vllm.mode == "managed":
            self._job.lane.fill(result.spans, rest)

    @property
    def _copies(self) -> CopyEngine | None:
        """The engine where it has a copy of the weights, whose handovers are proved."""
        return cast(CopyEngine, self._engine) if self._check is not None and self._check.copies else None

    def _arrive(self, engine: CopyEngine, step: int, asked: list[list[int]]) -> list[Probe]:
        """In the handover's thread: the sampler has the new weights, and has answered."""
        turns = probe_turns(asked)
        probes = as_probes(engine, turns, engine.hand_over(turns))
        self._trained[engine.version] = step - 1
        return probes

    def require_arrived(self) -> None:
        """Before an update: the handover that ran meanwhile is over, and was one of these very weights.

        Raises ``SamplerDisagrees``, or what the handover raised.
        """
        if self._coming is None:
            return
        assert self._check is not None  # noqa: S101 - only an engine whose handovers are proved has one coming
        began, (step, arriving) = time.monotonic(), self._coming
        self._job.lane.turn("handover")
        probes = arriving.result()
        self._coming = None
        figures = self._check(step, probes)
        self._check.prove(step, probes)
        extra = self._callback.extra
        spent = extra.get(HANDOVER, 0.0) + time.monotonic() - began
        extra |= figures | self._sync_figures() | {HANDOVER: spent}
        self._job.lane.turn("training")

    def _sync_figures(self) -> dict[str, float]:
        """How long new weights were on their way since the step began; nothing where none were."""
        assert self._engine is not None  # noqa: S101 - attach() ran before training
        synced = self._engine.figures.synced_seconds - self._synced
        return {"sampling/sync_seconds": synced} if synced else {}

    def _collect_ahead(self, step: int, rows: Sequence[int]) -> StepRollouts:
        """In the thread that plays ahead: the sampling, once the weights that were handed over last are there."""
        if (coming := self._coming) is not None:
            coming[1].result()
        return self._collect(step, rows)

    def _collect(self, step: int, rows: Sequence[int]) -> StepRollouts:
        assert self._collector is not None and self._engine is not None  # noqa: S101 - attach() ran before training
        self._step = step  # what schedules of rewards go by; steps are played one after another
        drawing, prompts = self._prompts.drawing, self._job.config.rollout.prompts_per_step
        spare = drawing.spare_of(step, prompts) if drawing is not None else None
        with self._engine.sampling():
            return self._collector.collect(step, rows, spare)

    def _hand_over(self, step: int) -> None:
        assert self._engine is not None  # noqa: S101 - attach() ran before training
        self._trained[self._engine.version + 1] = step - 1  # a turn may be over before the next line is
        self._trained[self._engine.weights_changed()] = step - 1

    def _probes(self, result: StepRollouts) -> list[Probe]:
        """Turns that the sampler draws with the weights as they are now, after the same prompts all attempt long:
        those of ``result`` may be of older weights."""
        assert self._engine is not None  # noqa: S101 - attach() ran before training
        with self._engine.sampling():
            return draw_probes(self._engine, self._asked(result))

    def _asked(self, result: StepRollouts) -> list[list[int]]:
        """The prompts of the first rollouts of the attempt."""
        if not self._probed:
            prompts = [r.trajectory.prompt_ids for r in result.rollouts if r.trajectory.prompt_ids]
            self._probed = prompts[:: max(1, len(prompts) // MOST_ROLLOUTS)][:MOST_ROLLOUTS]
        return self._probed

    def _staleness(self, step: int, result: StepRollouts) -> dict[str, float]:
        updates = self._job.config.updates_per_step
        versions = [r.trajectory.version for r in result.rollouts if r.parts is not None]
        ages = [(step - 1 - self._trained[version]) / updates for version in versions if version is not None]
        if not ages:
            return {}
        return {"rollouts/staleness_mean": sum(ages) / len(ages), "rollouts/staleness_max": max(ages)}

    def _later(self, step: int) -> list[int]:
        """The steps whose rollouts may be played while this one is trained on."""
        config = self._job.config
        updates = config.updates_per_step
        steps = [step + updates * number for number in range(1, config.rollout.max_staleness + 1)]
        return [later for later in steps if later <= self._prompts.last_step]

    def _took(self, step: int, result: StepRollouts) -> dict[str, float]:
        """Where tasks are drawn by how they went, these have gone now."""
        drawing = self._prompts.drawing
        return drawing.took(step, result.played or result.rollouts) if drawing is not None else {}

    def _rows_of(self, step: int) -> list[int]:
        rollout, drawing = self._job.config.rollout, self._prompts.drawing
        if drawing is not None:
            rows = drawing.tasks_of(step, rollout.prompts_per_step, rollout.prompts_per_step * rollout.refill_rounds)
            return [row for row in rows for _ in range(rollout.num_generations)]
        return [self._prompts.order[place] for place in self._places_of(step)]

    def _places_of(self, step: int) -> list[int]:
        """The places of a step's rollouts in the order, the same for all of a group."""
        config = self._job.config
        prompts, size = config.rollout.prompts_per_step, config.rollout.num_generations
        first = (step - 1 - self._prompts.begin) // config.updates_per_step * prompts
        return [place for place in range(first, first + prompts) for _ in range(size)]


def trl_batch(
    result: StepRollouts, eos_id: int, *, mask_truncated: bool, by_turns: bool = False
) -> dict[str, list[Any]]:
    """The step in the shape of TRL's ``rollout_func``: one entry for each rollout, ids and masks of equal length.

    An excluded rollout becomes the shortest row TRL can hold, with an all-zero mask. Truncated rollouts are masked here
    when asked for, because TRL would not see those that were cut off between turns: their last id is an end-of-turn.
    So are those of groups that are not learned from; their rewards still count where a baseline spans the batch.
    ``by_turns`` adds what the turns of each are credited with.
    """
    size = len(result.rollouts) // len(result.groups)
    masked = [
        not result.groups[place // size].teaches or (mask_truncated and rollout.trajectory.status == "truncated")
        for place, rollout in enumerate(result.rollouts)
    ]
    rows = [_trl_row(rollout, eos_id, hidden) for rollout, hidden in zip(result.rollouts, masked, strict=True)]
    names = ("prompt_ids", "completion_ids", "logprobs", "env_mask", PARTS_FIELD)
    batch = {name: [row[position] for row in rows] for position, name in enumerate(names)}
    if by_turns:
        batch[CREDIT_FIELD] = [None if rollout.parts is None else token_credit(rollout) for rollout in result.rollouts]
    return batch


def _trl_row(rollout: Rollout, eos_id: int, masked: bool) -> tuple[Any, ...]:
    trajectory = rollout.trajectory
    if rollout.parts is None or not trajectory.completion_ids:
        return [eos_id], [eos_id], [0.0], [0], rollout.parts
    mask = [0] * len(trajectory.mask) if masked else trajectory.mask
    return trajectory.prompt_ids, trajectory.completion_ids, trajectory.logprobs, mask, rollout.parts
