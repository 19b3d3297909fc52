"""What people write on runs and models, comparisons that are kept, votes and news: from a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone

from tests.client.conftest import Tool, answered, logged_in, refused
from tests.webapp.site.run_pages.test_resume_pages import _saved, parent
from webapp.evaluation.sharing.models import SavedComparison, SharedLink
from webapp.evaluation.votes.models import VoteRound
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind, Notification
from webapp.people.teams.models import Project, User
from webapp.people.teams.tokens import token_create
from webapp.runs.advisories.models import Advisory
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.models import Run, RunStar
from webapp.runs.registry.models import ModelKind, RegisteredModel

__all__ = ["parent"]
pytestmark = pytest.mark.django_db(transaction=True)


# --- Runs -----------------------------------------------------------------------------------------------------------
def test_runs_are_tagged_noted_and_found_by_it(tool: Tool, make_run: Any) -> None:
    make_run(name="night-1", state="succeeded")
    make_run(name="night-2", state="succeeded")
    assert tool("run", "tag", "night-1", "good", "small").stdout == "night-1: good, small\n"
    assert tool("run", "tag", "night-1", "--remove", "small", "best").stdout == "night-1: good, best\n"
    assert Run.objects.get(name="night-1").tags == ["good", "best"]
    assert [row["name"] for row in answered(tool("run", "list", "--tag", "good", "--json"))] == ["night-1"]
    assert tool("run", "note", "night-1", "a <b>note</b>").stdout == "night-1: a <b>note</b>\n"
    assert tool("run", "note", "night-1", "-", input="from a pipe\n").stdout == "night-1: from a pipe\n"
    assert answered(tool("run", "show", "night-1", "--json"))["notes"] == "from a pipe"
    assert [row["name"] for row in answered(tool("run", "list", "-q", "a pipe", "--json"))] == ["night-1"]
    assert answered(tool("run", "tag", "night-1", "--remove", "good", "--json"))["tags"] == ["best"]
    refused(tool("run", "tag", "night-1"), "Say which tags", 2)
    refused(tool("run", "tag", "nothing", "x"), "There is no run 'nothing' in joust.")
    assert tool("run", "tag", "night-1", *[f"t{n}" for n in range(11)]).exit_code == 1


def test_ended_runs_go_into_the_archive_and_back(tool: Tool, make_run: Any) -> None:
    for name, state in (("old", "succeeded"), ("older", "failed"), ("busy", "running")):
        make_run(name=name, state=state)
    assert tool("run", "archive", "old", "older").stdout == "old: archived\nolder: archived\n"
    assert [row["name"] for row in answered(tool("run", "list", "--json"))] == ["busy"]
    assert {row["name"] for row in answered(tool("run", "list", "--archived", "--json"))} == {"old", "older"}
    assert answered(tool("run", "show", "old", "--json"))["archived"] is True
    assert [row["archived"] for row in answered(tool("run", "archive", "old", "--undo", "--json"))] == [False]
    refused(tool("run", "archive", "busy"), "has not ended")
    refused(tool("run", "archive", "old", "nothing"), "There is no run 'nothing'")
    assert Run.objects.get(name="old").archived_at is None  # nothing changes where one of them is not known


def test_owners_change_the_place_of_a_waiting_run(tool: Tool, make_run: Any, site: str, alice: User) -> None:
    run = make_run(name="night-1", state="queued")
    assert tool("run", "queue", "night-1").stdout == "night-1: no worker is running\n"
    refused(tool("run", "queue", "night-1", "--hold"), "this needs owner")
    tool = logged_in(site, alice, "owner")
    assert tool("run", "queue", "night-1", "--hold", "--priority", "high").stdout == "night-1: on hold\n"
    run.refresh_from_db()
    assert run.priority == "high" and run.on_hold_at is not None and run.first_at is None
    (found,) = answered(tool("run", "queue", "night-1", "--release", "--next", "--json"))
    assert (found["on_hold_at"], found["ok"], found["code"], found["message"]) == (None, True, None, None)
    run.refresh_from_db()
    assert run.first_at is not None and run.priority == "high"
    Run.objects.update(state="running")
    refused(tool("run", "queue", "night-1", "--next"), "does not wait in the queue")
    assert tool("run", "queue", "night-1").stdout == "night-1: running\n"


def test_owners_change_the_places_of_several_runs(tool: Tool, make_run: Any, site: str, alice: User) -> None:
    """Each has its outcome, as the API answers an act on several runs; one that does not wait stops no other."""
    for name, state in (("a", "queued"), ("busy", "running"), ("b", "queued"), ("c", "queued")):
        make_run(name=name, state=state)
    refused(tool("run", "queue", "a", "b", "--hold"), "this needs owner")
    tool = logged_in(site, alice, "owner")
    refused(tool("run", "queue", "a", "nothing", "--hold"), "There is no run 'nothing' in joust.")
    assert not Run.objects.exclude(on_hold_at=None).exists()
    held = tool("run", "queue", "a", "busy", "b", "a", "--hold", "--priority", "low")
    assert (held.exit_code, held.stdout) == (1, "a: on hold\nb: on hold\n")
    assert held.stderr == "busy: Nothing was changed: the run does not wait in the queue.\n"
    assert {run.name for run in Run.objects.filter(priority="low").exclude(on_hold_at=None)} == {"a", "b"}
    found = answered(tool("run", "queue", "busy", "a", "--release", "--json"), 1)
    assert [(row["name"], row["ok"], row["code"]) for row in found] == [("busy", False, "conflict"), ("a", True, None)]
    by_batch = {"act": "release", "runs": [row["id"] for row in found]}
    path = f"{site}/api/v1/projects/joust/runs/batch"
    token = token_create(user=alice, name="batch", role="owner")[1]
    answer = httpx.post(path, json=by_batch, headers={"Authorization": f"Bearer {token}"}).json()
    assert [{name: row[name] for name in ("id", "ok", "code", "message")} for row in found] == answer["items"]
    assert tool("run", "queue", "b", "c", "a", "--release", "--priority", "normal", "--next").exit_code == 0
    assert list(Run.objects.exclude(first_at=None).order_by("-first_at").values_list("name", flat=True)) == [*"bca"]
    shown = tool("run", "queue", "busy", "c")
    assert (shown.exit_code, shown.stdout) == (0, "busy: running\nc: no worker is running\n")
    assert all("ok" not in row for row in answered(tool("run", "queue", "busy", "c", "--json")))


def test_a_run_is_launched_and_cloned_with_a_class(
    tool: Tool, home: Path, site: str, alice: User, make_dataset: Any, make_environment: Any
) -> None:
    data, environment = make_dataset(), make_environment()
    (home / "job.yaml").write_text(f"data:\n  train: {data.reference}\nenvironment:\n  name: {environment.reference}\n")
    launch = ("run", "launch", "-f", "job.yaml", "--name")
    refused(tool(*launch, "a", "--priority", "high"), "this needs owner")
    assert answered(tool(*launch, "plain", "--json"))["priority"] == "normal"
    owner = logged_in(site, alice, "owner")
    assert answered(owner(*launch, "fast", "--priority", "high", "--json"))["priority"] == "high"
    assert answered(owner("run", "clone", "fast", "--name", "b", "--json"))["priority"] == "high"
    assert answered(owner("run", "clone", "fast", "--name", "c", "--priority", "low", "--json"))["priority"] == "low"
    sweep = ("sweep", "create", "-f", "job.yaml", "--vary", "run.seed=1,2", "--priority", "low")
    assert owner(*sweep, "--plan").exit_code == 0 and owner(*sweep, "--name", "s").exit_code == 0
    found = Run.objects.filter(sweep_run__sweep__name="s").values_list("priority", flat=True)
    assert list(found) == ["low", "low"]


def test_what_the_devices_did(tool: Tool, make_run: Any) -> None:
    run = make_run(name="night-1", kind="grpo", state="running", attempt=1, step=12)
    assert tool("run", "devices", "night-1").stdout == "nothing recorded\n"
    lane = {"step": 12, "host": "node-1", "seconds": 10.0, "phases": {"environment": 7.0, "training": 3.0}}
    for device, more in (("0", {"busy": 0.25, "memory": 3 << 30, "power_w": 212.4}), ("1", {"busy": 1.0})):
        place = {"host": "node-1", "device": device, "attempt": 1, "at": timezone.now()}
        DeviceStep.objects.create(run=run, step=12, lane={**lane, "device": device, **more}, **place)
    lines = tool("run", "devices", "night-1").stdout
    assert "The 2 devices worked for 62% of the time of the last step, as NVML measured it." in lines
    assert re.search(r"node-1 +0 +25% +environment 70%, training 30% +3\.0 GiB +212 W", lines)
    assert re.search(r"node-1 +1 +100% +environment 70%, training 30% +– +–", lines)
    found = answered(tool("run", "devices", "night-1", "--last", "1", "--json"))
    assert [each["device"] for each in found["devices"]] == ["0", "1"]
    nothing = {**lane, "device": "2", "phases": {"environment": 0.0}}
    DeviceStep.objects.create(run=run, step=12, lane=nothing, host="node-1", device="2", attempt=1, at=timezone.now())
    assert re.search(r"node-1 +2 +0% +– +– +–", tool("run", "devices", "night-1").stdout)


def test_what_the_doctor_found(tool: Tool, make_run: Any) -> None:
    run = make_run(name="night-1", kind="grpo", state="paused", attempt=1, step=12)
    calm = tool("run", "advisories", "night-1")
    assert (calm.exit_code, calm.stdout) == (0, "nothing found\n")
    _saved(run, 8)
    figures = {"now": "3", "before": "0.02"}
    evidence = {"curves": [], "rollouts": [], "figures": figures}
    Advisory.objects.create(run=run, code="kl_spike", first=10, last=12, evidence=evidence)
    Advisory.objects.create(run=run, code="stall", first=3, last=4, open=False, evidence=evidence)
    listing = tool("run", "advisories", "night-1")
    assert (
        listing.exit_code == 5
        and "KL spike (since step 10)" in listing.stdout
        and "steps 3 to 4, over" in listing.stdout
    )
    assert "Checkpoint before it: step 8." in listing.stdout
    assert [row["code"] for row in json.loads(tool("run", "advisories", "night-1", "--json").stdout)] == [
        "kl_spike",
        "stall",
    ]


def test_a_child_continues_from_a_checkpoint(tool: Tool, parent: Run) -> None:
    sent = ("run", "clone", "warm", "--name", "again", "--set", "optim.learning_rate=1e-7", "--json")
    child = Run.objects.get(pk=answered(tool(*sent, "--step", "4"))["id"])
    assert (child.parent, child.resume_step, child.config["optim"]["learning_rate"]) == (parent, 4, 1e-7)
    refused(tool(*sent[:-1], "--step", "3"), "no whole checkpoint of step 3")


def test_a_star_is_ones_own(tool: Tool, make_run: Any, alice: User, bob: User) -> None:
    run = make_run(name="night-1")
    assert tool("run", "star", "night-1").stdout == "★ night-1\n"
    assert [star.user for star in RunStar.objects.filter(run=run)] == [bob]
    assert "★ night-1" in tool("run", "list", "--starred").stdout
    made = answered(tool("run", "star", "night-1", "--undo", "--json"))
    assert made == [{"id": str(run.pk), "name": "night-1", "starred": False}] and not RunStar.objects.exists()
    refused(tool("run", "star", "nothing"), "There is no run 'nothing'")


# --- Models ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def small(project: Project) -> RegisteredModel:
    """A model without files here."""
    fields = {"name": "small", "kind": ModelKind.HUB, "source": "acme/small", "revision": "0" * 40}
    return RegisteredModel.objects.create(project=project, **fields)


def test_a_model_is_marked_tagged_and_described(tool: Tool, small: RegisteredModel, project: Project) -> None:
    RegisteredModel.objects.create(project=project, name="other", kind=ModelKind.STARTER, mark="production")
    assert tool("model", "mark", "small", "production").stdout == "small: production\n"
    marks = dict(RegisteredModel.objects.values_list("name", "mark"))
    assert marks == {"small": "production", "other": ""}
    assert tool("model", "mark", "model:small", "none").stdout == "small: no mark\n"
    assert tool("model", "tag", "small", "7b", "math").stdout == "small: 7b, math\n"
    assert answered(tool("model", "tag", "small", "--remove", "7b", "--json"))["tags"] == ["math"]
    assert tool("model", "note", "small", "-", input="slow but right\n").stdout == "small: slow but right\n"
    shown = tool("model", "show", "small").stdout
    assert all(word in shown for word in ("model:small", "acme/small", "math", "slow but right", "not evaluated yet"))
    found = answered(tool("model", "show", "small", "--json"))
    assert (found["reference"], found["scores"], found["tags"]) == ("model:small", [], ["math"])
    assert "math" in tool("model", "list").stdout
    assert tool("model", "mark", "small", "best").exit_code == 2
    refused(tool("model", "tag", "small"), "Say which tags", 2)
    for words in (("show",), ("mark", "candidate"), ("tag", "x"), ("note", "x"), ("card",), ("download",)):
        refused(tool("model", words[0], "nothing", *words[1:]), "There is no model 'nothing' in joust.")


def test_the_model_card_is_written_and_printed(tool: Tool, small: RegisteredModel) -> None:
    card = tool("model", "card", "small", "--licence", "MIT", "--limitations", "It cannot add.").stdout
    assert "MIT" in card and "It cannot add." in card and "# small" in card
    small.refresh_from_db()
    assert small.card == {"licence": "MIT", "limitations": "It cannot add."}
    assert answered(tool("model", "card", "small", "--licence", "", "--json")) == {"limitations": "It cannot add."}


def test_who_may_only_read_changes_nothing(
    home: Path, site: str, rita: User, project: Project, small: RegisteredModel, make_run: Any
) -> None:
    make_run(name="night-1", state="succeeded")
    tool = logged_in(site, rita, "viewer")
    for words in (
        ("model", "mark", "small", "candidate"),
        ("run", "tag", "night-1", "x"),
        ("run", "archive", "night-1"),
    ):
        refused(tool(*words), "Your role in this team is viewer")
    assert tool("model", "show", "small").exit_code == tool("run", "star", "night-1").exit_code == 0
    small.refresh_from_db()
    assert small.mark == "" and Run.objects.get().tags == []


# --- Comparisons and votes ------------------------------------------------------------------------------------------
@pytest.fixture
def two(evaluation: Callable[..., Run]) -> list[Run]:
    """Evaluations ``a`` and ``b`` of the same tasks."""
    solved: Any = {0: [1], 1: [0], 2: [0], 3: [0]}
    return [evaluation("a", solved), evaluation("b", {0: [1], 1: [1], 2: [1], 3: [0]})]


def test_a_comparison_is_saved_under_a_name(tool: Tool, two: list[Run]) -> None:
    shown = tool("compare", "b", "a", "--save", "which")
    assert shown.exit_code == 0 and "Saved as which." in shown.stdout and "75%" in shown.stdout
    saved = SavedComparison.objects.get()
    assert (saved.name, [item["name"] for item in saved.contestants]) == ("which", ["b", "a"])
    assert not SharedLink.objects.exists()
    again = tool("compare", "a", "b", "--save", "which")
    refused(again, "name: A saved comparison has this name already")
    assert again.stderr.count("already") == 1
    refused(tool("compare", "a", "nothing", "--save", "other"), "There is no run 'nothing'")
    assert SavedComparison.objects.count() == 1


def test_a_link_is_printed_once_and_opens_without_an_account(tool: Tool, two: list[Run], site: str) -> None:
    found = answered(tool("compare", "a", "b", "--save", "which", "--share", "7", "--json"))
    assert found["saved"]["name"] == "which" and len(found["verdicts"]) == 1
    assert httpx.get(found["link"]["url"], follow_redirects=True).status_code == 200
    lines = tool("compare", "a", "b", "--share", "1").stdout.splitlines()
    assert lines[-1].startswith(f"{site}/") and "It is shown only once" in lines[-2]
    assert httpx.get(lines[-1], follow_redirects=True).status_code == 200
    assert SavedComparison.objects.exclude(name="which").get().name.startswith("a - b ")
    assert tool("compare", "a", "b", "--share", "5").exit_code == 2 and SharedLink.objects.count() == 2


def test_vote_rounds_say_how_many_ballots_are_left(
    tool: Tool, two: list[Run], make_vote_round: Callable[..., VoteRound], alice: User, bob: User
) -> None:
    assert answered(tool("vote", "list", "--json")) == []
    make_vote_round(two, [alice, bob], name="which-reads-better", ballots=3)
    make_vote_round(two, [alice], name="without-bob", ballots=3)
    rows = {row["name"]: row for row in answered(tool("vote", "list", "--json"))}
    assert (rows["which-reads-better"]["left"], rows["without-bob"]["asked"]) == (3, False)
    shown = tool("vote", "list").stdout
    assert "which-reads-better" in shown and "open" in shown and "/p/joust/" in shown
    refused(tool("vote", "list", "-p", "nothing"), "")


# --- News -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def news(make_run: Any, bob: User) -> list[Notification]:
    """Two of bob's, the newer one last."""
    made = []
    for name in ("night-1", "night-2"):
        run = make_run(name=name, state="succeeded", created_by=bob)
        event = notify(Kind.RUN_SUCCEEDED, run, key=f"{run.pk}:x", person_id=bob.pk)
        made.append(Notification.objects.get_or_create(event=event, user=bob)[0])
    return made


def test_news_are_listed_and_called_read(tool: Tool, news: list[Notification]) -> None:
    rows = answered(tool("notify", "list", "--json"))
    assert [row["id"] for row in rows] == [item.pk for item in reversed(news)]
    shown = tool("notify", "list").stdout
    assert "night-2" in shown and "joust" in shown and str(news[0].pk) in shown
    assert len(answered(tool("notify", "list", "--most", "1", "--json"))) == 1
    assert tool("notify", "read", str(news[0].pk)).stdout == "1 notification was new; it is read now.\n"
    assert [row["id"] for row in answered(tool("notify", "list", "--unread", "--json"))] == [news[1].pk]
    assert answered(tool("notify", "read", "--all", "-p", "elsewhere", "--json")) == {"read": 0}
    assert answered(tool("notify", "read", "--all", "--json")) == {"read": 1}
    assert tool("notify", "read", "--all").stdout == "0 notifications were new; they are read now.\n"
    refused(tool("notify", "read"), "Say which", 2)
    refused(tool("notify", "read", "1", "--all"), "Say which", 2)
    assert tool("notify", "read", "x").exit_code == 2
    assert answered(tool("notify", "list", "-p", "nothing", "--json")) == []
