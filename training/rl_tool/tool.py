"""The tool itself: ``run`` takes a dictionary and answers JSON, whatever happens."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from training.errors import Boundary, ErrorInfo, TiltyardError
from training.evaluation.recorded import REPORT_NAME, Report
from training.rewards.registry import COMPONENTS
from training.rl_tool.asking import (
    EvaluateAsked,
    LoadAsked,
    RewardAsked,
    ToolError,
    TrainAsked,
    not_supported,
    parsed,
)
from training.rl_tool.jobs import (
    ROWS_NAME,
    Ended,
    component_of,
    dataset_load,
    evaluation_job,
    job_run,
    rows_write,
    training_job,
)
from training.rl_tool.outputs import checkpoints_drop, model_of, new_run, publish, salvage

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

        Raises nothing but ``KeyboardInterrupt``: the model that was trained so far then stands in ``output_dir``.
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
