"""The palette: what it finds, for whom, and what it says where it did not look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from tests.growth import queries_of
from tests.webapp.reading.inspector.conftest import Played, played  # noqa: F401 - a fixture
from webapp.evaluation.suites.models import Suite
from webapp.people.teams.models import Membership, Project, Role, Team, User
from webapp.runs.advisories.models import Examination
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import numbers_of
from webapp.site.palette.views import RUNS_MOST, Item, fitting

pytestmark = pytest.mark.django_db
ClientFor = Callable[..., Client]
ACTIONS = ["runs/new/", "runs/imports/new/", "datasets/new/", "rewards/new/", "environments/new/", "models/new/"]
ACTIONS += ["endpoints/new/", "suites/new/", "chats/new/"]


def asked(client: Client, phrase: str = "", where: str = "/p/joust/palette/", language: str = "en") -> dict[str, Any]:
    """Both parts of the answer, with their groups by title; ``none`` where neither found anything."""
    groups, none = {}, []
    for part in ("names", "texts"):
        query = urlencode({"q": phrase, "part": part})
        answer = client.get(f"{where}?{query}", headers={"Accept-Language": language})
        assert answer.status_code == 200, answer.content
        groups |= {group["title"]: group for group in answer.json()["groups"]}
        none.append(answer.json()["none"])
    return {"groups": groups, "none": none[0] if all(none) else ""}


def titles(found: dict[str, Any], group: str) -> list[str]:
    """The titles of a group's items; none where there is no such group."""
    return [item["title"] for item in found["groups"].get(group, {"items": []})["items"]]


def test_an_empty_field_has_the_latest_runs_and_all_pages(alice: User, make_run: Any, client_for: ClientFor) -> None:
    for number in range(7):
        make_run(name=f"run {number}")
    found = asked(client_for(alice))
    assert titles(found, "Latest runs") == [f"run {number}" for number in (6, 5, 4, 3, 2, 1)]
    listed = [item["url"] for item in found["groups"]["Pages and actions"]["items"]]
    addresses = set(listed)
    assert len(listed) == len(addresses)
    pages = {"", "runs/", "rollouts/", "suites/", "compare/", "votes/", "rewards/lab/", "settings/tokens/"}
    assert {f"/p/joust/{tail}" for tail in [*pages, *ACTIONS]} <= addresses
    assert {"/workers/", "/tokens/", "/notifications/", "/projects/new/"} <= addresses and "/site/" not in addresses
    assert found["none"] == "" and set(found["groups"]) == {"Latest runs", "Pages and actions"}


def test_each_role_sees_what_it_may_do(
    alice: User, bob: User, rita: User, project: Project, client_for: ClientFor
) -> None:
    offered = {}
    for user in (alice, bob, rita):
        items = asked(client_for(user))["groups"]["Pages and actions"]["items"]
        offered[user.username] = {item["url"] for item in items}
    assert {f"/p/joust/{tail}" for tail in ACTIONS} <= offered["bob"] & offered["alice"]
    assert not any(url.endswith("/new/") for url in offered["rita"])
    owned = {"/p/joust/settings/tokens/", "/p/joust/settings/machines/", "/projects/new/"}
    assert owned <= offered["alice"] and not owned & (offered["bob"] | offered["rita"])
    assert titles(asked(client_for(rita), "upload"), "Pages and actions") == []
    assert titles(asked(client_for(bob), "upload"), "Pages and actions") == ["Upload a dataset"]
    for address in offered["rita"]:
        assert client_for(rita).get(address).status_code == 200, address


