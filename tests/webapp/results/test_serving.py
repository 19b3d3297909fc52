"""Commands to serve a model. The script for transformers is run as the page shows it; vLLM's commands are read only."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.webapp.results.conftest import Past
from training.data.schema import Message, Row
from training.starter import build_starter
from webapp.people.teams.models import Project, User
from webapp.results.lineage import origins_of
from webapp.results.views import Way, ways
from webapp.runs.registry.models import ModelKind, RegisteredModel

pytestmark = pytest.mark.django_db
SITE = "https://tiltyard.example"


def _ways(model: RegisteredModel) -> dict[str, Way]:
    return {way.id.removeprefix("serve-"): way for way in ways(model, origins_of(model), SITE)}


def test_a_whole_model(past: Past) -> None:
    found = _ways(past.model)
    assert list(found) == ["download", "vllm", "transformers"]
    assert shlex.split(found["vllm"].text) == ["vllm", "serve", "./tool-caller", "--served-model-name", "tool-caller"]
    assert f"{SITE}/api/v1/models/{past.model.pk}/download" in found["download"].text
    assert past.model.folder is not None
    (past.model.folder / "chat_template.jinja").write_text("{{ messages }}")
    words = shlex.split(_ways(past.model)["vllm"].text)
    assert words[words.index("--chat-template") + 1] == "./tool-caller/chat_template.jinja"


def test_an_adapter_next_to_a_finished_model(past: Past) -> None:
    assert past.model.folder is not None
    adapter = past.model.folder.parent / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"r": 64, "base_model_name_or_path": "/srv/secret/model"}))
    found = _ways(past.model)
    assert list(found) == ["download", "vllm", "transformers", "lora"]
    words = shlex.split(found["lora"].text)
    assert words[words.index("--max-lora-rank") + 1] == "64"
    assert words[words.index("--lora-modules") + 1] == "tool-caller=./tool-caller"
    assert "secret" not in "".join(way.text + way.about for way in found.values())


def test_a_checkpoint_that_is_an_adapter(past: Past, saved: Any, project: Project) -> None:
    files = {"adapter_config.json": b'{"r": 8}', "adapter_model.safetensors": b"lora"}
    kept = RegisteredModel.objects.create(
        project=project, name="half", kind=ModelKind.RUN, checkpoint=saved(past.warm, 20, final=False, files=files)
    )
    found = _ways(kept)
    assert list(found) == ["download", "lora", "transformers"]
    assert shlex.split(found["lora"].text) == [
        "vllm", "serve", "Qwen/Qwen3-0.6B", "--enable-lora", "--lora-modules", "half=./half"
    ]  # fmt: skip
    assert 'base, folder = "Qwen/Qwen3-0.6B", "./half"' in found["transformers"].text


def test_a_model_of_hugging_face_and_one_that_is_gone(past: Past, project: Project, client_for: Any, bob: User) -> None:
    hub = RegisteredModel.objects.create(project=project, name="q", kind=ModelKind.HUB, source="a/b", revision="v1")
    assert shlex.split(_ways(hub)["vllm"].text) == [
        "vllm", "serve", "a/b", "--revision", "v1", "--served-model-name", "b"
    ]  # fmt: skip
    assert past.model.folder is not None
    shutil.rmtree(past.model.folder)
    assert _ways(past.model) == {}
    page = client_for(bob).get(f"/p/joust/models/{past.model.pk}/").content.decode()
    assert "there is nothing to serve" in page and "The files are gone." in page


def _starter(folder: Path) -> None:
    turns = (("user", "What is 2 + 3?"), ("assistant", "5"))
    build_starter([Row(messages=[Message(role=role, content=text) for role, text in turns])], folder, seed=1)


def _shown(client: Any, model: RegisteredModel) -> str:
    page = client.get(f"/p/joust/models/{model.pk}/").content.decode()
    found = re.search(r'<pre[^>]*id="serve-transformers"[^>]*>(.*?)</pre>', page, re.S)
    assert found
    return html.unescape(found[1])


def _run(script: str, folder: Path) -> str:
    (folder / "serve.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "serve.py"],
        cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_script_answers_with_a_model_of_ours(past: Past, client_for: Any, bob: User, tmp_path: Path) -> None:
    """Copied from the page into the folder where the tar was unpacked."""
    _starter(tmp_path / "tool-caller")
    assert _run(_shown(client_for(bob), past.model), tmp_path).strip()


@pytest.mark.slow
def test_the_script_of_an_adapter_answers_too(
    past: Past, saved: Any, project: Project, client_for: Any, bob: User, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    files = {"adapter_config.json": b'{"r": 4}'}
    checkpoint = saved(past.grpo, 20, final=False, files=files)
    kept = RegisteredModel.objects.create(project=project, name="half", kind=ModelKind.RUN, checkpoint=checkpoint)
    base, adapter = tmp_path / "base-model", tmp_path / "half"
    _starter(base)
    model = AutoModelForCausalLM.from_pretrained(base, local_files_only=True)
    get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(adapter)
    AutoTokenizer.from_pretrained(base, local_files_only=True).save_pretrained(adapter)
    assert _run(_shown(client_for(bob), kept), tmp_path).strip()
