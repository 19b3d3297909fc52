"""``RLTrainingTool`` against its documentation: every row of GSM8K in both forms, answers, and texts of errors.

Its code is under a licence that this project keeps away from, so the other side is written here a second time from its
documents. What trains is measured by ``tests/training/rl_tool/``, which runs every example of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.parity.upstream import Tally, folder
from training.data.making import ConvertOptions, convert
from training.rl_tool import RLTrainingTool

ROWS = {"train": 7473, "test": 1319}
KEYS = {"sft": ["prompt", "completion", "text"], "rl": ["prompt", "ground_truth", "question", "full_answer"]}
ACCURACY = {
    "status": "success",
    "reward_type": "accuracy",
    "description": "准确率奖励函数: 正确答案得1分,错误答案得0分",
}
ERRORS: list[tuple[dict[str, Any], str]] = [
    ({}, "缺少必需参数: action"),
    ({"action": "evaluate"}, "缺少必需参数: model_path"),
    (
        {"action": "train", "algorithm": "ppo", "model_name": "m", "output_dir": "o"},
        "不支持的算法: ppo。支持的算法: sft, grpo",
    ),
]
BEGINNINGS: list[tuple[dict[str, Any], str]] = [
    ({"action": "sing"}, "不支持的操作"),
    ({"action": "load_dataset", "format": "xml"}, "不支持的数据格式"),
    ({"action": "create_reward", "reward_type": "joy"}, "不支持的奖励类型"),
    ({"action": "load_dataset", "format": "rl", "model_name": "./no-such-model"}, "模型加载失败: "),
]


def measure(data: Path) -> dict[str, Any]:
    """Rows and answers, each with what differs."""
    place = folder(data, "seed3_helloagents_gsm8k")
    return {"rows": rows(place).report(), "answers": answers(place).report()}


def rows(place: Path) -> Tally:
    """Each row as we write it for SFT and for RL, against the document's."""
    tally = Tally()
    for split, count in ROWS.items():
        source = place / f"gsm8k_{split}.jsonl"
        for form in KEYS:
            written = list(_written(source, form))
            tally.add(len(written) == count, {"split": split, "format": form, "rows": len(written)})
            for ours, row in zip(written, _lines(source), strict=False):
                tally.add(ours == _documented(form, row), {"format": form, "row": row, "ours": ours})
    return tally


def _written(source: Path, form: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.jsonl"
        convert(source, ConvertOptions(output=path, to=f"helloagents_{form}"))
        yield from _lines(path)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _documented(form: str, row: dict[str, str]) -> dict[str, str]:
    asked = f"Question: {row['question']}\n\nLet's solve this step by step:"
    reasoning, final = (part.strip() for part in row["answer"].split("####"))
    if form == "rl":
        return {
            "prompt": asked,
            "ground_truth": final,
            "question": row["question"],
            "full_answer": row["answer"],
        }
    prompt, completion = asked + "\n", f"{reasoning}\n\nFinal Answer: {final}"
    return {"prompt": prompt, "completion": completion, "text": prompt + completion}


def answers(place: Path) -> Tally:
    """The documented answers to calls that train nothing."""
    tool, tally = RLTrainingTool(str(place)), Tally()

    def answer_of(given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(tool.run(given))
        return found

    for form, keys in KEYS.items():
        for split, count in ROWS.items():
            for most in (None, 100, 10_000):
                given = {"action": "load_dataset", "format": form, "split": split, "max_samples": most}
                size = min(count, most or count)
                expected = {"status": "success", "format": form, "split": split, "dataset_size": size}
                answer = answer_of({**given, "model_name": "starter"})
                tally.add(answer == {**expected, "sample_keys": keys}, {"given": given, "ours": answer})
    answer = answer_of({"action": "create_reward", "reward_type": "accuracy"})
    tally.add(answer == ACCURACY, answer)
    for given, text in ERRORS:
        tally.add(answer_of(given) == {"status": "error", "message": text}, {"given": given, "ours": answer_of(given)})
    for given, text in BEGINNINGS:
        answer = answer_of(given)
        same = answer["status"] == "error" and answer["message"].startswith(text)
        tally.add(same and len(answer) == 2, {"given": given, "ours": answer})
    return tally
