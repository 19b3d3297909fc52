"""The page of one rollout and its parts: turns in pages, the row behind it, the words that earned its reward."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.growth import assert_quick
from tests.markup import dense
from tests.webapp.reading.conftest import ANSWERED, ASKED, CALLED, SAID, TALK
from training.rollout.rewinding import mix_seed
from webapp.people.teams.models import Project, User
from webapp.reading import selectors, turns
from webapp.reading.case_form import CaseForm
from webapp.reading.parts import config_for, parts_of, spec_of
from webapp.reading.tags import MAX_DEPTH, tree
from webapp.reading.turns import PAGE_TURNS, TEXT_CHARS, turn_page
from webapp.rewards.models import RewardCase
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

Make = Callable[..., Any]
PARTS = {"task_success": 1.0, "tool_necessity": 0.5}


@pytest.fixture
def rollout(trained: Make, play: Make) -> Rollout:
    """The third of its group, solved: reward 0.6 · 1 + 0.4 · 0.5."""
    run = trained()
    for index in (0, 1, 3):
        play(run, 3, 1, index, success=0.0, reward=0.1)
    play(run, 3, 2, 0, success=1.0)
    return play(run, 3, 1, 2, talk=TALK, row=4, parts=PARTS, reward=0.8, advantage=1.25, success=1.0, policy_step=2)


def page(client: Client, rollout: Rollout, query: str = "", tail: str = "") -> str:
    answer = client.get(f"/p/joust/rollouts/{rollout.pk}/{tail}{query}")
    assert answer.status_code == 200
    return dense(answer.content.decode())


def test_a_turn_says_what_it_was_paid_and_credited_with(
    trained: Make, play: Make, rita: User, client_for: Make, project: Project
) -> None:
    run, talk = trained(), (ASKED, CALLED, ANSWERED, SAID)
    paid = play(run, talk=talk, turn_rewards=[None, 0.25, 0.75], turn_advantages=[1.5, -0.3125])
    text = " ".join(page(client_for(rita), paid).split())
    assert [found.strip() for found in re.findall("data-paid>([^<]*)<", text)] == [
        "reward so far 0.250",
        "reward so far 0.750",
    ]
    credited = [found.strip() for found in re.findall("data-turn-advantage>([^<]*)<", text)]
    assert credited == ["advantage +1.50", "advantage −0.312"]
    assert text.count("reward so far") == 2  # the prompt and the environment's answer have none
    silent = play(run, 1, 0, 1, talk=talk, turn_rewards=[0.5, None, 0.75])
    assert page(client_for(rita), silent).count("data-paid") == 1
    assert [(turn.ordinal, turn.paid) for turn in turn_page(silent, 2).turns] == [(0, None), (2, 0.75)]
    assert "data-paid" not in page(client_for(rita), play(run, 1, 0, 2, talk=talk))
    found = client_for(rita).get(f"/api/v1/rollouts/{paid.pk}").json()
    assert (found["turn_rewards"], found["turn_advantages"]) == ([None, 0.25, 0.75], [1.5, -0.3125])


def test_the_page_says_outcome_parts_row_seed_and_neighbours(
    rollout: Rollout, rita: User, client_for: Make, project: Project
) -> None:
    text = page(client_for(rita), rollout)
    assert '<span class="badge" data-state="solved">solved</span>' in text and "completed" not in text
    for shown in ("× 0.600", "× 0.400", "0.200", "0.800", "1.25", "after step 2"):
        assert shown in text, shown
    assert "Row 5 of products@1" in text and "/rows/5/" in text
    assert "answer" in text and "20" in text and "calculator" in text
    assert str(mix_seed(7, 3, 1) % 2**31) in text and str(mix_seed(7, 3, 1, 2)) in text
    others = {(item.group, item.index): item for item in Rollout.objects.all()}
    for key, place in {
        "group-before": (1, 1),
        "group-after": (1, 3),
        "step-before": (1, 1),
        "step-after": (1, 3),
    }.items():
        assert f'data-key="{key}"' in text
        assert f"/p/joust/rollouts/{others[place].pk}/" in text
    last = page(client_for(rita), others[1, 3])
    assert 'data-key="group-after"' not in last and f"/p/joust/rollouts/{others[2, 0].pk}/" in last
    assert "Save as a reward test case" not in text  # rita reads


def test_a_turn_says_why_it_could_not_be_read_as_a_call(rollout: Rollout, rita: User, client_for: Make) -> None:
    assert "data-parse-error" not in page(client_for(rita), rollout)
    Turn.objects.filter(rollout=rollout, number=1).update(parse_error="It is no <b>JSON</b>.")
    text = page(client_for(rita), rollout)
    assert text.count("data-parse-error") == 1 and "It is no &lt;b&gt;JSON&lt;/b&gt;." in text
    turns = client_for(rita).get(f"/api/v1/rollouts/{rollout.pk}/turns").json()["items"]
    assert [turn["parse_error"] for turn in turns] == [None, "It is no <b>JSON</b>.", None, None]


def test_a_call_that_could_not_be_read_is_shown_as_it_was_written(
    rollout: Rollout, rita: User, client_for: Make
) -> None:
    """The turn was once “(empty)”, and only its tokens had the text."""
    empty = [{"role": "assistant", "content": ""}]
    Turn.objects.filter(rollout=rollout, number=1).update(messages=empty, parse_error="no JSON", wrote="")
    assert "(empty)" in page(client_for(rita), rollout)
    wrote = '<tool_call>{"name": "calculator", </tool_call>'
    Turn.objects.filter(rollout=rollout, number=1).update(wrote=wrote)
    for query in ("", "?view=raw"):
        text = page(client_for(rita), rollout, query)
        assert "data-wrote>&lt;tool_call&gt;{&quot;name&quot;: &quot;calculator&quot;, &lt;/tool_call&gt;" in text
        assert "(empty)" not in text and text.count("data-wrote") == 1
    turns = client_for(rita).get(f"/api/v1/rollouts/{rollout.pk}/turns").json()["items"]
    assert [turn["wrote"] for turn in turns] == [None, wrote, None, None]
    Turn.objects.filter(rollout=rollout, number=1).update(wrote="x" * (TEXT_CHARS + 7))
    assert "x … (+7)" in page(client_for(rita), rollout)


def test_what_is_no_part_of_the_answer_is_shown_as_what_it_is(rollout: Rollout, rita: User, client_for: Make) -> None:
    message = {
        "role": "assistant",
        "content": "",
        "reasoning": "two <b>and</b> three",
        "refusal": "No.",
        "finish": "length",
    }
    turn = Turn.objects.filter(rollout=rollout, number=1)
    turn.update(messages=[message])
    text = page(client_for(rita), rollout)
    assert "two &lt;b&gt;and&lt;/b&gt; three" in text and text.index("data-reasoning") < text.index("data-refusal")
    assert text.count("data-finish") == 1 and "cut off at the limit of tokens" in text and "(empty)" not in text
    turn.update(messages=[message | {"refusal": None, "finish": "content_filter"}])
    text = page(client_for(rita), rollout)
    assert "(empty)" in text and "content filter" in text and "data-refusal" not in text
    turn.update(messages=[message | {"reasoning": "x" * (TEXT_CHARS + 7)}])
    assert "7 more characters" in page(client_for(rita), rollout)


def test_the_seconds_of_model_and_environment_are_shown_separately(
    rollout: Rollout, rita: User, client_for: Make
) -> None:
    for number, seconds in enumerate((0.5, 2.0, 1.5, 3.0)):
        Turn.objects.filter(rollout=rollout, number=number).update(seconds=seconds)
    Rollout.objects.filter(pk=rollout.pk).update(seconds=8.0)
    text = page(client_for(rita), rollout)
    facts = text[text.index("How it was made") :]
    order = [facts.index(label) for label in ("Model", "5 s", "Environment", "2 s", "Waiting", "1 s")]
    assert order == sorted(order)


def test_a_result_that_is_json_is_a_tree_and_raw_is_as_recorded(
    trained: Make, play: Make, rita: User, client_for: Make
) -> None:
    result = {**ANSWERED, "content": '{"rows": [{"city": "<b>Oslo"}], "n": 1}'}
    rollout = play(trained(), talk=(ASKED, CALLED, result, SAID))
    text = page(client_for(rita), rollout)
    assert "<dt>rows</dt>" in text and "&lt;b&gt;Oslo" in text and "<b>Oslo" not in text
    assert "<dt>expression</dt>" in text and "9 * 5" in text
    raw = page(client_for(rita), rollout, "?view=raw")
    assert "&quot;tool_call_id&quot;: &quot;0&quot;" in raw and "<dt>rows</dt>" not in raw
    assert '"words": true' in text and '"words": false' in raw


def test_turns_come_in_pages_with_their_numbers(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    talk = [ASKED, *([CALLED, ANSWERED] * 60), SAID]
    rollout = play(trained(), talk=talk)
    first = turn_page(rollout)
    assert [turn.number for turn in first.turns] == list(range(PAGE_TURNS))
    assert (first.before, first.after, first.last) == (None, 40, 121)
    second = turn_page(rollout, 41)
    assert second.turns[0].ordinal == 21 and second.turns[1].ordinal == 0  # turns 1, 3, …, 39 are 20 before it
    assert second.turns[0].messages[0].place == 41 and second.before == 1 and second.after == 81
    end = turn_page(rollout, 500)
    assert [turn.number for turn in end.turns] == [121] and end.after is None
    client = client_for(rita)
    text = page(client, rollout, "?first=41")
    assert "turn 21" in text and 'id="turn-41"' in text and 'id="turn-40"' not in text
    fragment = page(client, rollout, "?first=81", "turns/")
    assert 'id="turn-120"' in fragment and "<html" not in fragment and "first=121" in fragment
    assert page(client, rollout, "?first=-1%00") and page(client, rollout, "?first=99999999999999")


def test_turns_are_read_up_to_a_number_and_a_length(trained: Make, play: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained()
    rollout, silent = play(run, talk=TALK), play(run, index=1)

    def read(first: int, limit: int, of: Rollout = rollout) -> tuple[list[int], int | None, str]:
        found = turns.turn_rows(of, first, limit)
        return [turn.number for turn in found.turns], found.after, found.removed

    monkeypatch.setattr(turns, "removed_words", lambda _rollout: "removed by a rule")
    assert [read(0, 2), read(2, 2), read(3, 9)] == [([0, 1], 2, ""), ([2, 3], None, ""), ([3], None, "")]
    assert read(0, 9) == ([0, 1, 2, 3], None, "")
    assert (read(9, 2), read(0, 2, silent)) == (([], None, ""), ([], None, "removed by a rule"))
    monkeypatch.setattr(turns, "MAX_CHARS", 14)  # as long as the first one
    assert (read(0, 9), read(1, 9)) == (([0, 1], 2, ""), ([1, 2, 3], None, ""))
    monkeypatch.setattr(turns, "MAX_CHARS", 13)
    assert read(0, 9) == ([0], 1, ""), "one is always read"


def test_seeds_and_weights_are_those_of_the_step_or_of_the_evaluated_task(trained: Make, play: Make) -> None:
    """At step 3 a weight that falls from whole at step 1 to half at step 5 is at three quarters."""
    falls = {"kind": "linear", "begin": 1, "end": 5, "first": 1.0, "last": 0.5}
    parts = [{"name": "task_success", "weight": 0.8, "schedule": falls}]
    run, judged = trained(components=parts), trained(name="judged", kind="evaluate", components=parts)
    learned, apart, own = (
        play(where, 3, 1, 2, row=4, parts={"task_success": 1.0}, held_out=held_out)
        for where, held_out in ((run, False), (run, True), (judged, False))
    )

    def made(rollout: Rollout) -> tuple[Any, float | None]:
        config = config_for(rollout)
        return selectors.seeds_of(rollout, config), parts_of(rollout, spec_of(rollout.run, config))[0].counted

    by_step = (mix_seed(7, 3, 1) % 2**31, mix_seed(7, 3, 1, 2))
    by_task = (mix_seed(7, 4) % 2**31, mix_seed(7, 4, 2))
    assert made(learned) == (by_step, pytest.approx(0.6))
    assert made(apart) == made(own) == (by_task, pytest.approx(0.4))
    config = config_for(learned)
    learned.run.imported_from = "verl"
    assert selectors.seeds_of(learned, config) is None, "another trainer has another plan of seeds"
    own.row = None
    assert selectors.seeds_of(own, config_for(own)) is None


def test_a_branch_too_deep_for_the_tree_is_not_folded() -> None:
    value: Any = [{"at": "last"}]
    for _depth in range(MAX_DEPTH):
        value = {"in": value}
    drawn = tree(value)
    assert drawn.count("<details") == MAX_DEPTH - 1 and "[{&quot;at&quot;: &quot;last&quot;}]" in drawn


def test_a_range_that_cannot_be_read_is_one_error(trained: Make) -> None:
    form = CaseForm([], {"name": "odd", "low-0": "x", "high-0": "1"})
    assert not form.is_valid() and {name: len(found) for name, found in form.errors.items()} == {"low-0": 1}
    half = CaseForm([], {"name": "odd", "low-0": "", "high-0": "1"})
    assert not half.is_valid() and "neither" in str(half.errors["low-0"])


def test_long_texts_are_cut_and_shown_whole_when_asked(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    long = {**SAID, "content": "a" * TEXT_CHARS + "z" * 7}
    rollout = play(trained(), talk=[ASKED, long, {**ASKED, "content": "b" * TEXT_CHARS}])
    client = client_for(rita)
    text = page(client, rollout)
    assert "7 more characters" in text and "zzz" not in text
    whole = page(client, rollout, "?first=1&whole=1", "turns/")
    assert "zzzzzzz" in whole and 'id="turn-2"' not in whole and "turns-more" not in whole


def test_a_page_ends_once_its_texts_are_long(trained: Make, play: Make) -> None:
    rollout = play(trained(), talk=[{**SAID, "content": "a" * 19_000}] * 20)
    part = turn_page(rollout)
    assert len(part.turns) == 7 and part.after == 7  # 7 × 19,000 is the first sum beyond 120,000


MANY = """
    INSERT INTO rollouts_turn (rollout_id, run_id, number, messages, tokens, seconds, seq)
    SELECT %s, %s, n, CASE WHEN n %% 2 = 1 THEN %s::jsonb ELSE %s::jsonb END, 3, 0.1, 0 FROM generate_series(1, 30000) n
