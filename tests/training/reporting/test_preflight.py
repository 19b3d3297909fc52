"""Before a launch: a tracker's package that is not installed and a key that is not set are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from training import preflight as module
from training.config import JobConfig
from training.preflight import Check, preflight


def checks_of(*trackers: str) -> list[Check]:
    config = JobConfig.model_validate({"kind": "sft", "report": {"to": list(trackers)}})
    return [check for check in preflight(config, load_template=False) if check.check == "trackers"]


def test_a_missing_package_is_named_with_its_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setenv("WANDB_API_KEY", "there")
    (found,) = checks_of("wandb")
    assert (found.ok, found.hard, found.option) == (False, False, "report.to")
    assert found.message == "Weights & Biases: its package is not installed here."
    assert found.hint == "Install it in the worker's environment: pip install wandb"
    assert [check.ok for check in checks_of("tensorboard")] == [True]


@pytest.mark.parametrize(
    ("tracker", "needed", "mode"),
    [
        ("wandb", "WANDB_API_KEY", {"WANDB_MODE": "offline"}),
        ("mlflow", "MLFLOW_TRACKING_URI", {}),
        ("swanlab", "SWANLAB_API_KEY", {"SWANLAB_MODE": "local"}),
    ],
)
def test_a_missing_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, tracker: str, needed: str, mode: dict[str, str]
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    for name in (needed, "WANDB_MODE", "SWANLAB_MODE"):
        monkeypatch.delenv(name, raising=False)
    (found,) = checks_of(tracker)
    assert not found.ok and found.message.endswith(f"the variable {needed} is not set in the worker's environment.")
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
        assert checks_of(tracker)[0].ok
        monkeypatch.delenv(name)
    monkeypatch.setenv(needed, "there")
    assert checks_of(tracker)[0].ok


@pytest.mark.parametrize("report", [{"to": ["neptune"]}, {"to": ["wandb", "wandb"]}, {"project": "../up"}])
def test_bad_options_are_refused(report: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="report"):
        JobConfig.model_validate({"report": report})


def test_a_folder_for_tensorboard_is_made_of_plain_characters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from training.reporting.trackers import Identity, TensorBoard

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    about = Identity("5d1c0d55-11", "../../x /y", "pilot", [], {}, tmp_path / "run", 0, 1)
    reporter = TensorBoard()
    reporter.open(about)
    reporter.close("")
    (folder,) = tmp_path.iterdir()
    assert folder.name == "pilot-x-y-5d1c0d55" and reporter._folder(about._replace(name="renamed")) == folder
