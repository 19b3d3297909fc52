"""The tool itself: ``run`` takes a dictionary and answers JSON, whatever happens."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from training.algorithms.checkpoints import (
    ADAPTER,
    ADAPTER_CONFIG,
    FINAL,
    MANIFEST,
    Manifest,
    numbered,
    step_of,
    verify,
    write_whole,
)
from training.config import JobConfig
from training.errors import Boundary, ErrorInfo, TiltyardError
from training.evaluation.figures import REPORT_NAME, Report
from training.rewards.scoring import COMPONENTS
from training.rl_tool.jobs import (
    ROWS_NAME,
    Ended,
    EvaluateAsked,
    LoadAsked,
    RewardAsked,
    ToolError,
    TrainAsked,
    component_of,
    dataset_load,
    evaluation_job,
    job_run,
    not_supported,
    parsed,
    rows_write,
    training_job,
)

# The tool's output folder: each call's run in ``runs/<time>``, and the newest model where the documentation has it.
#
# The model and its adapter are hard links to the run's own files where the file system has such, else copies. A model
# that is trained further or evaluated is taken from the run's folder, which holds nothing else.

RUNS = "runs"
ADAPTER_FILES = "adapter_*"
# A checkpoint's files that only a trainer reads.
_TRAINERS = {MANIFEST, "trainer_state.json"}
_LOADS = (".safetensors", ".json", ".jinja", ".txt", ".model")


def new_run(output: Path) -> Path:
    """A fresh folder for a run; no call continues an earlier one. Raises ``OSError``."""
    name = stem = f"{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        try:
            (output / RUNS / name).mkdir(parents=True)
            return output / RUNS / name
        except FileExistsError:
            if not (output / RUNS).is_dir():
                raise
            number += 1
            name = f"{stem}-{number:03}"


def model_of(name: str) -> str:
    """What a name of the tool means to a job: of an output folder the newest run's model, else the name itself."""
    found = sorted(Path(name).expanduser().glob(f"{RUNS}/*/{FINAL}/{MANIFEST}"))
    return str(found[-1].parent.resolve()) if found else name


def publish(run: Path, output: Path) -> None:
    """Put the run's model into the output folder, and its adapter next to it, in place of those of an earlier run."""
    _replace(run / FINAL, output)
    if (run / ADAPTER).is_dir():
        _replace(run / ADAPTER, output / ADAPTER)
    elif (output / ADAPTER / MANIFEST).is_file():  # that of an earlier run
        shutil.rmtree(output / ADAPTER)


