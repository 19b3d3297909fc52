"""Options that are set in a YAML text, which stays as it was written."""

from __future__ import annotations

import pytest
import yaml

from training.config import JobConfig, config_to_yaml
from webapp.launch.findings import YamlProblem, options_of, yaml_set


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "kind: grpo\n",
        "# 你好\nmodel:\n  lora_rank: 4 # 秩\noptim:\n  learning_rate: 1e-5\n",
        "model:\n    source: starter\n    lora_rank: 4\noptim: {learning_rate: 1e-5}\n",
        "model: {}\n",
        "model: {lora_rank: 8, source: starter}",
        config_to_yaml(JobConfig()),
        '{"kind": "grpo", "model": {"lora_rank": 3}}',
        "optim:\n  micro_batch_size: 8\nrun:\n  max_steps: 3",
    ],
)
def test_options_are_set_in_any_text(text: str) -> None:
    made = yaml_set(text or "kind: grpo\n", {"model.lora_rank": 16, "optim.micro_batch_size": 2})
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(made)
    assert (after["model"]["lora_rank"], after["optim"]["micro_batch_size"]) == (16, 2)
    for group, values in before.items():
        for name, value in (values if isinstance(values, dict) else {}).items():
            if f"{group}.{name}" not in ("model.lora_rank", "optim.micro_batch_size"):
                assert after[group][name] == value
    if "#" in text:
        assert "# 你好" in made and "# 秩" in made
    if not text.startswith("{") and "{}" not in text and text and len(text) < 300:
        assert len(made.splitlines()) <= len(text.splitlines()) + 4, "nothing else was written"


def test_options_that_are_none_are_refused() -> None:
    for text in ("", "[]", "3", '{"model.nothing": 1}', '{"run": 1}', '{"model.lora_rank": [1]}', '{"a.b": {}}'):
        with pytest.raises(YamlProblem):
            options_of(text)
    with pytest.raises(YamlProblem):
        yaml_set("kind: grpo\n", {"model.lora_rank": -4})
