"""Every address × method × persona, and every socket × persona, against one table."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.db import transaction
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from tests.security.machines import machine_in
from tests.security.offers import offered, short
from tests.security.routes import API, BODIES, FILES, SOCKETS, TABLE, Who, routes
from training.config import JobConfig
from webapp.asgi import application
from webapp.chat.models import Chat
from webapp.datasets.models import Dataset, DatasetExport
from webapp.endpoints.models import Endpoint
from webapp.engine.models import ReaperMark
from webapp.evaluation.rescoring.models import Rescoring
from webapp.evaluation.sharing.models import Comment, SavedComparison, SharedLink
from webapp.evaluation.suites.models import Suite
from webapp.evaluation.suites.services import suite_create
from webapp.evaluation.votes.models import Ballot, RoundContestant, RoundVoter, Vote, VoteRound
from webapp.foreign.models import RunExport, RunImport
from webapp.launch.models import MemoryEstimate, Preparation, Sweep, SweepRun
from webapp.people.notifications.formats import Webhook, webhook_write
from webapp.people.notifications.models import Channel, Event, Notification
from webapp.people.teams.models import ApiToken, Membership, Project, SiteSwitch, User
from webapp.people.teams.services import hub_token_set
from webapp.reading.inspector.models import SavedView
from webapp.reading.rewinding.models import Branch
from webapp.rewards.models import RewardCase, RolloutSet
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.registry.models import Checkpoint, ModelPush, RegisteredModel
from webapp.runs.removal.models import Removal
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.sockets import websocket_urlpatterns

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PERSONAS = ("alice", "bob", "rita", "charlie", None)
ALLOWED = {
    Who.READ: {"alice", "bob", "rita"},
    Who.WRITE: {"alice", "bob"},
    Who.OWN: {"alice"},
    Who.HOLDER: {"alice"},
    Who.ANY_OWNER: {"alice", "charlie"},
    Who.LOGIN: {"alice", "bob", "rita", "charlie"},
    Who.ANYONE: {"alice", "bob", "rita", "charlie", None},
    Who.ADMIN: set(),
    Who.ABSENT: set(),
}
ROUTES = sorted(set(routes()))


@pytest.fixture
def cast(alice: Any, bob: Any, rita: Any, charlie: Any, client_for: Callable[..., Client]) -> dict[str | None, Client]:
    people = {"alice": alice, "bob": bob, "rita": rita, "charlie": charlie, None: None}
    return {name: client_for(person, raise_request_exception=False) for name, person in people.items()}


@pytest.fixture
def objects(
    alice: User,
    project: Project,
    make_run: Any,
    make_dataset: Any,
    make_reward_spec: Any,
    make_environment: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """One object of each kind, by the part of the address that comes before its id; all that can be on is on."""
    monkeypatch.setattr(settings, "CUSTOM_REWARDS", True)
    monkeypatch.setattr(settings, "OIDC_ISSUER", "http://localhost:9")  # nothing answers there
    SiteSwitch.objects.create(name="custom_rewards", on=True)
    ReaperMark.objects.create(pk=1, ran_at=timezone.now())  # the clockwork looks
    run = make_run(config=JobConfig.model_validate({"environment": {"name": "environment:there"}}))
    hub_token_set(project=project, token="hf_of-the-matrix")
    model = RegisteredModel.objects.create(project=project, name="small", kind="hub", source="a/b")
    newcomer = Membership.objects.create(team=project.team, user=User.objects.create_user("dana"))
    case = RewardCase.objects.create(project=project, name="case", messages=[], prompt_length=0)
    place = {"run": run, "attempt": 1, "step": 1, "group": 0, "index": 0, "started_at": timezone.now(), "seq": 1}
    place["status"] = "completed"
    rollout, _evaluated = Rollout.objects.create(**place), Rollout.objects.create(**place, held_out=True)
    for number in range(2):
        Turn.objects.create(rollout=rollout, run=run, number=number, messages=[{"role": "user", "content": "a"}], seq=1)
    checkpoint = Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=1, path="1/checkpoint-1", bytes=1, seq=1, created_at=timezone.now()
    )
    chat = Chat.objects.create(project=project, contestants=[{"source": "a/b", "title": "a/b"}])
    return {
        "chats": chat.pk,
        "chat_id": chat.pk,
        "checkpoints": checkpoint.pk,
        "checkpoint_id": checkpoint.pk,
        "model_id": model.pk,
        "model_name": model.name,
        "runs": run.pk,
        "run_id": run.pk,
        "datasets": (data := make_dataset()).pk,
        "dataset_id": data.pk,
        "rewards": (spec := make_reward_spec()).pk,
        "spec_id": spec.pk,
        "environments": (environment := make_environment(name="there", url="http://127.0.0.1:1")).pk,
        "environment_id": environment.pk,
        "endpoints": (endpoint := _endpoint(project)).pk,
        "endpoint_id": endpoint.pk,
        "models": model.pk,
        "suites": (suite := _suite(project, data)).pk,
        "suite_id": suite.pk,
        "sweeps": (sweep := _sweep(run)).pk,
        "sweep_id": sweep.pk,
        "rescorings": (rescoring := Rescoring.objects.create(project=project, name="spec", components=[], runs=[])).pk,
        "rescoring_id": rescoring.pk,
        "pins": (pin := PinnedChart.objects.create(project=project, run=run, key="kl", names=["kl"], view={})).pk,
        "pin_id": pin.pk,
        "rollouts": rollout.pk,
        "rollout_id": rollout.pk,
        "branch_id": _branch(rollout).pk,
        "views": (view := SavedView.objects.create(project=project, name="kept", query="")).pk,
        "view_id": view.pk,
        "cases": case.pk,
        "case_id": case.pk,
        "operation": "split",
        "export_id": _export(data).pk,
        "file_id": _metrics(run).pk,
        "deletions": Removal.objects.create(team=project.team, name="gone", state="failed").pk,
        "imports": (brought := RunImport.objects.create(project=project, files=[{"name": "log", "bytes": 1}])).pk,
        "import_id": brought.pk,
        "memory": (estimate := _estimate(project)).pk,
        "estimate_id": estimate.pk,
        "needs": Preparation.objects.create(project=project, preset="toolbench", size="test").pk,
        "channels": (channel := _channel(project)).pk,
        "channel_id": channel.pk,
        "notifications": _notification(alice, run).pk,
        "lab": RolloutSet.objects.create(project=project, name="set", kind="run").pk,
        "rollout": rollout.pk,
        "members": newcomer.pk,
        "people": newcomer.user.pk,
        "person_id": newcomer.user.pk,
        "teams": project.team_id,
        "team_id": project.team_id,
        "votes": (ballot := _ballot(run)).round_id,
        "round_id": ballot.round_id,
        "ballot_id": ballot.pk,
        "slug": project.slug,
        "token": "not-a-token",
        "tokens": (key := ApiToken.objects.create(user=alice, name="t", role="viewer", token_hash="t", hint="t")).pk,
        "token_id": key.pk,
        **machine_in(project),
        "step": 1,
        "group": 0,
        "number": 1,
        "task": 0,
        "secret": "not-a-secret",
        **_shared(project, alice),
    }


def _branch(rollout: Rollout) -> Branch:
    """A branch with a turn of its own."""
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return Branch.objects.create(rollout=rollout, turn=1, messages=talk, prompt_length=1, start=1, done=True, same=True)


def _shared(project: Project, user: User) -> dict[str, Any]:
    """A saved comparison of runs that are gone, a comment and a link, all of the same person."""
    saved = SavedComparison.objects.create(project=project, name="saved", contestants=[], created_by=user)
    comment = Comment.objects.create(comparison=saved, text="said", created_by=user)
    link = SharedLink.objects.create(
        comparison=saved, secret_hash="h", hint="h", created_by=user, expires_at=timezone.now() + timedelta(days=1)
    )
    return {
        "saved": saved.pk,
        "comparison_id": saved.pk,
        "comments": comment.pk,
        "comment_id": comment.pk,
        "links": link.pk,
        "link_id": link.pk,
    }


def _estimate(project: Project) -> MemoryEstimate:
    """The memory of a job, worked out and in vain."""
    return MemoryEstimate.objects.create(project=project, digest="d", config={}, device="cpu", state="failed")


def _suite(project: Project, dataset: Dataset) -> Suite:
    """A suite that anybody may play."""
    config = {"data": {"train": dataset.reference}, "environment": {"name": "none"}}
    part = {"title": "all", "weight": 1.0, "config": config}
    return suite_create(project=project, user=None, name="exam", parts=[part]).suite


def _sweep(run: Run) -> Sweep:
    """A sweep with one run that is there."""
    sweep = Sweep.objects.create(project=run.project, name="rates", config={}, axes=[], base={}, points=[{}])
    SweepRun.objects.create(sweep=sweep, number=0, run=run)
    return sweep


def _endpoint(project: Project) -> Endpoint:
    return Endpoint.objects.create(project=project, name="gpt", url="https://127.0.0.1:1/v1", model="gpt")


def _ballot(run: Run) -> Ballot:
    """The only one of an open round without a creator, in which the whole team has voted."""
    made = VoteRound.objects.create(project=run.project, name="round", seed=1)
    who = [RoundContestant.objects.create(round=made, number=n, run=run, name="c") for n in range(2)]
    ids = {"first_rollout": uuid.uuid4(), "second_rollout": uuid.uuid4()}
    ballot = Ballot.objects.create(
        round=made, number=1, task=0, attempt=0, kind="both", first=who[0], second=who[1], **ids
    )
    for user in User.objects.filter(teams=run.project.team):
        RoundVoter.objects.create(round=made, user=user)
        Vote.objects.create(ballot=ballot, voter=user, answer="first", first_left=True, cast_at=timezone.now())
    return ballot


def _channel(project: Project) -> Channel:
    """One that is paused, so that it can be resumed; what it was given is at no address that may be reached."""
    channel = Channel.objects.create(
        project=project, name="room", kind="json", host="10.0.0.1", events=["run_failed"], paused_at=timezone.now()
    )
    webhook_write(channel.pk, Webhook("http://10.0.0.1/hook", ""))
    return channel


def _notification(user: User, run: Run) -> Notification:
    event = Event.objects.create(
        project=run.project, kind="run_failed", key="k", object_kind="runs.run", object_id=str(run.pk), subject="r"
    )
    return Notification.objects.create(event=event, user=user)


def _export(dataset: Dataset) -> DatasetExport:
    """A file that can be downloaded."""
    export = DatasetExport.objects.create(dataset=dataset, file_name="rows.jsonl", state="done")
    export.path.parent.mkdir(parents=True, exist_ok=True)
    export.path.write_text("{}")
    return export


def _metrics(run: Run) -> RunExport:
    """A file of metrics that can be downloaded; the run has ended."""
    export = RunExport.objects.create(run=run, format="csv", file_name="metrics.csv", state="done")
    export.path.parent.mkdir(parents=True, exist_ok=True)
    export.path.write_text("step")
    return export


def _address(route: str, objects: dict[str, Any]) -> str:
    """The address with its places filled from the objects; a kind of object that is not known here fails."""

    def fill(found: re.Match[str]) -> str:
        name = found[2]
        if name != "pk":
            return str(objects[name])
        return str(objects[route[: found.start()].rstrip("/").rsplit("/", 1)[-1]])

    if route.endswith("^"):
        return "/" + route.removesuffix("^") + "there/is/nothing"
    return "/" + re.sub(r"<(\w+):(\w+)>", fill, route)


def _send(client: Client, method: str, address: str, route: str = "") -> Any:
    """One request whose changes to the database and to the browser's cookies are undone."""
    cookies, body = copy.copy(client.cookies), BODIES.get(route, {})
    with transaction.atomic():
        if address.startswith("/api/") and route not in FILES:
            response = client.generic(method, address, json.dumps(body), content_type="application/json")
        elif method == "POST":
            response = client.post(address, body)
        else:
            response = client.generic(method, address)
        transaction.set_rollback(True)
    client.cookies = cookies
    return response


