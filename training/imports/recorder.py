"""Writes what was read as a journal: the events that our own trainer would have written.

Figures come as they are read. Rollouts get their place (step, group, index) as they come, and are compared within their
group once their file has ended; a file that continues a group compares it again. Figures of a step that no file
gives are computed from its rollouts by the same functions as in a run of ours.
"""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from envs.wire import Message
from training.config import DEFAULT_KIND
from training.errors import Boundary, DataError, ErrorInfo
from training.imports.base import Figures, Sampled
from training.imports.report import MAX_MAPPED, ImportReport
from training.journal import (
    JOURNAL_NAME,
    Event,
    GroupScored,
    LogLine,
    Metrics,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    TurnAdded,
)
from training.rewards.combining import GroupStatistics, group_statistics, reward_mean
from training.words import _

# Names of metrics: which of other trainers' mean the same as one of ours.
#
# Every metric is kept under its own name. One that is listed here is also recorded under ours, so that the run page,
# comparisons, the doctor and the lab know it; where two of a step mean the same, the one that is listed first counts.

METRICS: dict[str, tuple[str, ...]] = {
    "reward": ("critic/score/mean", "critic/rewards/mean", "reward_mean", "reward/mean"),
    "reward_std": ("group_reward_std", "critic/score/std"),
    "kl": ("actor/kl_loss", "critic/kl", "actor/reward_kl_penalty", "objective/kl", "kl_mean", "kl_loss"),
    "entropy": ("actor/entropy", "actor/entropy_loss", "policy/entropy_avg", "entropy_mean", "entropy_loss"),
    "loss": ("actor/loss",),
    "grad_norm": ("actor/grad_norm", "actor_grad_norm"),
    "learning_rate": ("actor/lr", "actor_lr", "lr"),
    "clip_ratio/region_mean": (
        "actor/pg_clipfrac",
        "ppo_clip_ratio",
        "policy/clipfrac_avg",
        "pg_clipfrac",
        "clip_fraction",
    ),
    "value/loss": ("critic/vf_loss", "loss/value_avg", "critic_loss", "value_loss"),
    "value/explained_variance": ("critic/vf_explained_var", "value_explained_variance", "explained_variance"),
    "value/mean": ("critic/values/mean",),
    "value/clip_share": ("critic/vf_clipfrac", "val/clipfrac_avg"),
    "completions/mean_length": (
        "response_length/mean",
        "response_length",
        "completion_length",
        "completion_len_mean",
    ),
    "completions/min_length": ("response_length/min",),
    "completions/max_length": ("response_length/max", "completion_len_max"),
    "completions/repeated_share": ("repetition_rate", "repetition_frac"),
    "rollouts/truncated_share": (
        "completions/clipped_ratio",
        "response_length/clip_ratio",
        "truncated_ratio",
        "truncation_rate",
        "truncated",
    ),
    "rollouts/task_success": ("episode/success_rate", "success_rate"),
    "rollouts/turns_mean": ("num_turns/mean",),
    "rollouts/calls_mean": ("tool_call_counts/mean", "tools/call_frequency"),
    "groups/zero_variance_share": ("frac_reward_zero_std", "zero_variance_group_frac"),
    "advantages/zero_share": ("adv_zero_frac", "actor/zero_advantage_frac"),
    "timing/step": ("timing_s/step", "perf/time_per_step", "timing/step_total", "step_time", "step_time_s"),
}
"""Our name → theirs."""
PREFIX = "train/"
"""Weights & Biases and TensorBoard put this before the names of many trainers; those of Hugging Face are ours then."""
_OURS = {
    spelled: ours for ours, theirs in METRICS.items() for name in theirs for spelled in (name, name.replace("/", "_"))
}  # tables often write verl's names with underscores
_PREFIXED = (*METRICS, "mean_token_accuracy", "num_tokens")
HELD_OUT: dict[str, tuple[str, ...]] = {
    "heldout/success": ("acc", "accuracy", "success", "success_rate", "solve_rate", "pass@1", "pass1", "exact_match"),
    "heldout/reward": ("reward", "score", "test_score"),
}
"""Our name → the word of it in theirs, behind `eval/`, `eval_`, `val/`, `val-core/` or `validation/` and a data set's
name: `eval/accuracy`, `val-core/gsm8k/acc/mean@1`, `eval_math_pass1`."""
_EVALUATED = re.compile(
    rf"(?:eval|val|val-core|validation)[/_](?:.+[/_])?(?:{'|'.join(sum(HELD_OUT.values(), ()))})(?:/mean(?:@|_at_)\d+)?"
)
_MEAN_OF = re.compile(r"/mean(?:@|_at_)\d+$")
_OLD_SCORE = re.compile(r"val/test_score/.+")
_PART = re.compile(
    r"(?:reward_components?[./]|rewards/(?!(?:accuracies|margins|chosen|rejected|mean|std|min|max)$))(?P<part>[^/]+)$"
)
"""One part of the reward: TRL wrote `rewards/<function>` before 0.17."""


