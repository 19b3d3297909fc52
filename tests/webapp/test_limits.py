"""Of each thing there may be as many, and it may be as long, as its limit says, and not by one more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.http import QueryDict

from webapp.chat import services as chats
from webapp.chat.models import Answer, AnswerState
from webapp.common import pages
from webapp.datasets.operations import ExportOptions, export_order, operation_order
from webapp.endpoints.services import endpoint_create
from webapp.environments.orders import order_create
from webapp.environments.services import environment_launch
from webapp.evaluation.sharing import services as sharing
from webapp.evaluation.suites.services import suite_create
from webapp.foreign.figure_files import metrics_order
from webapp.foreign.importing import import_create
from webapp.launch.findings import YamlProblem, config_from_text
from webapp.people.notifications.channels import channel_create
from webapp.people.teams import tokens
from webapp.people.teams.models import Project, User
from webapp.people.teams.services import hub_token_set
from webapp.reading.inspector.filters import filters_of, project_scope
from webapp.reading.inspector.saving import view_save
from webapp.rewards.cases import reward_case_create
from webapp.rewards.lab.sets import rollout_set_create
from webapp.rewards.models import RewardCase
from webapp.runs.pins.services import chart_pin
from webapp.runs.records.marks import run_label
from webapp.runs.registry.selectors import clean_tags

pytestmark = pytest.mark.django_db
TALK = [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]
ASKED = {"url": "https://93.184.216.34/v1", "model": "m", "concurrency": 1, "timeout_s": 60}
HOOK = {"kind": "json", "url": "http://8.8.8.8/hook", "events": ["run_failed"]}
Make = Callable[[str], Any]


@pytest.fixture
def makers(project: Project, alice: User, make_run: Any, make_dataset: Any, make_environment: Any) -> dict[str, Make]:
    """By the place of a limit, what makes one more thing under a name."""
    by: dict[str, Any] = {"project": project, "user": alice}
    data, run, two = make_dataset(), make_run(state="succeeded"), [str(make_run().pk) for _ in range(2)]
    saved = sharing.comparison_save(name="first", query=sharing.Query(two), **by)
    machine, _token, _text = tokens.machine_create(
        project=project, name="robot", may="viewer", everywhere=False, days=None, by=alice
    )
    chat = chats.chat_create(contestants=[{"source": "a/b"}], **by)
    talk = chats.chat_create(contestants=[{"source": "a/b"}], **by)
    shop = make_environment(kind="process", program="webshop", url="")
    view = project_scope(project, []), filters_of(QueryDict(""))
    cut: dict[str, Any] = {"operation": "cut", "options": {"cut": "query"}, "user": alice}
    what = {"may": "viewer", "everywhere": False, "days": None, "project": project, "by": alice}

    def said(_name: str) -> None:
        Answer.objects.update(state=AnswerState.DONE)
        chats.turn_send(chat=talk, user=alice, text="Hello")

    def drawn(name: str) -> None:
        Answer.objects.update(state=AnswerState.DONE)
        if not chat.turns.exists():
            chats.turn_send(chat=chat, user=alice, text="Hello")
        else:
            chats.answer_again(chat=chat, answer=Answer.objects.filter(turn__chat=chat)[0].pk)

    def case(name: str) -> None:
        reward_case_create(case=RewardCase(name=name, messages=TALK, prompt_length=1, total=[0, 1]), **by)

    def imported(name: str) -> None:
        import_create(name=name, files=[SimpleUploadedFile("a.log", b"step:1 - loss:2\n")], **by)

    return {
        "webapp.evaluation.sharing.services.MOST_SAVED": lambda name: sharing.comparison_save(
            name=name, query=sharing.Query(two), **by
        ),
        "webapp.evaluation.sharing.services.MOST_COMMENTS": lambda name: sharing.comment_add(
            saved=saved, user=alice, text=name
        ),
        "webapp.evaluation.sharing.services.MOST_LINKS": lambda _name: sharing.link_create(
            saved=saved, user=alice, days=7
        ),
        "webapp.people.teams.tokens.MOST": lambda name: tokens.token_create(user=alice, name=name, role="viewer"),
        "webapp.people.teams.tokens.MOST_MACHINES": lambda name: tokens.machine_create(name=name, **what),
        "webapp.people.teams.tokens.MOST_TOKENS": lambda _name: tokens.machine_token(
            machine=machine, days=None, by=alice, project=project
        ),
        "webapp.people.notifications.channels.MOST": lambda name: channel_create(name=name, **by, **HOOK),
        "webapp.endpoints.services.MAX_ENDPOINTS": lambda name: endpoint_create(name=name, **by, **ASKED),
        "webapp.environments.services.MAX_ENVIRONMENTS": lambda name: environment_launch(
            name=name, kind="process", program="webshop", **by
        ),
        "webapp.chat.services.MAX_CHATS": lambda _name: chats.chat_create(contestants=[{"source": "a/b"}], **by),
        "webapp.chat.services.MAX_TURNS": said,
        "webapp.chat.services.MAX_TRIES": drawn,
        "webapp.runs.pins.services.MOST": lambda name: chart_pin(run=run, key=name, names=["kl"], view={}, user=alice),
        "webapp.reading.inspector.saving.MAX_VIEWS": lambda name: view_save(
            scope=view[0], filters=view[1], name=name, user=alice
        ),
        "webapp.rewards.cases.MAX_CASES": case,
        "webapp.rewards.lab.sets.MAX_SETS": lambda name: rollout_set_create(
            kind="pasted", name=name, text=json.dumps(TALK), **by
        ),
        "webapp.datasets.operations.MAX_MAKING": lambda name: operation_order(parents=[data], names=[name], **cut),
        "webapp.datasets.operations.MAX_EXPORTING": lambda _name: export_order(
            dataset=data, user=alice, options=ExportOptions(to="jsonl")
        ),
        "webapp.foreign.importing.MAX_OPEN": imported,
        "webapp.foreign.figure_files.MAX_OPEN": lambda _name: metrics_order(run=run, user=alice, to="csv"),
        "webapp.environments.orders.MAX_OPEN": lambda name: order_create(
            environment=shop, user=alice, name=name, command="tasks", arguments={}
        ),
    }


THERE = {"MOST_SAVED": 1, "MOST_MACHINES": 1, "MOST_TOKENS": 1, "MAX_CHATS": 2, "MAX_ENVIRONMENTS": 1}
"""How many there are before."""
COUNTED = [
    *("webapp.evaluation.sharing.services.MOST_SAVED", "webapp.evaluation.sharing.services.MOST_COMMENTS"),
    *("webapp.evaluation.sharing.services.MOST_LINKS", "webapp.people.teams.tokens.MOST"),
    *("webapp.people.teams.tokens.MOST_MACHINES", "webapp.people.teams.tokens.MOST_TOKENS"),
    *("webapp.people.notifications.channels.MOST", "webapp.endpoints.services.MAX_ENDPOINTS"),
    *("webapp.environments.services.MAX_ENVIRONMENTS", "webapp.chat.services.MAX_CHATS"),
    *("webapp.chat.services.MAX_TURNS", "webapp.chat.services.MAX_TRIES", "webapp.runs.pins.services.MOST"),
    *("webapp.reading.inspector.saving.MAX_VIEWS", "webapp.rewards.cases.MAX_CASES"),
    *("webapp.rewards.lab.sets.MAX_SETS", "webapp.datasets.operations.MAX_MAKING"),
    *("webapp.datasets.operations.MAX_EXPORTING", "webapp.foreign.importing.MAX_OPEN"),
    *("webapp.foreign.figure_files.MAX_OPEN", "webapp.environments.orders.MAX_OPEN"),
]


@pytest.mark.parametrize("place", COUNTED)
def test_as_many_as_the_limit_are_made_and_not_one_more(
    place: str, makers: dict[str, Make], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, THERE.get(place.rpartition(".")[2], 0) + 2)
    for name in ("one", "two"):
        makers[place](name)
    with pytest.raises(ValidationError), transaction.atomic():
        makers[place]("three")


def test_a_run_has_ten_tags_and_notes_of_4000_characters_and_a_model_eight_tags(make_run: Any, alice: User) -> None:
    run, ten = make_run(), [f"t{number}" for number in range(10)]
    assert run_label(run=run, user=alice, tags=ten, notes="n" * 4000).tags == ten
    assert clean_tags(ten[:8]) == ten[:8]
    for more in ({"tags": [*ten, "t10"]}, {"notes": "n" * 4001}):
        with pytest.raises(ValidationError):
            run_label(run=run, user=alice, **more)
    with pytest.raises(ValidationError):
        clean_tags(ten[:9])


def test_a_person_tests_as_often_in_a_minute_as_the_limit_says(alice: User) -> None:
    cache.clear()
    allowed = [pages.probe_allowed(alice) for _ in range(pages.PROBES_PER_MINUTE + 1)]
    assert allowed == [True] * pages.PROBES_PER_MINUTE + [False]


@pytest.mark.parametrize(
    ("most", "send"),
    [
        (4_000, lambda of, text: sharing.comment_add(saved=of["saved"], user=of["user"], text=text)),
        (200_000, lambda of, text: chats.turn_send(chat=of["chat"], user=of["user"], text=text)),
        (500, lambda of, text: endpoint_create(name="e", key=text, project=of["project"], user=of["user"], **ASKED)),
        (200, lambda of, text: channel_create(name="c", secret=text, project=of["project"], user=of["user"], **HOOK)),
        (500, lambda of, text: hub_token_set(project=of["project"], token=text)),
    ],
    ids=["comment", "message", "key", "secret", "hub token"],
)
def test_a_text_may_be_as_long_as_its_limit(
    most: int, send: Callable[[dict[str, Any], str], Any], project: Project, alice: User, make_run: Any
) -> None:
    query = sharing.Query([str(make_run().pk) for _ in range(2)])
    saved = sharing.comparison_save(project=project, user=alice, name="first", query=query)
    chat = chats.chat_create(project=project, user=alice, contestants=[{"source": "a/b"}])
    of = {"project": project, "user": alice, "saved": saved, "chat": chat}
    with pytest.raises(ValidationError), transaction.atomic():
        send(of, "x" * (most + 1))
    send(of, "x" * most)


def test_a_config_may_have_64_kb_and_not_a_byte_more() -> None:
    text = "kind: sft\n# "
    whole = text + "字" * ((65_536 - len(text)) // 3)
    assert config_from_text(whole + "x" * (65_536 - len(whole.encode()))).kind == "sft"
    with pytest.raises(YamlProblem, match="at most 64 KB"):
        config_from_text(whole + "x" * (65_537 - len(whole.encode())))


def test_a_suite_has_twelve_parts(project: Project, alice: User, make_dataset: Any) -> None:
    config = {"data": {"train": make_dataset().reference}, "environment": {"name": "none"}}
    parts = [{"title": f"part {number}", "weight": 1.0, "config": config} for number in range(13)]
    for wrong in ([], parts):
        with pytest.raises(ValidationError, match="1 to 12 parts"):
            suite_create(project=project, user=alice, name="exam", parts=wrong)
    assert len(suite_create(project=project, user=alice, name="exam", parts=parts[:12]).parts) == 12