def test_every_address_has_an_entry_and_every_entry_an_address() -> None:
    missing = set(ROUTES) - set(TABLE)
    assert not missing, f"add a line to tests/security/routes.py for {sorted(missing)}"
    assert not set(TABLE) - set(ROUTES) - {"styleguide/"}, "these entries have no address any more"


def test_every_socket_has_an_entry() -> None:
    assert {str(item.pattern) for item in websocket_urlpatterns} == set(SOCKETS)


def _area(route: str) -> str:
    """The part of an address by which routes are tried together: making the objects takes longer than a request."""
    return "/".join(route.removeprefix("projects/<slug:slug>/").removeprefix(API).split("/")[:1]) or "/"


@pytest.mark.parametrize("area", sorted(set(map(_area, ROUTES))))
def test_matrix(area: str, cast: dict[str | None, Client], objects: dict[str, Any]) -> None:
    wrong = []
    for route in (found for found in ROUTES if _area(found) == area):
        address, is_api = _address(route, objects), route.startswith(API)
        for method in METHODS:
            who = TABLE.get(route, {}).get(method)
            for persona in PERSONAS:
                response = _send(cast[persona], method, address, route)
                verdict = _verdict(response, who, persona, is_api)
                if verdict:
                    wrong.append(f"{method} {address} as {persona}: {response.status_code}, {verdict}")
    assert not wrong, "\n".join(wrong)


