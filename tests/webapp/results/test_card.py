"""The model card: facts as they are on record, the team's words as they wrote them, nothing made up."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.results.conftest import COMMIT, Past
from webapp.people.teams.models import Project, User
from webapp.results.card import card_of, table
from webapp.runs.models import Run
from webapp.runs.registry.models import ModelKind, RegisteredModel
from webapp.runs.registry.selectors import model_describe

pytestmark = pytest.mark.django_db


def _section(card: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n\n(.*?)(?=^## |\Z)", card, re.S | re.M)
    assert found, title
    return found[1].strip()


def _value(text: str, label: str) -> list[str]:
    return re.findall(rf"^\| {re.escape(label)} \| (.*) \|$", text, re.M)


def test_the_facts_are_those_on_record(past: Past, evaluation: Callable[..., Run]) -> None:
    run = evaluation("eval", {task: [1.0, 1.0] if task else [0.0, 0.0] for task in range(4)})
    run.resolved["model"]["source"] = str(past.model.folder)
    run.save(update_fields=["resolved"])
    card = card_of(past.model)
    assert card.startswith(
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\nbase_model: Qwen/Qwen3-0.6B\n---"
    )
    about, training = _section(card, "What it is"), _section(card, "Training")
    assert _value(about, "Weights") == ["run first-grpo, step 60 (final)"]
    assert _value(about, "Revision of the base model") == [COMMIT]
    assert training.index("### 1. warm-up") < training.index("### 2. first-grpo")
    warm, grpo = training.split("### 2.")
    assert _value(warm, "Method") == ["SFT: learn from demonstrations"] and _value(warm, "Dataset") == ["chats@1"]
    assert _value(warm, "Device") == ["NVIDIA H200"] and _value(warm, "Versions") == ["trl 1.2.0"]
    assert _value(warm, "Rows") == ["3"] and _value(warm, "Time") == ["1 h 30 min"]
    assert _value(warm, "Learning rate") == ["2e-05"] and "Reward spec" not in warm
    assert _value(grpo, "Device") == _value(grpo, "Versions") == ["not recorded"]
    assert _value(grpo, "Environment") == ["tools 1.4.2"] and _value(grpo, "Reward spec") == ["tool-calling@2"]
    assert re.findall(r"^\| [^|]+ \| (1|0\.25) \|$", grpo.split("| Reward component |")[1], re.M) == ["1", "0.25"]
    assert _value(grpo, "Success, up to step 60") == ["84%"]
    scored = _section(card, "Evaluation")
    assert "| tasks@1 | none | 75% (" in scored and "| 4 × 2 |" in scored and "| eval |" in scored
    assert card_of(RegisteredModel.objects.get(pk=past.model.pk)) == card


def test_figures_of_a_checkpoint_are_those_of_its_step(past: Past, saved: Any, project: Project) -> None:
    kept = RegisteredModel.objects.create(
        project=project, name="early", kind=ModelKind.RUN, checkpoint=saved(past.grpo, 20, final=False)
    )
    card = card_of(kept)
    assert _value(card, "Success, up to step 20") == ["16%"] and "84%" not in card


def test_limits_say_what_was_not_evaluated(past: Past, evaluation: Callable[..., Run]) -> None:
    assert "It was not evaluated." in card_of(past.model)
    assert "how well it does on any task is not known" in _section(card_of(past.model), "What was not evaluated")
    run = evaluation("eval", {0: [1.0], 1: [None], 2: [0.0], 3: [1.0]}, dataset=past.tasks)
    run.resolved["model"]["source"] = str(past.model.folder)
    run.save(update_fields=["resolved"])
    limits = _section(card_of(past.model), "What was not evaluated")
    assert "eval: 12 of 12 tasks are in arithmetic@3, which it learned from." in limits and "eval: 9 of" in limits


def test_a_model_that_was_not_trained_here_claims_nothing(project: Project) -> None:
    model = RegisteredModel.objects.create(
        project=project, name="qwen", kind=ModelKind.HUB, source="a/b", revision="v1"
    )
    card = card_of(model)
    assert "It was not trained here. Its training is not recorded." in card and "base_model" not in card
    assert _value(card, "Base model") == ["a/b (Hugging Face, revision v1)"]
    for title in ("Intended use", "Limitations", "Licence"):
        assert _section(card, title) == "not recorded"


def test_the_teams_sections_stay_when_facts_change(past: Past) -> None:
    words = {"intended_use": "Calls **one** calculator.", "licence": "Apache-2.0"}
    model_describe(model=past.model, card=words, tags=["tool-use"])
    before = card_of(past.model)
    Run.objects.filter(pk=past.grpo.pk).update(environment_version="1.5.0")
    past.model.refresh_from_db()
    after = card_of(past.model)
    assert _value(after, "Environment") == ["tools 1.5.0"] and _value(before, "Environment") == ["tools 1.4.2"]
    for card in (before, after):
        assert (
            _section(card, "Intended use") == "Calls **one** calculator." and _section(card, "Licence") == "Apache-2.0"
        )
    assert 'tags:\n  - "tool-use"\n---' in after


def test_a_cell_cannot_leave_its_table() -> None:
    assert table(["a"], [["x | y\n# z"]]) == "| a |\n| --- |\n| x \\| y # z |"


def test_the_page_gives_the_card_as_a_file_and_shows_it_when_asked(past: Past, client_for: Any, rita: User) -> None:
    client = client_for(rita)
    answer = client.get(f"/p/joust/models/{past.model.pk}/card/")
    assert answer["Content-Disposition"] == 'attachment; filename="README.md"'
    assert answer["Content-Type"] == "text/markdown; charset=utf-8" and answer.content.decode() == card_of(past.model)
    page = f"/p/joust/models/{past.model.pk}/"
    assert "### 1. warm-up" in client.get(page, {"show": "card"}).content.decode()
    assert "### 1. warm-up" not in client.get(page).content.decode()
    assert client.get(f"/api/v1/models/{past.model.pk}/card").content.decode() == card_of(past.model)


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
@pytest.mark.parametrize("own", [False, True], ids=["without a README", "with its own"])
def test_a_download_has_the_card_with_its_hash(
    past: Past, client_for: Any, rita: User, tmp_path: Path, own: bool, settings: Any
) -> None:
    """A trainer's own README says less than the card; one that a model was registered with is its makers'."""
    assert past.model.folder is not None
    (past.model.folder / "README.md").write_text("of the trainer")
    if own:
        settings.MODELS_DIR = tmp_path / "models"
        brought = settings.MODELS_DIR / "brought"
        shutil.copytree(past.model.folder, brought)
        (brought / "README.md").write_text("mine")
        RegisteredModel.objects.filter(pk=past.model.pk).update(kind="folder", source="brought", checkpoint=None)
    answer = client_for(rita).get(f"/api/v1/models/{past.model.pk}/download")
    content = b"".join(answer)
    assert int(answer["Content-Length"]) == len(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "tool-caller"
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)
    assert (folder / "README.md").read_text() == ("mine" if own else card_of(past.model))
    assert "README.md" in (folder / "SHA256SUMS").read_text()
