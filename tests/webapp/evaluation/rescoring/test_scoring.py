"""Components that evaluations did not record, computed from their transcripts by a worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction

from tests.chat_stub import Stub, says, stub
from tests.evaluations import play
from tests.webapp.evaluation.rescoring.conftest import OWN, SOLVED
from tests.working import claimed, done, perform
from training.rewards.custom import code_hash
from webapp.common.work import Lost
from webapp.evaluation.comparison.rewards import Evaluations
from webapp.evaluation.rescoring import services, tasks
from webapp.evaluation.rescoring.models import ComputedColumn, Rescoring, RescoringState
from webapp.evaluation.rescoring.services import rescoring_cancel
from webapp.people.teams.models import AuditAction, AuditEntry, Project, SiteSwitch, User
from webapp.rewards.lab import scoring as scoring_module
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

__all__ = ["stub"]
pytestmark = pytest.mark.django_db
Reading = Callable[..., Evaluations]
Maker = Callable[..., Any]


def rewards(read: Evaluations) -> list[list[float | None]]:
    """Each contestant's mean reward by task, in the order of tasks; ``None`` where it has none."""
    sheets = read.numbers.sheets
    return [[None if value != value else float(value) for value in sheet.of("reward")] for sheet in sheets]


def test_what_was_not_recorded_is_missing_until_it_is_computed(
    two: list[Run], spec: Maker, read: Reading, scored: Maker
) -> None:
    reference = spec(OWN, SOLVED)
    before = read(two, reference)
    assert rewards(before) == [[None] * 4] * 2 and not before.rewards.computed
    assert [(item.run.name, names) for item, names in before.rewards.unknown] == [
        ("a", ["regex_match"]),
        ("b", ["regex_match"]),
    ]
    assert before.rewards.missing[0] == (
        "a has not recorded Pattern match with these parameters, so it has no reward under this spec."
    )
    made: Rescoring = scored(two, reference)
    assert (made.state, made.rollouts, made.error) == (RescoringState.DONE, 15, None)  # b's excluded try is not scored
    after = read(two, reference)
    # 1.0 of the environment and 0.5 of the pattern for what says "solved"; b's second try of task 1 stays excluded
    assert rewards(after) == [[1.5, 0.0, 0.0, 0.75], [1.5, 1.5, 0.75, 1.5]]
    assert after.numbers.sheets[0].of("rewards/regex_match").tolist() == [1.0, 0.0, 0.0, 0.5]
    assert not after.rewards.unknown and not after.rewards.missing
    assert after.rewards.computed == [
        "a: Pattern match computed from the transcripts of 8 rollouts.",
        "b: Pattern match computed from the transcripts of 7 rollouts.",
    ]
    assert not made.folder.exists() or not any(made.folder.iterdir())


def test_another_spec_with_the_same_component_needs_nothing_computed(
    two: list[Run], spec: Maker, read: Reading, scored: Maker, begun: Maker
) -> None:
    scored(two, spec(OWN, SOLVED))
    other = {**SOLVED, "name": "again", "function": "regex_match", "weight": 2.0, "clip": [0.0, 0.25]}
    reference = spec(OWN, other)
    assert rewards(read(two, reference))[0] == [1.5, 0.0, 0.0, 0.75]  # 1 + 2 × 0.25
    with pytest.raises(ValidationError, match="nothing is left to score"):
        begun(two, reference)
    assert ComputedColumn.objects.count() == 2
    changed = spec(OWN, {**SOLVED, "params": {"pattern": "given"}})
    assert rewards(read(two, changed)) == [[None] * 4] * 2


