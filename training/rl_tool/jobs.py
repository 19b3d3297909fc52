"""From what the tool is asked to jobs of this engine, and a job run as the command line runs it.

A job is a process of its own: it takes the signals, and whatever it does, the caller's Python does not fall with it.
Its end of a pipe is its standard input, so that it ends when the caller dies in whatever way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from training.children import child_env, limited_child
from training.config import JobConfig, config_to_yaml
from training.data.files.sources import pick, resolved
from training.data.making.conversion import Converted, ConvertOptions, convert
from training.data.options import ReadOptions
from training.errors import ConfigError, DataError, ErrorInfo
from training.journal import JOURNAL_NAME, RunFinished, RunStarted, lines_backwards, parse_event, read_events
from training.words import complaint_of, option_of

# What the tool is asked: the parameters of its four actions, and the documented texts for what is wrong with them.
#
# Texts are the documentation's own and in its language: programs compare with them, so they are not translated.

BASE_MODEL = "Qwen/Qwen3-0.6B"
GSM8K = "openai/gsm8k"
MAX_EPOCHS = 10_000

Given = TypeVar("Given", bound=BaseModel)
Format = Literal["sft", "rl"]
Split = Literal["train", "test"]
RewardType = Literal["accuracy", "length_penalty", "step"]

# Parameter → what the documentation calls it, and what its choices are called.
_CHOICES = {
    "action": ("操作", "操作"),
    "algorithm": ("算法", "算法"),
    "format": ("数据格式", "格式"),
    "split": ("数据集分割", "分割"),
    "reward_type": ("奖励类型", "类型"),
}


class ToolError(Exception):
    """A call that cannot be answered; its text is the ``message`` of the answer."""


class Asked(BaseModel):
    """The parameters that all actions share. Numbers are numbers: no text is taken for one, and ``True`` is not 1."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dataset: str = Field(GSM8K, min_length=1)
    """A file, a folder with a file for each split, or a dataset of Hugging Face. Ours; the documentation has GSM8K."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further options of the job by their names (docs/configuration.md), such as ``run.seed``. Ours."""


