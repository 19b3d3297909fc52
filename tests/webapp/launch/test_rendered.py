"""The page *Rendered*: what a model would see of a dataset, and what a run would learn of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from training.data import Rendered
from webapp.endpoints.models import Endpoint
from webapp.launch import views
from webapp.launch.views import SHOWN, View, rendered
from webapp.people.teams.models import Project, User

Clients = Callable[..., Client]
pytestmark = pytest.mark.django_db
STOCK = {"type": "function", "function": {"name": "stock", "parameters": {"properties": {"item": {"type": "string"}}}}}
CALL = {"id": "k", "type": "function", "function": {"name": "stock", "arguments": '{"item": "lamp"}'}}
ROWS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "user", "content": "How many lamps?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "4", "tool_call_id": "k", "name": "stock"},
            {"role": "assistant", "content": "Four <b>lamps</b>.", "reasoning_content": "The tool said 4."},
        ],
        "tools": [STOCK],
    },
    *(
        {
            "messages": [
                {"role": "user", "content": f"ask {n}"},
                {"role": "assistant", "content": f"say {n}", "weight": n},
            ]
        }
        for n in range(5)
    ),
]


@pytest.fixture
def dataset(make_dataset: Callable[..., Any]) -> Any:
    return make_dataset(ROWS)


def address(project: Project, name: str = "run-rendered-rows", **query: Any) -> str:
    words = "&".join(f"{key}={value}" for key, value in query.items())
    return f"{reverse(name, args=[project.slug])}?{words}"


def test_the_rows_are_rendered_by_the_trainers_own_code(
    project: Project, rita: User, client_for: Clients, dataset: Any
) -> None:
    page = client_for(rita).get(address(project, dataset=dataset.reference, model="starter")).content.decode()
    assert "Of the first 6 rows" in page and "Calls are read in the dialect hermes." in page
    assert "stock {&quot;item&quot;: &quot;lamp&quot;}" in page
    assert "The reasoning of 1 row is not learned" in page and "1 row is left out" in page
    assert page.count('class="card-head"') == SHOWN and "Next rows" in page and "Earlier rows" not in page
    later = client_for(rita).get(address(project, dataset=dataset.reference, model="starter", first=5)).content.decode()
    assert later.count('class="card-head"') == 2 and "Earlier rows" in later and "Row 5" in later
    beyond = client_for(rita).get(address(project, dataset=dataset.reference, model="starter", first=99))
    assert "There are no rows from here on." in beyond.content.decode()


@pytest.mark.parametrize(("learned", "tokens", "percent"), [(1, 4, 25.0), (4, 4, 100.0), (0, 4, 0.0), (0, 0, 0.0)])
def test_a_share_of_the_tokens_is_learned(learned: int, tokens: int, percent: float) -> None:
    assert View(Rendered(rows=[], sampled=1, learned=learned, tokens=tokens)).percent == percent
    assert View().percent == 0.0


@pytest.mark.parametrize(
    ("dataset_of", "model", "says"),
    [
        ("dataset:nothing", "starter", "There is no dataset"),
        ("", "starter", "Choose a dataset"),
        ("own", "model:nothing", "There is no model"),
        ("own", "/etc", "paths are not taken here"),
        ("own", "Qwen/Qwen3-0.6B", "not here yet"),
        ("own", "", "Choose a dataset and a model."),
    ],
)
def test_what_cannot_be_rendered_is_one_sentence(
    project: Project, dataset: Any, dataset_of: str, model: str, says: str
) -> None:
    view = rendered(project, dataset.reference if dataset_of == "own" else dataset_of, model, 1)
    assert view.found is None and says in view.problem


@pytest.mark.plain_start  # a forked one may end within the limit
def test_a_child_that_fails_or_hangs_is_one_sentence(
    project: Project, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "WALL_LIMIT_S", 0.2)
    assert "took longer than 0.2 seconds" in rendered(project, dataset.reference, "starter", 1).problem
    monkeypatch.setattr(views, "WALL_LIMIT_S", 60.0)
    dataset.rows_path.write_text("{broken\n")
    assert rendered(project, dataset.reference, "starter", 1).problem


def test_the_page_offers_what_the_project_has(project: Project, rita: User, client_for: Clients, dataset: Any) -> None:
    Endpoint.objects.create(project=project, name="hosted", url="https://127.0.0.1:1/v1", model="gpt")
    answer = client_for(rita).get(address(project, "run-rendered"))
    assert [value for value, _title in answer.context["models"]] == ["starter"], "an endpoint renders nothing"
    empty = answer.content.decode()
    assert "Choose a dataset and a model." in empty and dataset.reference in empty and "rendered/rows" not in empty
    chosen = client_for(rita).get(
        address(project, "run-rendered", dataset=dataset.reference, model="starter", first="x")
    )
    assert "first=1" in chosen.content.decode() and 'hx-trigger="load"' in chosen.content.decode()


def test_the_form_of_a_run_leads_to_its_dataset_and_model(project: Project, rita: User, client_for: Clients) -> None:
    form = {"data.train": "dataset:a@1", "model.source": "run:b"}
    answer = client_for(rita).post(address(project, "run-rendered-of-form"), form)
    assert answer.status_code == 302 and answer["Location"].endswith("?dataset=dataset%3Aa%401&model=run%3Ab")


@pytest.mark.parametrize("name", ["run-rendered", "run-rendered-rows"])
def test_who_may_see_it(project: Project, charlie: User, client_for: Clients, name: str) -> None:
    assert client_for(None).get(address(project, name)).status_code == 302
    assert client_for(charlie).get(address(project, name)).status_code == 404
    assert client_for(charlie).post(address(project, name)).status_code == 405
    assert client_for(charlie).post(address(project, "run-rendered-of-form")).status_code == 404
    assert client_for(charlie).get(address(project, "run-rendered-of-form")).status_code == 405