def _verdict(response: Any, who: Who | None, persona: str | None, is_api: bool) -> str:
    """What is wrong with an answer; empty when it is as the table says."""
    status = response.status_code
    to_login = status == 302 and response["Location"].startswith("/login/")
    if status >= 500:
        return "an error of ours"
    if is_api and status >= 400 and set(response.json()) != {"ok", "code", "message", "detail", "request_id"}:
        return "not the error shape"
    if who is None:
        return "" if status in (405, 404) or (persona is None and (to_login or status == 401)) else "expected 405"
    if who is Who.ANYONE:
        return ""
    if persona in ALLOWED[who]:
        return "should be allowed" if status in (401, 403, 404, 405) or to_login else ""
    if persona is None:
        return "" if (status == 401 if is_api else to_login) else "expected the login page, or 401 of the API"
    if who is Who.HOLDER:
        return "" if status == 404 else "another person's must be 404"
    if (persona == "charlie" and who not in (Who.ANY_OWNER, Who.ADMIN)) or who is Who.ABSENT:
        return "" if status == 404 else "a stranger must get 404"
    return "" if status == 403 else "expected 403"


class Offers(HTMLParser):
    """What a page offers: the addresses that its links open, and those that its buttons send a form to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._links: list[str] = []
        self._forms: list[dict[str, str]] = [{}]
        self._buttons: list[tuple[dict[str, str], dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._forms.append(values)
        elif tag == "a":
            self._links.append(values.get("href", ""))
        elif (tag == "button" and values.get("type") != "button") or "data-autosubmit" in values:
            self._buttons.append((values, self._forms[-1]))

    def found(self) -> set[tuple[str, str]]:
        """Methods and addresses of this site, without queries."""
        by_id = {form["id"]: form for form in self._forms if "id" in form}
        sent = {("GET", link) for link in self._links}
        for button, around in self._buttons:
            if "disabled" not in button:
                form = by_id[button["form"]] if "form" in button else around
                sent.add((form.get("method", "get").upper(), button.get("formaction") or form.get("action", "")))
        return {(method, re.split("[?#]", address)[0]) for method, address in sent if address.startswith("/")}


def _put_to_work(objects: dict[str, Any]) -> None:
    """All that may be at work is, or waits for a person."""
    Run.objects.update(state="running", attempt=1, lease_owner="w", lease_beat_at=timezone.now())
    Rollout.objects.update(status="running")
    Dataset.objects.update(state="needs_choice")
    RunImport.objects.update(state="failed")
    RolloutSet.objects.update(state="failed")
    Chat.objects.update(title="talk")


def _end(objects: dict[str, Any]) -> None:
    """All that ends has ended, a push in vain; and the run has left a model."""
    Run.objects.update(state="succeeded", attempt=1, step=1, finished_at=timezone.now())
    Rollout.objects.update(reward=1.0, outcome="solved", finished_at=timezone.now())
    VoteRound.objects.update(closed_at=timezone.now())
    Dataset.objects.update(state="rejected")
    RolloutSet.objects.update(state="ready")
    Checkpoint.objects.update(final=True)
    RegisteredModel.objects.update(kind="run", checkpoint=objects["checkpoints"])
    model = RegisteredModel.objects.select_related("checkpoint").get()
    assert model.folder is not None
    model.folder.mkdir(parents=True, exist_ok=True)
    ModelPush.objects.create(model=model, hub="hub", repository="team/small", state="failed")


BECOME: dict[str, Callable[[dict[str, Any]], None]] = {"made": lambda _: None, "at work": _put_to_work, "ended": _end}


@pytest.mark.parametrize(
    ("persona", "state"), [*((name, state) for name in ("rita", "bob") for state in BECOME), ("alice", "ended")]
)
def test_pages_offer_what_their_reader_may_do_and_no_more(
    persona: str,
    state: str,
    cast: dict[str | None, Client],
    objects: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No link, form or button of a page leads where the person gets a 403, whatever state the objects are in; and each
    that changes something is on the pages that tests/security/offers.py names."""
    monkeypatch.setattr(settings, "HUB_TOKEN", "token")
    BECOME[state](objects)
    wrong, seen, acts = set(), set(), set()
    for route in (found for found in ROUTES if not found.startswith(API)):
        response = _send(cast[persona], "GET", _address(route, objects), route)
        if response.status_code != 200 or not response["Content-Type"].startswith("text/html"):
            continue
        for method, address in Offers(response.content.decode()).found():
            target = resolve(address).route
            who = TABLE.get(target, {}).get(method)
            seen.add((method, target))
            if who is None or persona not in ALLOWED[who]:
                wrong.add(f"{route}: {method} {address}")
            if who in (Who.WRITE, Who.OWN) or (method == "POST" and who is Who.READ):
                acts.add((f"{method} {short(target)}", short(route)))
    assert len(seen) > 60 and not wrong, "\n".join(sorted(wrong))
    assert sorted(acts) == sorted(offered(persona, state))


