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
from typing import Any, NamedTuple

from pydantic import ValidationError

from training.child_env import child_env
from training.config import JobConfig, config_to_yaml
from training.data.convert import Converted, ConvertOptions, convert
from training.data.hub import pick, resolved
from training.data.options import ReadOptions
from training.errors import ConfigError, DataError, ErrorInfo
from training.events import RunFinished, RunStarted
from training.journal import JOURNAL_NAME, parse_event, read_events
from training.limited import limited_child
from training.rl_tool.asking import GSM8K, EvaluateAsked, Format, LoadAsked, RewardAsked, Split, ToolError, TrainAsked
from training.tail import lines_backwards
from training.words import complaint_of, option_of

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
    """Run a job to its end and say how it ended. What it prints is seen by whoever sees what we print.

    A ``KeyboardInterrupt`` asks it to save and stop. It is raised again here where the job says no last word within
    ``stop_s`` seconds, or at the second one; else ``interrupted`` tells of it. Raises ``ToolError`` where the job died.
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
    """How the job says that it ended: it stands at the end of a journal that may be gigabytes long."""
    for line in islice(lines_backwards(journal), LAST_LINES):
        event = parse_event(line)
        if isinstance(event, RunFinished):
            return event
    return None


def _device(journal: Path) -> str:
    """What it ran on; empty where it did not come so far."""
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
