"""Findings before a launch, whose check counts for a launch, and what a list of presets shows: both sides of each."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from training.config import JobConfig
from training.errors import EnvironmentUnreachable
from training.presets import presets
from webapp.environments.models import Environment, Kind
from webapp.environments.selectors import Room
from webapp.launch import background
from webapp.launch.background import (
    LaunchCheck,
    _recent_check,
    blocked,
    check_begin,
    check_record,
    check_view,
    findings_of,
    newest_check,
    preparation_ended,
    preparation_lines,
    preparation_shown,
)
from webapp.launch.estimates import _adapter_parameters, device_default, estimate_begin
from webapp.launch.findings import Check, Outcome, YamlProblem, config_from_text, option_name, options_of
from webapp.launch.models import MemoryEstimate, Preparation
from webapp.launch.preflight import _check_limit, _check_room
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
Builder = Callable[..., Any]


# --- Findings ---------------------------------------------------------------------------------------------------------
GOOD, HARD, SOFT, REMARK = (
    Check("t", True, hard=True),
    Check("t", False, hard=True),
    Check("t", False),
    Check("t", False, remark=True),
)


@pytest.mark.parametrize(
    ("checks", "blocks", "problems"),
    [
        ([], False, False),
        ([GOOD], False, False),
        ([GOOD, REMARK], False, False),
        ([SOFT], False, True),
        ([GOOD, HARD], True, True),
    ],
)
def test_a_hard_problem_blocks_and_a_remark_is_none(checks: list[Check], blocks: bool, problems: bool) -> None:
    assert (Outcome(checks, None).blocked, Outcome(checks, None).problems) == (blocks, problems)
    raw = [check._asdict() for check in checks]
    assert blocked(LaunchCheck(findings=raw)) is blocks and findings_of(LaunchCheck(findings=raw)) == checks


def test_a_finding_has_one_level_and_one_sentence() -> None:
    levels = [
        check.level for check in (GOOD, HARD, SOFT, REMARK, REMARK._replace(grave=True), GOOD._replace(grave=True))
    ]
    assert levels == ["ok", "problem", "problem", "remark", "grave", "ok"]
    assert Check("t", False, "m", detail="d").sentence == "m d" and Check("t", False, detail="d").sentence == "d"
    assert (SOFT.of("second").title, SOFT.of("").title) == ("t · second", "t")


def test_options_have_names_and_others_are_refused() -> None:
    assert option_name("optim.learning_rate") == "Learning rate" and option_name("no.such") == "no.such"
    assert options_of('{"run.max_steps": 3}') == {"run.max_steps": 3}
    for text in ("", "[]", '{"no.such": 1}', '{"run.max_steps": [1]}', '{"run.max_steps": null}', "[" * 100_000):
        with pytest.raises(YamlProblem):
            options_of(text)


def test_a_config_that_is_pasted_has_a_largest_size_and_its_problems_a_line() -> None:
    whole = "kind: grpo\n#"
    assert config_from_text(whole + "x" * (64 * 1024 - len(whole))).kind == "grpo"
    for text, line, path, words in (
        (whole + "x" * (64 * 1024 + 1 - len(whole)), 0, "", "at most 64 KB"),
        ("- a\n", 1, "", "Write option groups"),
        ("run:\n  max_steps: [\n", 3, "", "not valid YAML"),
        ("run:\n  seed: 1\n  max_steps: -1\n", 3, "run.max_steps", ""),
        (
            "rewards:\n  components:\n  - name: a\n    weight: 1\n  - name: b\n    weight: x\n",
            6,
            "rewards.components.1.weight",
            "",
        ),
        ("run:\n  max_stepz: 1\n", 2, "run.max_stepz", "Did you mean run.max_steps?"),
    ):
        with pytest.raises(YamlProblem) as caught:
            config_from_text(text)
        (problem,) = caught.value.problems
        assert (problem.line, problem.path) == (line, path) and words in problem.message, problem


def test_a_limit_of_devices_is_reached_by_more_than_it_names(project: Project) -> None:
    config = JobConfig()
    for limit, count in ((None, 0), (config.devices, 0), (config.devices - 1, 1)):
        project.device_limit = limit
        assert len(list(_check_limit(project, config))) == count


@pytest.mark.parametrize(
    ("room", "ok", "remark", "words", "more"),
    [
        ((0, 1, None, None, EnvironmentUnreachable("It is away.")), False, False, "It is away.", 1),
        ((0, 1, None, None, None), False, False, "None of its servers runs.", 1),
        ((1, 1, 64, None, None), True, False, "does not say how many sessions are free", None),
        ((1, 1, 64, 0, None), False, True, "All of its 64 sessions are taken.", 1),
        ((1, 1, 64, 31, None), True, False, "It plays 31 at a time, and one step has 32 rollouts.", 1),
        ((1, 1, 64, 32, None), True, False, "It answers; 32 of 64 sessions are free, 32 are needed.", None),
        ((2, 2, 64, 33, None), True, False, "2 replicas answer; 33 of 64 sessions are free", None),
    ],
)
def test_a_step_has_room_or_says_how_much_is_missing(
    room: tuple[Any, ...], ok: bool, remark: bool, words: str, more: int | None
) -> None:
    config = JobConfig.model_validate({"rollout": {"prompts_per_step": 4, "num_generations": 8}})
    environment = Environment(id=uuid.uuid4(), kind=Kind.PROCESS, slots=64, wanted=room[0])
    found = _check_room(config, environment, Room(*room))
    assert (found.ok, found.remark) == (ok, remark) and words in found.message
    assert (found.offer.more if found.offer else None) == more
    if room[3] == 31:
        assert "about 2 times as long" in found.hint
    assert _check_room(config, Environment(kind=Kind.URL, slots=64), Room(*room)).offer is None


# --- Checks -----------------------------------------------------------------------------------------------------------
def kept(project: Project, state: str = "passed", seconds: float = 0, digest: str = "d", **over: Any) -> LaunchCheck:
    ended = timezone.now() - timedelta(seconds=seconds)
    return LaunchCheck.objects.create(project=project, digest=digest, state=state, ended_at=ended, **over)


def test_a_check_of_the_same_config_counts_for_five_minutes(project: Project, elsewhere: Project) -> None:
    wanted = LaunchCheck(project=project, digest="d")
    kept(elsewhere)
    kept(project, digest="other")
    kept(project, seconds=301)
    assert _recent_check(wanted) is None
    older = kept(project, seconds=290)
    assert _recent_check(wanted) == older
    newer = kept(project, seconds=10)
    assert _recent_check(wanted) == newer


@pytest.mark.parametrize(
    ("state", "hard", "anyway", "counts"),
    [
        ("stopped", False, False, False),
        ("stopped", False, True, True),
        ("stopped", True, True, False),
        ("dropped", False, True, False),
        ("passed", False, False, True),
    ],
)
def test_a_stopped_check_counts_where_a_person_launches_anyway(
    state: str, hard: bool, anyway: bool, counts: bool, project: Project
) -> None:
    found = kept(project, state, findings=[{"hard": hard, "ok": False}])
    assert _recent_check(LaunchCheck(project=project, digest="d", anyway=anyway)) == (found if counts else None)


def test_what_was_checked_on_a_form_is_kept_for_a_day(
    project: Project, elsewhere: Project, bob: User, make_run: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_digest_and_language", lambda _project, _config: {"digest": "n", "language": ""})
    checks = [kept(project), kept(project), kept(elsewhere), kept(project, run=make_run())]
    LaunchCheck.objects.exclude(pk=checks[0].pk).update(created_at=timezone.now() - timedelta(hours=25))
    check_record(project=project, user=bob, config=JobConfig(), outcome=Outcome([GOOD, SOFT], None))
    made = LaunchCheck.objects.get(digest="n")
    assert (made.state, made.created_by, findings_of(made)) == ("stopped", bob, [GOOD, SOFT])
    assert set(LaunchCheck.objects.all()) == {made, checks[0], checks[2], checks[3]}
    check_record(project=project, user=bob, config=JobConfig(), outcome=Outcome([GOOD, REMARK], None))
    assert LaunchCheck.objects.filter(digest="n", state="passed").count() == 1


def test_only_a_draft_is_checked(project: Project, bob: User, make_run: Builder) -> None:
    assert check_begin(run=make_run(state="queued"), user=bob) is None
    draft = make_run()
    open_ = LaunchCheck.objects.create(project=project, run=draft, digest="d")
    assert check_begin(run=draft, user=bob) == open_


@pytest.mark.parametrize(
    ("state", "check", "seen"),
    [
        ("draft", None, ("", False, True, True)),
        ("queued", None, None),
        ("draft", "dropped", ("", False, True, True)),
        ("draft", "open", ("open", True, True, True)),
        ("queued", "open", ("open", False, False, True)),
        ("queued", "passed", ("passed", False, False, True)),
        ("running", "passed", ("passed", False, False, False)),
    ],
)
def test_a_page_shows_the_newest_check_that_was_not_dropped(
    state: str, check: str | None, seen: tuple[Any, ...] | None, project: Project, make_run: Builder
) -> None:
    run = make_run(state=state)
    LaunchCheck.objects.create(project=project, run=make_run(), digest="d", state="stopped")
    if check:
        LaunchCheck.objects.create(project=project, run=run, digest="d", state=check, findings=[])
        assert (newest_check(run) is None) is (check == "dropped")
    found = check_view(run)
    assert (found and found[:4]) == seen
    remarks = [check._asdict() for check in (GOOD, REMARK, REMARK)]
    LaunchCheck.objects.create(project=project, run=run, digest="d", state="stopped", findings=remarks)
    found = check_view(run)
    assert found is not None and (found.state, found.remarks) == ("stopped", 2)


# --- Preparations -----------------------------------------------------------------------------------------------------
def prepared(project: Project, preset: str, state: str, hours: float = 0) -> Preparation:
    made = Preparation.objects.create(project=project, preset=preset, size="test", state=state)
    Preparation.objects.filter(pk=made.pk).update(created_at=timezone.now() - timedelta(hours=hours))
    return made


def test_open_preparations_come_first_and_failures_of_two_days_follow(project: Project, elsewhere: Project) -> None:
    names = [item.id for item in presets().values() if item.size_named("test")][:4]
    lately = prepared(project, names[0], "failed", 47)
    prepared(project, names[1], "failed", 49)
    waiting = prepared(project, names[2], "open", 60)
    prepared(project, names[3], "done")
    prepared(project, names[3], "dropped")
    prepared(elsewhere, names[3], "open")
    assert [line.item for line in preparation_lines(project)] == [waiting, lately]
    assert preparation_lines(project)[0].url == f"/p/joust/runs/new/?preset={names[2]}&size=test"
    preset = presets()[names[0]]
    assert preparation_shown(project, preset, "test") == lately and preparation_shown(elsewhere, preset, "test") is None
    again = prepared(project, names[0], "done", 1)
    assert [line.item for line in preparation_lines(project)] == [waiting], "it was prepared again since"
    assert preparation_ended(project, str(again.pk)) == again and preparation_ended(elsewhere, str(again.pk)) is None
    assert preparation_ended(project, str(waiting.pk)) is None and preparation_ended(project, "nonsense") is None


def test_a_failure_goes_once_a_run_of_its_preset_was_launched(project: Project, make_run: Builder) -> None:
    preset = next(item for item in presets().values() if item.size_named("test"))
    failed = prepared(project, preset.id, "failed", 2)
    name = f"{preset.run_name('test')}-1"
    run = make_run(name=name)
    assert [line.item for line in preparation_lines(project)] == [failed], "a draft is not launched"
    Run.objects.filter(pk=run.pk).update(state="queued", created_at=timezone.now() - timedelta(hours=3))
    assert [line.item for line in preparation_lines(project)] == [failed], "it was there before"
    Run.objects.filter(pk=run.pk).update(created_at=timezone.now())
    assert preparation_lines(project) == []


# --- Memory -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128}, 2 * 8 * (4 * 128 + 3 * 192)),
        ({"hidden_size": 64, "num_hidden_layers": 2}, 2 * 8 * (4 * 128 + 3 * 320)),
        ({"text_config": {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64}}, 8 * 7 * 128),
        ({"hidden_size": 64}, 10**6 * 8 // 3000),
        ({"num_hidden_layers": 2}, 10**6 * 8 // 3000),
        ([], 10**6 * 8 // 3000),
        ({"hidden_size": 10**4, "num_hidden_layers": 100}, 10**6),
    ],
)
def test_an_adapter_has_its_share_of_each_layer(config: Any, count: int) -> None:
    assert _adapter_parameters(config, 10**6, 8) == count


def test_an_estimate_is_by_the_device_that_the_job_or_its_preset_asks_for(project: Project, bob: User) -> None:
    here = JobConfig.model_validate({"run": {"device": "cpu"}})
    preset = next(item for item in presets().values() if item.device)
    assert (device_default(here, preset), device_default(JobConfig(), preset)) == ("cpu", preset.device)
    assert device_default() == "cpu"
    played = JobConfig.model_validate({"kind": "sample", "sample": {"policies": ["empty"]}})
    assert estimate_begin(project=project, user=bob, config=played, device="cpu").nothing
    assert not MemoryEstimate.objects.exists()
