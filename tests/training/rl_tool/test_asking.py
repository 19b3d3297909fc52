"""The tool's answers that need no training: what it says of datasets and rewards, and what it says of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.rl_tool import RLTrainingTool
from training.rl_tool.jobs import TrainAsked, parsed, training_job

TRAIN = {"action": "train", "algorithm": "sft", "model_name": "starter", "output_dir": "out"}


def asked(given: Any, dataset: Path | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(RLTrainingTool(str(dataset) if dataset else None).run(given))
    return answer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "缺少必需参数: action"),
        (
            {"action": "sing"},
            "不支持的操作: sing。支持的操作: train, load_dataset, create_reward, evaluate",
        ),
        ({"action": "train"}, "缺少必需参数: algorithm"),
        ({"action": "train", "algorithm": "ppo"}, "缺少必需参数: model_name"),
        ({"action": "train", "algorithm": "sft", "model_name": "a/b"}, "缺少必需参数: output_dir"),
        (TRAIN | {"algorithm": "ppo"}, "不支持的算法: ppo。支持的算法: sft, grpo"),
        ({"action": "evaluate"}, "缺少必需参数: model_path"),
        ({"action": "load_dataset", "format": "xml"}, "不支持的数据格式: xml。支持的格式: sft, rl"),
        ({"action": "load_dataset", "split": "dev"}, "不支持的数据集分割: dev。支持的分割: train, test"),
        ({"action": "create_reward"}, "缺少必需参数: reward_type"),
        (
            {"action": "create_reward", "reward_type": "joy"},
            "不支持的奖励类型: joy。支持的类型: accuracy, length_penalty, step",
        ),
        (TRAIN | {"lora_rank": 8}, "不支持的参数: lora_rank"),
    ],
)
def test_what_is_wrong_is_reported_in_the_documented_words(given: dict[str, Any], message: str) -> None:
    assert asked(given) == {"status": "error", "message": message}


@pytest.mark.parametrize(
    ("more", "begins"),
    [
        ({"num_epochs": 0}, "参数 num_epochs 无效: "),
        ({"num_epochs": "3"}, "参数 num_epochs 无效: "),
        ({"batch_size": -1}, "参数 batch_size 无效: "),
        ({"learning_rate": 0}, "参数 learning_rate 无效: "),
        ({"use_lora": "yes"}, "参数 use_lora 无效: "),
        ({"max_samples": 0}, "参数 max_samples 无效: "),
        ({"rewards": []}, "参数 rewards 无效: "),
        ({"rewards": [{"reward_type": "joy"}]}, "不支持的奖励类型: joy"),
        ({"options": {"run.seed": -1}}, "参数 options.run.seed 无效: "),
        ({"options": {"run.sed": 1}}, "参数 options.run.sed 无效: "),
        ({"options": {"kind.of": 1}}, "参数 options.kind.of 无效: "),
    ],
)
def test_values_that_cannot_be_are_named_before_anything_is_trained(
    more: dict[str, Any], begins: str, gsm8k: Path, tmp_path: Path
) -> None:
    answer = asked(TRAIN | {"output_dir": str(tmp_path / "out")} | more, gsm8k)
    assert answer["status"] == "error" and answer["message"].startswith(begins), answer


@pytest.mark.parametrize("given", [None, [], "train", 7])
def test_what_is_no_dictionary_is_reported_as_none(given: Any) -> None:
    assert asked(given) == {"status": "error", "message": "参数必须是字典"}


def test_a_dataset_that_is_not_there_is_an_answer(tmp_path: Path) -> None:
    answer = asked({"action": "load_dataset", "dataset": str(tmp_path)})
    assert answer["status"] == "error" and answer["message"].startswith("数据集加载失败: ")
    (tmp_path / "train.jsonl").write_text('{"height": 4}\n')
    answer = asked({"action": "load_dataset", "dataset": str(tmp_path)})
    assert answer["status"] == "error" and answer["message"].startswith("数据集加载失败: ")


def test_a_dataset_is_loaded_as_documented(gsm8k: Path, at_work: Path) -> None:
    sft = {"action": "load_dataset", "format": "sft", "split": "train", "max_samples": 100}
    assert asked(sft, gsm8k) == {
        "status": "success",
        "format": "sft",
        "split": "train",
        "dataset_size": 6,
        "sample_keys": ["prompt", "completion", "text"],
    }
    rl = {**sft, "format": "rl", "model_name": "Qwen/Qwen3-0.6B"}
    answer = asked(rl, gsm8k)
    assert answer["dataset_size"] == 6 and answer["format"] == "rl", answer
    assert answer["sample_keys"] == ["prompt", "ground_truth", "question", "full_answer"]
    assert asked({"action": "load_dataset", "max_samples": 2, "split": "test"}, gsm8k)["dataset_size"] == 2


def test_a_model_without_the_files_cannot_give_its_template(gsm8k: Path, at_work: Path) -> None:
    answer = asked({"action": "load_dataset", "format": "rl", "model_name": "nobody/nothing"}, gsm8k)
    assert answer["status"] == "error" and answer["message"].startswith("模型加载失败: ")


def test_rewards_say_what_they_pay() -> None:
    assert asked({"action": "create_reward", "reward_type": "accuracy"}) == {
        "status": "success",
        "reward_type": "accuracy",
        "description": "准确率奖励函数: 正确答案得1分,错误答案得0分",
    }
    longer = asked({"action": "create_reward", "reward_type": "length_penalty", "penalty_weight": 0.25})
    assert longer["status"] == "success" and "0.25 × (长度 - 1024) / 1024" in longer["description"]
    step = asked({"action": "create_reward", "reward_type": "step", "step_bonus": 0.2})
    assert step["status"] == "success" and "加0.2分,最多加0.5分" in step["description"]


def test_the_documented_defaults_are_the_jobs_options() -> None:
    sft = training_job(parsed(TrainAsked, {**_plain(), "algorithm": "sft"}), "a/b", Path("rows"), 1000)
    assert (sft.kind, sft.sft.batch_size, sft.optim.learning_rate, sft.model.lora_rank) == ("sft", 4, 2e-5, 0)
    assert sft.run.max_steps == 750  # 3 epochs of 1,000 rows, 4 at a time
    grpo = training_job(parsed(TrainAsked, {**_plain(), "algorithm": "grpo"}), "a/b", Path("rows"), 501)
    assert (grpo.rollout.prompts_per_step, grpo.optim.learning_rate, grpo.model.lora_rank) == (2, 1e-5, 0)
    assert grpo.run.max_steps == 752  # 1,503 prompts, two at a time, the last one with one of a fourth epoch
    assert [part.name for part in grpo.rewards.components] == ["helloagents_accuracy"]


def test_lora_learning_rate_rewards_and_options_are_applied() -> None:
    """The published tool takes the first two and uses neither."""
    given = {
        **_plain(),
        "algorithm": "grpo",
        "batch_size": 3,
        "learning_rate": 1e-6,
        "use_lora": True,
        "lora_r": 4,
        "lora_alpha": 8,
        "lora_dropout": 0.1,
        "rewards": [
            {"reward_type": "accuracy"},
            {"reward_type": "length_penalty", "penalty_weight": 0.5, "weight": 0.25},
            {"reward_type": "step", "step_bonus": 0.3},
        ],
        "options": {"run.seed": 7, "rollout.num_generations": 4},
    }
    job = training_job(parsed(TrainAsked, given), "a/b", Path("rows"), 9)
    model = job.model
    assert (model.lora_rank, model.lora_alpha, model.lora_dropout, model.lora_targets) == (4, 8, 0.1, "q_proj,v_proj")
    assert (job.learning_rate, job.run.seed, job.run.max_steps) == (1e-6, 7, 9)
    assert (job.rollout.num_generations, job.optim.micro_batch_size, job.rollouts_per_step) == (4, 4, 12)
    rewards = [(part.name, part.weight, part.params) for part in job.rewards.components]
    assert rewards == [
        ("helloagents_accuracy", 1.0, {}),
        ("helloagents_length", 0.25, {"penalty_weight": 0.5}),
        ("helloagents_step", 1.0, {"step_bonus": 0.3}),
    ]


def _plain() -> dict[str, Any]:
    return {"model_name": "a/b", "output_dir": "out"}