class RewardAsked(BaseModel):
    """``create_reward``, and an entry of ``rewards``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reward_type: RewardType
    penalty_weight: float = Field(0.001, ge=0, le=10)
    step_bonus: float = Field(0.1, ge=0, le=1)
    weight: float = Field(1.0, ge=-1000, le=1000)
    """Weight among several rewards. Ours."""


class TrainAsked(Asked):
    """``train``. ``max_samples`` ``None`` takes all rows; the learning rate is set by the algorithm."""

    algorithm: Literal["sft", "grpo"]
    model_name: str = Field(min_length=1)
    output_dir: str = Field(min_length=1)
    max_samples: int | None = Field(None, ge=1)
    num_epochs: int = Field(3, ge=1, le=MAX_EPOCHS)
    batch_size: int | None = Field(None, ge=1, le=4096)
    learning_rate: float | None = Field(None, gt=0, le=1)
    use_lora: bool = False
    lora_r: int = Field(16, ge=1, le=512)
    lora_alpha: int = Field(32, ge=1, le=1024)
    lora_dropout: float = Field(0.05, ge=0, lt=1)
    rewards: list[RewardAsked] = Field(default_factory=lambda: [RewardAsked(reward_type="accuracy")], min_length=1)
    """What GRPO is rewarded for, as ``create_reward`` takes it. Ours: the documented training has no option for it."""

    @property
    def rows_of_update(self) -> int:
        """The batch size: 4 rows for SFT, 2 prompts for GRPO."""
        return self.batch_size or {"sft": 4, "grpo": 2}[self.algorithm]

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.learning_rate or {"sft": 2e-5, "grpo": 1e-5}[self.algorithm]


class LoadAsked(Asked):
    """``load_dataset``. The model is needed by ``rl`` alone, for its chat template."""

    format: Format = "sft"
    split: Split = "train"
    max_samples: int | None = Field(100, ge=1)
    model_name: str = Field(BASE_MODEL, min_length=1)


class EvaluateAsked(Asked):
    """``evaluate``, on the test split."""

    model_path: str = Field(min_length=1)
    max_samples: int | None = Field(100, ge=1)


def parsed(model: type[Given], given: dict[str, Any]) -> Given:
    """The parameters of an action. Raises ``ToolError`` with the text for the first thing that is wrong."""
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_context=True)
        raise ToolError(_complaint(sorted(found, key=_rank)[0])) from None


def not_supported(name: str, value: Any, choices: list[str]) -> str:
    """The text for a value that is none of the choices."""
    what, plural = _CHOICES[name]
    return f"不支持的{what}: {value}。支持的{plural}: {', '.join(choices)}"


def _rank(error: ErrorDetails) -> int:
    """What is missing is said before what is wrong, and that before what is unknown."""
    return {"missing": 0, "extra_forbidden": 2}.get(error["type"], 1)


def _complaint(error: ErrorDetails) -> str:
    name = ".".join(str(part) for part in error["loc"])
    last = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "missing":
        return f"缺少必需参数: {name}"
    if error["type"] == "extra_forbidden":
        return f"不支持的参数: {name}"
    if error["type"] == "literal_error" and last in _CHOICES:
        expected = str(error.get("ctx", {}).get("expected", ""))
        return not_supported(
            last, error["input"], [part.strip("' ") for part in expected.replace(" or ", ", ").split(",")]
        )
    return f"参数 {name} 无效: {error['msg']} (收到 {str(error['input'])[:60]!r})"


CONFIG_NAME = "job.yaml"
ROWS_NAME = "rows.jsonl"
LONGEST_S, STOP_S = 10 * 365 * 86_400.0, 600.0
LAST_LINES = 100
WHOLE_FILE = 1 << 50
# Where the documentation leaves a value open, that of the recipe it belongs to (docs/presets.md, reasoning-*).
MAX_ROW_TOKENS, MAX_PROMPT_TOKENS, MAX_ANSWER_TOKENS = 2048, 512, 512
NUM_GENERATIONS = 8
LORA_TARGETS = "q_proj,v_proj"
_ANSWER: dict[str, Any] = {
    "max_turns": 1,
    "max_turn_tokens": MAX_ANSWER_TOKENS,
    "max_completion_tokens": MAX_ANSWER_TOKENS,
    "max_prompt_tokens": MAX_PROMPT_TOKENS,
    "dialect": "text",
}
_COMPONENTS = {"accuracy": "helloagents_accuracy", "length_penalty": "helloagents_length", "step": "helloagents_step"}


class Ended(NamedTuple):
    """How a job ended, as its ``run_finished`` says. ``device`` is empty where it did not come so far."""

    status: str
    step: int
    device: str
    error: ErrorInfo | None
    interrupted: bool = False


def component_of(reward: RewardAsked) -> dict[str, Any]:
    """The reward component that a reward type means, with its parameters."""
    params: dict[str, Any] = {}
    if reward.reward_type == "length_penalty":
        params = {"penalty_weight": reward.penalty_weight}
    if reward.reward_type == "step":
        params = {"step_bonus": reward.step_bonus}
    return {"name": _COMPONENTS[reward.reward_type], "weight": reward.weight, "params": params}


def training_job(asked: TrainAsked, model: str, rows: Path, count: int) -> JobConfig:
    """The job of ``train``. Raises ``ToolError`` where further options contradict each other or their limits."""
    batch = asked.rows_of_update
    lora = {
        "lora_rank": asked.lora_r,
        "lora_alpha": asked.lora_alpha,
        "lora_dropout": asked.lora_dropout,
        "lora_targets": LORA_TARGETS,
    }
    config: dict[str, Any] = {
        "kind": asked.algorithm,
        "model": {"source": model, **(lora if asked.use_lora else {})},
        "data": {"train": str(rows)},
        "optim": {"learning_rate": asked.rate, "schedule": "linear"},
        "run": {"max_steps": -(-count * asked.num_epochs // batch), "keep_last": 1},
        "report": {"to": ["tensorboard"]},
    }
    if asked.algorithm == "sft":
        config["sft"] = {"batch_size": batch, "max_length": MAX_ROW_TOKENS}
    else:
        group = asked.options.get("rollout.num_generations", NUM_GENERATIONS)
        config["rewards"] = {"components": [component_of(reward) for reward in asked.rewards]}
        config["rollout"] = {
            **_ANSWER,
            "prompts_per_step": batch,
            "num_generations": group,
            "temperature": 0.8,
            "top_p": 0.9,
        }
        config["grpo"] = {"beta": 0.001}
        config["optim"]["micro_batch_size"] = group  # one group in each pass
    return _job(config, asked.options)


def evaluation_job(asked: EvaluateAsked, model: str, rows: Path) -> JobConfig:
    """The job of ``evaluate``: each task once, always with the likeliest token. Raises ``ToolError``."""
    config: dict[str, Any] = {
        "kind": "evaluate",
        "model": {"source": model},
        "data": {"train": str(rows)},
        "rewards": {"components": [component_of(RewardAsked(reward_type="accuracy"))]},
        "rollout": {**_ANSWER, "prompts_per_step": 16, "num_generations": 1, "top_k": 1},
    }
    return _job(config, asked.options)


def _job(config: dict[str, Any], options: Mapping[str, Any]) -> JobConfig:
    made = deepcopy(config)
    for name, value in options.items():
        *groups, option = name.split(".")
        place = made
        for group in groups:
            inner = place.setdefault(group, {})
            if not isinstance(inner, dict):
                raise ToolError(f"参数 options.{name} 无效: {group} 不是选项组")
            place = inner
        place[option] = value
    try:
        return JobConfig.model_validate(made)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        raise ToolError(f"参数 options.{option_of(error)} 无效: {complaint_of(error)}") from None
    except ConfigError as exc:
        raise ToolError(f"参数 options 无效: {exc.message}") from None


def job_run(config: JobConfig, run_dir: Path, stop_s: float = STOP_S) -> Ended:
    """Run a job to its end and say how it ended. What it prints appears where our own output does.

    A ``KeyboardInterrupt`` asks it to save and stop. It is raised again here where the job writes no last event within
    ``stop_s`` seconds, or at the second one; else ``interrupted`` says so. Raises ``ToolError`` where the job died.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    place = run_dir / CONFIG_NAME
    place.write_text(config_to_yaml(config), encoding="utf-8")
    command = [sys.executable, "-m", "training", "run", str(place), "--run-dir", str(run_dir), "--parent-pipe", "0"]
    env = {**os.environ, **child_env()}
    interrupted = False
    with limited_child(command, wall_s=LONGEST_S, env=env, stdin=subprocess.PIPE, stdout=None, stderr=None) as child:
        try:
            child.wait()
        except KeyboardInterrupt:
            interrupted = True
            child.ask_to_stop()
            child.wait(stop_s)
    last = _last_word(run_dir / JOURNAL_NAME)
    if last is None and interrupted:
        raise KeyboardInterrupt
    if last is None:
        raise ToolError(f"训练进程意外结束 (退出码 {child.code})，原因见控制台输出")
    return Ended(last.status, last.step, _device(run_dir / JOURNAL_NAME), last.error, interrupted)