def test_objects_are_not_reached_through_another_project(
    cast: dict[str | None, Client], objects: dict[str, Any]
) -> None:
    """Charlie owns `elsewhere`: his own project's address with the id of an object of ours."""
    places = {**objects, "slug": "elsewhere"}
    tried = [
        (method, route, _send(cast["charlie"], method, _address(route, places)).status_code)
        for route in ROUTES
        if "<slug:slug>" in route and "pk>" in route
        for method in TABLE[route]
    ]
    assert len(tried) > 100 and [found for found in tried if found[2] != 404] == []


def test_unknown_id_is_404(cast: dict[str | None, Client], objects: dict[str, Any]) -> None:
    unknown = {key: uuid.uuid4() if isinstance(value, uuid.UUID) else value for key, value in objects.items()}
    tried = [
        (method, route, who, _send(cast["alice"], method, _address(route, unknown), route).status_code)
        for route in ROUTES
        if "uuid" in route
        for method, who in TABLE[route].items()
    ]
    # Who may not ask learns nothing of who is there.
    assert len(tried) > 160 and [found for found in tried if found[3] != (403 if found[2] is Who.ADMIN else 404)] == []


def test_writing_needs_the_csrf_token(
    alice: Any, client_for: Callable[..., Client], objects: dict[str, Any], charlie: Any
) -> None:
    client = client_for(alice, enforce_csrf_checks=True, raise_request_exception=False)
    tried = [
        (route, _send(client, "POST", _address(route, objects)).status_code)
        for route in ROUTES
        if "POST" in TABLE.get(route, {}) and "^" not in route
    ]
    assert len(tried) > 150 and [found for found in tried if found[1] != 403] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("persona", PERSONAS)
