"""Each branch of each formula of SEED 2, with values worked out by hand."""

from __future__ import annotations

from typing import Literal, get_origin

import pytest

from training.rewards.scoring import COMPONENTS, form_components, score_episode

from .episodes import GOLD_EN, GOLD_ZH, episode, says, score, tool, user

LONG = "x" * 60


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("1053", 1.0),
        ("错误: 缺少表达式参数", 0.3),
        ("Error: missing argument `expression`", 0.3),
        ("错误: 未知工具: frobnicate", 0.1),
        ("Error: Unknown tool: missing_argument", 0.1),
        ("错误: 计算错误: division by zero", 0.0),
        ("Error: the server burned down", 0.0),
        ("No Error: here", 1.0),
    ],
)
def test_correctness_of_one_call(result: str, expected: float) -> None:
    assert score("tool_call_correctness", episode("q", says("", "a"), tool(result, "a"))) == expected


def test_correctness_without_calls_is_neutral() -> None:
    assert score("tool_call_correctness", episode("q", says("hi"))) == 0.5
    assert score("tool_call_correctness", episode("q", says("hi")), no_calls_score=0.2) == 0.2


def test_correctness_is_the_mean_over_calls() -> None:
    played = episode("q", says("", "a", "b", "c"), tool("错误: 缺少城市参数", "b"), tool("18", "a"), says("ok"))
    assert score("tool_call_correctness", played) == pytest.approx((1 + 0.3 + 0) / 3)  # c was never answered


def test_unreadable_calls_count_as_calls() -> None:
    assert score("tool_call_correctness", episode("q", says("{"), tool("Error: unreadable"), parse_errors=1)) == 0.0
    played = episode("q", says("", "a"), tool("1", "a"), says("{"), tool("Error: unreadable"), parse_errors=1)
    assert score("tool_call_correctness", played) == 0.5


def test_results_without_ids_answer_calls_in_order() -> None:
    played = episode("q", says("", "a", "b"), tool("1"), tool("Error: unknown tool"), says("", "a"), tool("3", "a"))
    assert score("tool_call_correctness", played) == pytest.approx((1 + 0.1 + 1) / 3)


@pytest.mark.parametrize(
    ("question", "called", "answer", "expected"),
    [
        ("帮我算一下 2^10 是多少", True, "", 1.0),
        ("What TIME is it?", True, "", 1.0),
        ("你好", False, "你好！", 1.0),
        ("Hello", False, "Hi!", 1.0),
        ("上海明天的天气如何？", False, "不知道", 0.3),
        ("Search for cats", False, "No", 0.3),
        ("你好", True, "字" * 21, 0.7),
        ("Hello", True, "x" * 21, 0.7),
        ("你好", True, "字" * 20, 0.4),
        ("Hello", True, "x" * 20, 0.4),
    ],
)
def test_necessity(question: str, called: bool, answer: str, expected: float) -> None:
    turns = [says("", "a"), tool("1", "a")] if called else []
    assert score("tool_necessity", episode(question, *turns, says(answer))) == expected


def test_necessity_reads_the_last_question_of_the_prompt() -> None:
    played = episode("今天天气如何？", says("北京多云"), user("谢谢"), says("不客气"))
    assert score("tool_necessity", played) == 0.3
    longer = type(played)(messages=played.messages, prompt_length=3)
    assert score("tool_necessity", longer) == 1.0
    assert score("tool_necessity", longer, keywords=["谢"]) == 0.3


def use(result: str, answer: str, **params: float) -> float | None:
    return score("result_use", episode("q", says("", "a"), tool(result, "a"), says(answer)), **params)


@pytest.mark.parametrize(
    ("result", "answer", "expected"),
    [
        ("1053 is it", "The result: 1053.", 1.0),
        ("Sunny today in Rome", "It is sunny", 1.0),
        ("a b c Rome", "Rome", 0.3),  # only the first three words count
        ("42 is", "42", 0.3),  # words of two characters do not count
        ("1053", LONG, 0.7),
        ("1053", "x" * 50, 0.3),
        ("", LONG, 0.0),
        ("Error: Division by zero", "Sorry: division by ZERO happened", 0.5),
        ("错误: 缺少城市参数", "抱歉，缺少城市参数，请告诉我城市。", 0.5),
        ("Error: boom", LONG, 0.0),
        ("Error:", LONG, 0.0),
        ("北京在今天的天气：温度15°C，天气晴朗", "北京今天天气晴朗，15度", 1.0),
        ("北京在今天的天气：温度15°C，天气晴朗", "我不知道上海怎么样", 0.3),
        ("北京在今天的天气：温度15°C，天气晴朗", "我不知道上海怎么样" * 6, 0.7),
    ],
)
def test_result_use(result: str, answer: str, expected: float) -> None:
    assert use(result, answer) == expected


def test_result_use_without_results_and_as_a_mean() -> None:
    assert score("result_use", episode("q", says("hi"))) == 0.5
    assert score("result_use", episode("q", says("", "a"), says(LONG))) == 0.5
    two = episode("q", says("", "a", "b"), tool("1053", "a"), tool("Error: boom", "b"), says("1053 but boom"))
    assert score("result_use", two) == pytest.approx((1 + 0.5) / 2)


