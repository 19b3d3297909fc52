"""Text that people, files and servers bring in comes out escaped on every page that shows it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.working import at_once, done
from webapp.datasets import services
from webapp.environments.models import Environment
from webapp.people.teams.models import Project, User
from webapp.runs.registry.models import RegisteredModel

MARK = "x9x"
STRINGS = [
    f"<script>{MARK}()</script>",
    f"<img src=x onerror={MARK}()>",
    f'"><svg onload={MARK}()>',
    f"'><b id={MARK}>",
    f"<a href=javascript:{MARK}()>a</a>",
    f"{{{{ {MARK} }}}}",
    f"{{% {MARK} %}}",
    f"</textarea><i {MARK}>",
    f"</script><i {MARK}>",
    f"<!--{MARK}--><i>",
    f"\u202e<i {MARK}>",
    f"&lt;i {MARK}&gt;<i {MARK}>",
    f"<iframe {MARK}>",
]
LIVE = (
    "<script>x9x",
    "<img src=x",
    "<svg onload",
    "<b id=x9x",
    "<a href=javascript",
    "<i x9x",
    "<!--x9x",
    "<iframe x9x",
)


def _clean(page: str) -> None:
    for piece in LIVE:
        assert piece not in page, page[max(0, page.index(piece) - 80) : page.index(piece) + 80]


@pytest.mark.parametrize("text", STRINGS)
def test_dataset_text_is_escaped(
    text: str, project: Project, bob: User, client_for: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once(monkeypatch)
    row = {
        "messages": [
            {"role": "user", "content": text + " long" * 100},
            {
                "role": "assistant",
                "content": text,
                "tool_calls": [{"id": "1", "name": text, "arguments": {text: text}}],
            },
            {"role": "tool", "content": text, "name": text, "tool_call_id": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": text, "parameters": {}}}],
        text: text,
    }
    data = json.dumps(row) + "\n" + json.dumps({"messages": text, text: 1}) + "\n"
    file = io.BytesIO(data.encode())
    file.name, file.size = text, len(data.encode())  # type: ignore[attr-defined]
    from django.core.files.base import File

    dataset = services.dataset_create(project=project, user=bob, name="d", file=File(file), file_name=text)
    done(dataset)
    client = client_for(bob)
    page = client.get(reverse("dataset-detail", args=[project.slug, dataset.pk])).content.decode()
    assert MARK in page
    _clean(page)
    _clean(client.get(reverse("dataset-list", args=[project.slug])).content.decode())


@pytest.mark.parametrize("text", STRINGS)
def test_names_and_answers_are_escaped(
    text: str, project: Project, bob: User, client_for: Callable[..., Client], make_run: Any, make_reward_spec: Any
) -> None:
    """Rows written past the forms: what an older version or another tool may have left."""
    error = {"code": "x", "boundary": "environment", "message": text, "hint": text}
    health = {"error": error, "version": text}
    Environment.objects.create(
        project=project, name=text[:80], url="http://x/" + text, server_name=text, healthy=False, health=health
    )
    RegisteredModel.objects.create(project=project, name=text, kind="hub", source=text, revision=text[:64])
    spec = make_reward_spec(name=text, components=[{"name": "gone", "weight": 1, "params": {text: text}}])
    run = make_run(name=text, config={"rewards": {"spec": spec.reference}})
    client = client_for(bob)
    for name, *args in (
        ("environment-list",),
        ("model-list",),
        ("reward-list",),
        ("reward-detail", spec.pk),
        ("reward-edit", spec.pk),
        ("run-new",),
    ):
        _clean(client.get(reverse(name, args=[project.slug, *args])).content.decode())
    for query in ({"from": str(run.pk)}, {"dataset": text}, {"model": text}, {"preset": text}, {"reward": text}):
        _clean(client.get(reverse("run-new", args=[project.slug]), query).content.decode())
    for address, body in (
        (reverse("run-yaml", args=[project.slug]), {"yaml": f"{text}: 1\nrun: {text!r}", "name": text}),
        (reverse("run-preflight", args=[project.slug]), {"name": text, "data.train": text, "run.max_steps": text}),
        (reverse("reward-try", args=[project.slug, spec.pk]), {"conversation": text}),
        (reverse("environment-new", args=[project.slug]), {"name": text, "url": text}),
        (reverse("model-new", args=[project.slug]), {"name": text, "kind": text, "source": text}),
        (reverse("reward-new", args=[project.slug]), {"name": text, "coherence.weight": text}),
    ):
        _clean(client.post(address, body).content.decode())