"""


def test_a_transcript_of_30_000_turns_opens_in_a_moment(
    trained: Make, play: Make, rita: User, client_for: Make
) -> None:
    rollout = play(trained(), talk=[ASKED], parts=PARTS)
    with connection.cursor() as cursor:
        cursor.execute(MANY, [rollout.pk, rollout.run_id, json.dumps([CALLED]), json.dumps([ANSWERED])])
    Rollout.objects.filter(pk=rollout.pk).update(turns=15_000)
    rollout.refresh_from_db()
    client = client_for(rita)
    page(client, rollout)
    text = page(client, rollout, "?first=29000")
    assert_quick(lambda: page(client, rollout, "?first=29000"), 0.5, clock=time.process_time)
    assert text.count('class="turn"') == PAGE_TURNS and len(text) < 150_000
    found = selectors.words_of(rollout, rita)
    assert {item.reason for item in found} == {"The transcript is too long to look for the words in it."}


def test_words_of_each_part_or_why_there_are_none(
    rollout: Rollout, rita: User, client_for: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = client_for(rita).get(f"/api/v1/rollouts/{rollout.pk}/words").json()["parts"]
    success, necessity = found
    assert (success["name"], success["value"], success["counted"]) == ("task_success", 1.0, 0.6)
    assert (necessity["name"], necessity["value"], necessity["counted"]) == ("tool_necessity", 0.5, 0.2)
    assert necessity["spans"] and all(span["turn"] == span["message"] for span in necessity["spans"])
    assert {span["message"] for span in necessity["spans"]} <= {0, 1, 2, 3}
    monkeypatch.setattr(selectors, "WORDS_LIMIT_S", 0.0)
    late = selectors.words_of(rollout, rita)
    assert {item.reason for item in late if item.part.name == "tool_necessity"} == {
        "Looking for the words took longer than 0 seconds."
    }


def test_a_judge_is_not_asked_again(trained: Make, play: Make, rita: User) -> None:
    run = trained(components=[{"name": "judge", "weight": 1.0, "params": {}}])
    rollout = play(run, talk=TALK, parts={"judge": 0.7, "gone": 0.2})
    judge, gone = selectors.words_of(rollout, rita)
    assert judge.reason == "A judge or a model gave this value; it is not asked again." and not judge.spans
    assert gone.reason == "The run's config does not have this component." and gone.part.weight is None


def test_the_time_of_a_rollout_is_shared_out_by_phase() -> None:
    phases = selectors.Phases(model=2.0, environment=5.0, other=3.0)
    assert phases.total == 10.0
    assert phases.shares == [("model", 20.0), ("environment", 50.0), ("other", 30.0)]
    assert selectors.Phases(0.0, 0.0, 0.0).shares == [("model", 0.0), ("environment", 0.0), ("other", 0.0)]


def test_terms_say_what_became_of_a_value(trained: Make, play: Make) -> None:
    run = trained(
        components=[
            {"name": "task_success", "weight": 0.6},
            {"name": "tool_necessity", "weight": 0.4, "gate": {"component": "task_success", "above": 0.0}},
            {"name": "result_use", "weight": 1.0, "clip": [0.0, 0.5], "scale": [0.0, 2.0]},
            {"name": "coherence", "weight": 1.0, "clip": [0.0, 0.5], "gate": {"component": "result_use", "above": 0.7}},
        ]
    )
    parts = {"task_success": 0.0, "tool_necessity": 1.0, "result_use": 0.8, "coherence": 0.9}
    rollout = play(run, parts=parts)
    _success, gated, scaled, opened = parts_of(rollout, spec_of(rollout, config_for(rollout)))
    assert (opened.term, opened.why) == (0.5, "counts as 0.500: clipped to 0.00 to 0.500")
    assert (gated.term, gated.counted) == (0.0, 0.0) and gated.why.startswith("Its gate is closed: task_success")
    assert (scaled.term, scaled.counted) == (0.25, 0.25) and "clipped to 0" in scaled.why and "0 to 1" in scaled.why


def test_terms_of_a_schedule_of_no_value_and_of_another_spec(trained: Make, play: Make) -> None:
    schedule = {"begin": 0, "end": 10, "first": 0.0, "last": 1.0}
    run = trained(
        components=[
            {"name": "task_success", "weight": 0.6},
            {"name": "tool_call", "weight": 0.4},
            {"name": "result_use", "weight": 0.5, "schedule": schedule},
        ]
    )
    rollout = play(run, 5, parts={"retired": 1.0, "result_use": 0.8, "tool_call": None, "task_success": 1.0})
    same, none, scheduled, other = parts_of(rollout, spec_of(rollout, config_for(rollout)))
    assert (same.name, same.term, same.counted, same.why) == ("task_success", 1.0, 0.6, "")
    assert (none.name, none.value, none.weight, none.counted) == ("tool_call", None, None, None)
    assert (scheduled.term, scheduled.counted) == (pytest.approx(0.4), pytest.approx(0.2))
    assert scheduled.why == "counts as 0.400: × 0.500 by its schedule"
    assert (other.name, other.curve, other.weight, other.why) == ("retired", None, None, "")


def test_the_api_returns_a_rollout_with_its_first_turns(
    rollout: Rollout, rita: User, charlie: User, client_for: Make
) -> None:
    client = client_for(rita)
    found = client.get(f"/api/v1/rollouts/{rollout.pk}").json()
    assert (found["outcome"], found["reward"], found["run"]) == ("solved", 0.8, str(rollout.run_id))
    assert found["task_row"]["number"] == 5
    assert found["task_row"]["expected"] == [
        {"field": "answer", "value": {"contains": ["20"], "tools": ["calculator"]}}
    ]
    assert [turn["messages"] for turn in found["transcript"]] == [[message] for message in TALK]
    assert found["after"] is None
    some = client.get(f"/api/v1/rollouts/{rollout.pk}/turns?first=1&limit=2").json()
    assert [turn["number"] for turn in some["items"]] == [1, 2] and some["after"] == 3
    assert client.get(f"/api/v1/rollouts/{rollout.pk}/turns?first=x").status_code == 422
    assert client_for(charlie).get(f"/api/v1/rollouts/{rollout.pk}/words").status_code == 404


def test_a_rollout_is_saved_as_a_test_case(
    rollout: Rollout, bob: User, rita: User, client_for: Make, project: Project
) -> None:
    address = reverse("rollout-case", args=[project.slug, rollout.pk])
    client = client_for(bob)
    text = page(client, rollout)
    assert 'name="low-0" value="0.8"' in text.replace("\n", " ") or 'value="0.8"' in text
    wrong = client.post(address, {"name": "kept", "low-1": "1"})
    assert wrong.status_code == 422 and "Enter both the lowest and the highest value" in wrong.content.decode()
    assert client.post(address, {"name": "kept"}).status_code == 422
    made = client.post(address, {"name": "kept", "low-0": "0.7", "high-0": "0.9", "low-2": "0", "high-2": "0.5"})
    assert made.status_code == 302
    case = RewardCase.objects.get()
    assert (case.total, case.expected) == ([0.7, 0.9], {"tool_necessity": [0.0, 0.5]})
    assert case.prompt_length == 1 and len(case.messages) == 4 and case.env_parts == {"task_success": 1.0}
    assert case.row["answer"] == {"contains": ["20"], "tools": ["calculator"]}
    assert client_for(rita).post(address, {"name": "x"}).status_code == 403
    body = json.dumps({"name": "by-api", "total": [0, 1]})
    api = f"/api/v1/rollouts/{rollout.pk}/case"
    assert client.post(api, body, content_type="application/json").status_code == 201
    assert client.post(api, body, content_type="application/json").status_code == 422
    assert client.get(api).status_code == 405


def test_the_page_takes_as_many_queries_however_long_the_group(
    rollout: Rollout, rita: User, client_for: Make, play: Make
) -> None:
    client = client_for(rita)
    page(client, rollout)
    with CaptureQueriesContext(connection) as few:
        page(client, rollout)
    for index in range(4, 20):
        play(Run.objects.get(), 3, 1, index)
    with CaptureQueriesContext(connection) as more:
        page(client, rollout)
    assert len(more) == len(few) <= 20


def test_a_row_of_a_dataset_has_a_page(rollout: Rollout, rita: User, charlie: User, client_for: Make) -> None:
    dataset = rollout.run.project.datasets.get()
    address = reverse("dataset-row", args=["joust", dataset.pk, 5])
    text = client_for(rita).get(address).content.decode()
    assert "What is 4 * 5?" in text and "contains" in text and "/rows/4/" in text and "/rows/6/" in text
    assert (
        "/rows/7/" not in client_for(rita).get(reverse("dataset-row", args=["joust", dataset.pk, 6])).content.decode()
    )
    for number in (0, 7):
        assert client_for(rita).get(reverse("dataset-row", args=["joust", dataset.pk, number])).status_code == 404
    assert client_for(charlie).get(address).status_code == 404
    assert client_for(rita).post(address).status_code == 405


def test_a_rollout_is_read_in_its_own_project_alone(
    rollout: Rollout, rita: User, charlie: User, client_for: Make
) -> None:
    """A stranger's own project is no way to it."""
    stranger = client_for(charlie)
    for slug in ("elsewhere", "joust"):
        for tail in ("", "turns/"):
            assert stranger.get(f"/p/{slug}/rollouts/{rollout.pk}/{tail}").status_code == 404
        assert stranger.post(f"/p/{slug}/rollouts/{rollout.pk}/case/", {"name": "x"}).status_code == 404
    assert client_for(None).get(f"/p/joust/rollouts/{rollout.pk}/").status_code == 302
    assert client_for(rita).post(f"/p/joust/rollouts/{rollout.pk}/").status_code == 405


