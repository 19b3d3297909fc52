"""The group view: advantages split by component, flags, transcripts side by side, the task over all steps."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from tests.growth import assert_quick
from tests.webapp.reading.conftest import ANSWERED, ASKED, CALLED, SAID, TALK
from webapp.people.teams.models import User
from webapp.reading.groups import Group, beside, chosen_of, group_of, group_rollouts, spark_of, stack_of
from webapp.reading.selectors import neighbours_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import RolloutGroup, Turn

Make = Callable[..., Any]
WRONG = {"role": "assistant", "content": "It is 46."}


def filled(play: Make, run: Run, rows: list[tuple[float | None, float, float]], **fields: Any) -> Group:
    """A group of success, form and recorded advantage; success ``None`` was excluded."""
    for index, (success, form, advantage) in enumerate(rows):
        if success is None:
            play(run, 2, 5, index, status="excluded", **fields)
            continue
        parts = {"task_success": success, "tool_necessity": form}
        reward = 0.6 * success + 0.4 * form
        play(run, 2, 5, index, parts=parts, reward=reward, advantage=advantage, success=success, talk=TALK, **fields)
    return group_of(run, group_rollouts(run, 2, 5))


def test_bars_add_up_to_the_recorded_advantages(trained: Make, play: Make) -> None:
    # rewards 0.8, 0.2, 0.4: mean 7/15, squares (1/3)² + (4/15)² + (1/15)² over 2 → spread
    spread = math.sqrt(((1 / 3) ** 2 + (4 / 15) ** 2 + (1 / 15) ** 2) / 2) + 1e-4
    recorded = [(1 / 3) / spread, (-4 / 15) / spread, (-1 / 15) / spread]
    rows = [(1.0, 0.5, recorded[0]), (0.0, 0.5, recorded[1]), (None, 0.0, 0.0), (0.0, 1.0, recorded[2])]
    group = filled(play, trained(), rows)
    first, second, excluded, third = group.members
    assert [bar.name for bar in first.bars] == ["task_success", "tool_necessity"] and excluded.bars == []
    assert [bar.value for bar in first.bars] == pytest.approx([0.4 / spread, (0.2 - 4 / 15) / spread])
    assert [bar.value for bar in third.bars] == pytest.approx([-0.2 / spread, (0.4 - 4 / 15) / spread])
    assert [first.total, second.total, third.total] == pytest.approx(recorded) and group.why == ""
    assert [flag.name for flag in group.flags] == ["excluded"]


def test_components_that_are_equal_in_the_whole_group_are_counted_and_not_listed(
    trained: Make, play: Make, rita: User, client_for: Make
) -> None:
    run = trained()
    filled(play, run, [(1.0, 0.5, 0.7), (0.0, 0.5, -0.7)])
    text = re.sub(r"\s+", " ", client_for(rita).get(f"/p/joust/runs/{run.pk}/groups/2/5/").content.decode())
    assert re.findall(r'<span class="share">([^<]+)</span>', text) == ["Task success +0.707", "Task success −0.707"]
    assert text.count("1 other: 0") == 2
    other = trained(name="b")
    filled(play, other, [(1.0, 0.0, 0.7), (0.0, 1.0, -0.7)])
    text = client_for(rita).get(f"/p/joust/runs/{other.pk}/groups/2/5/").content.decode()
    assert text.count('<span class="share">') == 4 and "other: 0" not in text


def test_groups_without_spread_and_phantom_ones_say_why(trained: Make, play: Make) -> None:
    flat = filled(play, trained(), [(1.0, 0.5, 0.0), (1.0, 0.5, 0.0)])
    assert [flag.name for flag in flat.flags] == ["flat"] and "All 2 rewards are 0.800" in flat.flags[0].text
    failed = filled(play, trained(name="b"), [(0.0, 0.5, -1.0), (0.0, 1.0, 1.0)])
    assert [flag.name for flag in failed.flags] == ["phantom"] and failed.flags[0].text.startswith("No rollout solved")
    solved = filled(play, trained(name="c"), [(1.0, 0.5, -1.0), (1.0, 1.0, 1.0)])
    assert solved.flags[0].text.startswith("All rollouts solved the task")
    assert "equally far" in filled(play, trained(name="d"), [(0.5, 0.5, 0.0), (0.5, 1.0, 0.0)]).flags[0].text
    assert filled(play, trained(name="e"), [(1.0, 0.5, 0.7), (0.0, 0.5, -0.7)]).flags == []


def test_what_cannot_be_split_says_so(trained: Make, play: Make) -> None:
    rows = [(1.0, 0.5, 0.7), (0.0, 0.5, -0.7)]
    ppo = filled(play, trained(kind="ppo", name="a"), [(*row[:2], None) for row in rows])
    assert "PPO gives each token" in ppo.why and all(not member.bars for member in ppo.members)
    sample = filled(play, trained(kind="sample", name="b"), [(*row[:2], None) for row in rows])
    assert "Nothing was learned" in sample.why
    left = filled(play, trained(name="c", rewards={"signal": "outcome"}), [(1.0, 0.5, 0.0), (1.0, 1.0, 0.0)])
    assert "did not learn from this group" in left.why
    foreign = trained(name="f", components=[])
    Run.objects.filter(pk=foreign.pk).update(imported_from="verl")
    foreign.refresh_from_db()
    assert "does not say which components" in filled(play, foreign, rows).why
    flying = trained(name="g")
    assert group_of(flying, [play(flying, status="running")]).why == "The group is still in flight."
    odd = filled(play, trained(name="d"), [(1.0, 0.5, 9.0), (0.0, 0.5, -9.0)])
    assert "computed them in another way" in odd.why and odd.members[0].bars


def test_advantages_of_a_whole_step_are_split_by_it(trained: Make, play: Make) -> None:
    run = trained(grpo={"scale_rewards": "batch"})
    for index, reward in enumerate((0.0, 0.6)):
        parts = {"task_success": reward / 0.6, "tool_necessity": 0.0}
        play(run, 2, 4, index, parts=parts, reward=reward, success=reward / 0.6)
    play(run, 2, 4, 2, status="excluded", parts={}, reward=None)
    group = filled(play, run, [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0)])
    # rewards of the step 0, 0.6, 0.6, 1.0: mean 0.55, squares 0.3025 + 2 · 0.0025 + 0.2025 over 3
    spread = math.sqrt(0.51 / 3) + 1e-4
    assert [bar.value for bar in group.members[0].bars] == pytest.approx([0.0, -0.2 / spread])
    both = trained(name="b", rewards={"aggregation": "normalize_then_sum"})
    split = filled(play, both, [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)])
    # normalised terms are ±h, so sums are ±0.2h and their spread 0.2h·√2: shares 0.6/(0.2√2) and -0.4/(0.2√2)
    assert [bar.value for bar in split.members[0].bars] == pytest.approx(
        [3 / math.sqrt(2), -2 / math.sqrt(2)], rel=2e-3
    )


def test_the_newest_attempt_of_a_group_is_shown(trained: Make, play: Make) -> None:
    run = trained()
    play(run, 1, 0, 0, attempt=1)
    newer = play(run, 1, 0, 0, attempt=2)
    play(run, 1, 0, 0, attempt=2, held_out=True)
    assert group_rollouts(run, 1, 0) == [newer]
    assert group_rollouts(run, 1, 9) == []


def test_best_and_worst_are_shown_together_and_the_first_difference_is_marked(
    trained: Make, play: Make, rita: User, client_for: Make
) -> None:
    run = trained()
    talks = [(ASKED, CALLED, ANSWERED, WRONG), (ASKED, CALLED, ANSWERED, SAID), (ASKED, WRONG), (ASKED, SAID)]
    for index, (talk, reward) in enumerate(zip(talks, (0.4, 0.9, 0.1, None), strict=True)):
        play(run, 2, 5, index, talk=talk, reward=reward, success=float(reward == 0.9), row=3)
    members = group_of(run, group_rollouts(run, 2, 5)).members
    assert [item.rollout.index for item in chosen_of(members, [])] == [1, 2]
    shown = chosen_of(members, ["0", "1", "x", "77"])
    assert [item.rollout.index for item in shown] == [0, 1]
    found = beside(shown, 0)
    assert [(row.number, row.same, row.first) for row in found.rows] == [
        (0, True, False),
        (1, True, False),
        (2, True, False),
        (3, False, True),
    ]
    assert found.differs == 3 and found.after is None
    assert beside([members[1]], 0).differs is None
    client = client_for(rita)
    answer = client.get(f"/p/joust/runs/{run.pk}/groups/2/5/?show=0&show=1")
    text = answer.content.decode()
    assert text.count('id="first-difference"') == 1
    assert text.index("What is 9 * 5?") < text.index('id="first-difference"') < text.index("It is 46.")
    assert text.count('class="side-head"') == 2 and "Why did this one win?" in text
    assert len(re.findall(r"<tr[^>]*data-shown", text)) == 2
    page_url = f"/p/joust/rollouts/{members[1].rollout.pk}/"
    assert page_url in text and f"/p/joust/runs/{run.pk}/groups/2/5/" in client.get(page_url).content.decode()


def test_of_equal_rewards_two_different_rollouts_are_shown(trained: Make, play: Make) -> None:
    run = trained()
    for index in range(3):
        play(run, 2, 5, index, talk=TALK, reward=0.5, success=0.0)
    members = group_of(run, group_rollouts(run, 2, 5)).members
    assert [item.rollout.index for item in chosen_of(members, [])] == [0, 1]


def test_broken_calls_are_side_by_side_as_they_were_written(trained: Make, play: Make) -> None:
    run = trained()
    for index in range(2):
        rollout = play(run, 1, 0, index, talk=[ASKED, CALLED], reward=float(index))
        Turn.objects.filter(rollout=rollout, number=1).update(wrote=f"<tool_call>{index}")
    found = beside(group_of(run, group_rollouts(run, 1, 0)).members, 0)
    assert found.differs == 1, "what could be read of them is the same"
    assert [messages[0].text for messages in found.rows[1].messages] == ["<tool_call>0", "<tool_call>1"]
    assert not any(messages[0].calls for messages in found.rows[1].messages), "the text says them already"


def test_long_transcripts_are_side_by_side_in_parts(trained: Make, play: Make) -> None:
    run = trained()
    for index in range(2):
        play(run, 1, 0, index, talk=[ASKED, *([CALLED, ANSWERED] * 40), SAID if index else WRONG], reward=float(index))
    members = group_of(run, group_rollouts(run, 1, 0)).members
    found = beside(members, 0)
    assert (len(found.rows), found.before, found.after, found.differs) == (24, None, 24, 81)
    last = beside(members, 72)
    assert (last.before, last.after) == (48, None) and [row.first for row in last.rows][-1]


def test_the_task_over_all_steps_says_when_it_was_solved_and_forgotten(
    trained: Make, play: Make, rita: User, client_for: Make
) -> None:
    run = trained()
    for step, solved in ((1, 0), (3, 2), (5, 2), (8, 1)):
        for index in range(2):
            play(run, step, step % 3, index, row=3, success=float(index < solved), reward=0.0)
    play(run, 9, 0, 0, row=2, success=1.0)
    text = client_for(rita).get(f"/p/joust/runs/{run.pk}/groups/5/2/").content.decode()
    assert "First solved by more than half of its rollouts at step 3." in text
    assert "More than half last solved it at step 5, and not since." in text
    assert "2 of 2 solved" in text and "1 of 2 solved" in text and "0 of 2 solved" in text
    for step in (1, 3, 8):
        assert f"/groups/{step}/{step % 3}/" in text
    assert "/groups/9/" not in text


def test_a_group_leads_to_those_next_to_it_in_its_step(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    run = trained()
    for group in (0, 2, 5, 9):
        play(run, 3, group)
    play(run, 3, 4, attempt=0)  # of a lost attempt
    play(run, 3, 6, held_out=True)
    play(run, 4, 3)
    places = {}
    for group in (0, 2, 5, 9):
        page = client_for(rita).get(reverse("run-group", args=[run.project.slug, run.pk, 3, group]))
        places[group] = (page.context["before"], page.context["after"])
    assert places == {0: (None, 2), 2: (0, 5), 5: (2, 9), 9: (5, None)}
    first, last = (neighbours_of(found, [found]) for found in run.rollouts.filter(group__in=(2, 9)).order_by("group"))
    assert (first.step_before.group, first.step_after.group) == (0, 5)
    assert (last.step_before.group, last.step_after) == (5, None)


def test_who_may_read_a_group(trained: Make, play: Make, rita: User, charlie: User, client_for: Make) -> None:
    run = trained()
    play(run, 1, 0, 0, parts={"task_success": 1.0}, reward=0.6, advantage=0.5, success=1.0)
    play(run, 1, 0, 1, parts={"task_success": 0.0}, reward=0.0, advantage=-0.5, success=0.0)
    RolloutGroup.objects.create(
        run=run, attempt=1, step=1, group=0, reward_mean=0.3, reward_std=0.4, zero_variance=False, seq=1
    )
    address, api = f"/p/joust/runs/{run.pk}/groups/1/0/", f"/api/v1/runs/{run.pk}/steps/1/groups/0"
    assert client_for(rita).get(address).status_code == 200
    assert client_for(charlie).get(address).status_code == client_for(charlie).get(api).status_code == 404
    assert client_for(None).get(address).status_code == 302 and client_for(None).get(api).status_code == 401
    assert client_for(rita).post(address).status_code == client_for(rita).post(api).status_code == 405
    for wrong in ("9/0", "1/9", f"{2**40}/0"):
        assert client_for(rita).get(f"/p/joust/runs/{run.pk}/groups/{wrong}/").status_code == 404
    found = client_for(rita).get(api).json()
    assert (found["reward_mean"], found["reward_std"], found["flags"]) == (0.3, 0.4, [])
    assert [item["outcome"] for item in found["rollouts"]] == ["solved", "failed"]
    spread = 0.6 / math.sqrt(2) + 1e-4
    assert found["rollouts"][0]["shares"] == pytest.approx({"task_success": 0.3 / spread})
    assert client_for(rita).get(f"/api/v1/runs/{run.pk}/steps/1/groups/7").status_code == 404


def test_a_large_group_answers_at_once(trained: Make, play: Make, rita: User, client_for: Make) -> None:
    run = trained()
    for index in range(64):
        solved = float(index % 2)
        parts = {"task_success": solved, "tool_necessity": index / 64}
        reward = 0.6 * solved + 0.4 * index / 64
        talk = [ASKED, *([CALLED, ANSWERED] * 8), SAID]
        play(run, 1, 0, index, talk=talk, parts=parts, reward=reward, advantage=0.1, success=solved)
    client = client_for(rita)
    address = f"/p/joust/runs/{run.pk}/groups/1/0/?show=1&show=2&show=3&show=4"
    client.get(address)
    assert client.get(address).status_code == 200
    assert_quick(lambda: client.get(address), 0.3, clock=time.process_time)


def test_drawings() -> None:
    stack = stack_of([(0, 1.0), (1, -0.5), (2, 0.5)], 2.0)
    assert [(piece.x, piece.width) for piece in stack.pieces] == [(100, 50), (75, 25), (150, 25)]
    assert (stack.middle, stack.total) == (100, 150)
    spark = spark_of([0.0, None, 1.0], 2)
    assert spark is not None and spark.points == "0.0,33.0 240.0,3.0" and spark.here == (240.0, 3.0)
    assert spark_of([0.5, None], 0) is None
