"""What the operator sets for rewards reaches a launched run's trainer, and nothing that merely looks like it."""

from __future__ import annotations

import pytest

from training.config import JobConfig
from webapp.common.pools import ENDPOINT, TRAIN, device_env
from webapp.engine.trainer import tracker_env, trainer_env


def test_keys_of_judges_and_the_folder_of_reward_models_reach_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They did not: a judge with a key, or a reward model, failed in every run that was launched from the browser."""
    set_by_operator = {
        "JUDGE_KEY": "one",
        "JUDGE_KEY_HOST": "judge.example.org",
        "JUDGE_KEY_A": "two",
        "JUDGE_KEY_A_HOST": "other.example.org",
        "TILTYARD_REWARD_MODELS": "/srv/rewards",
        "TILTYARD_VLLM_PYTHON": "/srv/vllm/bin/python",
    }
    others = {"MY_JUDGE_KEY": "canary", "JUDGE_KEY_a": "canary", "JUDGE_KEYS": "canary", "OPENAI_API_KEY": "canary"}
    for name, value in (set_by_operator | others).items():
        monkeypatch.setenv(name, value)
    env = trainer_env(3)
    assert {name: env.get(name) for name in set_by_operator} == set_by_operator
    assert "canary" not in str(env)


def test_a_trainer_in_a_place_without_a_device_sees_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert trainer_env(3, device_env(ENDPOINT))["CUDA_VISIBLE_DEVICES"] == ""
    assert trainer_env(3, device_env(TRAIN))["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_trainer_gets_the_keys_of_the_trackers_that_it_reports_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "SWANLAB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_BACKEND_STORE_URI"):
        monkeypatch.setenv(name, f"of {name}")
    assert not {"WANDB_API_KEY", "SWANLAB_API_KEY", "MLFLOW_TRACKING_TOKEN"} & set(trainer_env(3))
    asked = JobConfig.model_validate({"report": {"to": ["mlflow", "wandb"]}})
    found = tracker_env(asked)
    assert (found["WANDB_API_KEY"], found["MLFLOW_TRACKING_TOKEN"]) == ("of WANDB_API_KEY", "of MLFLOW_TRACKING_TOKEN")
    assert not {"SWANLAB_API_KEY", "MLFLOW_BACKEND_STORE_URI"} & set(found)
    assert trainer_env(3, found)["WANDB_API_KEY"] == "of WANDB_API_KEY" and tracker_env(JobConfig()) == {}
