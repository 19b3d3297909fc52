"""The lab's two answers: recorded and computed values, figures by hand, and who may ask."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.rewards.lab.conftest import SPEC
from training.config import RewardComponent
from training.rewards.custom import code_hash
from training.rewards.lab.scoring import score_set
from training.rewards.lab.table import column_path, component_key
from webapp.people.teams.models import AuditAction, AuditEntry, Project, SiteSwitch
from webapp.rewards.lab import scoring
from webapp.rewards.lab.scoring import Cache
from webapp.rewards.models import RolloutSet
from webapp.rewards.scorers import WAIT_S, Places, scorers

pytestmark = pytest.mark.django_db


def test_recorded_values_are_used_and_only_the_rest_is_computed(
    recorded_run: Any, built: Any, scored: Any, at_once: list[list[str]]
) -> None:
    made = built(kind="run", run=recorded_run())
    first = scored(made, SPEC)
    # Rollout 3 of each group has no recorded values, since a component of the run failed: they are computed.
    assert first["rescored"] == ["task_success", "numeric_match"] and at_once == [["task_success", "numeric_match"]]
    moved = [{**SPEC[0], "weight": 2.0, "clip": [0, 0.5]}, {**SPEC[1], "name": "again", "function": "numeric_match"}]
    second = scored(made, moved)
    assert second["rescored"] == [] and len(at_once) == 1
    assert scored(made, [*SPEC, {"name": "coherence", "weight": 1}])["rescored"] == ["coherence"]
    assert len(at_once) == 2

    assert first["summary"] == {
        "rollouts": 16,
        "excluded": 4,
        "groups": 4,
        "outcome": "task_success",
        "reward": {"mean": pytest.approx(0.5), "std": pytest.approx(0.738549), "min": 0.0, "max": 1.5},
        "zero_variance": {"groups": 0, "share": 0.0},
        "phantom": {"groups": 0, "share": 0.0},
    }
    assert first["verdict"] == {
        "kind": "info",
        "sentence": "In none of 4 groups with both outcomes is a failure ranked above a success (95%: up to 49%).",
    }
    group = first["groups"][0]
    assert (group["key"], group["step"], group["task"], group["zero_variance"]) == ("1/0", 1, "What is 2 + 1?", False)
    assert (group["mean"], group["std"]) == (pytest.approx(0.5), pytest.approx(0.8660254))
    right, wrong, dead, unscored = group["rollouts"]
    assert right["parts"] == {"task_success": 1.0, "numeric_match": 1.0} and right["terms"]["numeric_match"] == 0.5
    assert right["advantage"] == pytest.approx(1 / (0.8660254 + 1e-4)) and (right["rank"], wrong["rank"]) == (1, 2)
    assert (dead["excluded"], dead["reward"], dead["advantage"], dead["rank"]) == ("The server died.", None, None, None)
    assert (unscored["reward"], unscored["reward_before"], unscored["status"]) == (0.0, None, "excluded")
    assert first["components"][1]["share_of_spread"] == pytest.approx(1 / 3)
    assert first["components"][0]["r_outcome"] == pytest.approx(1) and first["missing"] == []
    assert second["groups"][0]["rollouts"][0]["reward"] == pytest.approx(1.5)


def test_credit_to_turns_is_tried_on_what_was_recorded(
    recorded_run: Any, built: Any, scored: Any, at_once: Any, project: Project
) -> None:
    """Of a group of four two have a reward and were paid at different turns: 1 + 0 and 0 + 0, of one component."""
    run, spec = recorded_run(steps=1), [{"name": "task_success", "weight": 2.0}]
    old = scored(built(kind="run", run=run, name="old"), spec)["turns"]
    assert (old["recorded"], old["rollouts"], old["rows"]) == (0, 6, [])
    for rollout in run.rollouts.all():
        rollout.turn_rewards = [None, 1.0, 1.0] if rollout.index == 0 else [None, 0.0, None, 0.0]
        rollout.save(update_fields=["turn_rewards"])
    made = built(kind="run", run=run)
    found = scored(made, spec)["turns"]
    assert (found["recorded"], found["several"], found["silent"], found["hidden"]) == (6, 6, 0, 0)
    assert [(row["turn"], row["rollouts"]) for row in found["rows"]] == [(1, 6), (2, 6), (3, 4)]
    # In each group gains of 2, 0 and 0: their mean, and their standard deviation.
    assert found["rows"][0]["gain"] == pytest.approx(2 / 3) and found["rows"][0]["spread"] == pytest.approx(1.1547005)
    # What the first earned was earned before its second turn: its advantage is 0 then, and so are the others'.
    assert [row["turned_1"] for row in found["rows"]] == [0.0, 0.0, 0.0]
    assert scored(made, [{"name": "numeric_match", "weight": 1}])["turns"]["pays"] is False
    assert scored(made, spec, aggregation="normalize_then_sum")["turns"] is None


def test_two_specs_next_to_each_other(recorded_run: Any, built: Any, scored: Any, at_once: Any) -> None:
    made = built(kind="run", run=recorded_run())
    found = scored(made, SPEC, against=[{"name": "task_success", "weight": -1}], sort="changed", only="changed")
    assert found["agreement"] == pytest.approx(-1) and found["against"]["reward"]["mean"] == pytest.approx(-1 / 3)
    assert found["total_groups"] == 4
    first = found["groups"][0]["rollouts"][0]
    assert (first["reward"], first["reward_against"], first["rank"], first["rank_before"]) == (1.5, -1.0, 1, 3)
    assert scored(made, SPEC, against=SPEC, only="changed")["total_groups"] == 0
    page = scored(made, SPEC, offset=3, limit=2)
    assert page["total_groups"] == 4 and [group["key"] for group in page["groups"]] == ["2/1"]
    scheduled = [{**SPEC[0], "schedule": {"end": 2, "last": 0}}]
    own, fixed = scored(made, scheduled), scored(made, scheduled, step=2)
    assert [group["rollouts"][0]["reward"] for group in own["groups"]] == [0.5, 0.5, 0.0, 0.0]
    assert fixed["summary"]["reward"]["max"] == 0 and fixed["summary"]["zero_variance"]["groups"] == 4
    assert [alarm["severity"] for alarm in fixed["alarms"] if alarm["code"] == "zero_variance"] == ["stop"]


def test_what_cannot_be_computed_excludes_and_says_why(
    recorded_run: Any, built: Any, scored: Any, at_once: Any
) -> None:
    made = built(kind="run", run=recorded_run(steps=1))
    judge = {"name": "judge", "weight": 1, "params": {"url": "http://127.0.0.1:9/v1", "model": "m"}}
    regex = {"name": "regex_match", "weight": 1, "params": {"pattern": "x"}}
    missing = scored(made, [SPEC[0], {"name": "bfcl_task_success", "weight": 1}])
    assert missing["missing"] == [
        {
            "component": "bfcl_task_success",
            "rollouts": 6,
            "reason": "`bfcl_task_success` has no value for this episode.",
        }
    ]
    assert missing["summary"]["excluded"] == 8 and missing["summary"]["reward"]["mean"] is None
    assert "BFCL task success: `bfcl_task_success` has no value" in missing["groups"][0]["rollouts"][0]["excluded"]
    asked = scored(made, [judge, regex])
    assert asked["rescored"] == ["regex_match"] and "judges and models are not called" in asked["missing"][0]["reason"]
    assert {alarm["code"] for alarm in asked["alarms"]} >= {"judge_missing"}
    text = json.dumps(asked)
    assert "NaN" not in text and "Infinity" not in text


def test_why_a_value_is_missing_is_shown_in_the_readers_language(
    recorded_run: Any, built: Any, scored: Any, at_once: Any, client_for: Any, alice: Any, monkeypatch: Any
) -> None:
    """The template is translated and its values stay; columns that were kept as English texts are still read."""
    made = built(kind="run", run=recorded_run(steps=1))
    spec = [{"name": "bfcl_task_success", "weight": 1}]
    monkeypatch.setattr("webapp.common.text._", lambda text: f"〔{text}〕".replace("`{name}` has", "{name} hat"))
    sentence = "〔bfcl_task_success hat no value for this episode.〕"
    first = scored(made, spec)
    assert [item["reason"] for item in first["missing"]] == [sentence]
    rollouts = first["groups"][0]["rollouts"]
    assert rollouts[0]["excluded"].endswith(sentence) and "〔The server died.〕" in {
        each["excluded"] for each in rollouts
    }
    address = reverse("lab-rollout", args=[made.project.slug, made.pk, rollouts[0]["id"]])
    read = client_for(alice).post(address, json.dumps({"components": spec}), content_type="application/json").json()
    assert read["parts"]["bfcl_task_success"]["reason"] == sentence
    item = RewardComponent.model_validate(spec[0])
    path = column_path(made.folder, item)
    with np.load(path) as found:
        columns = dict(found)
    np.savez(path, **columns | {"reasons": np.frombuffer(b'["`x` had nothing {to} say."]', np.uint8)})
    scoring.cache.drop((made.pk, component_key(item)))
    assert [item["reason"] for item in scored(made, spec)["missing"]] == ["〔`x` had nothing {to} say.〕"]


@pytest.mark.plain_start  # a forked one has the memory that it needs before it is limited
def test_slow_values_answer_with_progress_and_failures_with_a_sentence(
    recorded_run: Any, built: Any, scored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: RolloutSet = built(kind="run", run=recorded_run(steps=1))
    monkeypatch.setattr(scoring, "WAIT_S", 0.0)
    answer = scored(made, SPEC)
    assert answer.status_code == 202
    assert answer.json() == {"computing": {"components": ["task_success", "numeric_match"], "done": 0, "total": 0}}
    monkeypatch.setattr(scoring, "WAIT_S", 20.0)
    assert scored(made, SPEC)["summary"]["excluded"] == 2
    monkeypatch.setattr(scoring, "MEMORY_BYTES", 16 << 20)
    failed = scored(made, [{"name": "coherence", "weight": 1}])
    assert "ended early" in failed["missing"][0]["reason"] and failed["summary"]["excluded"] == 8
    monkeypatch.setattr(scoring, "MEMORY_BYTES", 4 << 30)
    assert "ended early" in scored(made, [{"name": "coherence", "weight": 1}])["missing"][0]["reason"]  # for a while


def test_one_rollout_with_what_earned_its_reward(
    recorded_run: Any, built: Any, project: Project, client_for: Any, rita: Any
) -> None:
    run = recorded_run(steps=1)
    made = built(kind="run", run=run)
    ids = [str(rollout.pk) for rollout in run.rollouts.order_by("group", "index")]
    client = client_for(rita)

    def asked(number: int, spec: list[dict[str, Any]] = SPEC) -> Any:
        address = reverse("lab-rollout", args=[project.slug, made.pk, ids[number]])
        return client.post(address, json.dumps({"components": spec}), content_type="application/json").json()

    right = asked(0)
    assert [message["role"] for message in right["messages"]] == ["user", "assistant"] and right["prompt_length"] == 1
    assert right["reward"] == 1.5 and right["parts"]["numeric_match"]["term"] == 0.5
    assert right["parts"]["numeric_match"]["spans"] == [
        {"message": 1, "start": 0, "end": 1, "note": "the number that is compared"}
    ]
    assert asked(2)["excluded"] == "The server died." and asked(2)["reward"] is None
    odd = asked(1, [{"name": "bfcl_task_success", "weight": 1}])["parts"]["bfcl_task_success"]
    assert odd["value"] is None and "has no value for this episode" in odd["reason"]
    missing = client.post(
        reverse("lab-rollout", args=[project.slug, made.pk, run.pk]),
        json.dumps({"components": SPEC}),
        content_type="application/json",
    )
    assert missing.status_code == 404 and missing.json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("", 422, "Invalid JSON"),
        ("[]", 422, ""),
        ('{"components": []}', 422, "components"),
        ('{"components": [{"name": "os_system", "weight": 1}]}', 422, "no reward component"),
        ('{"components": [{"name": "regex_match", "weight": 1}]}', 422, "There is no pattern"),
        ('{"components": [{"name": "coherence", "weight": 1e9}]}', 422, "components.0.weight"),
        ('{"components": [{"name": "coherence", "weight": 1}], "limit": 51}', 422, "limit"),
        ('{"components": [{"name": "coherence", "weight": NaN}]}', 422, ""),
        ("[" * 100_000, 422, ""),
        ('{"a": "' + "x" * (600 << 10) + '"}', 413, ""),
    ],
)
def test_bad_input(
    body: str, status: int, words: str, built: Any, project: Project, client_for: Callable[..., Client], rita: Any
) -> None:
    made = built(kind="pasted", text=json.dumps([{"role": "user", "content": "q"}]))
    address = reverse("lab-score", args=[project.slug, made.pk])
    answer = client_for(rita).post(address, body, content_type="application/json")
    assert answer.status_code == status and answer.json()["ok"] is False
    assert words in answer.content.decode()


def test_who_may_ask(
    at_once: Any, built: Any, project: Project, client_for: Any, bob: Any, rita: Any, charlie: Any
) -> None:
    made = built(kind="pasted", text=json.dumps([{"role": "user", "content": "q"}]))
    body = json.dumps({"components": [{"name": "coherence", "weight": 1}]})
    for name, args in (("lab-score", [made.pk]), ("lab-rollout", [made.pk, made.pk])):
        address = reverse(name, args=[project.slug, *args])
        for person, status in ((bob, 200), (rita, 200), (charlie, 404), (None, 302)):
            answer = client_for(person).post(address, body, content_type="application/json")
            expected = 404 if name == "lab-rollout" and status == 200 else status
            assert answer.status_code == expected
        assert client_for(bob).get(address).status_code == 405
        assert (
            client_for(bob, enforce_csrf_checks=True).post(address, body, content_type="application/json").status_code
            == 403
        )
    made.state = "building"
    made.save(update_fields=["state"])
    waiting = client_for(bob).post(reverse("lab-score", args=[project.slug, made.pk]), body, "application/json")
    assert (waiting.status_code, waiting.json()["code"]) == (409, "conflict")


def test_computed_values_are_those_of_the_formula(recorded_run: Any, built: Any, scored: Any) -> None:
    made = built(kind="run", run=recorded_run(steps=1))
    from training.config import RewardComponent
    from training.rewards.lab.table import column_of, episode_at, table_load
    from training.rewards.scoring import score_episode

    chosen = [RewardComponent(name="final_answer", weight=1), RewardComponent(name="length_budget", weight=1)]
    score_set(made.folder, chosen)
    table = table_load(made.folder)
    for item in chosen:
        column = column_of(table, item)
        for place in range(table.size):
            if table.excluded[place]:
                assert math.isnan(column.value[place])
            else:
                assert column.value[place] == score_episode(episode_at(table, place), [item]).parts[item.name]


def test_the_cache_stays_within_its_bytes() -> None:
    class Held:
        nbytes = 40

    store, made = Cache(100), []
    for key in (1, 2, 1, 3, 1):
        store.get(key, lambda: made.append(key) or Held())  # type: ignore[func-returns-value] # noqa: B023
    assert made == [1, 2, 3] and store.bytes == 80  # 2 was used least lately
    store.drop(1)
    store.drop(1)
    assert store.bytes == 40


def test_custom_code_is_computed_in_its_sandbox_if_it_was_tested_in_the_project(
    recorded_run: Any, built: Any, scored: Any, project: Any, alice: Any, settings: Any
) -> None:
    made = built(kind="run", run=recorded_run(steps=1))
    code = "def reward(episode):\n    return len(episode['final_answer']) / 100\n"
    spec = [{"name": "brief", "function": "custom_python", "weight": 1, "params": {"code": code}}]
    settings.CUSTOM_REWARDS = True
    off = scored(made, spec)
    assert off.status_code == 422 and "custom rewards are off here" in off.json()["message"]
    SiteSwitch.objects.create(name="custom_rewards", on=True)
    untested = scored(made, spec)
    assert untested.status_code == 422 and "has not been tested in this project" in untested.json()["message"]
    AuditEntry.objects.create(
        user_id=alice.pk,
        username=alice.username,
        action=AuditAction.CODE_TESTED,
        project_id=project.pk,
        subject=code_hash(code),
    )
    for _attempt in range(20):  # until the child has answered
        reply = scored(made, spec)
        if isinstance(reply, dict):
            break
    assert reply["missing"] == []
    values = {item["index"]: item["parts"]["brief"] for group in reply["groups"][:1] for item in group["rollouts"]}
    assert values[0] == 0.01 and values[1] == len("It is 5") / 100


def test_a_person_who_has_too_much_scored_learns_when_to_come_back(
    recorded_run: Any, built: Any, project: Project, client_for: Any, rita: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded_run(steps=1)
    made, rollout = built(kind="run", run=run), run.rollouts.filter(index=0).first()
    address = reverse("lab-rollout", args=[project.slug, made.pk, rollout.pk])
    monkeypatch.setattr(scorers, "_places", Places(jobs_per_person=0))
    body, accept = json.dumps({"components": SPEC}), {"Accept": "application/json"}
    answer = client_for(rita).post(address, body, content_type="application/json", headers=accept)
    assert (answer.status_code, answer["Retry-After"], answer.json()["code"]) == (429, str(WAIT_S), "rate_limited")


def test_the_verdict_says_how_often_a_failure_is_ranked_above_a_success(
    recorded_run: Any, built: Any, scored: Any, at_once: list[list[str]]
) -> None:
    made = built(kind="run", run=recorded_run())
    assert scored(made, [{**SPEC[0], "weight": -1.0}])["verdict"] == {
        "kind": "error",
        "sentence": "Of 4 groups with both outcomes, 100% (4 of 4; 95%: 51 to 100%) rank a failure above a success.",
    }
    equal = scored(made, [{"name": "coherence", "weight": 1}])["verdict"]
    assert equal["kind"] == "warning" and equal["sentence"].endswith(
        "(95%: up to 49%). In 4 of them the best failure earns as much as the best success."
    )