def test_runs_by_part_of_their_name(alice: User, make_run: Any, client_for: ClientFor) -> None:
    names = ["old night", "night one", "day", "Night two", "夜间训练", "ערב טוב", "100%", "a_b", "a-b"]
    for name in names:
        make_run(name=name, state="failed" if name == "day" else "succeeded")
    client = client_for(alice)
    assert titles(asked(client, "night"), "Runs") == ["Night two", "night one", "old night"]  # beginnings, then newest
    assert titles(asked(client, "two night"), "Runs") == ["Night two"]  # each word
    assert titles(asked(client, "训练"), "Runs") == ["夜间训练"]
    assert titles(asked(client, "טוב"), "Runs") == ["ערב טוב"]
    assert titles(asked(client, "%"), "Runs") == ["100%"]
    assert titles(asked(client, "_"), "Runs") == ["a_b"]
    assert titles(asked(client, "y"), "Runs") == ["day"]
    day = asked(client, "day")["groups"]["Runs"]["items"][0]
    assert (day["state"], day["state_word"], day["about"]) == ("failed", "failed", "")
    assert day["url"] == f"/p/joust/runs/{Run.objects.get(name='day').pk}/"


def test_a_run_has_its_diagnosis(alice: User, make_run: Any, client_for: ClientFor) -> None:
    Examination.objects.create(run=make_run(name="seen"), step=3, diagnosis={"kind": "early", "steps": 3})
    Examination.objects.create(run=make_run(name="seen before"), step=3)
    Examination.objects.create(run=make_run(name="seen else"), diagnosis={"kind": "stuck", "steps": 3, "code": "gone"})
    items = asked(client_for(alice), "seen")["groups"]["Runs"]["items"]
    assert {item["title"]: item["about"] for item in items} == {
        "seen": "Too early to tell",
        "seen before": "",
        "seen else": "",
    }


def test_other_objects_by_name_the_newest_version_once(
    alice: User,
    project: Project,
    make_dataset: Any,
    make_reward_spec: Any,
    make_environment: Any,
    client_for: ClientFor,
) -> None:
    make_dataset(name="tools", version=1)
    newest = make_dataset(name="tools", version=2)
    spec, server = make_reward_spec(name="tools spec"), make_environment(name="tools server")
    model = RegisteredModel.objects.create(project=project, name="tools model", kind="hub", source="a/b")
    suite = Suite.objects.create(project=project, name="tools suite")
    found = asked(client_for(alice), "tools")["groups"]
    got = {title: [item["url"] for item in group["items"]] for title, group in found.items() if title}
    assert got == {
        "Datasets": [f"/p/joust/datasets/{newest.pk}/"],
        "Rewards": [f"/p/joust/rewards/{spec.pk}/"],
        "Environments": [f"/p/joust/environments/{server.pk}/"],
        "Models": [f"/p/joust/models/{model.pk}/"],
        "Suites": [f"/p/joust/suites/{suite.pk}/"],
    } | {title: urls for title, urls in got.items() if title == "Options of a run"}
    for urls in (urls for title, urls in got.items() if title != "Suites"):  # this one has no version yet
        assert client_for(alice).get(urls[0]).status_code == 200


def test_at_most_four_of_a_kind(alice: User, make_dataset: Any, client_for: ClientFor) -> None:
    for number in range(5):
        make_dataset(name=f"tasks {number}")
    assert titles(asked(client_for(alice), "tasks"), "Datasets") == [f"tasks {number}" for number in range(4)]


def test_options_by_name_title_and_help_lead_to_the_form(alice: User, project: Project, client_for: ClientFor) -> None:
    client = client_for(alice)
    first = asked(client, "learning rate")["groups"]["Options of a run"]["items"][0]
    assert first["about"] == "optim.learning_rate"
    assert first["url"] == "/p/joust/runs/new/?kind=grpo#id_optim.learning_rate"
    assert 'id="id_optim.learning_rate"' in client.get(first["url"]).content.decode()
    assert "ppo." in asked(client, "ppo clip")["groups"]["Options of a run"]["items"][0]["url"]
    chinese = asked(client, "学习率", language="zh-hans")["groups"]["训练任务的选项"]
    assert chinese["items"][0]["about"] == "optim.learning_rate"


