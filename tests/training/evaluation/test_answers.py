"""The answer of a comparison: never more than the verdicts of its pairs say, in one sentence for all who ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from training.evaluation import Answer, Contender, Interval, Paired, answer_of, decide, paired_columns
from training.words import Sentence

Pairs = Mapping[tuple[int, int], Paired]


def pair(
    points: float, p_value: float | None = 0.001, *, half: float = 6.4, tasks: int = 200, alone: int = 0
) -> Paired:
    """A planted pair: the second one is ``points`` better than the first."""
    ends = ((points - half) / 100, (points + half) / 100) if tasks > 1 else (None, None)
    return Paired(tasks, 9, 4, Interval(points / 100, *ends, tasks), p_value, 50, alone)


def asked(pairs: Pairs, *names: str, others: Sequence[str] = ()) -> Answer:
    """The answer for contenders of these names, all of which ended and played the same tasks."""
    return answer_of([Contender(name, 0.5, "tasks") for name in names], decide(pairs), others)


# --- Two ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("points", "names"), [(68, ("base", "grpo")), (-68, ("grpo", "base"))])
def test_the_better_of_two_is_named_in_either_order(points: float, names: tuple[str, str]) -> None:
    found = asked({(0, 1): pair(points)}, *names)
    assert found.text == "grpo is better: +68 points of success (95% interval 62 to 74, 200 tasks)"
    assert (found.kind, [names[place] for place in found.leaders], found.left_out) == ("better", ["grpo"], [])
    assert found.pair is not None and found.pair.found.difference.value == pytest.approx(0.68)
    assert (found.pair.found.wins, found.pair.found.losses) == ((9, 4) if points > 0 else (4, 9))


@pytest.mark.parametrize(("p_value", "kind"), [(0.05, "better"), (0.0501, "equal"), (None, "equal")])
def test_a_difference_counts_up_to_the_level(p_value: float | None, kind: str) -> None:
    assert asked({(0, 1): pair(8, p_value)}, "a", "b").kind == kind


def test_where_no_difference_is_shown_none_is_claimed() -> None:
    found = asked({(0, 1): pair(2, 0.4, half=5)}, "base", "grpo")
    assert found.text == "No difference can be shown: +2 points of success for grpo (95% interval −3 to 7, 200 tasks)"
    assert (found.kind, found.leaders) == ("equal", (1, 0))


def test_equal_values_are_no_lead_of_either() -> None:
    columns = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    found = asked(dict(zip([(0, 1)], paired_columns(columns, [(0, 1)]), strict=True)), "a", "b")
    assert found.text.startswith("No difference can be shown: they succeed equally often (95% interval −")
    assert found.text.endswith(", 3 tasks)")


def test_one_task_has_no_interval_and_shows_nothing() -> None:
    found = asked(dict(zip([(0, 1)], paired_columns(np.array([[0.0, 1.0]]), [(0, 1)]), strict=True)), "a", "b")
    assert found.text == "No difference can be shown: +100 points of success for b (1 task)"


@pytest.mark.parametrize(
    ("points", "half", "shown"),
    [
        (68.4, 5.1, "+68 points of success (95% interval 63 to 74,"),
        (68.4, 4.9, "+68.4 points of success (95% interval 63.5 to 73.3,"),  # narrower than ten points
        (6.0, 5.6, "+6.0 points of success (95% interval 0.4 to 11.6,"),  # 0 would be read as no difference
        (6.0, 6.0, "+6 points of success (95% interval 0 to 12,"),
    ],
)
def test_points_have_decimals_where_they_say_something(points: float, half: float, shown: str) -> None:
    assert shown in asked({(0, 1): pair(points, half=half)}, "a", "b").text


# --- Three and more -------------------------------------------------------------------------------------------------
def test_the_best_is_better_than_every_other_and_its_lead_is_that_over_the_closest() -> None:
    found = asked({(0, 1): pair(30), (0, 2): pair(12), (1, 2): pair(-18)}, "a", "b", "c")
    assert found.text == (
        "b is the best of 3: +18 points of success over c, the closest (95% interval 12 to 24, 200 tasks)"
    )
    assert (found.kind, found.leaders) == ("better", (1,))


def test_who_is_not_apart_from_the_best_leads_with_it() -> None:
    found = asked({(0, 1): pair(30), (0, 2): pair(32), (1, 2): pair(2, 0.5)}, "a", "b", "c")
    assert found.text == (
        "c and b lead; no difference between them can be shown: +2 points of success for c "
        "(95% interval −4 to 8, 200 tasks)"
    )
    assert (found.kind, found.leaders) == ("leaders", (2, 1))


def test_three_lead_in_the_order_of_their_success() -> None:
    pairs = {(0, 1): pair(1, 0.9), (0, 2): pair(3, 0.9), (1, 2): pair(2, 0.9)}
    pairs |= {(place, 3): pair(-40) for place in range(3)}
    contenders = [Contender(name, value, "t") for name, value in zip("abcd", (0.6, 0.7, None, 0.2), strict=True)]
    found = answer_of(contenders, decide(pairs))
    assert found.leaders == (1, 0, 2), "unknown success comes last"
    assert found.text == (
        "b, a and c lead; no difference between them can be shown; the largest is +3 points of success, c over a "
        "(95% interval −3 to 9, 200 tasks)"
    )


def test_no_pair_of_three_differs() -> None:
    found = asked({(0, 1): pair(1, 0.9), (0, 2): pair(3, 0.9), (1, 2): pair(2, 0.9)}, "a", "b", "c")
    assert found.kind == "equal"
    assert found.text.startswith(
        "No difference between the 3 can be shown; the largest is +3 points of success, c over a"
    )
    zero = {places: pair(0, 1.0) for places in ((0, 1), (0, 2), (1, 2))}
    assert asked(zero, "a", "b", "c").text.startswith("No difference between the 3 can be shown: they succeed equally")


def test_p_values_are_corrected_for_all_pairs() -> None:
    """0.03 shows a difference where it is the only pair, and none among three."""
    assert asked({(0, 1): pair(5, 0.03)}, "a", "b").kind == "better"
    found = asked({(0, 1): pair(5, 0.03), (0, 2): pair(1, 0.9), (1, 2): pair(-4, 0.04)}, "a", "b", "c")
    assert found.kind == "equal" and [each.p_value for each in decide({(0, 1): pair(5, 0.03)})] == [0.03]


def test_one_that_no_other_beats_is_not_called_the_best_of_all() -> None:
    found = asked({(0, 1): pair(-9), (0, 2): pair(-3, 0.6), (1, 2): pair(-9)}, "a", "b", "c")
    assert (found.kind, found.leaders) == ("ahead", (0,))
    assert found.text == "a leads, but no difference from c can be shown"


def test_a_circle_has_no_leader() -> None:
    found = asked({(0, 1): pair(-9), (1, 2): pair(-9), (0, 2): pair(9)}, "a", "b", "c")
    assert (found.kind, found.leaders, found.text) == (
        "circle",
        (),
        "None of the 3 leads: each is worse than another one",
    )


# --- Left out -------------------------------------------------------------------------------------------------------
def test_tasks_of_one_alone_are_counted_by_the_pair() -> None:
    columns = np.array([[1.0, 0.0], [np.nan, 1.0], [0.0, np.nan], [np.nan, np.nan], [1.0, np.nan]])
    (found,) = paired_columns(columns, [(0, 1)])
    assert (found.tasks, found.alone) == (1, 3)


def test_what_the_answer_does_not_cover_is_named() -> None:
    contenders = [
        Contender("a", 0.5, "one"),
        Contender("b", 0.6, "one", ended=False),
        Contender("中文", 0.9, "two"),
    ]
    found = answer_of(contenders, decide({(0, 1): pair(20, alone=3)}), ["trained"])
    assert found.text.startswith("b is better: +20 points")
    assert found.left_out == [
        "3 tasks are left out: only one of b and a has a try of them that counts.",
        "Not final, because not ended: b.",
        "Left out, because they share no task that counts with the others: 中文.",
        "Left out, because they are no evaluations and have played no held-out tasks: trained.",
    ]
    one = answer_of(contenders[:2], decide({(0, 1): pair(20, alone=1)}))
    assert one.left_out[0] == "1 task is left out: only one of b and a has a try of it that counts."


def test_the_larger_of_two_groups_of_tasks_is_answered() -> None:
    contenders = [Contender(name, 0.5, played) for name, played in zip("abcde", (1, 2, 2, 1, 2), strict=True)]
    pairs = {(0, 3): pair(50), (1, 2): pair(10), (1, 4): pair(30), (2, 4): pair(20)}
    found = answer_of(contenders, decide(pairs))
    assert found.text.startswith("e is the best of 3: +20 points of success over c")
    assert found.left_out == ["Left out, because they share no task that counts with the others: a and d."]
    same_size = answer_of(contenders[:4], decide({(0, 3): pair(50), (1, 2): pair(10)}))
    assert same_size.text.startswith("d is better: +50"), "of two groups as large, the first one"


# --- Nothing to compare ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("contenders", "text"),
    [
        ([], "No answer: none of these runs is an evaluation or has played held-out tasks. "),
        ([Contender("a", 0.5, 1)], "No answer: only a is an evaluation or has played held-out tasks. "),
        ([Contender("a", 0.5, 1), Contender("b", 0.5, 2)], "No answer: each played other tasks. "),
        ([Contender("a", 0.5), Contender("b", 0.5)], "No answer: each played other tasks. "),
        ([Contender("a", None, 1), Contender("b", 0.5, 1, False)], "No answer yet: no task has a try of two of them"),
        ([Contender("a", None, 1), Contender("b", None, 1)], "No answer: no task has a success of two of them. "),
    ],
)
def test_without_a_pair_the_answer_is_why(contenders: list[Contender], text: str) -> None:
    found = answer_of(contenders, [], ["trained"])
    assert (found.kind, found.leaders, found.pair) == ("nothing", (), None) and found.text.startswith(text)
    assert found.text.count(".") == 2, "a reason, and what to do"


def test_the_answer_travels_with_what_it_was_made_of() -> None:
    """So that a page says it in another language, with all that is in it."""
    found = asked({(0, 1): pair(68)}, "base", "{first}")
    again = Sentence.of(found.text.data)
    assert again == found.text and again.startswith("{first} is better: +68 points")
    assert isinstance(again.values["detail"], Sentence) and isinstance(again.values["detail"].values["tasks"], Sentence)


def test_names_of_eighty_characters_and_eight_contenders_are_whole() -> None:
    names = [letter * 80 for letter in "abcdefgh"]
    pairs = {(a, b): pair(1, 0.9) for a in range(7) for b in range(a + 1, 7)} | {(a, 7): pair(-40) for a in range(7)}
    text = asked(pairs, *names).text
    assert all(name in text for name in names[:7]) and names[7] not in text
