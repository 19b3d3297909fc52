"""What happened to a run, in words: of pages, of live frames and of the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone, translation

from webapp.common.answers import in_shape
from webapp.runs import answers
from webapp.runs.records.selectors import aged
from webapp.runs.reports import event_words, report_lines

RESUMED = {
    "source": "1/checkpoint-6",
    "step": 6,
    "lost_steps": 3,
    "set_aside": ["1/checkpoint-8"],
    "verified": ["manifest", {"template": "position in the data: step {step}", "values": {"step": 6}}],
}
HELD = {"step": 7, "tries": 1, "next_try_s": 5, "error": {"message": "refused"}}
HELD_OUT = {"source": "share", "tasks": 9, "groups": 8, "leaked": 2, "alike": 0, "looked_at": 50}
BEST = {"figures": {"success": {"value": 0.5, "low": 0.25, "high": 0.75, "tasks": 9}}}


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        ("state", {"from": "queued", "to": "preparing", "reason": None}, "queued → preparing"),
        ("attempt", {"owner": "w1", "device": "cpu"}, "taken by worker w1"),
        ("attempt", {"device": "cpu"}, "runs on cpu"),
        ("warning", {"code": "odd", "message": "left no model"}, "left no model"),
        ("held", HELD, "step 7 waits (try 1): refused Next try in 5 s."),
        ("held", {"step": 7, "error": None}, "step 7 continues"),
        (
            "update_skipped",
            {"what": "loss", "step": 3, "in_a_row": 2},
            "step 3: update skipped because the loss was not finite (2 in a row)",
        ),
        (
            "sampler_checked",
            {"step": 1, "tokens": 9, "max_gap": 0.000001, "mean_gap": 0.0000001, "tolerance": 0.05},
            "Sampler check at step 1: its log-probabilities differ from the trainer's by at most 1.0e-6 nats"
            " (mean 1.0e-7) over 9 tokens; the limit is 0.050.",
        ),
        (
            "resumed",
            RESUMED,
            "Attempt 2 continued from 1/checkpoint-6 at step 6. Steps trained again: 3."
            " Damaged and set aside: 1/checkpoint-8. Verified: manifest, position in the data: step 6.",
        ),
        ("checkpoints_removed", {"why": "torn", "paths": ["1/checkpoint-8"]}, "damaged, set aside: 1/checkpoint-8"),
        (
            "tasks_held_out",
            HELD_OUT | {"part": "maths"},
            "maths: 9 tasks (8 of different text) are held out of the dataset."
            " 2 that are also trained on were left out."
            " None equals or closely resembles one of the 50 training rows that were compared.",
        ),
        (
            "held_out_evaluated",
            {"step": 4, "best": False, "report": BEST},
            "after step 4: success 50% (25% to 75%) on 9 held-out tasks",
        ),
        (
            "held_out_evaluated",
            {"step": 4, "best": False, "report": {"figures": {"reward": {"value": 0.5}}}},
            "after step 4: success – (– to –) on 0 held-out tasks",
        ),
        (
            "stage_started",
            {"why": "steps", "stage": 2, "of": 3, "step": 5, "name": "b"},
            "stage 2 of 3 begins after step 5, as planned: b",
        ),
        (
            "rollout_order",
            {"act": "fail", "by": "ana", "step": 1, "group": 0, "index": 3},
            "ana marked rollout 0.3 of step 1 as failed",
        ),
    ],
)
def test_an_event_of_the_runs_course_comes_with_its_words(kind: str, payload: dict[str, Any], words: str) -> None:
    """In a live frame a part of a mix had no name: the script's own words lacked it."""
    row = {"seq": 1, "attempt": 2, "kind": kind, "payload": payload, "at": timezone.now()}
    assert in_shape(answers.Event, row)["words"] == words
    assert in_shape(list[answers.Event], [row])[0]["words"] == event_words(row)


def test_words_are_the_readers() -> None:
    row = {"seq": 1, "attempt": 1, "kind": "attempt", "payload": {"device": "cpu"}, "at": timezone.now()}
    with translation.override("zh-hans"):
        assert in_shape(answers.Event, row)["words"] == "运行于 cpu"


@pytest.mark.parametrize("kind", ["log", "phase"])
def test_log_lines_and_phases_have_no_words(kind: str) -> None:
    row = {"seq": 1, "attempt": 1, "kind": kind, "payload": {"message": "x"}, "at": timezone.now()}
    assert in_shape(answers.Event, row)["words"] is None


def test_an_event_of_another_version_is_shown_without_words(caplog: pytest.LogCaptureFixture) -> None:
    row = {"seq": 1, "attempt": 1, "kind": "stage_started", "payload": {"stage": 1}, "at": timezone.now()}
    found = in_shape(answers.Event, row)
    assert (found["words"], found["payload"]) == ("", {"stage": 1})
    assert "record_without_words" in caplog.text


def test_the_notice_names_what_was_lost_and_what_was_skipped() -> None:
    ended = {"attempt": 1, "code": "odd", "message": "Killed."}
    health = {"resumed": {**RESUMED, "attempt": 2}, "ended": ended, "skipped": {"count": 2, "step": 9, "what": "loss"}}
    assert report_lines(health) == [
        ("ended", "Attempt 1 ended: Killed."),
        (
            "resumed",
            "Attempt 2 continued from 1/checkpoint-6 at step 6. Steps trained again: 3."
            " Damaged and set aside: 1/checkpoint-8. Verified: manifest, position in the data: step 6.",
        ),
        (
            "skipped",
            "Skipped updates: 2, the last one at step 9 because the loss was not finite. Skipped updates do not change"
            " the weights.",
        ),
    ]
    assert report_lines({"resumed": {"attempt": 1, "source": "", "step": 0}}) == [
        ("resumed", "Attempt 1 began at step 0: there was no intact checkpoint.")
    ]
    assert report_lines({}) == []


@pytest.mark.django_db
def test_a_frame_says_why_a_run_paused_and_what_it_waits_for(make_run: Any) -> None:
    """On a page in Chinese the script showed the library's sentence in English, until the page was loaded again."""
    told = {"template": "The checkpoint {path} is damaged.", "values": {"path": "1/c"}}
    error = {"code": "environment_unreachable", "boundary": "environment", "message": "refused", "hint": ""}
    held = {"step": 3, "tries": 1, "part": "maths", "error": error, "next_try_at": "", "until": ""}
    run = aged(
        make_run(state="running", held=held, error={"code": "odd", "message": "x", "hint": "Look.", "told": told})
    )
    found = in_shape(answers.FrameRun, run)
    assert found["failure"] == {
        "code": "odd",
        "boundary": "",
        "title": "The checkpoint 1/c is damaged.",
        "hint": "Look.",
        "detail": "",
    }
    assert found["waits_for"] == "maths: No connection to the environment."
    with translation.override("zh-hans"):
        assert in_shape(answers.FrameRun, run)["waits_for"] == "maths: 无法连接到环境。"
    quiet = in_shape(answers.FrameRun, aged(make_run(name="quiet")))
    assert (quiet["failure"], quiet["waits_for"], quiet["reports"]) == (None, "", [])


def test_a_frame_says_why_a_rollout_was_left_out() -> None:
    shape = answers.FrameRollout.model_construct
    error = {"code": "environment_timeout", "boundary": "environment", "message": "No answer in 30 s.", "hint": ""}
    assert shape(error=None).failure is None
    with translation.override("zh-hans"):
        found = shape(error=error).failure
    assert found is not None and found["title"] == "等待环境应答超时。" and found["detail"] == "No answer in 30 s."
