"""The option that was meant by a name that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.__main__ import main
from training.config import nearest_option
from training.config.axes import scalar_options


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("modle", "model"),
        ("reward", "rewards"),
        ("optim.learning_rat", "optim.learning_rate"),
        ("learning_rate", "optim.learning_rate"),  # without its group
        ("grpo.learning_rate", "optim.learning_rate"),  # in another's
        ("trainer.max_steps", "run.max_steps"),
        ("lr", ""),
        ("zzz.zzz", ""),
        ("", ""),
        ("beta", ""),  # which four groups have
        ("grpo.betta", "grpo.beta"),
        ("rollout.num_generation", "rollout.num_generations"),
        ("奖励", ""),
        ("curriculum.stages.0.model", ""),
    ],
)
def test_the_nearest_option(unknown: str, meant: str) -> None:
    assert nearest_option(unknown) == meant


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("learning_rate", "optim.learning_rate"),
        ("grpo.learning_rate", "optim.learning_rate"),
        ("optim.lerning_rate", "optim.learning_rate"),
        ("reward", ""),  # a group: no option with one value
        ("beta", ""),  # which several groups have
        ("optim", "optim.optimizer"),  # a group of that name may not be meant
    ],
)
def test_only_what_is_allowed_is_meant(unknown: str, meant: str) -> None:
    assert nearest_option(unknown, scalar_options()) == meant
    assert nearest_option(unknown, ["run.seed"]) == nearest_option(unknown, []) == ""


def test_the_command_line_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("kind: grpo\nmodle: {source: starter}\noptim: {lerning_rate: 1.0}\nzzz: 1\n")
    assert main(["preflight", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "modle: There is no such option. Did you mean model?" in lines
    assert "optim.lerning_rate: There is no such option. Did you mean optim.learning_rate?" in lines
    assert "zzz: Extra inputs are not permitted" in lines