def ours(name: str) -> str:
    """Our name for a metric, or ``""`` where we have none or it is ours already."""
    if name in _OURS:
        return _OURS[name]
    if held_out := _held_out(name):
        return held_out
    plain = name.removeprefix(PREFIX)
    if part := _PART.match(plain):
        return f"rewards/{part['part']}/mean"
    if plain == name:
        return ""
    if plain in _PREFIXED or plain.startswith(("rewards/", "completions/", "clip_ratio/")):
        return _OURS.get(plain, plain)
    return _OURS.get(plain, "")


def _held_out(name: str) -> str:
    """Whether it is an evaluation's success or its reward. Those of verl's `val-core/` end in a mean over tries."""
    if _OLD_SCORE.fullmatch(name):
        return "heldout/reward"
    if not _EVALUATED.fullmatch(name) or (name.startswith("val-core") and not _MEAN_OF.search(name)):
        return ""
    if "rewards/" in name or "token" in name:  # a part of the reward; the accuracy of single tokens
        return ""
    plain = _MEAN_OF.sub("", name)
    for our, words in HELD_OUT.items():
        if any(re.search(rf"[/_]{re.escape(word)}$", plain) for word in words):
            return our
    return ""


def mapped(values: dict[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """The values under their own names and ours, and which of theirs became which of ours.

    What is no share is no held-out success: some write percent.
    """
    chosen: dict[str, tuple[int, str]] = {}
    for name in values:
        our = ours(name)
        if our and our not in values and not (our == "heldout/success" and not 0 <= values[name] <= 1):
            theirs = [spelled for each in METRICS.get(our, ()) for spelled in (each, each.replace("/", "_"))]
            plain = name if name in theirs else name.removeprefix(PREFIX)
            rank = theirs.index(plain) if plain in theirs else -1 if plain == our else len(theirs)
            chosen[our] = min(chosen.get(our, (rank, name)), (rank, name))
    became = {name: our for our, (_rank, name) in chosen.items()}
    return {**values, **{our: values[name] for our, (_rank, name) in chosen.items()}}, became


TASK_TEXT_CHARS = 200
COUNTERS = ("rounds", "turns", "tokens", "length", "count", "calls")
"""Last words of numbers that count something: their means are no reward component's."""
SAME = 1e-6
"""Below this a group's rewards, or advantages, are all equal."""
ALIKE = 0.999
"""Cosine above which advantages follow from rewards; they are stored as 32-bit floats."""
NO_REWARD = ErrorInfo(
    code="reward_fault", boundary=Boundary.REWARD, message="The file holds no reward for this rollout."
)


@dataclass
class _Group:
    number: int
    rewards: list[float | None] = field(default_factory=list)
    advantages: list[float | None] = field(default_factory=list)
    turns: int = 0
    summed: bool = False
    """Whether its rewards are our sum of parts."""


@dataclass
class _Step:
    at: float
    groups: dict[str, _Group] = field(default_factory=dict)
    sums: dict[str, tuple[float, int]] = field(default_factory=dict)
    changed: bool = True


class Recorder:
    """One journal of at most ``max_bytes`` in the making. ``begun`` is the time of what has none."""

    def __init__(self, folder: Path, report: ImportReport, begun: float, max_bytes: int) -> None:
        self.folder, self.report, self.begun = folder, report, begun
        self._left = max_bytes
        self._body: BinaryIO = open(folder / f"{JOURNAL_NAME}.part", "wb")  # noqa: SIM115 - closed by finish()
        self._count = 1  # the first line is written last
        self._steps: dict[int, _Step] = {}
        self._times: dict[int, float] = {}
        self._given: dict[int, set[str]] = {}
        self._names: set[str] = set()
        self._last: dict[str, float] = {}
        self._last_at = self._clock = begun
        self.compared = self.doubtful = 0
        """Groups whose advantages the file gives with parts that we summed, and those that do not follow from it."""

    def figures(self, row: Figures) -> None:
        """Take in the metrics of a step; of a step that comes twice, the later value counts."""
        values, became = mapped(row.values)
        at = self._time(row.step, row.at)
        if len(self.report.mapped) < MAX_MAPPED:
            self.report.mapped |= became
        given = {name for name in values if name in _COMPUTED or name.startswith("rewards/")}
        self._given.setdefault(row.step, set()).update(given)
        self._note(row.step, values)
        self._write_event(Metrics(step=row.step, values=values), at)

    def rollout(self, row: Sampled) -> None:
        """Take in one rollout: its turns, its reward, its place."""
        step = self._steps.setdefault(row.step, _Step(self._time(row.step, None)))
        step.changed = True
        group = step.groups.setdefault(row.key, _Group(len(step.groups)))
        name = f"{row.step}/{group.number}/{len(group.rewards)}"
        turns = turns_of(row.messages, row.prompt)
        spoken = sum(turn[0].role == "assistant" for turn in turns[1:])
        task = next((item.content for item in reversed(row.messages[: row.prompt]) if item.role == "user"), "")
        self._write_event(
            RolloutStarted(
                rollout=name,
                step=row.step,
                group=group.number,
                index=len(group.rewards),
                task=task[:TASK_TEXT_CHARS],
                expected=row.expected,
            ),
            step.at,
        )
        for number, messages in enumerate(turns):
            self._write_event(TurnAdded(rollout=name, turn=number, messages=messages), step.at)
        missing = row.reward is None
        self._write_event(
            RolloutFinished(
                rollout=name,
                status="excluded" if missing else "completed",
                reward=row.reward,
                parts=row.parts,
                error=NO_REWARD if missing else None,
                turns=spoken,
            ),
            step.at,
        )
        group.rewards.append(row.reward)
        group.advantages.append(row.advantage)
        group.turns += spoken
        group.summed = row.summed
        for part, value in row.parts.items():
            total, number = step.sums.get(part, (0.0, 0))
            step.sums[part] = (total + value, number + 1) if value is not None else (total, number)
        self.report.rollouts += 1

    def file_ended(self) -> None:
        """Compare the groups that have grown."""
        for number, step in sorted(self._steps.items()):
            if step.changed:
                for group in step.groups.values():
                    self._score(number, step, group)
                step.changed = False

    def _score(self, number: int, step: _Step, group: _Group) -> None:
        found = group_statistics(group.rewards)
        given = [
            theirs if theirs is not None else ours
            for theirs, ours in zip(group.advantages, found.advantages, strict=True)
        ]
        if group.summed:
            self._doubt(group)
        names = [f"{number}/{group.number}/{index}" for index in range(len(group.rewards))]
        self._write_event(
            GroupScored(
                step=number,
                group=group.number,
                rollouts=names,
                advantages=given,
                reward_mean=found.mean,
                reward_std=found.std,
                zero_variance=found.zero_variance,
            ),
            step.at,
        )

    def _doubt(self, group: _Group) -> None:
        """Compare advantages, which are rewards less their mean at some scale, with the rewards that we summed."""
        pairs = [pair for pair in zip(group.rewards, group.advantages, strict=True) if None not in pair]
        if len(pairs) < max(2, len(group.rewards)):
            return
        mean = sum(reward or 0.0 for reward, _given in pairs) / len(pairs)
        centred = [(reward or 0.0) - mean for reward, _given in pairs]
        given = [advantage or 0.0 for _reward, advantage in pairs]
        ours, theirs = math.hypot(*centred), math.hypot(*given)
        self.compared += 1
        if ours < SAME and theirs < SAME:
            return
        product = sum(one * other for one, other in zip(centred, given, strict=True))
        self.doubtful += product < ALIKE * ours * theirs or min(ours, theirs) < SAME

    def finish(self, tool: str, digest: str) -> None:
        """Write the figures that no file gave, the last event, and the first line in front of all."""
        for number, step in sorted(self._steps.items()):
            computed = step_figures(step)
            values = {name: value for name, value in computed.items() if name not in self._given.get(number, ())}
            if values:
                self._note(number, values)
                self._write_event(Metrics(step=number, values=values), step.at)
        report = self.report
        report.groups = sum(len(step.groups) for step in self._steps.values())
        report.metrics = len(self._names)
        report.steps = len(self._times)
        if report.last_step and self._last:  # the run's last figures are those of its last step, whatever came last
            self._write_event(Metrics(step=report.last_step, values=self._last), self._last_at)
        self._write_event(LogLine(message=_sentence(report)), self._last_at)
        self._write_event(
            RunFinished(status="succeeded", step=report.last_step), max(self._times.values(), default=self.begun)
        )
        self._body.close()
        self._head(tool, digest)

    def _head(self, tool: str, digest: str) -> None:
        versions = {"source": tool, "source_sha256": digest}
        first = RunStarted(kind=DEFAULT_KIND, total_steps=self.report.last_step, versions=versions, n=1)
        first.t = min(self._times.values(), default=self.begun)
        part = self.folder / f"{JOURNAL_NAME}.part"
        with open(self.folder / JOURNAL_NAME, "wb") as journal, open(part, "rb") as body:
            journal.write(first.model_dump_json().encode() + b"\n")
            shutil.copyfileobj(body, journal, 1 << 20)
        part.unlink()

    def _time(self, step: int, at: float | None) -> float:
        if at is not None:
            self._times[step] = self._clock = at
        return self._times.setdefault(step, self._clock)

    def _note(self, step: int, values: dict[str, float]) -> None:
        self._names.update(values)
        self.report.points += len(values)
        if step > self.report.last_step:
            self.report.last_step, self._last = step, {}
        if step == self.report.last_step:
            self._last |= values
            self._last_at = self._times.get(step, self.begun)

    def _write_event(self, event: Event, at: float) -> None:
        self._count += 1
        event.n, event.t = self._count, at
        line = event.model_dump_json().encode() + b"\n"
        self._left -= len(line)
        if self._left < 0:
            raise DataError(_("The run takes far more space than its files: one text is repeated many times in them."))
        self._body.write(line)

    def abandon(self) -> None:
        """Close what is open; nothing is left behind."""
        self._body.close()
        (self.folder / f"{JOURNAL_NAME}.part").unlink(missing_ok=True)


_COMPUTED = frozenset(
    {
        "reward",
        "reward_std",
        "groups/zero_variance_share",
        "rollouts/turns_mean",
        "rollouts/excluded",
        "rollouts/excluded_share",
    }
)


def step_figures(step: _Step) -> dict[str, float]:
    """A step's figures under the names of ``training.rollout.figures``; what cannot be computed is left out."""
    groups = list(step.groups.values())
    found: list[GroupStatistics] = [group_statistics(group.rewards) for group in groups]
    rewards = [reward for group in groups for reward in group.rewards]
    kept = [reward for reward in rewards if reward is not None]
    figures = {
        "rollouts/excluded": float(len(rewards) - len(kept)),
        "rollouts/excluded_share": (len(rewards) - len(kept)) / len(rewards),
        "groups/zero_variance_share": sum(each.zero_variance for each in found) / len(found),
        "rollouts/turns_mean": sum(group.turns for group in groups) / len(rewards),
    }
    means = {"reward": reward_mean(rewards), "reward_std": reward_mean([each.std for each in found])}
    figures |= {name: value for name, value in means.items() if value is not None}
    for part, (total, count) in step.sums.items():
        if count:
            figures[part_metric(part)] = total / count
    return figures


def part_metric(part: str) -> str:
    """The curve of a part's mean. A count of turns or tokens is no reward component."""
    is_count = part.startswith("num_") or part.lower().replace("/", "_").rsplit("_", 1)[-1] in COUNTERS
    return f"rollouts/{part}/mean" if is_count else f"rewards/{part}/mean"


def turns_of(messages: list[Message], prompt: int) -> list[list[Message]]:
    """The prompt, then each message of the model by itself and what answered it together."""
    turns: list[list[Message]] = [messages[:prompt]]
    for message in messages[prompt:]:
        if message.role == "assistant" or len(turns) == 1 or turns[-1][0].role == "assistant":
            turns.append([message])
        else:
            turns[-1].append(message)
    return turns


def _sentence(report: ImportReport) -> str:
    files = ", ".join(file.name for file in report.files[:5]) + (", …" if len(report.files) > 5 else "")
    return f"Imported from {report.tool}: {files}. {report.message}"
