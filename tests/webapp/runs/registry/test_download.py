"""A model downloaded: every file as it is here, proved by its hash, or a sentence."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from webapp.people.teams.models import AuditEntry, Project, User
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.registry.sending import ModelFile, model_files, tar_of

pytestmark = pytest.mark.django_db
FILES = {"config.json": b"{}", "model.safetensors": os.urandom(3 << 20), "empty.txt": b"", "exact.model": bytes(1024)}


@pytest.fixture
def model(project: Project, make_run: Any) -> RegisteredModel:
    """A run's final model with an adapter next to it."""
    run = make_run()
    checkpoint = Checkpoint.objects.create(
        project=project,
        run=run,
        attempt=1,
        step=9,
        path="1/model",
        bytes=1,
        final=True,
        seq=1,
        created_at=timezone.now(),
    )
    for folder, files in (("model", FILES), ("adapter", {"adapter_model.safetensors": b"lora"})):
        place = checkpoint.folder.parent / folder
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    (checkpoint.folder / "elsewhere").symlink_to("/etc/passwd")
    (checkpoint.folder / "sub").mkdir()
    return RegisteredModel.objects.create(project=project, name="first (2)", kind=ModelKind.RUN, checkpoint=checkpoint)


def _download(client: Client, model: RegisteredModel, part: str = "model") -> Any:
    return client.get(f"/api/v1/models/{model.pk}/download", {"part": part})


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
def test_the_tar_has_every_file_and_proves_it(
    client_for: Callable[..., Client], rita: User, model: RegisteredModel, tmp_path: Path
) -> None:
    answer = _download(client_for(rita), model)
    content = b"".join(answer)
    assert int(answer["Content-Length"]) == len(content)
    assert answer["Content-Disposition"] == 'attachment; filename="first-(2).tar"'
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "first-(2)"
    made = {"SHA256SUMS", "README.md"}  # tests/webapp/results/test_card.py reads the card
    assert {path.name for path in folder.iterdir()} == set(FILES) | made
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in made} == FILES
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)
    sums = (folder / "SHA256SUMS").read_text().split()
    assert sums[sums.index("config.json") - 1] == hashlib.sha256(b"{}").hexdigest()
    assert AuditEntry.objects.filter(action="model_downloaded", username="rita", subject="first (2)").count() == 1


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
def test_the_adapter_alone(client_for: Callable[..., Client], rita: User, model: RegisteredModel) -> None:
    content = b"".join(_download(client_for(rita), model, "adapter"))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        names = ("README.md", "adapter_model.safetensors", "SHA256SUMS")
        assert tar.getnames() == [f"first-(2)/{name}" for name in names]
        card = tar.extractfile("first-(2)/README.md")
        assert card is not None and b"# first (2)\n" in card.read()


def test_a_checkpoint_on_the_way_has_not_the_adapter_of_the_finished_model(
    client_for: Callable[..., Client], rita: User, model: RegisteredModel
) -> None:
    """The adapter next to it was saved at the end: it is of another step."""
    assert model.checkpoint is not None and model.adapter is not None
    Checkpoint.objects.filter(pk=model.checkpoint.pk).update(path="1/checkpoint-5", final=False)
    (model.checkpoint.folder.parent / "checkpoint-5").mkdir()
    answer = _download(client_for(rita), model, "adapter")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


# What a checkpoint on the way consists of, by the library that writes it, and what of it loads the model.
LOADS = {
    *("config.json", "generation_config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "merges.txt"),
    *("spiece.model", "tokenizer.tiktoken", "adapter_config.json", "adapter_model.safetensors", "README.md", "LICENSE"),
}
STAYS = {
    *("optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state.pth", "rng_state_0.pth"),
    *("training_args.bin", "trainer_state.json", "manifest.json", "pytorch_model.bin", "tokenizer.pkl", "custom.py"),
}


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
def test_of_a_checkpoint_on_the_way_only_what_loads_is_sent(
    client_for: Callable[..., Client], rita: User, model: RegisteredModel
) -> None:
    assert model.checkpoint is not None
    Checkpoint.objects.filter(pk=model.checkpoint.pk).update(path="1/checkpoint-5", final=False)
    folder = model.checkpoint.folder.parent / "checkpoint-5"
    folder.mkdir()
    for name in LOADS | STAYS:
        (folder / name).write_bytes(name.encode())
    answer = _download(client_for(rita), model)
    content = b"".join(answer)
    assert int(answer["Content-Length"]) == len(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert set(tar.getnames()) == {f"first-(2)/{name}" for name in LOADS | {"SHA256SUMS"}}
        sums = tar.extractfile("first-(2)/SHA256SUMS")
        assert sums is not None and {line.split("  ")[1] for line in sums.read().decode().splitlines()} == LOADS
    assert {path.name for path in folder.iterdir()} == LOADS | STAYS  # the checkpoint keeps all that resuming needs


def test_what_is_not_here_is_reported(client_for: Callable[..., Client], rita: User, project: Project) -> None:
    client = client_for(rita)
    for kind, source in (
        (ModelKind.HUB, "a/b"),
        (ModelKind.FOLDER, "gone"),
        (ModelKind.FOLDER, "../x"),
        (ModelKind.RUN, ""),
    ):
        model = RegisteredModel.objects.create(project=project, name=f"{kind}{source[:1]}", kind=kind, source=source)
        answer = _download(client, model)
        assert answer.status_code == 409 and "not on this server" in answer.json()["message"]
        assert "LoRA" in _download(client, model, "adapter").json()["message"]
    assert _download(client, model, "everything").status_code == 422


def test_strangers_learn_nothing(client_for: Callable[..., Client], charlie: User, model: RegisteredModel) -> None:
    assert _download(client_for(charlie), model).status_code == 404
    assert _download(client_for(None), model).status_code == 401
    assert client_for(charlie).post(f"/api/v1/models/{model.pk}/download").status_code == 405


async def test_a_file_that_became_shorter_ends_the_answer(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(100))
    with pytest.raises(OSError, match="became shorter"):
        async for _piece in tar_of([ModelFile("weights", tmp_path / "weights", 200)], "m"):
            pass


async def test_no_more_than_a_piece_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(5 << 20))
    sizes = [len(piece) async for piece in tar_of([ModelFile("weights", tmp_path / "weights", 5 << 20)], "m")]
    assert max(sizes) <= 1 << 20 and len(sizes) > 5


def test_links_are_not_followed(model: RegisteredModel) -> None:
    assert {file.name for file in model_files(model)} == set(FILES)