def _replace(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    old = _listed(target)
    for name in (*_listed(source), MANIFEST):
        fresh = target / f"{name}.part"
        fresh.unlink(missing_ok=True)
        try:
            os.link(source / name, fresh)
        except OSError:
            shutil.copyfile(source / name, fresh)
        os.replace(fresh, target / name)
    for name in old - _listed(source):
        (target / name).unlink(missing_ok=True)


def _listed(folder: Path) -> set[str]:
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        return set()
    return {file.path for file in Manifest.model_validate_json(text).files if "/" not in file.path}


def checkpoints_drop(run: Path) -> None:
    """Delete what a run could only be resumed with, once its model is there."""
    for folder in numbered(run):
        shutil.rmtree(folder, ignore_errors=True)


def salvage(run: Path, config: JobConfig) -> int | None:
    """Make the model of a run that was stopped, of its newest whole checkpoint, and say its step.

    ``None`` where nothing was saved. Raises ``TiltyardError`` where the base of an adapter is gone.
    """
    folders = sorted(numbered(run), key=step_of, reverse=True)
    folder = next((each for each in folders if verify(each) is not None), None)
    if folder is None:
        return None
    if (folder / ADAPTER_CONFIG).is_file():
        _merge(run, config, folder)
    else:
        write_whole(run / FINAL, step_of(folder), lambda target: _copy(folder, target, "*"))
    return step_of(folder)


def _copy(source: Path, target: Path, which: str) -> None:
    for path in source.glob(which):
        if path.name not in _TRAINERS and path.suffix in _LOADS:
            shutil.copyfile(path, target / path.name)


def _merge(run: Path, config: JobConfig, adapter: Path) -> None:
    from peft import PeftModel

    from training.algorithms.loading import STARTER, fetch_model, load_model, load_tokenizer

    base = run / STARTER if config.model.source == STARTER else fetch_model(config, [], run)
    try:
        model = PeftModel.from_pretrained(load_model(config, base, "cpu"), str(adapter))
    except (OSError, ValueError, RuntimeError) as exc:
        raise TiltyardError(f"The adapter cannot be read: {exc}") from exc
    tokenizer, _note = load_tokenizer(adapter)

    def fill(target: Path) -> None:
        model.merge_and_unload().save_pretrained(target)
        tokenizer.save_pretrained(target)

    write_whole(run / ADAPTER, step_of(adapter), lambda target: _copy(adapter, target, ADAPTER_FILES))
    write_whole(run / FINAL, step_of(adapter), fill)


Answer = dict[str, Any]
logger = logging.getLogger(__name__)


class RLTrainingTool:
    """Training and evaluation as one call: ``RLTrainingTool().run({"action": "train", …})``."""

    def __init__(self, dataset: str | None = None) -> None:
        """``dataset``: what calls that name none read, in place of GSM8K from Hugging Face: a file, a folder with a
        file for each split, or another dataset of Hugging Face."""
        self._dataset = dataset

    def run(self, parameters: dict[str, Any]) -> str:
        """Do what ``action`` says and answer as JSON with ``status`` ``success`` or ``error``.

        Raises nothing but ``KeyboardInterrupt``: the model that was trained so far then is in ``output_dir``.
        """
        try:
            answer = {"status": "success", **self._answer(parameters)}
        except ToolError as error:
            answer = {"status": "error", "message": str(error)}
        except TiltyardError as error:
            answer = {"status": "error", "message": _error_text(error.info)}
        except OSError as error:
            answer = {"status": "error", "message": f"文件操作失败: {error}"}
        except Exception as error:  # the boundary of the call: an answer is promised whatever happens
            logger.exception("the tool failed")
            answer = {"status": "error", "message": f"内部错误: {type(error).__name__}: {error}"}
        return json.dumps(answer, ensure_ascii=False, indent=4)

    def _answer(self, parameters: Any) -> Answer:
        if not isinstance(parameters, dict):
            raise ToolError("参数必须是字典")
        actions: dict[str, Callable[[Answer], Answer]] = {
            "train": lambda given: train(parsed(TrainAsked, self._with_dataset(given))),
            "load_dataset": lambda given: load_dataset(parsed(LoadAsked, self._with_dataset(given))),
            "create_reward": lambda given: create_reward(parsed(RewardAsked, given)),
            "evaluate": lambda given: evaluate(parsed(EvaluateAsked, self._with_dataset(given))),
        }
        given = dict(parameters)
        if "action" not in given:
            raise ToolError("缺少必需参数: action")
        action = given.pop("action")
        if not isinstance(action, str) or action not in actions:
            raise ToolError(not_supported("action", action, list(actions)))
        return actions[action](given)

    def _with_dataset(self, given: Answer) -> Answer:
        return given if self._dataset is None else {"dataset": self._dataset, **given}


def train(asked: TrainAsked) -> Answer:
    """Train a model and leave it in ``output_dir``. Raises ``ToolError``, ``KeyboardInterrupt`` once it is saved."""
    if find_spec("trl") is None:
        raise ToolError("TRL未安装")
    training_job(asked, asked.model_name, Path(ROWS_NAME), 1)  # what is wrong is said before anything is made
    output = Path(asked.output_dir).expanduser()
    run = new_run(output)
    count = rows_write(
        asked.dataset, "train", "sft" if asked.algorithm == "sft" else "rl", asked.max_samples, run / ROWS_NAME
    )
    config = training_job(asked, model_of(asked.model_name), run / ROWS_NAME, count)
    ended = job_run(config, run)
    if ended.status == "stopped":
        step = salvage(run, config)
        if step is not None:
            publish(run, output)
        if ended.interrupted:
            raise KeyboardInterrupt
        raise ToolError(
            f"训练在第 {ended.step} 步被中断；" + (f"第 {step} 步的模型已保存到 {output}" if step else "没有模型可保存")
        )
    _require_success(ended)
    publish(run, output)
    checkpoints_drop(run)
    return {
        "algorithm": asked.algorithm,
        "model_name": asked.model_name,
        "output_dir": asked.output_dir,
        "num_samples": count,
        "num_epochs": asked.num_epochs,
        "use_lora": asked.use_lora,
    }


def load_dataset(asked: LoadAsked) -> Answer:
    """Read a dataset. For RL the model must have a chat template, for the prompts are put into it."""
    count, keys = dataset_load(asked)
    if asked.format == "rl":
        _require_template(asked.model_name)
    return {"format": asked.format, "split": asked.split, "dataset_size": count, "sample_keys": keys}


def create_reward(asked: RewardAsked) -> Answer:
    """Say what a reward pays; ``train`` takes the same parameters in ``rewards``."""
    params = COMPONENTS[component_of(asked)["name"]].params.model_validate(component_of(asked)["params"])
    if asked.reward_type == "accuracy":
        text = "准确率奖励函数: 正确答案得1分,错误答案得0分"
    elif asked.reward_type == "length_penalty":
        most = params.model_dump()["max_length"]
        rule = f"{asked.penalty_weight:g} × (长度 - {most}) / {most}"
        text = f"长度惩罚奖励函数: 准确率得分,超过{most}个字符时减去 {rule},最低0分"
    else:
        most = params.model_dump()["max_bonus"]
        text = f"步骤奖励函数: 准确率得分加上步骤奖励,每个换行加{asked.step_bonus:g}分,最多加{most:g}分"
    return {"reward_type": asked.reward_type, "description": text}


def evaluate(asked: EvaluateAsked) -> Answer:
    """Solve each task of the test split once and count the right answers. Raises ``ToolError``."""
    with tempfile.TemporaryDirectory(prefix="tiltyard-evaluate-") as folder:
        run = Path(folder)
        rows_write(asked.dataset, "test", "rl", asked.max_samples, run / ROWS_NAME)
        ended = job_run(evaluation_job(asked, model_of(asked.model_path), run / ROWS_NAME), run)
        if ended.interrupted:
            raise KeyboardInterrupt
        _require_success(ended)
        report = Report.model_validate_json((run / REPORT_NAME).read_text(encoding="utf-8"))
    reward = report.figures.get("reward")
    if reward is None or reward.value is None:
        raise ToolError("评测失败: 没有一个任务得到评分")
    return {
        "model_path": asked.model_path,
        "num_samples": reward.tasks,
        "accuracy": f"{reward.value:.2%}",
        "average_reward": f"{reward.value:.4f}",
        "device": ended.device,
    }


def _require_template(name: str) -> None:
    from training.algorithms.loading import STARTER, fetch_model, load_tokenizer
    from training.config import JobConfig
    from training.rollout.tokens import ChatTemplate

    if name == STARTER:  # it is built from the rows that it is trained on, with a template of ours
        return
    config = JobConfig.model_validate({"model": {"source": model_of(name)}})
    with tempfile.TemporaryDirectory(prefix="tiltyard-load-") as folder:
        ChatTemplate(load_tokenizer(fetch_model(config, [], Path(folder)))[0])


def _require_success(ended: Ended) -> None:
    if ended.error is not None:
        raise ToolError(_error_text(ended.error))
    if ended.status != "succeeded":
        raise ToolError(f"训练在第 {ended.step} 步被中断")


def _error_text(error: ErrorInfo) -> str:
    what = {Boundary.MODEL: "模型加载失败", Boundary.DATA: "数据集加载失败", Boundary.CONFIG: "参数无效"}
    return f"{what.get(error.boundary, '训练失败')}: {error.message} {error.hint}".strip()
