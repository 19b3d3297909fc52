"""Each known trap is reported once, at its option, and sound settings say nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training.helpers import job_config
from training.config import JobConfig
from training.preflight import preflight
from training.rollout.protocols import ServerFacts
from training.traps import traps, writes_thoughts

RULES = "Start every reply with your reasoning in one <think></think> pair."
STARTER_RATE = 1e-3
TOOLS = {"name": "tools"}


def rows(folder: Path, **extra: Any) -> str:
    path = folder / "rows.jsonl"
    lines = [{"messages": [{"role": "system", "content": RULES}, {"role": "user", "content": "q"}], **extra}] * 2
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def small_model(starter: Path, folder: Path, **config: Any) -> Path:
    """A copy of the starter that says something else of itself."""
    import shutil

    shutil.copytree(starter, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


@pytest.mark.parametrize(
    ("over", "option", "hard"),
    [
        ({"rollout": {"max_prompt_tokens": 4000}}, "rollout.max_completion_tokens", False),
        ({"rollout": {"max_completion_tokens": 5000}}, "rollout.max_completion_tokens", True),
        ({"rollout": {"temperature": 0.01}}, "rollout.temperature", False),
        ({"rollout": {"top_k": 1}}, "rollout.top_k", False),
        ({"model": {"source": "Qwen/Qwen3-0.6B"}, "optim": {"learning_rate": 5e-5}}, "optim.learning_rate", False),
        (
            {"rollout": {"max_turns": 1}, "rewards": {"components": [{"name": "result_use", "weight": 1}]}},
            "rollout.max_turns",
            False,
        ),
        (
            {
                "environment": {"name": "", "url": ""},
                "rewards": {"components": [{"name": "webshop_score", "weight": 1}]},
            },
            "environment.name",
            True,
        ),
    ],
)
def test_a_setting_that_goes_wrong(over: dict[str, Any], option: str, hard: bool) -> None:
    base = {"environment": {"name": "tools"}, "optim": {"learning_rate": STARTER_RATE}}
    (found,) = traps(JobConfig.model_validate(base | over), load_template=False)
    assert (found.option, found.hard) == (option, hard)
    assert "%" not in found.sentence.replace("%.", "") and "{" not in found.sentence


@pytest.mark.parametrize(
    "over",
    [
        {"optim": {"learning_rate": STARTER_RATE}},  # the starter is made for it
        {"model": {"source": "Qwen/Qwen3-0.6B", "lora_rank": 16}, "optim": {"learning_rate": 5e-5}},
        {"model": {"source": "Qwen/Qwen3-0.6B"}, "optim": {"learning_rate": 1e-6}},
        {"kind": "sft", "rollout": {"temperature": 0.01}},
    ],
)
def test_sound_settings_say_nothing(over: dict[str, Any]) -> None:
    assert traps(JobConfig.model_validate({"environment": {"name": "tools"}} | over), load_template=False) == []


@pytest.mark.parametrize(
    ("optim", "words"),
    [
        ({"mini_batch_size": 128}, "mini batch of 128 is larger than the batch"),
        ({"mini_batch_size": 24}, "cannot be divided into mini batches of 24"),
        ({"mini_batch_size": 16, "micro_batch_size": 32}, "mini batches of 16 cannot be divided into micro batches"),
    ],
)
def test_batches_that_cannot_be(optim: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        JobConfig.model_validate({"optim": optim})


def test_rows_of_another_world(tmp_path: Path) -> None:
    """A test set for a category, and two versions of BFCL in one file."""
    config = job_config(data={"train": rows(tmp_path, extra_info={"category": "G1_category"})}, environment=TOOLS)
    (found,) = traps(config, load_template=False)
    assert found.option == "data.train" and "G1_category" in found.sentence
    rows(tmp_path, category="Search", api_list=[{"category_name": "Search"}])
    assert traps(config, load_template=False) == []
    path = tmp_path / "rows.jsonl"
    lines = [{"messages": [{"role": "user", "content": "q"}], "bfcl_version": version} for version in ("v3", "v4")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = traps(config, load_template=False)
    assert (found.option, found.hard) == ("data.train", True) and "v3, v4" in found.sentence


def test_a_template_that_thinks_by_itself(tmp_path: Path, starter_folder: Path) -> None:
    """Qwen3 writes an empty thought into replies; an environment that wants one refuses all of them."""
    from training.algorithms.loading import load_tokenizer

    tokenizer = load_tokenizer(starter_folder)[0]
    assert not writes_thoughts(tokenizer)
    folder = small_model(starter_folder, tmp_path / "thinks")
    template = folder / "chat_template.jinja"
    plain = template.read_text(encoding="utf-8")
    assert plain.count("{{- message.content -}}") == 1
    thinks = "{{- '<think>\\n\\n</think>\\n\\n' + message.content -}}"
    template.write_text(plain.replace("{{- message.content -}}", thinks), encoding="utf-8")
    config = job_config(model={"source": str(folder)}, data={"train": rows(tmp_path)}, environment=TOOLS)
    found = {check.option: check for check in preflight(config) if not check.ok and check.check == "settings"}
    assert set(found) == {"model.source"} and "<think>" in found["model.source"].message
    config.model.source = str(starter_folder)
    assert traps(config) == []


def test_the_window_is_the_models_own(tmp_path: Path, starter_folder: Path) -> None:
    folder = small_model(starter_folder, tmp_path / "short", max_position_embeddings=256)
    over = {
        "model": {"source": str(folder)},
        "environment": {"name": "tools"},
        "rollout": {"max_prompt_tokens": 200, "max_turn_tokens": 50, "max_completion_tokens": 100},
    }
    (found,) = traps(JobConfig.model_validate(over), load_template=False)
    assert found.sentence.values == {"prompt": 200, "episode": 100, "window": 256} and not found.hard


def test_rows_of_another_version_than_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = {"version": "1.0.0+bfcl.v4"}
    monkeypatch.setattr(
        "training.rollout.protocols.check_environment", lambda config: [ServerFacts(name="bfcl", **server)]
    )
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "q"}], "bfcl_version": "v3"}) + "\n")
    config = job_config(data={"train": str(path)}, environment={"name": "bfcl", "url": "http://127.0.0.1:9"})
    (found,) = traps(config, load_template=False)
    assert (found.option, found.hard, found.sentence.values) == ("data.train", True, {"rows": "v3", "server": "v4"})
    server["version"] = "1.0.0+bfcl.v3"
    assert traps(config, load_template=False) == []