FOUND = "?found=outcome%3Dfailed%26sort%3Dreward"


def test_a_rollout_that_was_found_leads_to_its_neighbours_in_the_view(
    rollout: Rollout, rita: User, client_for: Make
) -> None:
    client = client_for(rita)
    Rollout.objects.filter(step=3, group=1).exclude(pk=rollout.pk).update(outcome="failed")
    places = {(item.group, item.index): item for item in Rollout.objects.all()}
    for index, reward in ((0, 0.3), (1, 0.1), (3, 0.2)):
        Rollout.objects.filter(pk=places[1, index].pk).update(reward=reward)
    assert "found=" not in page(client, rollout)
    text = page(client, places[1, 3], FOUND)
    here = f"/p/joust/rollouts/{places[1, 3].pk}"
    listed = f"/p/joust/runs/{rollout.run_id}/rollouts/?outcome=failed&amp;sort=reward"
    assert f'hx-get="{here}/found/{FOUND}"' in text and f'href="{listed}"' in text
    assert "previous and next result" in text
    links = page(client, places[1, 3], FOUND, "found/")
    for key, index in (("found-before", 1), ("found-after", 0)):
        link = f'data-key="{key}"[^>]*href="/p/joust/rollouts/{places[1, index].pk}/{re.escape(FOUND)}"'
        assert re.search(link, re.sub(r"\s+", " ", links)), key
    last = page(client, places[1, 0], f"{FOUND}&view=tokens", "found/")
    assert 'data-key="found-after"' not in last and f"{FOUND}&amp;view=tokens" in last


