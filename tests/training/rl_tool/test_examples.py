"""Every example of the documentation, word for word, on six rows of word problems and a tiny model of that name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training.helpers import of_type
from tests.training.reporting.test_runs import in_files
from tests.training.rl_tool.conftest import COMMIT
from training.algorithms.checkpoints import verify
from training.config import config_load
from training.rl_tool import RLTrainingTool

pytestmark = [pytest.mark.usefixtures("at_work"), pytest.mark.timeout(900)]


@pytest.fixture
def tool(gsm8k: Path) -> RLTrainingTool:
    return RLTrainingTool(str(gsm8k))


def run_of(output: str) -> Path:
    """The folder of an output's only run."""
    (found,) = (Path(output) / "runs").iterdir()
    return found


def dtypes(folder: Path) -> set[str]:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {str(file.get_tensor(name).dtype) for name in file.keys()}  # noqa: SIM118 - it is no dictionary


def test_sft_with_lora(tool: RLTrainingTool, small_qwen: Path) -> None:
    result = tool.run(
        {
            "action": "train",
            "algorithm": "sft",
            "model_name": "Qwen/Qwen3-0.6B",
            "output_dir": "./output/sft",
            "max_samples": 1000,
            "num_epochs": 3,
            "batch_size": 4,
            "use_lora": True,
        }
    )
    assert json.loads(result) == {
        "status": "success",
        "algorithm": "sft",
        "model_name": "Qwen/Qwen3-0.6B",
        "output_dir": "./output/sft",
        "num_samples": 6,
        "num_epochs": 3,
        "use_lora": True,
    }
    run = run_of("output/sft")
    started = of_type(run, "run_started")[0]
    assert (started.kind, started.rows, started.total_steps) == ("sft", 6, 5)  # 18 rows, 4 at a time
    assert started.resolved["model.revision"] == COMMIT
    rates = [event.values["learning_rate"] for event in of_type(run, "metrics")]
    assert len(rates) == 5 and rates[0] == pytest.approx(2e-5) and rates == sorted(rates, reverse=True)
    _loads_everywhere(run, small_qwen)
    _outputs_are_all_there(run)


