"""Every preset loads, its rewards can be scored, its sizes pass the checks; tests/webapp/environments has its needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.memory.devices import KNOWN, device_named
from training.memory.table import Model, memory_of
from training.presets import Preset, presets
from training.presets.reference import reference
from training.rewards.scoring import validate_components
from training.traps import traps
from training.verl_backend.settings import misfits

ROOT = Path(__file__).resolve().parents[2]
# Windows and sizes as the models' own config.json say; the checks below would need the models otherwise.
WINDOWS = {
    "deepseek-ai/deepseek-llm-7b-chat": 4096,
    "Qwen/Qwen2.5-7B-Instruct": 32768,
    "Qwen/Qwen2.5-3B-Instruct": 32768,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 2048,
    "Qwen/Qwen3-0.6B": 40960,
    "starter": 4096,
}
SYSTEMS = {"toolbench", "bfcl", "tools", "reasoning", "webshop"}


@pytest.mark.parametrize("preset", presets().values(), ids=lambda preset: preset.id)
def test_a_preset_is_whole(preset: Preset) -> None:
    for size in preset.sizes:
        config, needs = preset.job_for(size), preset.needs_for(size)
        window = WINDOWS[config.model.source]
        assert config.rollout.max_prompt_tokens + config.rollout.max_completion_tokens <= window or config.kind == "sft"
        assert validate_components(config.rewards.components) == []
        assert config.method.plays == bool(config.rewards.components)
        # Servers are named when they are found; only then is a missing one a trap.
        config.environment.name = needs.environment.program if needs.environment else config.environment.name
        assert [traps(course, load_template=False) for course in config.courses] == [[]] * len(config.courses)
        assert [validate_components(course.rewards.components) for course in config.courses] == [[]] * len(
            config.courses
        )
        start = needs.start
        assert start is None or {start.preset, start.after} - {""} <= set(presets())
        if size != "full":
            assert config.model.source == "starter" and config.run.max_steps <= 400
            assert config.kind == "sft" or (start is not None and start.preset)


def test_the_five_systems_come_first() -> None:
    main = [item for item in presets().values() if item.role == "main" and item.test]
    assert {item.system for item in main} == SYSTEMS
    assert [item.system for item in presets().values()].index("demo") > max(
        number for number, item in enumerate(presets().values()) if item in main
    )


def test_each_system_has_a_demo_that_comes_first() -> None:
    demos = [item for item in presets().values() if item.demo and item.config_for("demo").method.plays]
    assert {item.system for item in demos} == SYSTEMS
    for item in demos:
        assert item.sizes == ("demo", "full", "test") and item.run_name("demo") == f"{item.id}-demo"
        assert item.demo is not None and item.demo.minutes <= 10
        config, full = item.job_for("demo"), {part.name for part in item.job_for("full").rewards.components}
        # The document's own rewards, and besides them at most what the environment says of the task.
        assert full <= {part.name for part in config.rewards.components} <= full | {"task_success"}
        heaviest = max(config.rewards.components, key=lambda part: part.weight).name
        assert heaviest in {"task_success", "webshop_score", "helloagents_accuracy"}
    assert presets()["tools-demo-sft"].run_name("demo") == "tools-demo-sft"
    assert presets()["bfcl-stage-2"].size_named("demo") is None


def test_the_presets_have_the_values_of_their_documents() -> None:
    """The figures of the five documents that matter most, by value."""
    toolbench, stage_2 = presets()["toolbench"].config_for("full"), presets()["bfcl-stage-2"].config_for("full")
    assert (toolbench.rollout.prompts_per_step, toolbench.rollout.num_generations, toolbench.rollout.max_turns) == (
        512,
        5,
        5,
    )
    assert (toolbench.model.lora_rank, toolbench.optim.learning_rate, toolbench.optim.warmup_share) == (0, 5e-7, 0.285)
    assert toolbench.updates_per_step == 10
    actor_critic = presets()["toolbench-ppo"].config_for("full")
    assert (actor_critic.ppo.gamma, actor_critic.ppo.lam, actor_critic.ppo.beta) == (1.0, 1.0, 0.001)
    assert (actor_critic.rollout.num_generations, actor_critic.updates_per_step) == (1, 2)
    assert (stage_2.grpo.beta, stage_2.grpo.epsilon_high, stage_2.grpo.delta, stage_2.rollout.num_generations) == (
        0.1,
        0.28,
        10.0,
        16,
    )
    rewards = {
        name: [part.name for part in presets()[name].job_for("full").rewards.components if part.weight]
        for name in ("bfcl-stage-1", "bfcl-stage-2", "bfcl-stage-3")
    }
    assert rewards == {
        "bfcl-stage-1": ["bfcl_stage_1"],
        "bfcl-stage-2": ["bfcl_progress_reached"],
        "bfcl-stage-3": ["bfcl_progress_reached"],
    }
    curriculum = presets()["bfcl-curriculum"].job_for("full")
    assert [(stage.name, stage.until_step) for stage in curriculum.stages] == [
        ("format", 80),
        ("base", 140),
        ("all splits", None),
    ]
    for number, course in enumerate(curriculum.courses, start=1):
        alone = presets()[f"bfcl-stage-{number}"].job_for("full")
        # The curriculum is of one device, where an adapter is trained; a stage by itself is of eight.
        assert course.rollout.model_copy(update={"engine": "vllm"}) == alone.rollout and course.grpo == alone.grpo
        assert course.optim.learning_rate == pytest.approx(10 * alone.optim.learning_rate)
        assert course.rewards.components == alone.rewards.components
    reasoning, webshop = presets()["reasoning-grpo"].config_for("full"), presets()["webshop"].config_for("full")
    assert (reasoning.optim.learning_rate, reasoning.grpo.beta) == (1e-6, 0.001)
    assert (webshop.rollout.temperature, webshop.rollout.prompts_per_step, webshop.optim.learning_rate) == (
        0.3,
        128,
        5e-7,
    )


BY_VERL = {"toolbench": 8, "bfcl-stage-1": 8, "bfcl-stage-2": 8, "bfcl-stage-3": 8, "webshop": 4}
"""The presets of several devices, with as many as their documents have."""


def test_verl_trains_the_presets_of_several_devices_as_they_are() -> None:
    found = {item.id: item.config_for("full") for item in presets().values() if item.config_for("full").by_verl}
    assert {name: config.hardware.total for name, config in found.items()} == BY_VERL
    for name, config in found.items():
        assert list(misfits(config, "cuda")) == [], name
        assert config.model.lora_rank == 0, "the documents train all weights"
        for size in ("demo", "test"):
            if presets()[name].size_named(size):
                assert not presets()[name].config_for(size).by_verl, "a worker without verl shows that it works"
    toolbench, stage, webshop = found["toolbench"], found["bfcl-stage-2"], found["webshop"]
    assert (toolbench.updates_per_step, toolbench.run.max_steps) == (10, 10050)
    assert (toolbench.optim.schedule, toolbench.grpo.entropy_coef) == ("constant_with_warmup", 0.001)
    assert (stage.grpo.loss_type, stage.optim.learning_rate, stage.grpo.delta) == ("grpo", 1e-6, 10.0)
    assert (webshop.optim.micro_batch_size, webshop.optim.learning_rate) == (2, 5e-7)
    stages = list(misfits(presets()["bfcl-curriculum"].config_for("full"), "cuda"))
    assert "curriculum.stages" in {misfit.option for misfit in stages}, "so its note says to run the three"


def test_what_is_not_as_in_the_document_is_said() -> None:
    """Values that verl or vLLM refuse are changed, and each change has its note in both languages."""
    said = {
        name: {
            language: " ".join(getattr(note, language) for note in presets()[name].notes) for language in ("en", "zh")
        }
        for name in (*BY_VERL, "bfcl-curriculum")
    }
    for name in BY_VERL:
        assert "verl" in said[name]["en"] and "docs/verl.md" in said[name]["zh"], name
    for name in ("toolbench", "webshop"):
        assert "top_p 0.95" in said[name]["en"] and "top_p 0.95" in said[name]["zh"]
    assert "bnpo is refused" in said["toolbench"]["en"] and "bnpo" in said["toolbench"]["zh"]
    assert all("65,536 tokens" in said[f"bfcl-stage-{number}"]["en"] for number in (1, 2, 3))
    assert "verl" in said["bfcl-curriculum"]["en"] and "has no stages" in said["bfcl-curriculum"]["en"]


HELD = ("toolbench", "bfcl-stage-3")
"""The largest ones; each takes seconds, so the others are tried with the slow tests."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(item.id, marks=() if item.id in HELD else pytest.mark.slow)
        for item in presets().values()
        if item.config_for("full").model.source in KNOWN
    ],
)
def test_the_full_size_fits_the_device_that_its_page_names(name: str) -> None:
    preset = presets()[name]
    model = Model.of(preset.config_for("full").model.source)
    assert model is not None
    for course in preset.job_for("full").courses:
        need = memory_of(course, model, device_named(preset.device))
        assert need.fits, f"{name} needs {need.whole / 2**30:.1f} GiB"


def test_the_page_of_presets_is_current() -> None:
    assert (ROOT / "docs" / "presets.md").read_text(encoding="utf-8") == reference()
