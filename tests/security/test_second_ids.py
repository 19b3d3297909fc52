"""A second id, in a query, a body or an address, is of the same project: another's is answered as one that is nowhere.

Alice may see both projects, so no check of roles helps: each view has to look within its own project.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from tests.security.routes import API, BODIES, OWN_PK, PROJECT, TABLE
from tests.security.test_authorisation_matrix import (
    ROUTES,
    _address,
    _ballot,
    _branch,
    _export,
    _metrics,
    objects,
)
from tests.webapp.rewards.test_custom import _form as code_form
from webapp.chat.models import Answer, AnswerState, Chat
from webapp.chat.models import Turn as ChatTurn
from webapp.datasets.models import Dataset
from webapp.people.notifications.models import Event, Notification
from webapp.people.teams.models import ApiToken, AuditEntry, Membership, Project, Role, Team, User
from webapp.rewards.models import RewardSpec, RolloutSet, SetState
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel

__all__ = ["objects"]
FAR = "far-away"
"""In the names of all that lies in the other project."""
EACH = API + "projects/<slug:slug>/"


class Sent(NamedTuple):
    """A request that names objects by id: ``{run}`` is the place of one's id."""

    method: str
    route: str
    fields: dict[str, Any]


SENT = [
    Sent("GET", PROJECT + "chats/new/", {"rollout": "{rollout}"}),
    Sent("GET", PROJECT + "chats/new/", {"dataset": "{dataset}", "row": "1"}),
    Sent("POST", PROJECT + "chats/new/", {"model": "checkpoint:{checkpoint}"}),
    *(Sent("GET", PROJECT + "runs/new/", {name: "{run}"}) for name in ("from", "clone")),
    Sent("GET", PROJECT + "runs/new/", {"edit": "{draft}"}),
    Sent("POST", PROJECT + "runs/new/", {"name": "r", "checkpoint": "{checkpoint}"}),
    Sent("POST", PROJECT + "runs/new/", {"name": "r", "origin": "{run}", "draft": "{draft}"}),
    Sent("GET", PROJECT + "runs/runs.csv", {"c": "{run}"}),
    *(Sent(method, PROJECT + "runs/tag/", {"c": "{run}", "add": "best"}) for method in ("GET", "POST")),
    *(Sent(method, PROJECT + "runs/archive/", {"c": "{run}"}) for method in ("GET", "POST")),
    *(Sent(method, PROJECT + "runs/queue/", {"c": "{run}", "act": "hold"}) for method in ("GET", "POST")),
    *(
        Sent("GET", PROJECT + f"compare/{tail}", {"c": ["{played}", "{run}"]})
        for tail in ("", "report.html", "figures.csv", "tasks.csv")
    ),
    Sent("POST", PROJECT + "compare/rescore/", {"c": "{run}", "spec": "{run}"}),
    Sent("GET", PROJECT + "compare/saved/new/", {"c": ["{played}", "{run}"]}),
    Sent("POST", PROJECT + "compare/saved/new/", {"name": "kept", "address": "c={played}&c={run}"}),
    *(Sent(method, PROJECT + "votes/new/", {"c": ["{played}", "{run}"]}) for method in ("GET", "POST")),
    Sent("GET", PROJECT + "suites/new/", {"c": "{run}"}),
    *(Sent(method, PROJECT + "votes/" + OWN_PK + "vote/", {"ballot": "{ballot}"}) for method in ("GET", "POST")),
    Sent("GET", PROJECT + "environments/" + OWN_PK + "play/row/", {"dataset": "{dataset}"}),
    Sent("GET", PROJECT + "rewards/custom/", {"spec": "{spec}", "part": "mine"}),
    Sent("POST", PROJECT + "rewards/custom/test/", code_form(source="run:{run}")),
    Sent("POST", PROJECT + "rewards/cases/" + OWN_PK + "delete/", {"spec": "{spec}"}),
    Sent("GET", PROJECT + "rewards/lab/", {"run": "{run}"}),
    Sent("POST", PROJECT + "rewards/lab/", {"kind": "run", "run": "{run}"}),
    Sent("GET", PROJECT + "rollouts/", {"run": "{run}"}),
    Sent("GET", PROJECT + "rollouts/" + OWN_PK + "found/", {"found": "run={run}", "in": "project"}),
    Sent("POST", PROJECT + "datasets/" + OWN_PK + "make/<slug:operation>/", {"dataset_1": "{dataset}"}),
    Sent("GET", PROJECT + "models/new/", {"kind": "run", "checkpoint": "{checkpoint}"}),
    Sent("POST", PROJECT + "models/new/", {"name": "kept", "kind": "run", "checkpoint": "{checkpoint}"}),
    Sent("GET", EACH + "compare", {"c": ["{played}", "{run}"]}),
    Sent("POST", EACH + "compare/rescore", {"runs": ["{run}"], "spec": "{run}"}),
    Sent("POST", EACH + "comparisons", {"name": "kept", "runs": ["{played}", "{run}"]}),
    Sent("POST", EACH + "vote-rounds", {"name": "v", "runs": ["{played}", "{run}"]}),
    Sent("POST", EACH + "runs/batch", {"act": "archive", "runs": ["{run}"]}),
    Sent("POST", EACH + "models", {"name": "kept", "kind": "run", "checkpoint": "{checkpoint}"}),
    Sent("POST", EACH + "chats", {"contestants": [{"source": "checkpoint:{checkpoint}"}]}),
    *(Sent("GET", EACH + f"rollouts{tail}", {"run": "{run}"}) for tail in ("", "/spread", "/causes", "/save")),
    Sent("POST", API + "chats/<uuidstr:chat_id>/again", {"answer": "{answer}"}),
    Sent("POST", API + "chats/<uuidstr:chat_id>/messages", {"text": "Hello", "edited": "{turn}"}),
    Sent("POST", "projects/new/", {"name": "New", "team": "{team}"}),
    Sent("POST", "tokens/", {"name": "t", "role": "viewer", "days": "7", "project": "{project}"}),
    Sent("POST", API + "notifications/read", {"ids": ["{notification}"]}),
]
OUTSIDE = {("POST", "/api/v1/projects/{}/datasets/fetch"), ("GET", "/api/v1/runs/{}/axes")}
"""Operations whose ids are not ours, but Hugging Face's, or that tests/webapp/api/test_run_axes.py sends them."""
KEPT = (Run, Checkpoint, Dataset, RewardSpec, RegisteredModel, Chat, Notification)
"""What must be as it was in the other project."""
_RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b\w{32,64}\b|request_id\W+\w+|data-ago>[^<]*",
    re.IGNORECASE,
)
"""Ids, tokens, and how long ago something was."""