def test_words_of_tasks_and_of_rollouts(
    alice: User,
    played: Played,  # noqa: F811
    client_for: ClientFor,
) -> None:
    client, rows = client_for(alice), played.rows
    right = asked(client, "9 * 5 is 45")["groups"]["Rollout text"]["items"]
    assert [item["said"] for item in right] == [["I ask the calculator: ", "9 * 5 is 45", "."]]
    assert right[0]["url"] == f"/p/joust/rollouts/{rows['right'].pk}/#turn-1"
    assert (right[0]["state"], right[0]["about"]) == ("solved", "night · Step 1, group 0")
    both = asked(client, "9 * 5")["groups"]["Rollout text"]["items"]
    assert {item["state"] for item in both} == {"solved", "failed"}
    task = asked(client, "question of half")["groups"]["Tasks"]["items"]
    assert [item["url"] for item in task] == [f"/p/joust/runs/{played.run.pk}/groups/2/0/"]
    held = asked(client, "question of held")["groups"]["Tasks"]["items"]
    assert [item["url"] for item in held] == [f"/p/joust/rollouts/{rows['held'].pk}/#turn-0"]
    assert titles(asked(client, "天气很好"), "Rollout text") == ["今天天气很好，我们需要先查询"]
    assert titles(asked(client, '"no_such_city" and 100%'), "Rollout text") == [
        'The tool said "no_such_city" and 100% of it'
    ]
    assert titles(asked(client, "no%such"), "Rollout text") == []  # no wildcard


def test_nothing_found_is_a_sentence_and_a_way_on(
    alice: User,
    played: Played,  # noqa: F811
    client_for: ClientFor,
) -> None:
    found = asked(client_for(alice), "zyzzyva & more")
    assert found["none"] == "Nothing has these words." and set(found["groups"]) == {""}
    (way,) = found["groups"][""]["items"]
    assert way["title"] == "Find rollouts with “zyzzyva & more”"
    assert way["url"] == "/p/joust/rollouts/?q=zyzzyva+%26+more"


@pytest.mark.parametrize(
    "phrase", ["a", "天", "%", "_", "'", '"', "\\", "\0", "ערב", "😀", "x" * 200, "天气" * 100, "  "]
)
def test_any_phrase_has_an_answer(
    alice: User,
    played: Played,  # noqa: F811
    client_for: ClientFor,
    phrase: str,
) -> None:
    found = asked(client_for(alice), phrase)
    assert found["groups"]
    if phrase in ("天", "%", "_", "'", "\\"):
        assert "at least one whole word" in found["groups"]["Rollout text"]["note"]


def test_a_longer_phrase_is_cut(alice: User, project: Project, client_for: ClientFor) -> None:
    (way,) = asked(client_for(alice), "x" * 201)["groups"][""]["items"]
    assert way["url"].endswith("?q=" + "x" * 200)


def test_nothing_of_other_projects(
    alice: User,
    charlie: User,
    team: Team,
    make_run: Any,
    make_dataset: Any,
    played: Played,  # noqa: F811
    client_for: ClientFor,
) -> None:
    other = Project.objects.create(team=team, name="Other", slug="other")
    make_run(name="night elsewhere", project=other)
    make_dataset(name="night data", project=other)
    found = asked(client_for(alice), "night")
    assert titles(found, "Runs") == ["night"] and titles(found, "Datasets") == []
    there = asked(client_for(alice), "calculator", where="/p/other/palette/")
    assert titles(there, "Rollout text") == [] and titles(there, "Tasks") == []
    assert titles(asked(client_for(alice), "other"), "Projects") == ["Other"]
    assert titles(asked(client_for(alice), "joust"), "Projects") == []  # where the reader is
    assert client_for(charlie).get("/p/joust/palette/").status_code == 404


def test_outside_of_a_project(alice: User, charlie: User, project: Project, client_for: ClientFor) -> None:
    Membership.objects.create(team=Team.objects.create(name="Third"), user=alice, role=Role.VIEWER)
    found = asked(client_for(alice), where="/palette/")
    assert titles(found, "Projects") == ["Joust"]
    pages = titles(found, "Pages and actions")
    assert pages[:2] == ["All projects", "New project"] and "Change password" in pages
    assert titles(asked(client_for(alice), "jou", where="/palette/"), "Projects") == ["Joust"]
    assert titles(asked(client_for(charlie), "jou", where="/palette/"), "Projects") == []
    assert asked(client_for(alice), "zyzzyva", where="/palette/")["none"] == "Nothing has these words."
    alice.is_superuser = True
    alice.save()
    assert "This installation" in titles(asked(client_for(alice), where="/palette/"), "Pages and actions")


