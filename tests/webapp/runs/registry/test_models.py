"""The model registry: ids, scanned folders, checkpoints."""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from training.config import JobConfig
from webapp.launch.forms import RunForm
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.advisories.models import Advisory
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.registry.selectors import model_folders, registered_as, weights_of_model
from webapp.runs.registry.services import model_delete, model_register
from webapp.runs.registry.views import ModelForm


@pytest.fixture
def models_dir(tmp_path: Path, settings: Any) -> Path:
    settings.MODELS_DIR = tmp_path
    return tmp_path


def _folder(root: Path, name: str = "small", config: dict[str, Any] | None = None) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(config or {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]})
    )
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    "source",
    ["", "/etc", "../x/y", "a/../b", "a/b/c", "https://evil/x", "a b/c", "-a/b", "a/b\x00", "a\n/b", "~/x", "C:\\x/y"],
)
def test_paths_are_no_hub_ids(source: str, project: Project, bob: User) -> None:
    with pytest.raises(ValidationError):
        model_register(project=project, user=bob, name="x", kind="hub", source=source)


def test_only_scanned_folders_are_taken(project: Project, bob: User, models_dir: Path) -> None:
    _folder(models_dir)
    (models_dir / "empty").mkdir()
    (models_dir / "link").symlink_to(models_dir / "small")
    size = sum(file.stat().st_size for file in (models_dir / "small").iterdir())
    assert model_folders() == [("small", size)]
    choices = ModelForm(project=project).fields["folder"].choices  # type: ignore[attr-defined]
    assert choices == [("", "—"), ("small", "small")]
    for source in ("empty", "link", "../small", str(models_dir / "small")):
        with pytest.raises(ValidationError):
            model_register(project=project, user=bob, name="x", kind="folder", source=source)


def test_a_folder_with_code_is_refused(project: Project, bob: User, models_dir: Path) -> None:
    pytest.importorskip("training.model_check")
    _folder(models_dir, "evil", {"model_type": "qwen3", "auto_map": {"AutoModel": "evil.Model"}})
    with pytest.raises(ValidationError) as caught:
        model_register(project=project, user=bob, name="x", kind="folder", source="evil")
    assert "folder" in caught.value.message_dict


def test_a_checkpoint_of_another_project_is_refused(project: Project, bob: User, charlie: User, make_run: Any) -> None:
    other = Project.objects.get(slug="elsewhere")
    run = make_run()
    checkpoint = Checkpoint.objects.create(
        project=other, run=run, attempt=1, step=1, path="1/m", bytes=1, seq=1, created_at=timezone.now()
    )
    with pytest.raises(ValidationError):
        model_register(project=project, user=bob, name="x", kind="run", checkpoint=checkpoint)


def test_a_model_of_a_run_needs_a_checkpoint(project: Project, bob: User) -> None:
    with pytest.raises(ValidationError) as caught:
        model_register(project=project, user=bob, name="x", kind="run")
    assert set(caught.value.message_dict) == {"checkpoint"}


