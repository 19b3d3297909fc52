"""Applying rules to real runs: what goes, what stays and why, what a page says where it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.working import at_once, done
from webapp.common.storage import attempt_dir
from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteRun, SuiteVersion
from webapp.evaluation.votes.models import RoundContestant, VoteRound
from webapp.ops.backup import held_here
from webapp.people.teams.models import AuditEntry, Project, User
from webapp.reading.inspector.models import SavedView
from webapp.reading.rewinding.models import Branch, Continuation
from webapp.retention import services
from webapp.retention.candidates import WHY, items_of
from webapp.retention.measuring import measure, measure_some, unmeasured
from webapp.retention.rules import MOST, Rule, rules_change, rules_of
from webapp.retention.services import apply, expire, look, overview
from webapp.runs.advisories.models import Advisory
from webapp.runs.models import Attempt, Run, RunStar
from webapp.runs.pins.models import PinnedChart
from webapp.runs.registry.models import Checkpoint
from webapp.runs.registry.services import model_register
from webapp.runs.removal.models import Expiry, Kept, Removal, RetentionRules, StoredSize
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "the river is wide and none knows its name " * 20


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return at_once(monkeypatch)


@pytest.fixture
def ended(make_run: Any) -> Callable[..., Run]:
    """``ended(days, **fields)``: a run that ended so many days ago, with something of every kind."""

    def make(days: int = 100, **fields: Any) -> Run:
        at = timezone.now() - timedelta(days=days)
        run: Run = make_run(**{"state": "succeeded", "attempt": 1, "finished_at": at, "seq": 50, "step": 9} | fields)
        Attempt.objects.create(run=run, number=1, owner="w", started_at=at, ended_at=at, journal_offset=500)
        for index in range(3):
            rollout = Rollout.objects.create(
                run=run, attempt=1, step=1, group=0, index=index, started_at=at, seq=9, status="completed", reward=1.0
            )
            for number in range(2):
                message = {"role": "user" if number == 0 else "assistant", "content": TEXT}
                Turn.objects.create(rollout=rollout, run=run, number=number, messages=[message], seq=9)
        folder = attempt_dir(run.pk, 1)
        for name, size in (("journal.jsonl", 500), ("tokens/step-000001.zip", 300), ("output.log", 200)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"x" * size)
        (folder / "logs").mkdir()
        (folder / "logs/trainer.log").write_bytes(b"x" * 50)
        for step in (4, 8):
            _checkpoint(run, step)
        measure(run)
        return run

    return make


def _checkpoint(run: Run, step: int, size: int = 1000) -> Checkpoint:
    path = f"1/checkpoint-{step}"
    (attempt_dir(run.pk, 1) / f"checkpoint-{step}").mkdir(parents=True)
    (attempt_dir(run.pk, 1) / f"checkpoint-{step}/model.safetensors").write_bytes(b"x" * size)
    return Checkpoint.objects.create(
        project=run.project, run=run, attempt=1, step=step, path=path, bytes=size, seq=1, created_at=timezone.now()
    )


def _set(project: Project, alice: User, **rules: Any) -> None:
    rules_change(project=project, user=alice, rules={kind: {"days": days} for kind, days in rules.items()})


def _workers() -> None:
    for removal in Removal.objects.filter(state="waiting"):
        assert done(removal).state == "done"


# --- Measuring --------------------------------------------------------------------------------------------------------
def test_a_run_is_measured_once_after_its_end(ended: Callable[..., Run], make_run: Any) -> None:
    run = ended()
    make_run(state="running")
    stored = StoredSize.objects.get(run=run)
    assert (stored.tokens, stored.logs, stored.turns, stored.sampled) == (300, 250, 6, 6)
    assert 500 + 6 * 80 < stored.words < 500 + 6 * (len(TEXT) + 400)
    assert list(unmeasured()) == []
    Run.objects.filter(pk=run.pk).update(finished_at=stored.measured_at)
    assert list(unmeasured()) == []
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now() + timedelta(seconds=1))  # resumed, ended again
    assert list(unmeasured()) == [run]
    new = make_run(state="failed")  # without an end of its own, as imported runs are
    assert measure_some() == 2
    assert StoredSize.objects.get(run=new).words == 0


def test_long_runs_are_estimated_from_steps_all_over_them(make_run: Any) -> None:
    run = make_run(state="succeeded", attempt=1)
    at = timezone.now()
    rollouts = [
        Rollout(run=run, attempt=1, step=step, group=0, index=index, started_at=at, seq=1)
        for step in range(45) for index in range(2)
    ]  # fmt: skip
    Rollout.objects.bulk_create(rollouts)
    Turn.objects.bulk_create(
        Turn(rollout=each, run=run, number=0, messages=["a" * (10 if each.step < 22 else 1000)], seq=1)
        for each in rollouts
    )
    stored = measure(run)
    assert (stored.turns, stored.sampled) == (90, 30)  # every third of 45 steps, so at most 20
    shorter = measure(run).words / 90
    assert shorter > 80 + 100  # the long turns of the second half are in the sample


# --- What goes --------------------------------------------------------------------------------------------------------
def test_each_kind_goes_by_its_own_rule(ended: Callable[..., Run], project: Project, alice: User) -> None:
    old, young = ended(31), ended(29)
    folder = attempt_dir(old.pk, 1)
    _set(project, alice, tokens=30, logs=30)
    assert look() == 2
    _workers()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-4", "checkpoint-8", "journal.jsonl"]
    assert Turn.objects.filter(run=old).count() == 6 and (attempt_dir(young.pk, 1) / "output.log").is_file()
    _set(project, alice, words=30, checkpoints=30)
    assert look() == 2
    _workers()
    assert list(folder.iterdir()) == []
    assert not Turn.objects.filter(run=old).exists() and Rollout.objects.filter(run=old).count() == 3
    assert set(Checkpoint.objects.filter(run=old).values_list("state", flat=True)) == {"removed"}
    assert Checkpoint.objects.filter(run=old, removed_at=None).count() == 0
    assert Turn.objects.filter(run=young).count() == 6
    assert set(Checkpoint.objects.filter(run=young).values_list("state", flat=True)) == {"whole"}
    assert look() == 0  # nothing is left to remove
    numbers = dict(Expiry.objects.values_list("kind", "number"))
    assert numbers == {"words": 6, "tokens": 1, "logs": 2, "checkpoints": 2}
    assert dict(Expiry.objects.values_list("kind", "bytes"))["checkpoints"] == 2000
    assert Attempt.objects.get(run=old).journal_offset == 0 and not held_here().missing[2:]
    rows = AuditEntry.objects.filter(action="retention_applied")
    assert rows.count() == 4 and set(rows.values_list("username", "object_id")) == {("(rule)", str(old.pk))}


def test_the_words_take_the_ids_of_tokens_with_them(ended: Callable[..., Run], project: Project, alice: User) -> None:
    run = ended()
    _set(project, alice, words=30, tokens=30)
    assert look() == 1
    _workers()
    assert not (attempt_dir(run.pk, 1) / "tokens").exists()
    assert Expiry.objects.get().kind == "words"


def test_the_oldest_go_until_the_rest_is_small_enough(
    ended: Callable[..., Run], project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.retention.candidates.GIB", 1000)
    oldest, newest = ended(3), ended(1)
    rules_change(project=project, user=alice, rules={"checkpoints": {"gib": 3}})
    assert look() == 1
    assert Expiry.objects.get().run == oldest and Expiry.objects.get().rule == {"days": None, "gib": 3, "by": "size"}
    assert Checkpoint.objects.filter(run=newest, state="whole").count() == 2


@pytest.mark.parametrize("state", ["draft", "queued", "running", "pausing", "paused", "stopping"])
def test_a_run_that_has_not_ended_is_never_touched(
    state: str, ended: Callable[..., Run], project: Project, alice: User
) -> None:
    ended(state=state)
    _set(project, alice, words=1, tokens=1, logs=1, checkpoints=1)
    assert look() == 0 and not Expiry.objects.exists()


def _keepers(run: Run, user: User, make_run: Any) -> dict[str, Callable[[], object]]:
    rollout = Rollout.objects.filter(run=run)[0]
    suite = Suite(project=run.project, name="s")
    version = SuiteVersion(suite=suite, number=1, parts=[])
    evaluation = SuiteEvaluation(version=version, contestant="run:a")
    round_ = VoteRound(project=run.project, name="r", seed=1)
    return {
        "starred": lambda: RunStar.objects.create(run=run, user=user),
        "pinned": lambda: PinnedChart.objects.create(project=run.project, run=run, key="reward", names=[], view={}),
        "registered": lambda: model_register(
            project=run.project,
            user=user,
            name="m",
            kind="run",
            checkpoint=run.checkpoints.first(),  # type: ignore[attr-defined]
        ),
        "compared": lambda: SavedComparison.objects.create(
            project=run.project, name="c", contestants=[{"id": str(run.pk), "name": run.name}]
        ),
        "voted": lambda: (
            round_.save(),
            RoundContestant.objects.create(round=round_, number=1, run=run, name=run.name),
        ),
        "suite": lambda: (
            suite.save(),
            version.save(),
            evaluation.save(),
            SuiteRun.objects.create(evaluation=evaluation, part=0, run=run),
        ),
        "continued": lambda: Branch.objects.create(
            rollout=rollout, turn=1, messages=[], prompt_length=1, start=1, done=True, same=True
        ),
        "played on": lambda: Continuation.objects.create(
            run=make_run(state="succeeded"), rollout=rollout, turn=1, contestant="run:a"
        ),
        "viewed": lambda: SavedView.objects.create(project=run.project, run=run, name="v", query=""),
        "awaited": lambda: make_run(state="draft", after=run),
    }


@pytest.mark.parametrize("why", list(WHY))
def test_what_refers_to_a_run_keeps_it(
    why: str, ended: Callable[..., Run], make_run: Any, project: Project, alice: User
) -> None:
    run, other = ended(), ended()
    keepers = _keepers(run, alice, make_run)
    assert set(keepers) == set(WHY)
    keepers[why]()
    _set(project, alice, words=1, tokens=1, logs=1, checkpoints=1)
    look()
    _workers()
    assert Expiry.objects.filter(run=other).count() == 3 and Turn.objects.filter(run=run).count() == 6
    whole = Checkpoint.objects.filter(run=run, state="whole").count()
    assert whole == (1 if why == "registered" else 2)  # the other checkpoint of a registered model's run may go
    items = items_of(project)
    assert [(item.run, item.kept) for item in items[Kept.WORDS]] == [(run.pk, why)]


@pytest.mark.parametrize(
    "fields",
    [
        {"config": {"model": {"source": "run:kept"}}},
        {"resolved": {"model": {"source": "/data/runs/{pk}/1/model"}}},
        {"parent": True},
        {"resume_checkpoint": True},
    ],
    ids=["names it", "starts from its folder", "is its child", "resumes its checkpoint"],
)
def test_an_open_run_that_needs_a_run_keeps_it(
    fields: dict[str, Any], ended: Callable[..., Run], make_run: Any, project: Project, alice: User
) -> None:
    run = ended(name="kept")
    given = dict(fields)
    if "resolved" in given:
        given["resolved"] = {"model": {"source": f"/data/runs/{run.pk}/1/model"}}
    given |= {"parent": run} if "parent" in given else {}
    given |= {"resume_checkpoint": run.checkpoints.first()} if "resume_checkpoint" in given else {}  # type: ignore[attr-defined]
    waits = make_run(state="paused", **given)
    _set(project, alice, words=1, checkpoints=1)
    assert look() == 0
    Run.objects.filter(pk=waits.pk).update(state="cancelled", finished_at=timezone.now())
    assert look() == 2


@pytest.mark.parametrize("why", [why for why in WHY if why != "registered"])
def test_a_registered_model_frees_no_checkpoint_that_something_else_keeps(
    why: str, ended: Callable[..., Run], make_run: Any, project: Project, alice: User
) -> None:
    run = ended()
    keepers = _keepers(run, alice, make_run)
    keepers["registered"]()
    keepers[why]()
    _set(project, alice, checkpoints=1)
    assert look() == 0
    make_run(state="paused", config={"model": {"source": f"run:{run.name}"}})
    assert look() == 0


def test_a_run_that_is_named_in_another_project_is_another_run(
    ended: Callable[..., Run], make_run: Any, project: Project, alice: User, charlie: User
) -> None:
    ended(name="kept")
    elsewhere = Project.objects.get(slug="elsewhere")
    make_run(state="paused", project=elsewhere, config={"model": {"source": "run:kept"}})
    _set(project, alice, words=1)
    assert look() == 1


def test_a_checkpoint_that_an_advisory_kept_stays(ended: Callable[..., Run], project: Project, alice: User) -> None:
    run = ended()
    first, second = run.checkpoints.all()  # type: ignore[attr-defined]
    Advisory.objects.create(run=run, code="a", first=1, last=1, evidence={}, kept=first)
    _set(project, alice, checkpoints=1)
    assert look() == 1
    assert dict(Checkpoint.objects.values_list("pk", "state")) == {first.pk: "whole", second.pk: "removed"}


def test_what_was_starred_or_resumed_meanwhile_stays(ended: Callable[..., Run], project: Project, alice: User) -> None:
    """Decided before, kept under the lock."""
    starred, resumed = ended(), ended()
    items = {item.run: item for item in items_of(project)[Kept.WORDS]}
    RunStar.objects.create(run=starred, user=alice)
    Run.objects.filter(pk=resumed.pk).update(state="queued")
    for run in (starred, resumed):
        assert not expire(project, Kept.WORDS, Rule(days=1), items[run.pk], "age")
    assert not Expiry.objects.exists() and not Removal.objects.exists()


def test_what_a_run_records_after_it_was_resumed_stays(
    ended: Callable[..., Run], project: Project, alice: User
) -> None:
    run = ended()
    _set(project, alice, words=1)
    look()
    later = Rollout.objects.create(
        run=run, attempt=2, step=2, group=0, index=0, started_at=timezone.now(), seq=51, status="completed"
    )
    Turn.objects.create(rollout=later, run=run, number=0, messages=[], seq=51)
    _workers()
    assert list(Turn.objects.values_list("rollout", flat=True)) == [later.pk]


def test_one_that_fails_does_not_keep_the_others(
    ended: Callable[..., Run], project: Project, alice: User, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    bad, good = ended(90), ended(80)
    real = services._hide

    def hide(project: Project, run: Run, *more: Any) -> Any:
        if run == bad:
            raise OSError("no such disk")
        return real(project, run, *more)

    monkeypatch.setattr(services, "_hide", hide)
    _set(project, alice, logs=1)
    assert look() == 1
    assert [each.run for each in Expiry.objects.all()] == [good]
    assert [record.run_id for record in caplog.records if record.message == "not removed by its rule"] == [str(bad.pk)]


def test_a_few_runs_at_a_time(ended: Callable[..., Run], project: Project, alice: User) -> None:
    runs = [ended(90 - n) for n in range(3)]
    _set(project, alice, logs=1)
    assert apply(project, 2) == 2
    assert {each.run for each in Expiry.objects.all()} == set(runs[:2])


def test_a_failed_deletion_is_shown_with_its_cause(
    ended: Callable[..., Run], project: Project, alice: User, client_for: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run = ended()
    _set(project, alice, logs=1)
    look()

    def refuse(*_paths: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("webapp.runs.removal.services._move_to_trash", refuse)
    assert done(Removal.objects.get()).state == "failed"
    page = client_for(alice).get(reverse("retention-page", args=[project.slug])).content.decode()
    assert f"{run.name}: logs of trainers could not be deleted" in page and "Permission denied" in page


# --- Where it was -----------------------------------------------------------------------------------------------------
def test_pages_and_the_api_say_when_and_why_it_is_gone(
    ended: Callable[..., Run], project: Project, alice: User, client_for: Callable[..., Client]
) -> None:
    run = ended(state="failed")
    rollout = Rollout.objects.filter(run=run)[0]
    client = client_for(alice)
    page, api = reverse("rollout-detail", args=[project.slug, rollout.pk]), f"/api/v1/rollouts/{rollout.pk}"
    assert "Removed on" not in client.get(page).content.decode()
    assert client.get(api).json()["removed"] is None
    _set(project, alice, words=30, checkpoints=30, logs=30)
    look()
    _workers()
    words = "by the project&#x27;s rule for transcripts: kept for 30 days after the run ended."
    for address in (
        page,
        reverse("run-detail", args=[project.slug, run.pk]),
        reverse("run-rollouts", args=[project.slug, run.pk]),
        reverse("run-group", args=[project.slug, run.pk, 1, 0]),
    ):
        assert words in client.get(address).content.decode(), address
    found = client.get(api).json()
    assert found["transcript"] == [] and found["reward"] == 1.0
    assert found["removed"] == client.get(api + "/turns").json()["removed"]
    assert found["removed"].endswith("by the project's rule for transcripts: kept for 30 days after the run ended.")
    assert client.get(api + "/tokens").json()["why"] == found["removed"]
    run_page = client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    assert "rule for checkpoints: kept for 30 days after the run ended. It cannot be resumed" in run_page.replace(
        "\n", " "
    )
    chinese = client.get(page, headers={"Accept-Language": "zh-hans"}).content.decode()
    assert "按项目的" in chinese and "30 天" in chinese


def test_a_rollout_after_the_removal_was_not_removed(
    ended: Callable[..., Run], project: Project, alice: User, client_for: Callable[..., Client]
) -> None:
    """It was recorded by the resumed run, and its environment never answered: it has no turns of its own."""
    run = ended(state="failed")
    _set(project, alice, words=1)
    look()
    later = Rollout.objects.create(
        run=run, attempt=2, step=2, group=0, index=0, started_at=timezone.now(), seq=51, status="excluded"
    )
    found = client_for(alice).get(f"/api/v1/rollouts/{later.pk}").json()
    assert (found["transcript"], found["removed"]) == ([], None)
    page = client_for(alice).get(reverse("rollout-detail", args=[project.slug, later.pk])).content.decode()
    assert "Removed on" not in page


# --- Rules ------------------------------------------------------------------------------------------------------------
def test_a_project_has_the_sites_rule_until_it_has_its_own(project: Project, alice: User, settings: Any) -> None:
    settings.RETENTION = settings.RETENTION | {"tokens": {"days": 30, "gib": None}}
    assert rules_of(project)[Kept.TOKENS] == Rule(30, None, own=False)
    rules_change(project=project, user=alice, rules={"tokens": {}})
    assert rules_of(project)[Kept.TOKENS] == Rule(None, None, own=True)
    rules_change(project=project, user=alice, rules={"tokens": None})
    assert rules_of(project)[Kept.TOKENS] == Rule(30, None, own=False)
    assert AuditEntry.objects.filter(action="retention_changed", username="alice").count() == 2
    rules_change(project=project, user=alice, rules={"tokens": None})
    assert AuditEntry.objects.count() == 2  # nothing changed


@pytest.mark.parametrize("wrong", [0, -1, MOST + 1])
def test_a_limit_has_a_least_and_a_largest_value(wrong: int, project: Project, alice: User) -> None:
    for limit in ("days", "gib"):
        with pytest.raises(ValidationError, match="A limit is a whole number from 1 to 999999"):
            rules_change(project=project, user=alice, rules={"logs": {limit: wrong}})
        for right in (1, MOST):
            rules = rules_change(project=project, user=alice, rules={"logs": {limit: right}})
            assert getattr(rules[Kept.LOGS], limit) == right
    with pytest.raises(ValidationError, match="It must be one of words, tokens, logs, checkpoints"):
        rules_change(project=project, user=alice, rules={"runs": {"days": 1}})


def test_the_page_previews_and_then_keeps(
    ended: Callable[..., Run], project: Project, alice: User, bob: User, client_for: Callable[..., Client]
) -> None:
    ended(40), ended(20)
    address, client = reverse("retention-page", args=[project.slug]), client_for(alice)
    page = client.get(address).content.decode()
    assert "No rule: what runs leave is kept until a person deletes it." in page
    form = {f"{kind}_whose": "site" for kind in Kept} | {"checkpoints_whose": "own", "checkpoints_days": "30"}
    seen = client.post(address, form | {"preview": "1"}).content.decode()
    assert "The rules free 2.0\xa0KB of 1 run now, and about 2.0\xa0KB more within 30 days." in seen
    assert "nothing is saved yet" in seen and not rules_of(project)[Kept.CHECKPOINTS].limits
    assert "1 run that ended in the last 30 days left 2.0\xa0KB" in seen
    assert client.post(address, form)["Location"] == address
    assert rules_of(project)[Kept.CHECKPOINTS] == Rule(30, None, own=True)
    assert look() == 1
    after = client.get(address).content.decode()
    assert "The rules freed 2.0\xa0KB of 1 run in the last 30 days." in after and "being deleted" in after
    wrong = client.post(address, form | {"checkpoints_days": "0"})
    assert wrong.status_code == 422 and rules_of(project)[Kept.CHECKPOINTS].days == 30
    read = client_for(bob).get(address).content.decode()
    assert "Owners of the project change these rules." in read and 'name="preview"' not in read


def test_the_preview_of_the_command_line(ended: Callable[..., Run], project: Project, alice: User, capsys: Any) -> None:
    run = ended(40)
    _set(project, alice, logs=30)
    StoredSize.objects.filter(run=ended(2)).delete()
    call_command("retention", project.slug)
    said = capsys.readouterr().out.replace("\xa0", " ")
    assert f"{project.slug}: The rules free 250 bytes of 1 run now, and about 0 bytes more within 30 days." in said
    assert "1 run that has ended is not measured yet and is in no figure." in said
    assert "  logs: 30 days; 250 bytes of 1 runs, 0 kept; frees 250 bytes now" in said
    assert not Expiry.objects.exists() and (attempt_dir(run.pk, 1) / "output.log").is_file()


def test_tokens_that_go_with_the_words_are_counted_once(
    ended: Callable[..., Run], project: Project, alice: User
) -> None:
    run = ended(40)
    _set(project, alice, words=30, tokens=30)
    stored = StoredSize.objects.get(run=run)
    assert overview(project).now_bytes == stored.words + stored.tokens


def test_another_project_keeps_its_own(ended: Callable[..., Run], project: Project, alice: User, charlie: User) -> None:
    elsewhere = Project.objects.get(slug="elsewhere")
    there, here = ended(project=elsewhere), ended()
    Checkpoint.objects.filter(run=there).update(project=elsewhere)
    _set(project, alice, logs=1, checkpoints=1)
    look()
    assert {each.run for each in Expiry.objects.all()} == {here}
    assert Path(attempt_dir(there.pk, 1) / "output.log").is_file()


def test_a_sample_is_of_the_first_twenty_rollouts_of_a_step_of_the_run_alone(make_run: Any) -> None:
    run, other = (make_run(state="succeeded", attempt=1) for _number in range(2))
    for of, text in ((run, "a"), (other, "b" * 9000)):
        rollouts = [
            Rollout(run=of, attempt=1, step=1, group=group, index=0, started_at=timezone.now(), seq=1)
            for group in range(21)
        ]
        Rollout.objects.bulk_create(rollouts)
        Turn.objects.bulk_create(
            Turn(rollout=each, run=of, number=0, messages=[text * (9000 if each.group == 20 else 1)], seq=1)
            for each in rollouts
        )
    stored = measure(run)
    assert (stored.turns, stored.sampled) == (21, 20) and stored.words < 21 * 200, (
        "the last and the other are not in it"
    )


def test_runs_are_measured_in_the_order_of_their_ends_before_rules_are_applied(
    ended: Callable[..., Run], project: Project, alice: User
) -> None:
    late, early = ended(40), ended(90)
    StoredSize.objects.all().delete()
    assert list(unmeasured()) == [early, late]
    _set(project, alice, logs=30)
    assert look() == 2 and StoredSize.objects.count() == 2
    assert set(Expiry.objects.values_list("bytes", flat=True)) == {250}


def test_rules_that_are_those_of_the_site_leave_no_row(project: Project, alice: User, charlie: User) -> None:
    rules_change(project=project, user=alice, rules={"logs": None})
    assert not RetentionRules.objects.exists()
    elsewhere = Project.objects.get(slug="elsewhere")
    rules_change(project=elsewhere, user=charlie, rules={"logs": {"days": 9}})
    rules_change(project=project, user=alice, rules={"logs": {"days": 5}})
    rules_change(project=project, user=alice, rules={"logs": {"days": 5}})
    assert (rules_of(project)[Kept.LOGS].days, rules_of(elsewhere)[Kept.LOGS].days) == (5, 9)
    assert AuditEntry.objects.filter(action="retention_changed").count() == 2


def test_the_rules_are_kept_after_a_confirmation_and_the_page_says_so(
    project: Project, alice: User, client_for: Callable[..., Client]
) -> None:
    address = reverse("retention-page", args=[project.slug])
    form = {f"{kind}_whose": "site" for kind in Kept} | {"logs_whose": "own", "logs_days": "30"}
    old = client_for(alice, old=True).post(address, form)
    assert old["Location"].startswith("/confirm/") and not RetentionRules.objects.exists()
    seen = client_for(alice, old=True).post(address, form | {"preview": "1"})
    assert seen.status_code == 200, "a preview keeps nothing"
    said = client_for(alice).post(address, form, follow=True).content.decode()
    assert "Saved. The rules are applied every few minutes from now on." in said
