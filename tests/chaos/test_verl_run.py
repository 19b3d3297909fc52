"""Runs on two devices that verl trains, under a real worker that is killed: they resume, and leave a model to use."""

from __future__ import annotations

import io
import tarfile

import pytest
from django.test import Client

from tests.chaos.house import House
from tests.chaos.test_real_run import real_house  # noqa: F401 - a fixture
from tests.chaos.truth import assert_exact
from tests.training.verl_backend.conftest import PYTHON
from training.config import JobConfig
from webapp.engine.services import run_create
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.states import RunState

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1800)]


def launched(house: House, name: str, **groups: object) -> Run:
    given: dict[str, object] = {
        "model": {"source": "starter"},
        "data": {"train": "dataset:d@1"},
        "environment": {"name": "environment:e"},
        "rollout": {
            "prompts_per_step": 2,
            "num_generations": 4,
            "max_turn_tokens": 24,
            "max_completion_tokens": 64,
        },
        "run": {"threads": 1},
    }
    for group, options in groups.items():
        before = given.get(group)
        given[group] = before | options if isinstance(before, dict) and isinstance(options, dict) else options
    config = JobConfig.model_validate(given)
    return run_create(project=house.project, user=house.user, name=name, config=config)


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
def test_two_devices(real_house: House) -> None:  # noqa: F811
    """Steps, checkpoints and held-out tasks come as of any run; a killed worker costs what no checkpoint holds."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    groups = {
        "hardware": {"devices": 2},
        "run": {"max_steps": 4, "save_every": 2, "threads": 1},
        "evaluate": {"every": 2, "share": 0.1},
    }
    run = launched(real_house, "two devices", **groups)
    real_house.reaches(run, 3, 600)
    real_house.kill9("train")
    real_house.worker("train")
    real_house.ends(run, 900)
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 4), real_house.tail()
    assert_exact(run)
    first, second = Attempt.objects.filter(run=run).order_by("number")
    assert (first.first_step, second.first_step) == (0, 2) and first.error["code"] == "worker_lost"
    saved = Checkpoint.objects.filter(run=run).order_by("attempt", "step", "final")
    assert [(each.attempt, each.path, each.final) for each in saved] == [
        (1, "1/checkpoint-2", False),
        (2, "2/checkpoint-4", False),
        (2, "2/model", True),
    ]
    assert all(each.held_out is not None for each in saved if not each.final)

    # Its model is that of any run: downloaded, and played; and so is a checkpoint on the way.
    client = Client()
    client.force_login(real_house.user)
    model = RegisteredModel.objects.get(name="two devices")
    content = b"".join(client.get(f"/api/v1/models/{model.pk}/download", {"part": "model"}))  # type: ignore[arg-type]
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"} <= names
    early = RegisteredModel.objects.create(
        project=real_house.project, name="on the way", kind=ModelKind.RUN, checkpoint=saved[0]
    )
    for number, name in enumerate((model.name, early.name)):
        evaluate = {"evaluate": {"tasks": 4, "samples": 1}, "model": {"source": f"model:{name}"}}
        played = launched(real_house, f"evaluation {number}", kind="evaluate", **evaluate)
        real_house.ends(played, 300)
        assert played.state == RunState.SUCCEEDED, real_house.tail()
        assert played.evaluation is not None and played.evaluation["tasks"] == 4