@pytest.fixture
def make_kinds(make_run: Any, make_dataset: Any, evaluation: Any) -> Callable[..., dict[str, Any]]:
    """One object of each kind of a project, by its name in ``SENT``."""

    def make(project: Project, user: User, word: str) -> dict[str, Any]:
        run, played = (evaluation(f"{word}-{name}", {0: [1.0], 1: [0.0]}) for name in ("run", "played"))
        Run.objects.filter(pk__in=[run.pk, played.pk]).update(project=project)
        run.refresh_from_db()
        run.rollouts.update(finished_at=timezone.now())
        rollout = run.rollouts.order_by("group").first()
        saved = {"path": "1/checkpoint-1", "bytes": 1, "seq": 1, "created_at": timezone.now()}
        code = {"code": f"# {word}\ndef score(e): return 1"}
        parts = [{"name": "mine", "function": "custom", "weight": 1.0, "params": code}]
        chat = Chat.objects.create(project=project, contestants=[{"source": "a/b", "title": "a/b"}])
        turn = ChatTurn.objects.create(chat=chat, number=0, text=word)
        answer = Answer.objects.create(turn=turn, contestant=0, state=AnswerState.DONE)
        dataset = make_dataset(project=project, name=f"{word}-data")
        about = {"object_kind": "runs.run", "object_id": str(run.pk), "subject": word}
        event = Event.objects.create(project=project, kind="run_failed", key=word, **about)
        return {
            "run": run.pk,
            "played": played.pk,
            "draft": make_run(project=project, name=f"{word}-draft").pk,
            "rollout": rollout.pk,
            "checkpoint": Checkpoint.objects.create(project=project, run=run, attempt=1, step=1, **saved).pk,
            "dataset": dataset.pk,
            "spec": RewardSpec.objects.create(project=project, name=f"{word}-spec", components=parts).pk,
            "chat": chat.pk,
            "turn": turn.pk,
            "answer": answer.pk,
            "branch_id": _branch(rollout).pk,
            "export_id": _export(dataset).pk,
            "file_id": _metrics(run).pk,
            "notification": Notification.objects.create(event=event, user=user).pk,
        }

    return make


@pytest.fixture
def far(alice: User, charlie: User, make_kinds: Any) -> dict[str, Any]:
    """The objects of a project in another team of Alice; of people, those that she does not know."""
    team = Team.objects.create(name="Faraway")
    Membership.objects.create(team=team, user=alice, role=Role.OWNER)
    project = Project.objects.create(team=team, name="Beyond", slug="beyond")
    found = make_kinds(project, charlie, FAR)
    ballot = _ballot(Run.objects.get(pk=found["run"]))
    theirs = Membership.objects.get(user=charlie).team
    token = ApiToken.objects.create(user=charlie, name="t", role="viewer", token_hash="far", hint="far")
    people = {"team": theirs.pk, "project": theirs.projects.get().pk, "machine_token": token.pk}
    return found | people | {"ballot": ballot.pk, "ballot_id": ballot.pk, "here": project}


@pytest.fixture
def near(alice: User, project: Project, objects: dict[str, Any], make_kinds: Any) -> dict[str, Any]:
    """The same objects in the project that the addresses name."""
    found = make_kinds(project, alice, "near")
    people = {"team": project.team_id, "project": project.pk}
    return found | people | {"ballot": objects["ballot_id"]}


