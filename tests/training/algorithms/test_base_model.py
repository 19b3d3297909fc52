"""The base model of Hugging Face: fetched with the project's token, at the commit that a run began with."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import of_type
from training.algorithms.loading import fetch_base, fetch_model
from training.algorithms.sft import run_sft
from training.children import MODEL_CACHE, MODEL_TOKEN
from training.config import JobConfig
from training.errors import ModelError

SFT: dict[str, Any] = {"kind": "sft", "sft": {"batch_size": 8, "max_length": 256}, "optim": {"learning_rate": 3e-3}}
OLD, NEW = "a" * 40, "b" * 40


class Hub:
    """Hugging Face with one model, whose branch may move on; it remembers how it was asked."""

    def __init__(self, cache: Path, model: Path) -> None:
        self.cache, self.head = cache, OLD
        self.asked: list[dict[str, Any]] = []
        for commit in (OLD, NEW):
            shutil.copytree(model, cache / "models--team--base" / "snapshots" / commit)

    def download(self, name: str, **options: Any) -> str:
        """``snapshot_download``."""
        self.asked.append({"name": name, **options, "kept": os.environ.get(MODEL_TOKEN)})
        commit = options["revision"] or self.head
        return str(self.cache / "models--team--base" / "snapshots" / commit)


@pytest.fixture
def hub(tmp_path: Path, starter_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub(tmp_path / "cache", starter_folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", found.download)
    monkeypatch.setenv(MODEL_CACHE, str(found.cache))
    return found


def test_a_projects_token_fetches_into_its_own_place_and_is_forgotten(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MODEL_TOKEN, "hf_of-the-project")
    config = JobConfig.model_validate({"model": {"source": "team/base", "revision": "v1"}})
    monkeypatch.setattr(hub, "head", NEW)
    config.model.revision = OLD
    assert fetch_model(config, [], hub.cache).name == OLD
    (asked,) = hub.asked
    assert (asked["name"], asked["revision"], asked["token"]) == ("team/base", OLD, "hf_of-the-project")
    assert asked["cache_dir"] == str(hub.cache)
    assert asked["kept"] is None and MODEL_TOKEN not in os.environ
    assert fetch_model(config, [], hub.cache).name == OLD
    assert hub.asked[1]["token"] is None  # the library then takes the operator's HF_TOKEN, if there is one


def test_without_a_projects_place_the_machines_cache_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MODEL_CACHE)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub.cache))
    fetch_model(JobConfig.model_validate({"model": {"source": "team/base"}}), [], hub.cache)
    assert (hub.asked[0]["cache_dir"], hub.asked[0]["token"], hub.asked[0]["revision"]) == (str(hub.cache), None, None)


def test_a_refused_token_is_reported_with_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **options: Any) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError(f"401 for {options['token']}")

    monkeypatch.setenv(MODEL_TOKEN, "hf_of-the-project")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelError, match=r"team/base could not be fetched .*401 for \*\*\*$") as caught:
        fetch_model(JobConfig.model_validate({"model": {"source": "team/base"}}), [], hub.cache)
    assert "Hugging Face token" in caught.value.hint and caught.value.__cause__ is None


def test_an_adapter_is_resumed_on_the_commit_that_it_began_on(make_job: MakeJob, hub: Hub) -> None:
    model = {"source": "team/base", "lora_rank": 4}
    first = make_job("runs/1", **SFT, model=model, run={"max_steps": 2})
    run_sft(first)
    assert of_type(first.run_dir, "run_started")[0].resolved == {"model.revision": OLD}
    hub.head = NEW
    second = make_job("runs/2", **SFT, model=model, run={"max_steps": 3}, resume_from=first.run_dir)
    run_sft(second)
    assert [asked["revision"] for asked in hub.asked] == [None, OLD]
    assert of_type(second.run_dir, "run_started")[0].resolved == {"model.revision": OLD}
    for place in ("checkpoint-3", "adapter"):
        adapter = json.loads((second.run_dir / place / "adapter_config.json").read_text())
        assert (adapter["base_model_name_or_path"], adapter["revision"]) == ("team/base", OLD)
    third = make_job("other", **SFT, model=model, run={"max_steps": 1})
    run_sft(third)
    assert of_type(third.run_dir, "run_started")[0].resolved == {"model.revision": NEW}  # a run of its own


def test_a_later_attempt_that_starts_again_takes_the_first_ones_commit_as_well(make_job: MakeJob, hub: Hub) -> None:
    model = {"source": "team/base"}
    first = make_job("runs/1", **SFT, model=model, run={"max_steps": 1})
    run_sft(first)
    hub.head = NEW
    second = make_job("runs/2", **SFT, model=model)
    second.earlier = (first.run_dir,)
    assert fetch_base(second, []).name == OLD
    again = make_job("runs/1", **SFT, model=model)  # in the same folder
    assert fetch_base(again, []).name == OLD


def test_the_cards_tell_what_was_done(make_job: MakeJob, hub: Hub) -> None:
    job = make_job("run", **SFT, model={"source": "team/base", "lora_rank": 4}, run={"max_steps": 2, "seed": 11})
    run_sft(job)
    card = (job.run_dir / "model" / "README.md").read_text()
    last = of_type(job.run_dir, "metrics")[-1].values
    for line in (
        "base_model: team/base",
        "| Base model | team/base |",
        f"| Revision of the base model | {OLD} |",
        "| Steps | 2 |",
        "| Data | run.jsonl |",
        "| Rows | 24 |",
        "| Rows of a step | 8 |",
        "| Learning rate | 0.003 |",
        "| LoRA | rank 4, alpha 8, dropout 0, on all-linear |",
        "| Seed | 11 |",
        f"| Loss, step 2 | {last['loss']:.4g} |",
        "| Device | cpu |",
    ):
        assert line in card, (line, card)
    assert str(job.run_dir) not in card and "AutoModelForCausalLM" in card and "[More" not in card
    adapter = (job.run_dir / "adapter" / "README.md").read_text()
    assert "library_name: peft" in adapter and "AutoPeftModelForCausalLM" in adapter and "[More" not in adapter