def test_runs_of_all_projects_are_found_outside_of_one(
    alice: User, charlie: User, elsewhere: Project, make_run: Any, client_for: ClientFor
) -> None:
    """From the front page a run of one's own was not found."""
    second = Project.objects.create(team=Membership.objects.get(user=alice).team, name="Melee", slug="melee")
    runs = [make_run(name="warm-up"), make_run(name="a warm one", project=second)]
    make_run(name="warm too", project=elsewhere)
    found = asked(client_for(alice), "warm", where="/palette/")["groups"]["Runs"]["items"]
    assert [(item["title"], item["about"]) for item in found] == [("warm-up", "Joust"), ("a warm one", "Melee")]
    assert found[1]["url"] == f"/p/melee/runs/{runs[1].pk}/" and found[1]["state_word"] == "draft"
    assert titles(asked(client_for(charlie), "warm", where="/palette/"), "Runs") == ["warm too"]
    assert titles(asked(client_for(alice), where="/palette/"), "Latest runs") == ["a warm one", "warm-up"]
    few = queries_of(client_for(alice), "/palette/?q=run")
    for number in range(RUNS_MOST + 1):
        make_run(name=f"run {number}")
    assert len(titles(asked(client_for(alice), "run", where="/palette/"), "Runs")) == RUNS_MOST == 6
    assert queries_of(client_for(alice), "/palette/?q=run") == few


def test_an_answer_takes_few_queries_however_much_there_is(
    alice: User, make_run: Any, make_dataset: Any, client_for: ClientFor
) -> None:
    def add(number: int) -> None:
        for _each in range(number):
            run = make_run(attempt=1)
            make_dataset()
            rollout = Rollout.objects.create(
                run=run, attempt=1, step=1, group=0, index=0, started_at=timezone.now(), seq=1
            )
            said = [{"role": "assistant", "content": "a needle in the data of a run"}]
            Turn.objects.create(
                rollout=rollout, run=run, number=1, messages=said, words=numbers_of(run.pk, said), seq=1
            )

    client, addresses = client_for(alice), [f"/p/joust/palette/?q={phrase}" for phrase in ("", "run", "no")]
    addresses.append("/p/joust/palette/?part=texts&q=needle")
    add(2)
    few = [queries_of(client, address) for address in addresses]
    add(9)
    assert [queries_of(client, address) for address in addresses] == few and max(few) <= 12


def test_an_option_leads_to_a_method_that_has_it(alice: User, project: Project, client_for: ClientFor) -> None:
    found = asked(client_for(alice), "dpo beta")["groups"]["Options of a run"]["items"]
    assert any("kind=dpo#id_dpo.beta" in item["url"] for item in found)
    kind = asked(client_for(alice), "kind")["groups"]["Options of a run"]["items"]
    assert next(item["title"] for item in kind if item["url"].endswith("#id_kind")).startswith("New run · ")


def test_titles_that_fit_come_first_and_no_more_than_asked() -> None:
    items = [Item("other", "/a", "run"), Item("run", "/b"), Item("nothing", "/c"), Item("Run it", "/d")]
    assert [item.url for item in fitting(items, "run", 3)] == ["/b", "/d", "/a"]
    assert [item.url for item in fitting(items, "RUN", 1)] == ["/b"]


def test_of_many_projects_the_first_twenty_are_listed(alice: User, team: Team, client_for: ClientFor) -> None:
    for number in range(21):
        Project.objects.create(team=team, name=f"field {number:02}", slug=f"field-{number}")
    assert len(titles(asked(client_for(alice), "field", "/palette/"), "Projects")) == 20


def test_each_part_of_the_answer_has_its_own_groups(alice: User, make_run: Any, client_for: ClientFor) -> None:
    make_run(name="maze")
    client = client_for(alice)
    parts = [client.get(f"/p/joust/palette/?q=maze&part={part}").json()["groups"] for part in ("names", "texts")]
    assert ["Runs" in [group["title"] for group in part] for part in parts] == [True, False]
