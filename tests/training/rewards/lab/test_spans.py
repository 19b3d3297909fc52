"""Where in the text a component's value comes from."""

from __future__ import annotations

from typing import Any

import pytest

from training.rewards import toolbench, webshop
from training.rewards.base import Episode, played, says, tool
from training.rewards.scoring import COMPONENTS


def texts(name: str, episode: Episode, **params: Any) -> list[tuple[int, str, str]]:
    component = COMPONENTS[name]
    assert component.spans is not None
    spans = component.spans(episode, component.params.model_validate(params))
    return [(s.message, episode.messages[s.message].content[s.start : s.end], s.note) for s in spans]


@pytest.mark.parametrize("component", [item for item in COMPONENTS.values() if item.spans], ids=lambda item: item.name)
def test_spans_of_all_examples_lie_in_their_messages(component: Any) -> None:
    empty = Episode([], 0)
    for episode, params in [(empty, {}), *((e.episode, e.params) for e in component.examples)]:
        for span in component.spans(episode, component.params.model_validate(params)):
            text = episode.messages[span.message].content
            assert span.note and (0 <= span.start < span.end <= len(text) or span.start == span.end == 0)


def test_spans_by_value() -> None:
    answer = played("q", says("First 12.\n Answer: about 1,053 \n"), row={"answer": 1053})
    assert texts("numeric_match", answer) == [(1, "1,053", "the number that is compared")]
    assert texts("exact_match", answer, marker="Answer:") == [(1, "about 1,053", "the answer that is compared")]
    assert texts("regex_match", answer, pattern="a.*?t", marker="Answer:") == [(1, "about", "what the pattern matched")]
    assert texts("exact_match", answer, marker="Nowhere") == []
    solved = played("q", says("12\nThe last is 7 of 72\nso it is"), row={"answer": "72"})
    assert texts("helloagents_accuracy", solved) == [(1, "72", "the number that is compared")]
    assert texts("helloagents_step", solved)[1:] == [(1, "12\n", "a step"), (1, "The last is 7 of 72\n", "a step")]
    assert texts("webshop_score", webshop.PAGE) == [(1, "", "the purchase"), (2, "", "the score of the purchase")]
    going_back = played("q", says("click[Buy Now]"), tool("WebShop [SEP] Search"))
    assert texts("webshop_score", going_back) == [(1, "", "the purchase")]
    assert texts("toolbench_finish", toolbench.FAILED) == [(3, "", "ends by giving up")]
    assert texts("toolbench_turns", played("q", says("", "a"), tool("x"))) == []
    native = played("q", says("", "a"), tool("Error: no"), says("", "b"), tool("97"), says("It is 97"))
    assert texts("tool_call_correctness", native) == [(1, "", "a call that failed"), (3, "", "a call that worked")]
    assert texts("result_use", native, min_word_chars=2) == [
        (4, "", "used by the answer"),
        (5, "It is 97", "the final answer"),
    ]
    assert texts("result_use", native)[0][2] == "not used by the answer"
    assert [note for _place, _text, note in texts("bfcl_stage_1", COMPONENTS["bfcl_stage_1"].examples[1].episode)] == [
        "a call that worked"
    ] * 5
