"""A reward in Python through the pages: written, tested, saved; and everything that must not get through."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.markup import dense
from training.config import JobConfig, RewardComponent
from training.errors import ConfigError
from training.rewards.custom import SWITCH_VARIABLE, CustomParams, code_hash
from webapp.engine.resolve import resolve
from webapp.engine.trainer import access_env
from webapp.people.teams.models import AuditEntry, Project, SiteSwitch, User
from webapp.rewards.cases import reward_case_create
from webapp.rewards.custom import EXAMPLES, code_test
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.services import reward_spec_save
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.site.run_pages.page import custom_code

CODE = "def reward(episode):\r\n    print(episode['question'])\r\n    return len(episode['final_answer']) / 100\r\n"
PLAIN = CODE.replace("\r\n", "\n")
PASTED = json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": "ten chars!"}])
MORE = json.dumps([{"messages": json.loads(PASTED), "row": {"answer": n}, "env_reward": 1} for n in (1, 2, 3)])
Clients = Callable[..., Client]


@pytest.fixture(autouse=True)
def _on(db: None, settings: Any) -> None:
    settings.CUSTOM_REWARDS = True
    SiteSwitch.objects.create(name="custom_rewards", on=True)


def _form(**over: str) -> dict[str, str]:
    return {
        "code": CODE,
        "limit_s": "2",
        "low": "",
        "high": "",
        "source": "pasted",
        "pasted": PASTED,
        "name": "length",
        "weight": "0.5",
        "spec": "",
        "spec_name": "mine",
        **over,
    }


def _test(client: Client, project: Project, **over: str) -> Any:
    address = reverse("reward-custom-test", args=[project.slug])
    return client.post(address, _form(**over), headers={"HX-Request": "true"})


def _save(client: Client, project: Project, **over: str) -> Any:
    return client.post(reverse("reward-custom", args=[project.slug]), _form(**over))


def test_only_code_that_was_tested_is_saved_and_its_hash_goes_along(
    project: Project,
    bob: User,
    rita: User,
    client_for: Clients,
    make_dataset: Any,
    make_environment: Any,
    make_run: Any,
) -> None:
    client = client_for(bob)
    refused = _save(client, project)
    assert refused.status_code == 422 and "has not been tested" in refused.content.decode()
    tested = dense(_test(client, project).content.decode())
    assert "and can be saved" in tested and ">0.100<" in tested and "<code>q" in tested and "<html" not in tested
    assert _save(client, project, code=CODE + "# another\n").status_code == 422
    assert _save(client, project).status_code == 302
    spec = RewardSpec.objects.get()
    digest = code_hash(PLAIN)
    params = {"code": PLAIN, "sha256": digest}
    assert spec.components == [{"name": "length", "weight": 0.5, "params": params, "function": "custom_python"}]
    rows = AuditEntry.objects.exclude(action="reward_saved").order_by("id")
    rows = rows.values_list("action", "username", "subject", "project_id")
    assert list(rows) == [(act, "bob", digest, project.pk) for act in ("code_tested", "code_saved")]
    page = client_for(rita).get(reverse("reward-detail", args=[project.slug, spec.pk])).content.decode()
    assert digest in page and "print(episode[&#x27;question&#x27;])" in page
    config = JobConfig.model_validate(
        {
            "model": {"source": "starter"},
            "data": {"train": make_dataset().reference},
            "environment": {"name": f"environment:{make_environment().name}"},
            "rewards": {"spec": spec.reference},
        }
    )
    found = resolve(project, config).config.rewards.components
    assert found[0].params["sha256"] == digest
    run = make_run(config=config, resolved=resolve(project, config).config.model_dump(mode="json"))
    assert custom_code(run) == [("length", digest)]
    page = client.get(reverse("run-detail", args=[project.slug, run.pk]) + "?tab=config").content.decode()
    assert f"SHA-256 {digest}" in page


WRONG: list[tuple[dict[str, str], str]] = [
    ({"code": "def reward(e):\n    return 1 / 0"}, "ZeroDivisionError: division by zero"),
    ({"code": "def reward(e:"}, "not valid Python"),
    ({"code": "import os\ndef reward(e): return 1"}, "import os"),
    ({"code": "def reward(e): return 'x'"}, "value of type `str`"),
    ({"code": "def reward(e):\n    while True: pass", "limit_s": "0.3"}, "longer than its limit of 0.3 s"),
    ({"code": "<script>alert(1)</script>"}, "not valid Python"),
    ({"code": "def reward(e): raise ValueError('<img src=x onerror=alert(1)>')"}, "&lt;img src=x"),
    ({"code": "def reward(e): return id(e) % 7", "pasted": MORE}, "depends on something else"),
    ({"high": "0.05"}, "outside its range"),
    ({"low": "2", "high": "1"}, "above the highest one"),
    ({"code": ""}, "required"),
    ({"code": "x" * 20_001}, "20000"),
    ({"code": "\x00"}, "ull characters"),
    ({"limit_s": "0"}, "above 0"),
    ({"limit_s": "61"}, "less than or equal to 60"),
    ({"pasted": "nope"}, "not valid JSON"),
    ({"pasted": ""}, "not valid JSON"),
    ({"pasted": '[{"messages": [], "row": {}}]'}, "Paste a list"),
    ({"pasted": '{"messages": [{"role": "user"}], "row": 3}'}, "must be an object"),
    ({"pasted": json.dumps([{"messages": json.loads(PASTED)}] * 21)}, "At most 20 episodes"),
    ({"source": "cases"}, "no reward test cases"),
    ({"source": "run:1"}, "Select a valid choice"),
]


def test_a_test_that_fails_says_why_and_lets_nothing_be_saved(
    project: Project, bob: User, client_for: Clients, monkeypatch: Any
) -> None:
    monkeypatch.setattr("webapp.rewards.custom_views.probe_allowed", lambda _user: True)
    client = client_for(bob)
    for over, words in WRONG:
        answer = _test(client, project, **over)
        page = answer.content.decode()
        assert answer.status_code == 200 and words in page and "<script>" not in page, (over, page)
        assert _save(client, project, **over).status_code == 422, over
    assert not AuditEntry.objects.exists() and not RewardSpec.objects.exists()


def test_without_htmx_the_whole_page_answers(project: Project, bob: User, client_for: Clients) -> None:
    client, address = client_for(bob), reverse("reward-custom-test", args=[project.slug])
    good, bad = client.post(address, _form()), client.post(address, _form(pasted="nope"))
    assert (good.status_code, bad.status_code) == (200, 422)
    assert b"and can be saved" in good.content and b"not valid JSON" in bad.content and b"<html" in bad.content


def test_code_sees_recorded_rollouts_with_their_rows_and_cases(
    project: Project, bob: User, client_for: Clients, make_dataset: Any, make_run: Any
) -> None:
    question = [{"role": "user", "content": "2+3?"}]
    rows = [{"messages": question, "answer": "no"}, {"messages": question, "answer": "5"}]
    data = make_dataset(lines=rows)
    run = make_run(resolved={"data": {"train": str(data.rows_path)}})
    now = timezone.now()
    for row, text in ((0, "It is 5."), (1, "It is 5."), (None, "")):
        rollout = Rollout.objects.create(
            run=run,
            attempt=1,
            step=1,
            group=0,
            index=row or 0,
            row=row,
            status="completed" if text else "excluded",
            started_at=now,
            finished_at=now,
            seq=1,
        )
        for number, message in enumerate([*question, {"role": "assistant", "content": text}]):
            Turn.objects.create(rollout=rollout, run=run, number=number, messages=[message], seq=1)
    case = RewardCase(
        name="good",
        messages=[*question, {"role": "assistant", "content": "5"}],
        prompt_length=1,
        row={"answer": "5"},
        total=[0, 1],
    )
    reward_case_create(case=case, project=project, user=bob)
    client = client_for(bob)
    page = client.get(reverse("reward-custom", args=[project.slug])).content.decode()
    assert f"run:{run.pk}" in page
    contains = EXAMPLES[0].code
    answer = _test(client, project, source=f"run:{run.pk}", code=contains)
    assert [line.value for line in answer.context["tested"].lines] == [0.0, 1.0]
    assert "?tab=rollouts" in answer.content.decode()
    answer = _test(client, project, source="cases", code=contains)
    assert [(line.sample.label, line.value) for line in answer.context["tested"].lines] == [("good", 1.0)]


@pytest.mark.parametrize("off", ["administrator", "operator"])
def test_switched_off_nothing_is_tested_saved_or_launched(
    off: str, project: Project, bob: User, client_for: Clients, make_dataset: Any, make_environment: Any, settings: Any
) -> None:
    client = client_for(bob)
    _test(client, project)
    assert _save(client, project).status_code == 302
    assert access_env({})[SWITCH_VARIABLE] == "true"
    spec = RewardSpec.objects.get()
    if off == "administrator":
        SiteSwitch.objects.update(on=False)
    else:
        settings.CUSTOM_REWARDS = False
    assert _test(client, project).status_code == 403 and _save(client, project).status_code == 403
    page = client.get(reverse("reward-custom", args=[project.slug]))
    assert page.status_code == 200 and "Custom rewards are off" in page.content.decode()
    parts = [RewardComponent.model_validate(part) for part in spec.components]
    with pytest.raises(ValidationError, match="custom rewards are off here"):
        reward_spec_save(project=project, user=bob, name="other", components=parts)
    common = {
        "data": {"train": make_dataset().reference},
        "environment": {"name": f"environment:{make_environment().name}"},
    }
    for rewards in ({"spec": spec.reference}, {"components": spec.components}):
        with pytest.raises(ConfigError, match=r"rewards\.(spec|components): .*an administrator switches them on"):
            resolve(project, JobConfig.model_validate({**common, "rewards": rewards}))
    assert SWITCH_VARIABLE not in access_env({})


def test_untested_code_comes_in_by_no_other_door(
    project: Project, alice: User, charlie: User, client_for: Clients, make_dataset: Any, make_environment: Any
) -> None:
    part = {"name": "mine", "function": "custom_python", "weight": 1.0, "params": {"code": PLAIN}}
    body = json.dumps({"name": "api", "components": [part]})
    address = f"/api/v1/projects/{project.slug}/rewards"
    answer = client_for(alice).post(address, body, content_type="application/json")
    assert answer.status_code == 422 and "has not been tested" in answer.content.decode()
    config = {
        "data": {"train": make_dataset().reference},
        "environment": {"name": f"environment:{make_environment().name}"},
    }
    with pytest.raises(ConfigError, match=r"rewards\.components: .*has not been tested"):
        resolve(project, JobConfig.model_validate({**config, "rewards": {"components": [part]}}))
    elsewhere = Project.objects.get(slug="elsewhere")  # a test in another project says nothing here
    assert "and can be saved" in _test(client_for(charlie), elsewhere).content.decode()
    assert client_for(alice).post(address, body, content_type="application/json").status_code == 422
    _test(client_for(alice), project)
    assert client_for(alice).post(address, body, content_type="application/json").status_code == 201
    found = resolve(project, JobConfig.model_validate({**config, "rewards": {"components": [part]}}))
    assert found.config.rewards.components[0].params["sha256"] == code_hash(PLAIN)


def test_an_edit_keeps_the_place_and_the_rest_of_the_spec(project: Project, bob: User, client_for: Clients) -> None:
    client = client_for(bob)
    parts = [RewardComponent(name="task_success", weight=1), RewardComponent(name="coherence", weight=2)]
    first = reward_spec_save(project=project, user=bob, name="mine", components=parts)
    _test(client, project)
    assert _save(client, project, spec="mine").status_code == 302
    second = RewardSpec.objects.get(version=2)
    page = client.get(reverse("reward-custom", args=[project.slug]) + f"?spec={second.pk}&part=length")
    assert page.context["form"]["code"].value() == PLAIN and page.context["form"]["spec"].value() == "mine"
    changed = "def reward(episode):\n    return 0.25\n"
    _test(client, project, code=changed)
    assert _save(client, project, spec="mine", code=changed, weight="3", high="1").status_code == 302
    third = RewardSpec.objects.get(version=3)
    assert [part["name"] for part in third.components] == ["task_success", "coherence", "length"]
    assert third.components[2]["params"]["high"] == 1.0 and third.components[2]["weight"] == 3.0
    assert first.components == third.components[:2]
    assert _save(client, project, spec="mine", name="coherence").status_code == 422
    assert _save(client, project, name="Length!").status_code == 422
    assert _save(client, project, spec="", spec_name="").status_code == 422


def test_examples_work_and_are_offered(project: Project, bob: User, client_for: Clients) -> None:
    from webapp.rewards.custom import samples_of

    client = client_for(bob)
    for example in EXAMPLES:
        page = client.get(reverse("reward-custom", args=[project.slug]) + f"?example={example.key}")
        assert page.context["form"]["code"].value() == example.code
        tested = code_test(CustomParams(code=example.code), samples_of(project, "pasted", MORE))
        assert tested.passed, [line.problem for line in tested.lines]
    assert client.get(reverse("reward-custom", args=[project.slug]) + "?spec=x&part=y&example=z").status_code == 200


def test_tests_of_one_person_are_counted(project: Project, bob: User, client_for: Clients, monkeypatch: Any) -> None:
    monkeypatch.setattr("webapp.rewards.custom_views.probe_allowed", lambda _user: False)
    assert "Too many tests" in _test(client_for(bob), project).content.decode()
