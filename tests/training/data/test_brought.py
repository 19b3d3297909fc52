"""Formats that people bring, each by the value of what is read: parts, blocks, pairs, single turns, rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.data.test_nothing_lost import SAYS, USER, checked, lines, turns_of
from tests.training.data.test_spellings import SCHEMA, WRAPPED, item_call, item_result, spelled
from training.data.formats import FORMATS
from training.data.learned import lesson_of, pair_of
from training.data.options import ReadOptions
from training.data.reader import load_rows
from training.data.schema import row_from_dict

Value = dict[str, Any]
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("good", "bad"))


def read(tmp_path: Path, *content: Any, role: str = "assistant", **fields: Any) -> list[Value]:
    """The messages that a content in parts becomes, behind a question."""
    row = {"messages": [USER, {"role": role, "content": list(content), **fields}]}
    kept: list[Value] = spelled(tmp_path, row)[0][0]["messages"][1:]
    return kept


# --- Parts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "a"},
        {"type": "text", "value": "a"},
        {"type": "output_text", "text": "a", "annotations": []},
        {"text": "a"},
        {"type": None, "text": "a"},
        "a",
    ],
)
def test_texts_of_parts_are_joined(tmp_path: Path, part: Any) -> None:
    assert read(tmp_path, part, {"type": "text", "text": "b"}) == [{"role": "assistant", "content": "ab"}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "value": "hm"},
        {"type": "reasoning", "text": "hm"},
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "reasoning", "summary": [{"type": "text", "text": "hm"}]},
    ],
)
def test_reasoning_in_parts_is_reasoning(tmp_path: Path, part: Value) -> None:
    hidden = {"type": "redacted_thinking", "data": "x"}
    found = read(tmp_path, part, hidden, {"type": "text", "text": "a"}, loss_weight=0.5)
    assert found == [{"role": "assistant", "content": "a", "reasoning_content": "hm", "loss_weight": 0.5}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_use", "id": "u", "name": "stock", "input": {"item": "lamp"}},
        {"type": "tool_call", "value": '{"name": "stock", "arguments": {"item": "lamp"}, "id": "u"}'},
        {"type": "tool_call", "value": {"id": "u", "name": "stock", "arguments": '{"item": "lamp"}'}},
        {"type": "function_call", "id": "u", "function": {"name": "stock", "arguments": {"item": "lamp"}}},
    ],
)
def test_calls_in_parts_are_calls(tmp_path: Path, part: Value) -> None:
    found = read(tmp_path, {"type": "text", "text": "Look."}, part, part | {"id": "v"})
    calls = found[0]["tool_calls"]
    assert (found[0]["content"], [call["arguments"] for call in calls]) == ("Look.", [{"item": "lamp"}] * 2)
    assert calls[0] == {"id": "u", "name": "stock", "arguments": {"item": "lamp"}}


def test_results_in_parts_are_messages_of_the_tool(tmp_path: Path) -> None:
    results = [
        {"type": "tool_result", "tool_use_id": "u", "content": "4"},
        {"type": "tool_result", "tool_use_id": "v", "content": [{"type": "text", "text": "5"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "w"},
    ]
    for role in ("user", "tool"):
        found = read(tmp_path, *results, role=role)
        assert [(each["role"], each["content"], each["tool_call_id"]) for each in found] == [
            ("tool", "4", "u"),
            ("tool", "5", "v"),
            ("tool", "", "w"),
        ]
    found = read(tmp_path, results[0], {"type": "text", "text": "And now?"}, role="user", cache=1)
    assert [(each["role"], each["content"], each.get("cache")) for each in found] == [
        ("tool", "4", None),
        ("user", "And now?", 1),
    ]


@pytest.mark.parametrize(
    ("role", "part", "code"),
    [
        ("user", {"type": "image_url", "image_url": {"url": "x"}}, "content_part"),
        ("user", {"type": "document", "source": {}}, "content_part"),
        ("user", {"type": "tool_result", "content": [{"type": "image", "source": {}}]}, "content_part"),
        ("assistant", {"type": "server_tool_use", "name": "web"}, "content_part_unknown"),
        ("user", {"type": "tool_use", "name": "f", "input": {}}, "part_of_another"),
        ("user", {"type": "thinking", "thinking": "x"}, "part_of_another"),
        ("assistant", {"type": "tool_result", "content": "4"}, "part_of_another"),
        ("user", {"type": "tool_result", "content": [{"type": "tool_use", "name": "f"}]}, "part_of_another"),
        ("assistant", {"type": "tool_use", "input": {}}, "call_name"),
        ("assistant", {"type": "text", "words": "x"}, "content_missing"),
        ("assistant", 3, "content_type"),
    ],
)
def test_a_part_that_cannot_be_read_is_named(tmp_path: Path, role: str, part: Any, code: str) -> None:
    report, _kept = checked(tmp_path, lines({"messages": [USER, {"role": role, "content": [part]}]}))
    assert report.bad[0].code == code and "message 2" in report.bad[0].reason


def test_anthropic_s_system_may_be_in_blocks_too(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "Be ", "cache_control": {}}, {"type": "text", "text": "brief."}]
    kept, _codes, _evidence = spelled(tmp_path, {"system": blocks, "messages": [USER, SAYS]})
    assert turns_of(kept[0])[0] == ("system", "Be brief.") and "system" not in kept[0]


# --- Pairs and lists by field -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("user", ["human", "user"])
@pytest.mark.parametrize("assistant", ["assistant", "gpt"])
def test_messages_whose_keys_are_roles(tmp_path: Path, user: str, assistant: str) -> None:
    items = [{user: "q", assistant: "a"}, {user: "r", assistant: "b", "loss": False}, {user: "s", assistant: None}]
    kept, codes, _evidence = spelled(tmp_path, {"conversation": items, "system": "S"})
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    assert turns_of(kept[0]) == list(zip(roles, ("S", "q", "a", "r", "b", "s"), strict=True)) and codes == {}
    assert lesson_of(row_from_dict(kept[0])).turns == [False, False, True, False, False, False]
    assert kept[0]["messages"][4] == {"role": "assistant", "content": "b", "loss": False}


@pytest.mark.parametrize("item", [{}, {"text": "q"}, {"human": 3}, {"human": ""}, {"tool": "t"}, {"content": "q"}])
def test_a_message_without_a_role_is_refused(tmp_path: Path, item: Value) -> None:
    report, _kept = checked(tmp_path, lines({"messages": [USER, item]}))
    assert report.bad[0].code == "role_missing"


def test_a_conversation_of_lists_by_field_is_a_list_of_messages(tmp_path: Path) -> None:
    value = {"messages": {"role": ["user", "assistant"], "content": ["q", "a"], "weight": [None, 0]}}
    assert turns_of(spelled(tmp_path, value)[0][0]) == [("user", "q"), ("assistant", "a")]
    turns = {"conversations": {"from": ["human", "gpt"], "value": ["q", "a"]}}
    assert turns_of(spelled(tmp_path, turns)[0][0]) == [("user", "q"), ("assistant", "a")]
    for uneven in ({"role": ["user"], "content": ["q", "a"]}, {"role": "user", "content": "q"}, {"text": ["q"]}):
        report, _kept = checked(tmp_path, lines({"messages": uneven}))
        assert report.bad[0].code == "conversation_type"


# --- Answers to compare -----------------------------------------------------------------------------------------------
def test_answers_that_are_one_message_each_are_a_pair(tmp_path: Path) -> None:
    value = {
        "conversations": [{"from": "human", "value": "q"}],
        "chosen": {"from": "gpt", "value": "good"},
        "rejected": {"from": "gpt", "value": "bad"},
    }
    report, kept = checked(tmp_path, lines(value))
    assert report.format.rows == "preference" and turns_of(kept[0]) == [("user", "q")]
    pair = pair_of(load_rows(tmp_path / "rows.jsonl")[0])
    assert pair is not None and (pair.chosen[0].content, pair.rejected[0].content) == ("good", "bad")


@pytest.mark.parametrize(
    "worse", [{"rejected_response": "bad"}, {"rejected_messages": [{"role": "assistant", "content": "bad"}]}]
)
def test_a_worse_answer_with_a_conversation_is_a_pair_and_the_conversation_is_learned(
    tmp_path: Path, worse: Value
) -> None:
    value = {"messages": [USER, SAYS, USER, {"role": "assistant", "content": "good"}], **worse}
    _kept, _codes, evidence = spelled(tmp_path, value)
    assert any("1 rows hold a worse answer" in text for text in evidence)
    row = load_rows(tmp_path / "rows.jsonl")[0]
    pair = pair_of(row)
    asks = {"messages": [USER, SAYS, USER], **worse}
    assert not any("worse answer" in text for text in spelled(tmp_path, asks)[2])
    assert pair is not None and [m.content for m in pair.prompt] == ["q", "a", "q"]
    assert ([m.content for m in pair.chosen], [m.content for m in pair.rejected]) == (["good"], ["bad"])
    assert lesson_of(row).turns == [False, True, False, True] and len(row.messages) == 4
    off = {"role": "assistant", "content": "good", "weight": 0}
    assert pair_of(row_from_dict({"messages": [USER, SAYS, USER, off], **worse})) is None
    assert pair_of(row_from_dict({"messages": [USER, SAYS]})) is None
    assert pair_of(row_from_dict({"messages": [SAYS], **worse})) is None
    assert pair_of(row_from_dict({"messages": [USER, SAYS, USER], **worse})) is None


# --- BFCL's single turns ----------------------------------------------------------------------------------------------
def test_single_turn_questions_of_bfcl_bring_their_functions(tmp_path: Path) -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "dict", "properties": {"x": {"type": "float"}}}}
    rows = [
        {"id": "simple_python_0", "question": [[USER]], "function": [function]},
        {"id": "live_simple_0-0-0", "question": [[{"role": "system", "content": "S"}, USER]], "function": function},
        {"id": "irrelevance_0", "question": [[USER]], "function": []},
    ]
    answers = tmp_path / "answers.json"
    truth = [{"f": {"x": [1.0]}}]
    answers.write_text("".join(json.dumps({"id": row["id"], "ground_truth": truth}) + "\n" for row in rows))
    report, kept = checked(tmp_path, lines(*rows), reading=ReadOptions(format="bfcl", answers=answers))
    assert (report.rows, report.codes) == (3, {})
    schema = {"type": "object", "properties": {"x": {"type": "number"}}}
    wanted = {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
    assert [row["tools"] for row in kept] == [[wanted], [wanted], []]
    assert [role for role, _text in turns_of(kept[1])] == ["system", "user"]
    assert kept[0]["ground_truth"] == truth and kept[0]["function"] == [function]
    report, _kept = checked(tmp_path, lines(*rows))
    assert report.format.rows == "bfcl" and report.verdict == "ok"
    _report, kept = checked(tmp_path, lines(rows[0] | {"involved_classes": ["MathAPI"]}))
    assert "tools" not in kept[0]  # the functions of classes are in documents
    report, _kept = checked(tmp_path, lines(rows[0], rows[0] | {"function": ["f"]}))
    assert report.bad[0].reason.endswith("`function` is no list of functions")


# --- Recorded rollouts ------------------------------------------------------------------------------------------------
def rollout(reward: Any, **extra: Any) -> Value:
    output = [item_call("a", "lamp"), item_result("a"), {"type": "message", "role": "assistant", "content": "Four."}]
    params = {"input": [USER], "tools": [{"type": "function", "name": "stock", "parameters": SCHEMA}]}
    return {"responses_create_params": params, "response": {"output": output}, "reward": reward, **extra}


def test_rollouts_of_nemo_gym_are_tasks_and_are_called_rollouts(tmp_path: Path) -> None:
    kept, _codes, evidence = spelled(tmp_path, rollout(0.0), rollout(1.0))
    assert turns_of(kept[0]) == [("user", "q")] and kept[1]["reward"] == 1.0
    assert any("2 rows are recorded rollouts of NeMo Gym, read as tasks" in text for text in evidence)
    assert "label" not in kept[0]


def test_rollouts_of_nemo_gym_are_demonstrations_by_reward(tmp_path: Path) -> None:
    rewards = [1.0, 0.0, 0.5, -1, None]
    rows = [rollout(reward) for reward in rewards] + [rollout(0.0, label=True)]
    kept, codes, evidence = spelled(tmp_path, *rows, reading=ReadOptions(shape="sft"))
    assert [message["role"] for message in kept[0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert kept[0]["tools"] == [{"type": "function", "function": {"name": "stock", "parameters": SCHEMA}}]
    assert [row.get("label") for row in kept] == [True, False, True, False, None, True] and codes == {}
    learned = [not lesson_of(row).why_not for row in load_rows(tmp_path / "rows.jsonl")]
    assert learned == [True, False, True, False, True, True]
    assert any("6 rows are recorded rollouts of NeMo Gym, read with their answers" in text for text in evidence)
    write = FORMATS["nemo_gym"].write
    options = ReadOptions(shape="sft", format="nemo_gym")
    from training.data.reader import open_dataset

    first = next(open_dataset(tmp_path / "in", options).records()).row
    assert first is not None and write is not None and write(first) == rows[0]


def test_tasks_of_nemo_gym_say_nothing_of_rollouts(tmp_path: Path) -> None:
    for response in (None, {}, {"output": []}, {"output": "x"}, {"output": [3]}):
        value = {"responses_create_params": {"input": [USER]}, "response": response}
        kept, _codes, evidence = spelled(tmp_path, value, reading=ReadOptions(shape="sft"))
        assert turns_of(kept[0]) == [("user", "q")] and not any("rollouts" in text for text in evidence)


def test_conversations_with_a_reward_are_remarked_once(tmp_path: Path) -> None:
    rows = [{"messages": [USER, SAYS], "reward": reward} for reward in (0.0, 1)]
    assert any("2 rows have a `reward` next to" in text for text in spelled(tmp_path, *rows)[2])
    for other in ({"messages": [USER], "reward": 1.0}, {"messages": [USER, SAYS], "reward": "high"}):
        assert not any("`reward` next to" in text for text in spelled(tmp_path, other)[2])


def test_a_table_of_completions_in_columns_leads_to_the_import(tmp_path: Path) -> None:
    """As ms-swift writes it: a row a step, each column a list."""
    row = {"step": [1, 1], "prompt": ["<|im_start|>user\nq", "q"], "completion": ["a", "b"], "accuracy": [0.0, 1.0]}
    report, _kept = checked(tmp_path, lines(row, row))
    assert (report.verdict, report.link) == ("rejected", "import_run") and "a table of completions" in report.message
    report, _kept = checked(tmp_path, lines({"prompt": ["q"], "completion": ["a"]}))
    assert report.bad[0].code == "message_type"
    tasks = {"step": 1, "prompt": [USER], "completion": [SAYS]}
    assert checked(tmp_path, lines(tasks))[0].verdict == "ok"


def test_what_is_no_json_inside_a_row_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "function_call", "value": "words"}]
    report, _kept = checked(tmp_path, lines({"conversations": turns}))
    assert report.bad[0].suggestion == "Write JSON there, or leave the row out."
    (tmp_path / "in").write_bytes(b"{broken\n" + lines({"messages": [USER]}))
    from training.data.checking.check import check_file

    assert check_file(tmp_path / "in", tmp_path).bad[0].suggestion.startswith("Export the file again")


def test_every_format_says_what_is_learned() -> None:
    assert all(each.learned.endswith(".") for each in FORMATS.values())
    assert WRAPPED["function"]["name"] == "stock"


@pytest.mark.parametrize(
    "value",
    [
        {"chosen_messages": [USER, GOOD], "rejected_messages": [USER, BAD]},
        {"prompt": [USER], "chosen_messages": [GOOD], "rejected_messages": [BAD]},
        {"input": {"messages": [USER], "tools": []}, "preferred_output": [GOOD], "non_preferred_output": [BAD]},
        {"messages": [USER], "chosen": "good", "rejected": "bad"},
    ],
)
def test_pairs_are_under_several_names(tmp_path: Path, value: Value) -> None:
    report, kept = checked(tmp_path, lines(value))
    assert report.format.rows == "preference" and turns_of(kept[0]) == [("user", "q")]
    row = load_rows(tmp_path / "rows.jsonl")[0]
    pair = pair_of(row)
    assert pair is not None and [m.content for m in pair.prompt] == ["q"]
    assert ([m.content for m in pair.chosen], [m.content for m in pair.rejected]) == (["good"], ["bad"])
    assert lesson_of(row).why_not == "mute"
    assert not any("worse answer" in text for text in report.format.evidence)


def test_rows_with_pictures_are_remarked_once(tmp_path: Path) -> None:
    rows = [{"messages": [USER, SAYS], name: ["1.jpg"]} for name in ("images", "videos", "audios")]
    evidence = spelled(tmp_path, *rows, {"messages": [USER, {"role": "assistant", "content": "b"}], "images": []})[2]
    assert any(text.startswith("3 rows come with pictures") for text in evidence)