def test_the_view_may_be_one_of_the_project(
    rollout: Rollout, rita: User, client_for: Make, trained: Make, play: Make
) -> None:
    run = trained(name="other")
    (twin,) = Rollout.objects.filter(run=rollout.run, group=2)
    Rollout.objects.filter(pk=twin.pk).update(run=run)
    asked = f"?found=sort%3D-step%26run%3D{rollout.run_id}%26run%3D{run.pk}&in=project"
    assert f"/p/joust/rollouts/?run={rollout.run_id}&amp;run={run.pk}" in page(client_for(rita), rollout, asked)
    listed = list(Rollout.objects.filter(step=3))
    stray = play(trained(name="not asked for"), 3, 1, 0)
    pages = [page(client_for(rita), item, asked, "found/") for item in listed]
    assert sum('data-key="found-before"' in text for text in pages) == len(pages) - 1
    assert not any(str(stray.pk) in text for text in pages)
    alone = page(client_for(rita), rollout, "?found=", "found/")
    assert f"/p/joust/runs/{rollout.run_id}/rollouts/?" in alone and str(twin.pk) not in alone


def test_who_may_ask_for_the_neighbours_of_what_was_found(
    rollout: Rollout, rita: User, bob: User, charlie: User, client_for: Make, client: Client
) -> None:
    address = f"/p/joust/rollouts/{rollout.pk}/found/"
    for user in (rita, bob):
        assert client_for(user).get(address + FOUND).status_code == 200
    assert client_for(charlie).get(address + FOUND).status_code == 404
    assert client.get(address + FOUND).status_code == 302
    assert client_for(bob).post(address + FOUND).status_code == 405
    assert client_for(bob).get(address).content == b"", "it was not found, but named"
    for odd in ("?found=sort%3Dx%26reward_from%3Dnan", "?found=%00%ff", "?found=" + "q" * 9000, "?found=&in=moon"):
        assert client_for(bob).get(address + odd).status_code == 200, odd
        assert client_for(bob).get(f"/p/joust/rollouts/{rollout.pk}/{odd}").status_code == 200, odd