@pytest.mark.parametrize("revision", ["a b", "a/b", "..", "a" * 65])
def test_what_is_no_revision_is_refused(project: Project, bob: User, revision: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model_register(project=project, user=bob, name="x", kind="hub", source="a/b", revision=revision)
    assert set(caught.value.message_dict) == {"revision"}


def test_a_folder_is_no_model_of_a_run(models_dir: Path) -> None:
    """Whatever its name is, and whatever lies next to it."""
    for name in ("model", "adapter"):
        (models_dir / name).mkdir()
    found = RegisteredModel(kind="folder", source="model")
    assert (found.folder, found.adapter) == (models_dir / "model", None)
    assert RegisteredModel(kind="hub", source="owner/model").folder is None


def test_a_checkpoint_is_kept_while_a_registered_model_or_an_advisory_needs_it(
    project: Project, bob: User, make_run: Any
) -> None:
    fields = {"attempt": 1, "step": 9, "path": "1/model", "bytes": 1, "seq": 1, "created_at": timezone.now()}
    point = Checkpoint.objects.create(project=project, run=make_run(), **fields)
    point.folder.mkdir(parents=True)
    pinned = point.folder.with_name("model.pinned")
    first, second = (
        model_register(project=project, user=bob, name=name, kind="run", checkpoint=point, source="x", revision="y")
        for name in ("a", "b")
    )
    assert set(RegisteredModel.objects.values_list("source", "revision")) == {("", "")}, "the checkpoint is the source"
    assert pinned.exists()
    model_delete(model=first)
    assert pinned.exists(), "the other one needs it"
    model_delete(model=second)
    assert not pinned.exists()
    kept = model_register(project=project, user=bob, name="c", kind="run", checkpoint=point)
    Advisory.objects.create(run=point.run, code="kl_spike", first=3, last=4, kept=point, evidence={})
    model_delete(model=kept)
    assert pinned.exists()
    acts = AuditEntry.objects.order_by("id").values_list("action", "subject", "username")
    assert list(acts) == [("model_added", name, "bob") for name in "abc"]


def test_page_registers_and_removes(
    project: Project, bob: User, client_for: Callable[..., Client], make_run: Any
) -> None:
    client, address = client_for(bob), reverse("model-new", args=[project.slug])
    data = {"name": "qwen", "kind": "hub", "source": "Qwen/Qwen3-0.6B", "revision": ""}
    assert client.post(address, data).status_code == 302
    assert client.post(address, data).status_code == 422
    model = RegisteredModel.objects.get()
    run = make_run(config={"model": {"source": model.reference}})
    remove = reverse("model-delete", args=[project.slug, model.pk])
    assert run.name in client.post(remove, follow=True).content.decode()
    run.delete()
    assert "qwen was removed from the list; its files stay." in client.post(remove, follow=True).content.decode()
    assert not RegisteredModel.objects.exists()
    acts = list(AuditEntry.objects.order_by("id").values_list("action", "subject"))
    assert acts == [("model_added", "qwen"), ("model_deleted", "qwen")]


def test_a_checkpoint_that_the_form_does_not_list_can_be_registered(
    project: Project, bob: User, client_for: Callable[..., Client], make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a run leads to its own checkpoint, however many the project has made since."""
    monkeypatch.setattr("webapp.runs.registry.views.OFFERED", 1)
    fields = {"attempt": 1, "step": 9, "path": "1/model", "bytes": 1, "seq": 1}
    old, new = (
        Checkpoint.objects.create(
            project=project, run=make_run(), created_at=timezone.now() - timedelta(days=days), **fields
        )
        for days in (2, 1)
    )
    assert list(ModelForm(project=project).fields["checkpoint"].queryset) == [new]
    data = {"name": "early", "kind": "run", "checkpoint": str(old.pk)}
    assert client_for(bob).post(reverse("model-new", args=[project.slug]), data).status_code == 302
    assert RegisteredModel.objects.get(name="early").checkpoint == old


def test_no_model_is_twice_in_the_list_of_a_launch(project: Project, bob: User, make_run: Any) -> None:
    """A trained model that was registered was listed as itself and as its run's final model."""
    finals = {}
    for name in ("warm-up", "nameless"):
        fields = {"attempt": 1, "step": 9, "path": "1/model", "bytes": 1, "seq": 1, "created_at": timezone.now()}
        finals[name] = Checkpoint.objects.create(project=project, run=make_run(name=name), final=True, **fields)
    RegisteredModel.objects.create(project=project, name="warm", kind="run", checkpoint=finals["warm-up"])
    RegisteredModel.objects.create(project=project, name="small", kind="hub", source="Qwen/Qwen3-0.6B")
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere", slug="elsewhere")
    Checkpoint.objects.create(project=elsewhere, run=make_run(name="theirs", project=elsewhere), final=True, **fields)
    listed = ["starter", "model:small", "model:warm", "run:nameless"]
    assert _sources(project, "starter") == listed
    assert _sources(project, "run:warm-up") == ["starter", "model:small", "run:warm-up", "run:nameless"]
    assert _sources(project, "Qwen/Qwen3-0.6B") == ["starter", "Qwen/Qwen3-0.6B", "model:warm", "run:nameless"]
    assert _sources(project, "Qwen/Qwen3-4B") == [*listed, "Qwen/Qwen3-4B"]
    assert [item.run.name for item in ModelForm(project=project).fields["checkpoint"].queryset] == ["nameless"]
    early = Checkpoint.objects.create(
        project=project, run=finals["nameless"].run, **fields | {"step": 4, "path": "1/c"}
    )
    RegisteredModel.objects.create(project=project, name="early", kind="run", checkpoint=early)
    asked = ["run:warm-up", "run:nameless", "Qwen/Qwen3-0.6B", "starter"]
    assert [registered_as(project, source) for source in asked] == ["model:warm", "", "model:small", ""]
    assert {registered_as(elsewhere, source) for source in asked} == {""}


def test_the_weights_of_a_model() -> None:
    """None where its checkpoint is gone."""
    point = Checkpoint(run_id=uuid.UUID(int=7), path="1/model")
    found = [
        RegisteredModel(kind="run", checkpoint=point),
        RegisteredModel(kind="run"),
        RegisteredModel(kind="hub", source="a/b", revision="c"),
        RegisteredModel(kind="folder", source="small"),
        RegisteredModel(kind="starter", source="x"),
    ]
    assert [weights_of_model(model) for model in found] == [
        ("run", str(uuid.UUID(int=7)), "1/model"), None, ("hub", "a/b", "c"), ("folder", "small", ""),
        ("starter", "", ""),
    ]  # fmt: skip


def _sources(project: Project, source: str) -> list[str]:
    """The values that a form of a run with this model offers."""
    form = RunForm(project=project, config=JobConfig.model_validate({"model": {"source": source}}))
    return [value for value, _label in form.fields["model.source"].widget.choices]


def test_models_are_shown_fifty_at_a_time(project: Project, rita: User, client_for: Any, make_run: Any) -> None:
    """The newest first; a second page, the checkpoints' page and what is looked for do not disturb each other."""
    RegisteredModel.objects.bulk_create(
        RegisteredModel(
            project=project, name=f"m-{n:02}", kind="hub", source=f"owner/size-{n % 2}b", tags=["tiny"] * (n == 7)
        )
        for n in range(53)
    )
    run = make_run(name="warm-up")
    fields = {"attempt": 1, "step": 9, "bytes": 1, "seq": 1, "created_at": timezone.now()}
    point = Checkpoint.objects.create(project=project, run=run, path="1/model", **fields)
    RegisteredModel.objects.create(project=project, name="warm", kind="run", checkpoint=point)
    client = client_for(rita)

    def shown(query: str = "") -> tuple[str, list[str], bool, str]:
        page = client.get(reverse("model-list", args=[project.slug]) + query).content.decode()
        count = re.findall(r'Registered <span class="count">(\d+)</span>', page)[0]
        names = re.findall(r'/models/[0-9a-f-]{36}/">([^<]+)</a>', page.split("Trained here")[0])
        return count, names, "<strong>starter" in page, page

    count, names, starter, page = shown()
    assert (count, names[0], len(names), starter) == ("55", "warm", 50, True)
    assert "Page 1 of 2" in page and 'href="?models=2"' in page
    rest = {f"m-{n:02}" for n in range(53)} - set(names)
    count, names, starter, page = shown("?models=2&page=3")
    assert (count, set(names), starter) == ("55", rest, False) and 'href="?models=1&amp;page=3"' in page
    assert shown("?models=99")[1] == names  # beyond the end is the last page
    assert shown("?q=M-07")[:3] == ("1", ["m-07"], False) and shown("?q=tiny")[1] == ["m-07"]
    assert shown("?q=warm-up")[1] == ["warm"] and shown("?q=size-1b")[0] == "26"
    assert shown("?q=star")[:3] == ("1", [], True)
    count, names, starter, page = shown("?q=%00nobody%22")
    assert (count, names, starter) == ("0", [], False)
    assert "No model matches" in page and "nobody&quot;" in page and "Show all models" in page


def test_a_small_list_of_models_needs_no_search(project: Project, rita: User, client_for: Any) -> None:
    page = client_for(rita).get(reverse("model-list", args=[project.slug])).content.decode()
    assert 'role="search"' not in page and '<span class="count">1</span>' in page and "<strong>starter" in page


def test_only_an_editor_is_offered_to_use_and_remove_a_model(
    project: Project, bob: User, rita: User, client_for: Any
) -> None:
    model = RegisteredModel.objects.create(project=project, name="small", kind="hub", source="Qwen/Qwen3-0.6B")
    remove = reverse("model-delete", args=[project.slug, model.pk])
    page, train, chat = (reverse(name, args=[project.slug]) for name in ("model-list", "run-new", "chat-new"))
    acts = [
        f'action="{remove}"',
        f'href="{chat}?model=model%3Asmall"',
        f'href="{train}?model=model%3Asmall"',
        f'href="{train}?kind=evaluate&amp;model=model%3Asmall"',
    ]
    for user, offered in ((bob, acts), (rita, [])):
        text = client_for(user).get(page).content.decode()
        assert [act for act in acts if act in text] == offered


def test_only_owners_see_a_folder_of_the_server(
    project: Project, alice: User, bob: User, client_for: Any, models_dir: Path
) -> None:
    address = reverse("model-list", args=[project.slug])
    assert str(models_dir) in client_for(alice).get(address).content.decode()
    assert str(models_dir) not in client_for(bob).get(address).content.decode()