def _filled(value: Any, ids: dict[str, Any]) -> Any:
    """The value with ids in their places."""
    if isinstance(value, dict):
        return {name: _filled(item, ids) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, ids) for item in value]
    known = "|".join(ids)
    return re.sub(f"{{({known})}}", lambda found: str(ids[found[1]]), value) if isinstance(value, str) else value


class Answered(NamedTuple):
    """An answer without what is random in each, and what it did; ``rows`` are those of the other project after it."""

    status: int
    location: str
    text: str
    acts: list[str]
    message: str
    rows: list[Any]


def _answer(client: Client, sent: Sent, address: str, ids: dict[str, Any], other: Project) -> Answered:
    """Send the request with these ids, and undo what it did."""
    fields = _filled(sent.fields, ids)
    with transaction.atomic():
        if sent.method == "GET":
            response = client.get(address, fields)
        elif address.startswith("/api/"):
            response = client.post(address, json.dumps(fields), content_type="application/json")
        else:
            response = client.post(address, fields)
        text = b"".join(response) if response.streaming else response.content
        acts = list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))
        rows = _rows_of(other)
        transaction.set_rollback(True)
    said = client.cookies.pop("messages", None)
    message = said.value.rsplit(":", 2)[0] if said else ""  # the signature and its second left out
    location, shown = (_RANDOM.sub("…", part) for part in (response.headers.get("Location", ""), text.decode()))
    return Answered(response.status_code, location, shown, acts, message, rows)


def _rows_of(project: Project) -> list[Any]:
    found = [list(model._default_manager.filter(project=project).values()) for model in KEPT[:-1]]
    return [*found, list(Notification.objects.filter(event__project=project).values())]


def test_another_projects_id_is_answered_as_one_that_is_nowhere(
    alice: User, client_for: Any, objects: dict[str, Any], near: dict[str, Any], far: dict[str, Any]
) -> None:
    client, wrong = client_for(alice, raise_request_exception=False), []
    nowhere = {name: uuid.uuid4() if isinstance(pk, uuid.UUID) else 10**9 for name, pk in near.items()}
    nowhere |= {"played": near["played"]}
    places = objects | {"chats": near["chat"], "chat_id": near["chat"], "operation": "mix"}
    for sent in SENT:
        address = _address(sent.route, places)
        every = (near, nowhere, {**far, "played": near["played"]})
        ours, none, theirs = (_answer(client, sent, address, ids, far["here"]) for ids in every)
        if theirs != none or FAR in theirs.text or theirs.status >= 500:
            wrong.append(f"{sent.method} {address} {sent.fields}: {theirs.status}, and {none.status} for none")
        if ours == none:
            wrong.append(f"{sent.method} {address} {sent.fields}: ours is answered as none is: {none.status}")
    assert not wrong, "\n".join(wrong)


def test_an_object_is_not_reached_through_another_one(
    alice: User, client_for: Any, objects: dict[str, Any], far: dict[str, Any]
) -> None:
    """Addresses with two ids: our object, and then a part of one of another project. 422: it is not in this file."""
    client, tried = client_for(alice, raise_request_exception=False), []
    RolloutSet.objects.update(state=SetState.READY)
    for route in ROUTES:
        names = re.findall(r"<uuid\w*:(\w+)>", route)
        if len(names) < 2:
            continue
        address = _address(route, objects | {names[-1]: far[names[-1]]})
        body = json.dumps(BODIES.get(route, {"components": [{"name": "env_success", "weight": 1}]}))
        for method in TABLE[route]:
            response = client.generic(method, address, body, content_type="application/json")
            tried.append((method, route, response.status_code))
    assert len(tried) >= 10 and [found for found in tried if found[2] not in (404, 422)] == []


def test_every_operation_that_takes_ids_is_sent_them(client: Client) -> None:
    """As the schema of the API says: a field of ids, or one whose description says so."""
    shapes = client.get("/api/v1/openapi.json").json()
    known = {(sent.method, _shown(sent.route)) for sent in SENT} | OUTSIDE
    missing = []
    for path, methods in shapes["paths"].items():
        for method, operation in methods.items():
            query = [each for each in operation.get("parameters", []) if each["in"] == "query"]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            named = shapes["components"]["schemas"].get(body.get("$ref", "").rsplit("/", 1)[-1], {})
            fields = [*query, *({"name": name, **shape} for name, shape in named.get("properties", {}).items())]
            takes = [each["name"] for each in fields if _takes_ids(each)]
            if takes and (method.upper(), re.sub(r"{\w+}", "{}", path)) not in known:
                missing.append(f"{method.upper()} {path}: {takes}")
    assert not missing, "add a line to SENT for:\n" + "\n".join(missing)


def _shown(route: str) -> str:
    return "/" + re.sub(r"<\w+:\w+>", "{}", route)


def _takes_ids(field: dict[str, Any]) -> bool:
    about = f"{field.get('description', '')} {field.get('title', '')}"
    return '"uuid"' in json.dumps(field) or re.search(r"\bids?\b", about, re.IGNORECASE) is not None
