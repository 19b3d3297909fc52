"""The socket of a rewound rollout: who may play, where the episode is, what is checked, how a branch is scored."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.environments.playground.conftest import sessions
from tests.webapp.live.conftest import in_db
from tests.webapp.reading.rewinding.conftest import Tab, keep_no_episodes
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import Membership
from webapp.reading.rewinding.models import Branch
from webapp.rewards.models import RewardCase
from webapp.runs.rollouts.models import Turn

pytestmark = pytest.mark.django_db(transaction=True)
Make = Callable[..., Any]


async def test_an_editor_continues_from_a_turn_and_is_scored_as_the_run_scores(
    played: Make, environment: Environment, bob: Any, sit: Make
) -> None:
    rollout = await in_db(played)()
    tab = await sit(rollout, bob)
    opened = await tab.rewind(3)
    assert opened["type"] == "opened" and opened["turn"] == 3 and opened["prompt"] == 1
    check = opened["check"]
    assert (check["turns"], check["checked"], check["over"], check["difference"]) == (2, True, False, None)
    assert [m["role"] for m in opened["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert opened["messages"][2]["content"] == "16" and opened["state"]["open"] and opened["state"]["turns"] == 2
    assert await asyncio.to_thread(sessions, environment.url) == 1
    answer = await tab.step("", ("calculator", {"expression": "4 * 5"}))
    assert answer["messages"][0]["content"] == "20" and answer["said"]["tool_calls"][0]["id"] == "call_2_0"
    over = await tab.step("It is 20.")
    assert over["state"]["done"] and over["state"]["reward"] == 1.0
    scored = await tab.frame()
    assert scored["type"] == "scored" and scored["parts"]["task_success"] == 1.0 and scored["missing"] == {}
    assert scored["reward"] == pytest.approx(0.6 + 0.4 * scored["parts"]["tool_necessity"])
    assert await asyncio.to_thread(sessions, environment.url) == 0


async def test_a_branch_that_is_ended_is_scored_as_one_that_was_cut_off(played: Make, bob: Any, sit: Make) -> None:
    tab = await sit(await in_db(played)(), bob)
    await tab.rewind(1)
    assert (await tab.step("", ("calculator", {"expression": "1 + 1"})))["state"]["reward"] is None
    ended = await tab.ask(type="close")
    assert ended["type"] == "ended" and not ended["state"]["open"]
    assert ended["state"]["reward"] == 0.0 and not ended["state"]["done"]  # its verdict was asked for
    scored = await tab.frame()
    assert scored["parts"]["task_success"] == 0.0 and scored["missing"] == {}
    assert scored["reward"] == pytest.approx(0.4 * scored["parts"]["tool_necessity"])
    await tab.rewind(1)
    assert (await tab.ask(type="close"))["type"] == "ended"
    assert (await tab.ask(type="ping"))["type"] == "pong"  # nothing was played, so nothing is scored


async def test_an_answer_that_differs_is_shown_with_the_recorded_one(played: Make, bob: Any, sit: Make) -> None:
    rollout = await in_db(played)()

    def change() -> None:
        turn = Turn.objects.get(rollout=rollout, number=2)
        turn.messages[0]["content"] = "17"
        turn.save()

    await in_db(change)()
    tab = await sit(rollout, bob)
    opened = await tab.rewind(3)
    assert opened["check"]["difference"] == {"turn": 1, "what": "messages", "recorded": "17", "now": "16"}
    assert opened["check"]["differing"] == [1]
    assert opened["messages"][2]["content"] == "16" and opened["state"]["open"]  # what the server says is what counts


async def test_a_server_that_keeps_no_episode_is_not_asked_again(
    played: Make, tasks: Dataset, bob: Any, sit: Make
) -> None:
    rollout = await in_db(played)()
    await in_db(keep_no_episodes)(tasks)
    tab = await sit(rollout, bob)
    check = (await tab.rewind(3))["check"]
    assert (check["turns"], check["checked"], check["difference"]) == (2, False, None)
    await tab.step("It is 20.")
    await tab.ask(type="close")
    await tab.frame()
    assert not (await in_db(Branch.objects.get)()).same, "no one knows what it would have answered"


async def test_another_turn_is_another_episode_and_an_unknown_one_is_refused(
    played: Make, environment: Environment, bob: Any, sit: Make
) -> None:
    tab = await sit(await in_db(played)(), bob)
    first, second = await tab.rewind(4), await tab.rewind(1)
    assert first["state"]["episode"] != second["state"]["episode"] and len(second["messages"]) == 1
    problem = await tab.rewind(5)
    assert problem["type"] == "problem" and "turns 1 to 4" in problem["title"] and problem["of"] == "rewind"
    assert problem["state"]["open"] and await asyncio.to_thread(sessions, environment.url) == 1


async def test_what_was_played_is_kept_and_says_where_it_comes_from(
    played: Make, bob: Any, sit: Make, project: Any
) -> None:
    rollout = await in_db(played)()
    tab = await sit(rollout, bob)
    await tab.rewind(3)
    refused = await tab.ask(type="save_row", dataset="by hand")
    assert refused["type"] == "problem"  # the recorded turns alone are no person's demonstration
    await tab.step("It is 20.")
    await tab.frame()
    saved = await tab.ask(type="save_row", dataset="by hand")
    assert saved["type"] == "saved" and saved["kind"] == "row"
    made = await in_db(lambda: Dataset.objects.get(name="by hand"))()
    row = json.loads(made.upload_path.read_text())
    assert [message["role"] for message in row["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert row["provenance"]["rollout"] == str(rollout.pk) and row["provenance"]["turn"] == 3
    assert row["provenance"]["task"] == "dataset:products@1#5"
    case = await tab.ask(type="save_case", name="kept", expected={}, total=[0, 1])
    assert case["type"] == "saved"
    assert (await in_db(lambda: RewardCase.objects.get(name="kept"))()).prompt_length == 1


async def test_viewers_strangers_and_visitors_do_not_rewind(
    played: Make, rita: Any, charlie: Any, alice: Any, sit: Make
) -> None:
    rollout = await in_db(played)()
    assert await Tab(rollout.pk, rita).connect() == (False, 4403)
    assert await Tab(rollout.pk, charlie).connect() == (False, 4404)
    assert await Tab(rollout.pk, None).connect() == (False, 4401)
    assert await Tab(uuid.uuid4(), alice).connect() == (False, 4404)
    assert await Tab("nonsense", alice).connect() == (False, 4404)
    await sit(rollout, alice)


async def test_a_rollout_whose_environment_is_gone_is_not_there(played: Make, alice: Any) -> None:
    rollout = await in_db(played)()
    await in_db(lambda: Environment.objects.all().delete())()
    assert await Tab(rollout.pk, alice).connect() == (False, 4404)


async def test_a_role_that_was_taken_away_ends_the_play(played: Make, bob: Any, sit: Make) -> None:
    tab = await sit(await in_db(played)(), bob)
    await tab.rewind(1)
    await in_db(lambda: Membership.objects.filter(user=bob).update(role="viewer"))()
    await tab.send_to(text_data='{"type":"rewind","turn":1}')
    assert await tab.closed() == 4403


@pytest.mark.parametrize(
    "frame",
    [
        '{"type":"rewind"}',
        '{"type":"rewind","turn":0}',
        '{"type":"rewind","turn":"1"}',
        '{"type":"reset","seed":1}',
        "[]",
    ],
)
async def test_what_is_no_command_closes_the_socket(frame: str, played: Make, bob: Any, sit: Make) -> None:
    tab = await sit(await in_db(played)(), bob)
    await tab.send_to(text_data=frame)
    assert await tab.closed() == 4400