def test_result_use_follows_its_parameters() -> None:
    assert use("42 is", "42", min_word_chars=2) == 1.0
    assert use("北京在今天的天气", "北京", cjk_share=1.0) == 0.3


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("hello", "", 0.1),
        ("hello", "   hi   ", 0.1),
        ("hello", "xxxxx", 0.3),  # .5 − .2
        ("hello", "x" * 20, 0.7),  # .5 + .2
        ("hello", "x" * 500, 0.7),
        ("hello", "x" * 501, 0.5),
        ("hello world", "hello " + "x" * 20, 0.85),  # + .3 · 1/2
        ("hello world", "Hello, World! " + "x" * 20, 1.0),
        ("", "x" * 30, 0.7),
        ("深圳天气", "深圳的天气很好", 0.3 + 0.3 * 2 / 3),  # of 深圳 圳天 天气 two recur; 7 characters are short
    ],
)
def test_final_answer(question: str, answer: str, expected: float) -> None:
    assert score("final_answer", episode(question, says(answer))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("result", "expected"),
    [("1053", 0.8), ("105", 0.7), ("a b c d 1053", 0.8), ("a b c d e 1053", 0.7), ("Error: 1053", 0.7)],
)
def test_final_answer_adds_for_each_result_taken_up(result: str, expected: float) -> None:
    played = episode("hello", says("", "a"), tool(result, "a"), says("The number is 1053, sir."))
    assert score("final_answer", played) == pytest.approx(expected)


def test_final_answer_in_chinese_adds_for_results_and_stays_below_one() -> None:
    turns = [says("", "a", "b", "c", "d")] + [tool("天气晴朗", name) for name in "abcd"]
    answer = "深圳今天的天气晴朗，适合出门走走，记得多喝水哦。"
    assert score("final_answer", episode("深圳今天的天气", *turns, says(answer))) == 1.0
    assert score("final_answer", episode("hello", *turns[:2], says(answer))) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([], 0.8),
        ([says("one")], 0.8),
        ([says("", "a"), tool("1", "a"), says("答案是一")], 0.5 + 0.3 * 0.5 + 0.1),
        ([says("算", "a"), tool("1", "a"), says("done")], 0.9),
        ([says("", "a"), tool("1", "a"), says("", "b")], 0.5),
        ([says("one"), user("and?"), says("two")], 0.8),
        ([m for i in range(5) for m in (says("x", "a"), tool("1", "a"))] + [says("y")], 1.0),
    ],
)
def test_coherence(turns: list[object], expected: float) -> None:
    assert score("coherence", episode("q", *turns)) == pytest.approx(expected)  # type: ignore[arg-type]


def test_the_whole_worked_by_hand() -> None:
    """A needed call, its result in the answer: 1, 1, 1, then text and follow-up .9."""
    for gold in (GOLD_ZH, GOLD_EN):
        result = score_episode(gold, form_components())
        final = result.parts["final_answer"]
        assert result.parts == {
            "tool_call_correctness": 1.0,
            "tool_necessity": 1.0,
            "result_use": 1.0,
            "final_answer": final,
            "coherence": pytest.approx(0.9),
        }
        assert result.total == pytest.approx(0.3 + 0.2 + 0.2 + 0.2 * final + 0.1 * 0.9)
    # of calculate 25 37 128 for me, all but none recur: .5 + .2 + .3 + .1, kept at 1
    assert score("final_answer", GOLD_EN) == 1.0
    assert score_episode(GOLD_EN, form_components()).total == pytest.approx(0.99)


def test_every_parameter_has_a_title_a_help_and_limits() -> None:
    for component in COMPONENTS.values():
        assert component.title and component.help and "\n" not in component.help
        for name, field in component.params.model_fields.items():
            assert field.title and field.description, f"{component.name}.{name}"
            limited = bool(field.metadata) or field.annotation is bool or get_origin(field.annotation) is Literal
            assert limited, f"{component.name}.{name} has no limits"


@pytest.mark.parametrize(
    ("result", "answer", "expected"),
    [
        ("sunny today in Rome", "It is Sunny", 1.0),
        ("Sunny", "it is sunny", 0.3),  # the seed looks for the word unchanged, in the answer in lower case
        ("北京今天晴", "北京今天晴朗", 1.0),
        ("北京在今天的天气：晴朗", "北京天气晴朗", 0.3),
    ],
)
def test_the_seeds_own_rule_for_results(result: str, answer: str, expected: float) -> None:
    assert (
        score("result_use", episode("q", says("", "a"), tool(result, "a"), says(answer)), words="literal") == expected
    )


def test_the_seeds_own_rule_sees_a_chinese_sentence_as_one_word() -> None:
    played = episode("深圳天气", says("深圳的天气很好"))
    assert score("final_answer", played, words="literal") == pytest.approx(0.3)
    assert score("final_answer", played) == pytest.approx(0.3 + 0.3 * 2 / 3)
    english = episode("hello world", says("Hello, World! " + "x" * 20))
    assert score("final_answer", english, words="literal") == 1.0