def _loads_everywhere(run: Path, cache: Path) -> None:
    """As the documentation loads it, and the adapter over its base; both say the same."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("./output/sft", dtype="auto")
    tokenizer = AutoTokenizer.from_pretrained("./output/sft")
    assert model.dtype == torch.bfloat16 and dtypes(Path("output/sft")) == {"torch.bfloat16"}
    base = cache / "models--Qwen--Qwen3-0.6B" / "snapshots" / COMMIT
    whole = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), "output/sft/adapter")
    adapter = json.loads(Path("output/sft/adapter/adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"], adapter["lora_dropout"]) == (16, 32, 0.05)
    assert (adapter["base_model_name_or_path"], adapter["revision"]) == ("Qwen/Qwen3-0.6B", COMMIT)
    assert sorted(adapter["target_modules"]) == ["q_proj", "v_proj"]
    ids = tokenizer("How many apples?", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        gap = (whole(ids).logits - model.float()(ids).logits).abs().max()
        off = (AutoModelForCausalLM.from_pretrained(base).float()(ids).logits - whole(ids).logits).abs().max()
    assert gap < 0.05 and off > 0  # bfloat16's rounding; and it did learn something
    assert verify(run / "model") is not None and verify(run / "adapter") is not None


def _outputs_are_all_there(run: Path) -> None:
    rows = json.loads((run / "metrics" / "training_metrics.json").read_text())
    events = [{"step": event.step, **event.values} for event in of_type(run, "metrics")]
    assert rows == events and len(rows) == 5
    (log,) = (run / "logs").glob("train_????????_??????.log")
    assert "step 5" in log.read_text() and "succeeded at step 5" in log.read_text()
    shown = in_files(run / "reports" / "tensorboard")
    assert [shown[row["step"], "loss"] for row in rows] == pytest.approx([row["loss"] for row in rows])
    card = Path("output/sft/README.md").read_text()
    assert f"| Revision of the base model | {COMMIT} |" in card and "| LoRA | rank 16, alpha 32" in card
    assert "base_model: Qwen/Qwen3-0.6B\n" in card and "| Rows | 6 |" in card and "| Steps | 5 |" in card
    assert "library_name: peft" in Path("output/sft/adapter/README.md").read_text()
    assert not list(run.glob("checkpoint-*"))


@pytest.mark.slow
def test_grpo_with_lora(tool: RLTrainingTool) -> None:
    result = tool.run(
        {
            "action": "train",
            "algorithm": "grpo",
            "model_name": "Qwen/Qwen3-0.6B",
            "output_dir": "./output/grpo",
            "max_samples": 500,
            "num_epochs": 3,
            "batch_size": 2,
            "use_lora": True,
        }
    )
    answer = json.loads(result)
    assert (answer["status"], answer["algorithm"], answer["num_samples"]) == ("success", "grpo", 6), answer
    run = run_of("output/grpo")
    rates = [event.values["learning_rate"] for event in of_type(run, "metrics")]
    assert len(rates) == 9 and rates[0] == pytest.approx(1e-5)  # 18 prompts, 2 at a time
    rollouts = of_type(run, "rollout_finished")
    assert len(rollouts) == 9 * 2 * 8 and all(set(each.parts) == {"helloagents_accuracy"} for each in rollouts)
    assert Path("output/grpo/adapter/adapter_config.json").is_file()


@pytest.mark.slow
def test_the_whole_flow_and_evaluations(tool: RLTrainingTool) -> None:
    sft_result = tool.run(
        {
            "action": "train",
            "algorithm": "sft",
            "model_name": "Qwen/Qwen3-0.6B",
            "output_dir": "./output/sft",
            "max_samples": 1000,
            "num_epochs": 3,
        }
    )
    grpo_result = tool.run(
        {
            "action": "train",
            "algorithm": "grpo",
            "model_name": "./output/sft",
            "output_dir": "./output/grpo",
            "max_samples": 500,
            "num_epochs": 3,
        }
    )
    assert json.loads(sft_result)["use_lora"] is False and json.loads(grpo_result)["status"] == "success", grpo_result
    trained = config_load(run_of("output/grpo") / "job.yaml")
    assert Path(trained.model.source) == (run_of("output/sft") / "model").resolve() and trained.model.lora_rank == 0
    assert dtypes(Path("output/sft")) == {"torch.float32"}  # rounding would take back what was learned
    assert not Path("output/sft/adapter").exists()
    for path, samples in (("./output/sft", 100), ("./output/grpo", 100), ("Qwen/Qwen3-0.6B", 50)):
        result = json.loads(tool.run({"action": "evaluate", "model_path": path, "max_samples": samples}))
        assert (result["status"], result["model_path"], result["num_samples"]) == ("success", path, 5), result
        assert set(result) == {"status", "model_path", "num_samples", "accuracy", "average_reward", "device"}
        share = float(result["accuracy"].removesuffix("%")) / 100
        assert result["accuracy"] == f"{share:.2%}" and result["average_reward"] == f"{share:.4f}"
        assert result["device"] in ("cpu", "cuda")


@pytest.mark.slow
def test_the_end_to_end_example(tool: RLTrainingTool) -> None:
    dataset_result = tool.run({"action": "load_dataset", "format": "sft", "split": "train", "max_samples": 1000})
    assert json.loads(dataset_result)["dataset_size"] == 6
    common = {"action": "train", "num_epochs": 3, "use_lora": True}
    sft = {"algorithm": "sft", "model_name": "Qwen/Qwen3-0.6B", "output_dir": "./output/sft", "max_samples": 1000}
    assert json.loads(tool.run(common | sft))["status"] == "success"
    grpo = {"algorithm": "grpo", "model_name": "./output/sft", "output_dir": "./output/grpo", "max_samples": 500}
    assert json.loads(tool.run(common | grpo))["status"] == "success"
    assert dtypes(Path("output/grpo")) == {"torch.bfloat16"}  # as the base of its base
    eval_data = json.loads(tool.run({"action": "evaluate", "model_path": "./output/grpo", "max_samples": 100}))
    assert eval_data["accuracy"].endswith("%")


@pytest.mark.slow
def test_the_quick_test_and_what_a_second_run_into_the_same_folder_leaves(tool: RLTrainingTool) -> None:
    quick = {"action": "train", "max_samples": 10, "num_epochs": 1}
    sft = {"algorithm": "sft", "model_name": "Qwen/Qwen3-0.6B", "output_dir": "./output/quick_sft"}
    assert json.loads(tool.run(quick | sft | {"batch_size": 2, "use_lora": True}))["status"] == "success"
    assert Path("output/quick_sft/adapter").is_dir()
    first = Path("output/quick_sft/model.safetensors").read_bytes()
    assert json.loads(tool.run(quick | sft))["status"] == "success"  # from the start, not continuing the first
    assert len(list(Path("output/quick_sft/runs").iterdir())) == 2
    assert not Path("output/quick_sft/adapter").exists()
    assert Path("output/quick_sft/model.safetensors").read_bytes() != first
    grpo = {"algorithm": "grpo", "model_name": "./output/quick_sft", "output_dir": "./output/quick_grpo"}
    assert json.loads(tool.run(quick | grpo))["status"] == "success"
    result = tool.run({"action": "evaluate", "model_path": "./output/quick_grpo", "max_samples": 10})
    assert json.loads(result)["num_samples"] == 5


def test_a_model_that_cannot_be_had_is_reported_in_the_documented_words(tool: RLTrainingTool) -> None:
    given = {"action": "train", "algorithm": "sft", "model_name": "./nowhere", "output_dir": "out", "num_epochs": 1}
    answer = json.loads(tool.run(given))
    assert answer["status"] == "error" and answer["message"].startswith("模型加载失败: "), answer
    assert "./nowhere" in answer["message"] and not Path("out/config.json").exists()


SCRIPT = """
import sys
from training.rl_tool import RLTrainingTool

tool = RLTrainingTool(sys.argv[1])
print(tool.run({
    "action": "train",
    "algorithm": "sft",
    "model_name": "Qwen/Qwen3-0.6B",
    "output_dir": "./out",
    "num_epochs": 10000,
    "use_lora": sys.argv[2] == "lora",
}))
"""


METRICS = "runs/*/metrics/training_metrics.json"


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["lora", "all"])
def test_ctrl_c_leaves_the_model_in_the_output_folder(weights: str, gsm8k: Path, at_work: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    env = {**os.environ, "PYTHONPATH": str(root)}
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(gsm8k), weights],
        env=env,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        until = time.monotonic() + 300
        while not any('"step"' in path.read_text() for path in Path("out").glob(METRICS)) and time.monotonic() < until:
            time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        _out, errors = child.communicate(timeout=300)
    finally:
        child.kill()
    assert child.returncode != 0 and b"KeyboardInterrupt" in errors
    from transformers import AutoModelForCausalLM

    run = run_of("out")
    ended = of_type(run, "run_finished")[0]
    assert ended.status == "stopped" and 0 < ended.step < 15000
    saved = verify(run / "model")
    assert saved is not None and saved.step == ended.step
    assert AutoModelForCausalLM.from_pretrained("out").num_parameters() > 100_000
    assert Path("out/adapter").is_dir() == (weights == "lora")