@pytest.mark.parametrize("route", sorted(SOCKETS))
async def test_sockets(
    route: str, persona: str | None, cast: dict[str | None, Client], objects: dict[str, Any]
) -> None:
    path = _address(route or "ws/nothing/", objects)
    cookies = "; ".join(f"{name}={item.value}" for name, item in cast[persona].cookies.items())
    headers = [(b"origin", settings.TRUSTED_ORIGINS[0].encode()), (b"cookie", cookies.encode())]
    scope = {
        "type": "websocket",
        "path": f"/{path.lstrip('/')}",
        "query_string": b"",
        "headers": headers,
        "subprotocols": [],
    }
    socket = ApplicationCommunicator(application, scope)
    await socket.send_input({"type": "websocket.connect"})
    # A refusal may be sent before or after the handshake; what counts is that nothing but the close code ever arrives.
    first = await socket.receive_output(timeout=10)
    last = first if first["type"] == "websocket.close" else await socket.receive_output(timeout=10)
    connected, code = last["type"] != "websocket.close", last.get("code")
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait(timeout=10)
    assert connected == (persona in ALLOWED[SOCKETS[route]])
    if not connected:
        absent = SOCKETS[route] is Who.ABSENT
        member = persona == "rita" and not absent
        assert code == (4401 if persona is None and not absent else 4403 if member else 4404)
