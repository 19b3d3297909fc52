"""What a rollout is found by: words of turns, tools, surprise; kept as it is played, and filled in for older rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from envs.wire import Message, ToolCall
from training import journal as run_events
from webapp.common.answers import in_shape
from webapp.engine.batch import Batch, rollout_id
from webapp.runs import answers
from webapp.runs.answers import CONTENT_MAX
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import Played, surprises
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.rollouts.words import (
    TEXT_MAX,
    TOKENS_MAX,
    index_batch,
    index_older,
    numbers_of,
    numbers_of_phrase,
    tokens_asked,
    tokens_in,
)

RUN, OTHER = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("What is 9 * 5?", "9 * 5", True),
        ("What is 9 * 52?", "9 * 5", False),
        ("5 and 9", "9 * 5", False),  # both words, but not side by side
        ("call get_weather now", "get_weather", True),
        ("call get_weather now", "weather", True),
        ("call getWeather now", "weather", True),
        ("call getWeather now", "getweather", True),
        ("the calculator said", "calc", True),
        ("the calculator said", "calculat", True),
        ("the calculator said", "calculus", False),
        ("the calculator said", "ulator", False),
        ("今天天气很好", "天气", True),
        ("今天天气很好", "天气很", True),
        ("今天的空气", "天气", False),
        ("A股上涨", "股上", True),
        ("Straße nach Köln", "köln", True),
        ("error42 in line 7", "error52", False),
        ('{"city": "北京"}', "北京", True),
    ],
)
def test_a_turn_has_the_numbers_of_the_phrases_in_it(text: str, phrase: str, found: bool) -> None:
    asked = numbers_of_phrase(RUN, phrase)
    assert asked and set(asked).issubset(numbers_of(RUN, [{"role": "user", "content": text}])) is found
    assert not set(asked).issubset(numbers_of(OTHER, [{"role": "user", "content": text}]))


@pytest.mark.parametrize("phrase", ["", " ", "?!", "天", "… 气 …"])
def test_a_phrase_without_a_word_has_none(phrase: str) -> None:
    assert numbers_of_phrase(RUN, phrase) == []


def test_systems_are_not_read_and_calls_are() -> None:
    call = {"name": "book_flight", "arguments": {"to": "Osaka"}}
    messages = [{"role": "system", "content": "secret"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    known = set(numbers_of(RUN, messages))
    assert known.isdisjoint(numbers_of_phrase(RUN, "secret"))
    assert known.issuperset(numbers_of_phrase(RUN, "book_flight") + numbers_of_phrase(RUN, "osaka"))


def test_a_turn_without_end_is_read_to_a_bound() -> None:
    many = " ".join(f"w{number:07}" for number in range(20_000))
    numbers = numbers_of(RUN, [{"role": "tool", "content": many}])
    assert len(numbers) == TOKENS_MAX and numbers == sorted(set(numbers))
    assert all(-(2**31) <= number < 2**31 for number in numbers)
    late = "x" * TEXT_MAX + " zebra"
    assert set(numbers_of_phrase(RUN, "zebra")).isdisjoint(numbers_of(RUN, [{"role": "tool", "content": late}]))


def test_tokens_are_beginnings_pairs_and_neighbours() -> None:
    assert tokens_in("Calculators") == {"calc", "calcul", "calculat"}
    assert tokens_in("a 12 b") == {"a", "12", "a 12", "b", "12 b"} == tokens_asked("a 12 b")
    assert tokens_in("天气好 ok 天") == {"天气", "气好", "ok", "天"} and tokens_asked("天气好 ok 天") == {
        "天气",
        "气好",
        "ok",
    }
    assert tokens_in("toString()") == {"tost", "tostri", "tostring", "stri", "string"}
    assert tokens_asked("toString()") == {"tostring"}


def test_surprise_is_the_share_of_the_group_that_is_alike() -> None:
    one_of_eight = [Played("solved", 1.0), *[Played("failed", 0.1)] * 7]
    assert surprises(one_of_eight) == [3.0, *[math.log2(8 / 7)] * 7]
    assert surprises([Played("failed", 0.25)] * 4) == [0.0] * 4
    assert surprises([Played("failed", 0.25), Played("solved", 0.25)]) == [1.0, 1.0]
    # The same outcome, but a reward far from the others: alone. Excluded ones are not counted.
    found = surprises([Played("failed", 0.0), Played("failed", 0.0), Played("failed", 0.9), None])
    assert found == [math.log2(3 / 2), math.log2(3 / 2), math.log2(3), None]
    assert surprises([Played("failed", math.nan), Played("failed", 1.0)]) == [None, 0.0]
    assert surprises([None, None]) == [None, None]


def events(name: str, index: int, text: str, success: float | None) -> list[run_events.Event]:
    call = ToolCall(id="c", name="calculator", arguments={"expression": "9 * 5"})
    return [
        run_events.RolloutStarted(rollout=name, step=1, group=0, index=index, task="?", t=1.0),
        run_events.TurnAdded(rollout=name, turn=0, messages=[Message(role="user", content="What is 9 * 5?")], t=1.0),
        run_events.TurnAdded(
            rollout=name, turn=1, messages=[Message(role="assistant", content=text, tool_calls=[call])], t=2.0
        ),
        run_events.TurnAdded(
            rollout=name, turn=2, messages=[Message(role="tool", content="45", name="calculator")], t=2.0
        ),
        run_events.TurnAdded(
            rollout=name, turn=3, messages=[Message(role="assistant", content="45", tool_calls=[call])], t=2.0
        ),
        run_events.RolloutFinished(
            rollout=name,
            status="excluded" if success is None else "completed",
            reward=success,
            env_parts={} if success is None else {"task_success": success},
            t=3.0,
        ),
    ]


def test_the_projection_keeps_what_a_rollout_is_found_by(make_run: Callable[..., Run]) -> None:
    run = make_run()
    batch = Batch(run, 1)
    for name, index, success in (("a", 0, 1.0), ("b", 1, 0.0), ("c", 2, 0.0), ("d", 3, None)):
        for event in events(name, index, "Let me see.", success):
            batch.add(event)
    batch.add(
        run_events.GroupScored(
            step=1, group=0, rollouts=["a", "b", "c", "d"], advantages=[1.4, -0.7, -0.7, None],
            reward_mean=1 / 3, reward_std=0.5, zero_variance=False, t=4.0,
        )
    )  # fmt: skip
    rows = [batch.rollouts[rollout_id(run.pk, 1, name)] for name in "abcd"]
    assert [row.surprise for row in rows] == [math.log2(3), math.log2(1.5), math.log2(1.5), None]
    assert (rows[0].tools, rows[0].characters) == (["calculator"], len("Let me see.") + 2)
    asked = set(numbers_of_phrase(run.pk, "9 * 5"))
    held = [key[1] for key, turn in batch.turns.items() if key[0] == rows[0].pk and asked <= set(turn.words or ())]
    assert held == [0, 1, 3]


def test_the_projection_keeps_a_call_that_could_not_be_read(make_run: Callable[..., Run]) -> None:
    run = make_run()
    batch = Batch(run, 1)
    batch.add(run_events.RolloutStarted(rollout="a", step=1, group=0, index=0, task="?", t=1.0))
    message = Message(role="assistant", content="")
    batch.add(
        run_events.TurnAdded(
            rollout="a", turn=1, messages=[message], parse_error="bad", wrote="<tool_call>\x00Xanadu", t=2.0
        )
    )
    batch.add(run_events.TurnAdded(rollout="a", turn=2, messages=[message], t=2.0))
    first, second = batch.turns.values()
    assert (first.wrote, second.wrote) == ("<tool_call>␀Xanadu", "")
    assert set(numbers_of_phrase(run.pk, "Xanadu")) <= set(first.words or ())


def test_rows_from_before_are_indexed_in_the_background(make_run: Callable[..., Run]) -> None:
    run = make_run()
    for index, (outcome, reward) in enumerate((("solved", 1.0), ("failed", 0.0), ("failed", 0.0), ("excluded", None))):
        row = Rollout.objects.create(
            run=run, attempt=1, step=1, group=0, index=index, started_at=timezone.now(), seq=index,
            outcome=outcome, reward=reward, advantage=0.0,
        )  # fmt: skip
        call = {"id": "c", "name": "get_weather", "arguments": {}}
        for number, message in enumerate(
            ({"role": "user", "content": "天气?"}, {"role": "assistant", "content": "晴", "tool_calls": [call]})
        ):
            Turn.objects.create(rollout=row, run=run, number=number, messages=[message], seq=index)
    index_older()
    rows = list(Rollout.objects.order_by("index"))
    assert [row.tools for row in rows] == [["get_weather"]] * 4 and rows[0].characters == 1
    assert [row.surprise for row in rows] == [math.log2(3), math.log2(1.5), math.log2(1.5), None]
    assert Turn.objects.filter(words__contains=numbers_of_phrase(run.pk, "天气")).count() == 4
    assert Turn.objects.filter(words__contains=numbers_of_phrase(run.pk, "get_weather")).count() == 4
    assert index_batch() == 0


@pytest.mark.parametrize("field", ["content", "reasoning", "refusal"])
def test_a_turn_is_found_by_its_other_text_fields_too(field: str) -> None:
    messages = [{"role": "assistant", "content": "", field: "lanterns"}]
    assert set(numbers_of_phrase(RUN, "lanterns")) <= set(numbers_of(RUN, messages))
    assert not numbers_of(RUN, [{"role": "system", "content": "", field: "lanterns"}])


@pytest.mark.parametrize("field", ["content", "reasoning", "refusal"])
def test_no_text_of_a_turn_on_a_screen_is_longer_than_it_may_be(field: str) -> None:
    long, whole = ({"role": "assistant", "content": "", field: "x" * size} for size in (CONTENT_MAX + 7, CONTENT_MAX))
    turn = Turn(rollout_id=uuid4(), number=0, messages=[long], seq=1)
    (shown,) = in_shape(answers.Turn, turn)["messages"]
    assert (shown[field], shown["shortened"]) == ("x" * CONTENT_MAX + " … (+7)", True)
    turn.messages = [whole]
    assert in_shape(answers.Turn, turn)["messages"] == [whole]