def _last_word(journal: Path) -> RunFinished | None:
    """The job's last event, which says how it ended: at the end of a journal that may be gigabytes long."""
    for line in islice(lines_backwards(journal), LAST_LINES):
        event = parse_event(line)
        if isinstance(event, RunFinished):
            return event
    return None


def _device(journal: Path) -> str:
    """The device that it ran on; empty where it did not come so far."""
    events = (event for _offset, event in read_events(journal, max_bytes=WHOLE_FILE))
    return next((event.device for event in events if isinstance(event, RunStarted)), "")


# --- Rows -----------------------------------------------------------------------------------------------------------
# The tool's datasets: GSM8K's rows from a file, a folder or Hugging Face, written where a job reads them.

# GSM8K has a second configuration, whose files have the same names.
_WORDS = {GSM8K: "main/{split}"}


@contextmanager
def _opened(dataset: str, split: Split) -> Iterator[Path]:
    """The file with the rows of a split: of a folder the one that is named so, a file by itself whatever the split."""
    with resolved(dataset, _WORDS.get(dataset, "{split}").format(split=split)) as path:
        if path.is_dir():
            names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
            yield path / pick(names, str(path), split)
        else:
            yield path


def rows_write(dataset: str, split: Split, shape: Format, most: int | None, path: Path) -> int:
    """Write the first ``most`` rows of a split as conversations, and say how many there are. Raises ``ToolError``."""
    return _written(
        dataset, split, ConvertOptions(output=path, max_samples=most, reading=ReadOptions(shape=shape))
    ).rows


def dataset_load(asked: LoadAsked) -> tuple[int, list[str]]:
    """How many rows are loaded, and the names of their columns. Raises ``ToolError``."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-load-") as folder:
        path = Path(folder) / "rows.jsonl"
        options = ConvertOptions(output=path, max_samples=asked.max_samples, to=f"helloagents_{asked.format}")
        count = _written(asked.dataset, asked.split, options).rows
        with path.open("rb") as file:
            return count, list(json.loads(file.readline()))


def _written(dataset: str, split: Split, options: ConvertOptions) -> Converted:
    try:
        with _opened(dataset, split) as path:
            done = convert(path, options)
    except DataError as exc:
        raise ToolError(f"数据集加载失败: {exc.message} {exc.hint}".strip()) from exc
    if not done.rows:
        why = done.bad[0].reason if done.bad else "没有数据"
        raise ToolError(f"数据集加载失败: {dataset} ({split}): {why}")
    return done