def test_only_what_lacks_is_computed(
    two: list[Run], spec: Maker, read: Reading, scored: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = spec(OWN, SOLVED)
    scored(two, reference)
    Turn.objects.filter(run=two[0], number=1).update(messages=[{"role": "assistant", "content": "changed"}])
    play(two[0], 3, 2, 1.0, lambda success: {"env_success": success})
    Run.objects.filter(pk=two[0].pk).update(seq=two[0].seq + 1)
    found = read(two, reference)
    assert found.rewards.missing == ["a: 1 rollout has not been scored by Pattern match yet."]
    assert rewards(found)[0] == [1.5, 0.0, 0.0, 0.75]
    assert scored(two, reference).rollouts == 1
    assert rewards(read(two, reference))[0] == [1.5, 0.0, 0.0, 1.0]  # (0 + 1.5 + 1.5) / 3


def test_a_gate_of_no_weight_is_needed_and_computed(two: list[Run], spec: Maker, read: Reading, scored: Maker) -> None:
    gated = {**OWN, "gate": {"component": "regex_match", "above": 0.5}}
    reference = spec(gated, {**SOLVED, "weight": 0.0})
    assert rewards(read(two, reference)) == [[None] * 4] * 2  # a gate that is not known is neither open nor closed
    scored(two, reference)
    assert rewards(read(two, reference))[0] == [1.0, 0.0, 0.0, 0.5]


def test_components_count_by_category_and_share_what_is_known(
    two: list[Run], spec: Maker, read: Reading, scored: Maker
) -> None:
    even = {**SOLVED, "categories": ["even"]}
    odd = {**SOLVED, "name": "odd", "function": "regex_match", "weight": 0.25, "categories": ["odd"]}
    reference = spec(OWN, even, odd)
    assert scored(two, reference).state == RescoringState.DONE
    assert rewards(read(two, reference))[0] == [1.5, 0.0, 0.0, 0.625]  # task 3 is odd: (0 + 1.25) / 2
    # For all categories nothing is read from the transcripts again.
    Turn.objects.filter(run__in=two, number=1).update(messages=[{"role": "assistant", "content": "changed"}])
    everywhere = spec(OWN, SOLVED)
    scored(two, everywhere)
    assert rewards(read(two, everywhere))[0] == [1.5, 0.0, 0.0, 0.75]


def test_where_no_component_counts_there_is_no_reward(
    two: list[Run], spec: Maker, read: Reading, scored: Maker
) -> None:
    reference = spec({**SOLVED, "categories": ["odd"]})
    scored(two, reference)
    assert rewards(read(two, reference))[0] == [None, 0.0, None, 0.25]


def test_what_cannot_be_computed_is_named_and_never_zero(
    two: list[Run], spec: Maker, read: Reading, scored: Maker
) -> None:
    verdict = {"name": "task_success", "weight": 1.0, "params": {}}
    reference = spec(SOLVED, verdict)  # the environment's own reward was not recorded
    gone = Rollout.objects.get(run=two[0], row=0, index=0)
    Turn.objects.filter(rollout=gone).delete()
    Rollout.objects.filter(run=two[0], row=3).update(env_reward=0.5)
    assert scored(two, reference).state == RescoringState.DONE
    found = read(two, reference)
    assert rewards(found) == [[None, None, None, 0.75], [None] * 4]
    assert found.rewards.missing == [
        "a: 1 rollout has no value of Pattern match: Its transcript is not stored (any more).",
        "a: 5 rollouts have no value of Task success: `task_success` has no value for this episode.",
        "a: 1 rollout has no value of Task success: Its transcript is not stored (any more).",
        "b: 7 rollouts have no value of Task success: `task_success` has no value for this episode.",
    ]
    figures = found.numbers.intervals[0]["reward"]
    assert (figures.value, figures.tasks) == (0.75, 1)


def test_a_part_that_was_missing_when_it_was_recorded_ends_no_scoring(
    two: list[Run], spec: Maker, read: Reading, scored: Maker
) -> None:
    """A try whose parts hold a missing one ended the whole scoring by a TypeError."""
    Rollout.objects.filter(run=two[0], row=3).update(parts={"env_success": 1.0, "judge": None})
    reference = spec(OWN, SOLVED)
    made = scored(two, reference)
    assert (made.state, made.rollouts, made.error) == (RescoringState.DONE, 15, None)
    assert rewards(read(two, reference))[0] == [1.5, 0.0, 0.0, 1.25]


def test_without_the_dataset_the_task_is_not_known(two: list[Run], spec: Maker, read: Reading, scored: Maker) -> None:
    rows = Path(two[0].resolved["data"]["train"])
    kept = rows.read_text()
    rows.write_text(json.dumps({"messages": [{"role": "user", "content": "task 0"}], "category": "even"}) + "\n")
    reference = spec(SOLVED)
    scored(two, reference)
    rows.write_text(kept)
    found = read(two, reference)
    assert rewards(found)[0] == [0.5, None, None, None]
    assert (
        "a: 6 rollouts have no value of Pattern match: The dataset that it was played from is gone"
        in (found.rewards.missing[0])
    )


def test_failures_are_tried_again_and_values_stay(two: list[Run], spec: Maker, read: Reading, scored: Maker) -> None:
    reference = spec({"name": "task_success", "weight": 1.0, "params": {}})
    Rollout.objects.filter(run=two[0], row=1).update(env_reward=0.25)
    scored(two, reference)
    Rollout.objects.filter(run=two[0], row=1).update(env_reward=1.0)
    Rollout.objects.filter(run=two[0], row=0).update(env_reward=0.5)
    again = scored(two, reference)
    assert again.rollouts == 13  # of 15 two are known
    assert rewards(read(two, reference))[0] == [0.5, 0.25, None, None]


# --- The work itself --------------------------------------------------------------------------------------------------
def test_the_same_is_asked_for_once_and_few_at_a_time(
    two: list[Run], spec: Maker, begun: Maker, make_reward_spec: Any, project: Project, bob: User
) -> None:
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere", slug="elsewhere")
    theirs = [Rescoring(project=elsewhere, name="x", components=[], runs=[], digest=str(n)) for n in range(3)]
    reference = spec(OWN, SOLVED)
    first = begun(two, reference)
    assert begun(list(reversed(two)), reference) == first and Rescoring.objects.count() == 1
    for pattern in ("x", "y"):
        begun(two, spec({**SOLVED, "params": {"pattern": pattern}}))
    with pytest.raises(ValidationError, match="being scored already"):
        begun(two, spec({**SOLVED, "params": {"pattern": "z"}}))
    assert [row.subject for row in AuditEntry.objects.filter(action=AuditAction.RESCORING_BEGUN)].count("spec-1@1") == 1
    Rescoring.objects.bulk_create(theirs)
    assert rescoring_cancel(rescoring=first, user=bob)
    assert set(Rescoring.objects.exclude(state="waiting")) == {first}
    begun(two, spec({**SOLVED, "params": {"pattern": "z"}}))  # those of another project and ended ones do not count


@pytest.mark.parametrize(
    ("progress", "percent"),
    [({}, 0), ({"done": 1}, 0), ({"done": 1, "total": 3}, 33), ({"total": 3}, 0), ({"done": 5, "total": 4}, 100)],
)
def test_progress_is_a_percentage(progress: dict[str, int], percent: int) -> None:
    assert services.percent_of(Rescoring(progress=progress)) == percent


def test_a_worker_whose_work_was_cancelled_writes_nothing(
    two: list[Run], spec: Maker, begun: Maker, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begun(two, spec(OWN, SOLVED))
    taken = claimed(made)
    compute = tasks.score_in_child

    def cancelled(*args: Any, **more: Any) -> None:
        compute(*args, **more)
        assert rescoring_cancel(rescoring=made, user=bob)

    monkeypatch.setattr(tasks, "score_in_child", cancelled)
    perform(taken)
    made.refresh_from_db()
    assert (made.state, made.token, made.progress) == (RescoringState.CANCELLED, "", {}) and made.ended_at
    assert not ComputedColumn.objects.exists() and not (made.folder / taken.token).exists()
    assert not rescoring_cancel(rescoring=made, user=bob)
    assert AuditEntry.objects.filter(action=AuditAction.RESCORING_CANCELLED).count() == 1
    with pytest.raises(Lost):
        taken.keep()


@pytest.mark.plain_start  # a forked one has the memory that it needs before it is limited
def test_what_was_computed_before_it_ended_is_kept(
    two: list[Run], spec: Maker, begun: Maker, read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of the second run dies: the first one's values are there, and the next try needs only the rest."""
    reference = spec(OWN, SOLVED)
    compute, calls = tasks.score_in_child, []

    def dies(*args: Any, **more: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            monkeypatch.setattr(scoring_module, "MEMORY_BYTES", 16 << 20)
        compute(*args, **more)

    monkeypatch.setattr(tasks, "score_in_child", dies)
    failed = done(begun(two, reference))
    assert failed.state == RescoringState.FAILED and failed.error["code"] == "rescoring_failed"
    assert "too little memory" in failed.error["message"]
    assert rewards(read(two, reference)) == [[1.5, 0.0, 0.0, 0.75], [None] * 4]
    monkeypatch.setattr(scoring_module, "MEMORY_BYTES", 4 << 30)
    again = done(begun(two, reference))
    assert (again.state, again.rollouts) == (RescoringState.DONE, 7) and again.pk != failed.pk


def test_what_a_process_had_found_before_it_died_is_kept(
    two: list[Run], spec: Maker, begun: Maker, read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = tasks.score_in_child

    def dies_late(*args: Any, **more: Any) -> None:
        compute(*args, **more)
        raise scoring_module.ScoringFailed("", late=True)

    monkeypatch.setattr(tasks, "score_in_child", dies_late)
    reference = spec(OWN, SOLVED)
    failed = done(begun(two, reference))
    assert (failed.state, failed.error["message"]) == (RescoringState.FAILED, "Scoring the rollouts took too long.")
    assert rewards(read(two, reference)) == [[1.5, 0.0, 0.0, 0.75], [None] * 4]


def test_progress_is_reported_and_kept_on_the_way(
    two: list[Run], spec: Maker, begun: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress: list[dict[str, int]] = []
    made = begun(two, spec(OWN, SOLVED))
    taken = claimed(made)
    monkeypatch.setattr(tasks, "KEEP_EVERY_S", -1.0)
    monkeypatch.setattr(taken, "report", lambda values, at_once=False: progress.append(dict(values)))
    compute = tasks.score_in_child

    def slow(folder: Path, components: Any, on_progress: Any, **more: Any) -> None:
        compute(folder, components, on_progress, **more)
        on_progress(3, 8)
        assert ComputedColumn.objects.count() == (1 if folder.name == str(two[0].pk) else 2)

    monkeypatch.setattr(tasks, "score_in_child", slow)
    perform(taken)
    assert {"done": 3, "total": 15} in progress and {"done": 11, "total": 15} in progress
    assert progress[0] == {"done": 0, "total": 15}


def test_a_run_that_was_deleted_meanwhile_is_passed_over(two: list[Run], spec: Maker, begun: Maker) -> None:
    made = begun(two, spec(OWN, SOLVED))
    two[0].delete()
    assert done(made).rollouts == 7


# --- Custom code and judges -------------------------------------------------------------------------------------------
CODE = "def reward(episode):\n    return len(episode['final_answer'])\n"
CUSTOM = {"name": "length", "function": "custom_python", "weight": 1.0, "params": {"code": CODE}}


def test_custom_code_is_sandboxed_and_only_where_it_may_run(
    two: list[Run], spec: Maker, begun: Maker, read: Reading, project: Project, settings: Any, alice: User
) -> None:
    reference = spec(CUSTOM)
    with pytest.raises(ValidationError, match="custom rewards are off here"):
        begun(two, reference)
    settings.CUSTOM_REWARDS = True
    SiteSwitch.objects.create(name="custom_rewards", on=True)
    with pytest.raises(ValidationError, match="has not been tested in this project"):
        begun(two, reference)
    AuditEntry.objects.create(
        user_id=alice.pk,
        username="alice",
        action=AuditAction.CODE_TESTED,
        subject=code_hash(CODE),
        project_id=project.pk,
    )
    assert done(begun(two, reference)).state == RescoringState.DONE
    assert rewards(read(two, reference))[0] == [6.0, 8.0, 8.0, 7.0]  # "solved", "given up"


def judge(stub: Stub, **params: Any) -> dict[str, Any]:
    return {"name": "judge", "weight": 1.0, "params": {"url": stub.url, "model": "gpt-oss", **params}}


def test_a_judge_is_asked_only_after_a_confirmation(
    two: list[Run], spec: Maker, begun: Maker, read: Reading, stub: Stub, settings: Any
) -> None:
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{stub.server_address[1]}"]
    reference = spec(judge(stub))
    with pytest.raises(ValidationError) as refused:
        begun(two, reference)
    assert refused.value.messages == [
        "It asks gpt-oss up to 15 times, which takes time and may cost money. Confirm that you want this."
    ]
    assert refused.value.code == "confirm" and not stub.asked and not Rescoring.objects.exists()
    stub.replies = [says('{"reason": "x", "score": 7}')]
    assert done(begun(two, reference, confirmed=True)).state == RescoringState.DONE
    assert rewards(read(two, reference)) == [[0.7] * 4, [0.7] * 4] and len(stub.asked) <= 15
    with pytest.raises(ValidationError, match="nothing is left to score"):
        begun(two, reference, confirmed=True)


def test_a_judge_without_a_key_is_named(
    two: list[Run], spec: Maker, scored: Maker, read: Reading, stub: Stub, settings: Any, monkeypatch: Any
) -> None:
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{stub.server_address[1]}"]
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    reference = spec(judge(stub, key_variable="JUDGE_KEY"))
    scored(two, reference, confirmed=True)
    found = read(two, reference)
    assert rewards(found) == [[None] * 4] * 2 and not stub.asked
    assert found.rewards.missing[0] == "a: 8 rollouts have no value of Judge: The variable JUDGE_KEY is not set."


def test_two_at_once_ask_for_one(
    two: list[Run], spec: Maker, begun: Maker, monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    reference = spec(OWN, SOLVED)
    first = begun(two, reference)
    seen = iter([None, first])
    monkeypatch.setattr(services, "_open_rescoring", lambda *_about: next(seen))
    with transaction.atomic():
        assert begun(two, reference) == first
    assert Rescoring.objects.filter(project=project).count() == 1
