"""Rollouts that other trainers and environments recorded: turns, rewards, parts and groups by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.imports.test_axis import lines
from tests.training.imports.test_readers import of, read

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Red or blue?"}]
TALK = "user\nWhat is 2+2?\nassistant\n"


def turns(events: list[Any], name: str) -> list[list[tuple[str, str]]]:
    """Role and text of each message of a rollout, by turn."""
    found = [event for event in of(events, "turn") if event.rollout == name]
    return [[(message.role, message.content) for message in event.messages] for event in found]


def sizes(events: list[Any]) -> list[int]:
    """How many rollouts each group has at the end."""
    last = {(event.step, event.group): len(event.rollouts) for event in of(events, "group_scored")}
    return [last[place] for place in sorted(last)]


def dump(*prompts: str, step: int = 3, **more: Any) -> bytes:
    rows = [{"input": f"user\n{prompt}\nassistant\n", "output": f"{at}"} for at, prompt in enumerate(prompts)]
    return lines(*(row | {"score": at % 2, "step": step, **more} for at, row in enumerate(rows)))


@pytest.mark.parametrize(
    ("prompts", "groups", "words"),
    [
        ("a" * 8 + "b" * 4, [4, 4, 4], "One prompt occurs several times in a step"),
        ("aabbaabbaaaacc", [2, 2, 2, 2, 2, 2, 2], "2 prompts occur several times in a step"),
        ("abc" * 4 + "a" * 8, [4, 4, 4, 4, 4], "split into groups of 4"),
        ("a" * 6 + "b" * 4 + "c" * 4, [4, 4, 6], "In step 3 one prompt has 6 rollouts, where others have 4"),
        ("a" * 5 + "b" * 5 + "c" * 2 + "d" * 2, [2, 2, 5, 5], "2 prompts have more rollouts than others, which have 2"),
        ("a" * 4 + "b" * 4, [4, 4], ""),
        ("a" * 8, [8], ""),
        ("a" * 2 + "bcdef", [1, 1, 1, 1, 1, 2], ""),
        ("a" * 4 + "b" * 4 + "c" * 2, [2, 4, 4], ""),
    ],
)
def test_a_prompt_that_a_step_draws_twice(tmp_path: Path, prompts: str, groups: list[int], words: str) -> None:
    """Eight rollouts of one prompt were once one group, with advantages that the run never had."""
    report, events = read(tmp_path, ("dump.jsonl", dump(*prompts)))
    assert sorted(sizes(events)) == groups
    notes = [note for note in report.files[0].notes if "prompt" in note]
    assert bool(notes) is bool(words) and all(words in note for note in notes)
    assert any(words in note for note in report.files[0].notes)


def test_groups_of_a_prompt_are_made_in_the_order_of_rows(tmp_path: Path) -> None:
    _report, events = read(tmp_path, ("dump.jsonl", dump(*"abababab", *"aa")))  # a: 6, b: 4
    assert sorted(sizes(events)) == [4, 6]
    again = tmp_path / "again"
    again.mkdir()
    _report, events = read(again, ("dump.jsonl", dump(*"aabbcc", *"aa")))
    outputs = [turns(events, f"3/{group}/{index}")[1][0][1] for group in (0, 3) for index in (0, 1)]
    assert outputs == ["0", "1", "6", "7"]


def test_a_uid_says_which_rollouts_belong_together(tmp_path: Path) -> None:
    rows = [{"input": TALK, "output": "4", "score": 1, "step": 1, "uid": uid} for uid in "aabbbbcc"]
    report, events = read(tmp_path, ("1.jsonl", lines(*rows)))
    assert sizes(events) == [2, 4, 2] and not any("prompt" in note for note in report.files[0].notes)


def test_a_step_with_one_prompt_is_held_against_all_steps(tmp_path: Path) -> None:
    files = [dump(*"aaaa", step=1), dump(*"bbbb", step=2), dump(*"c" * 8, step=3)]
    _report, events = read(tmp_path, *((f"{at}.jsonl", part) for at, part in enumerate(files)))
    assert sizes(events) == [4, 4, 4, 4]


def test_sizes_are_counted_over_all_files_and_by_step(tmp_path: Path) -> None:
    parts = [dump(*"aabb"), dump(*"aacc"), dump(*"dddd", step=4), dump(*"eeee", step=4)]
    _report, events = read(tmp_path, *((f"{at}.jsonl", part) for at, part in enumerate(parts)))
    assert sizes(events) == [2, 2, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("more", "expected", "left_out"),
    [
        ({"gts": "4"}, "4", []),
        ({"gts": ["4", "four"]}, '["4", "four"]', []),
        ({"gts": 4}, "4", []),
        ({"ground_truth": {"a": "é"}}, '{"a": "é"}', []),
        ({"gts": None, "answer": "4"}, "4", []),
        ({"gts": ""}, "", []),
        ({"gts": "4", "answer": "four"}, "4", ["answer"]),
        ({"note": "x"}, "", ["note"]),
        ({"expected_answer": "4"}, "4", []),
        ({"row_id": 3, "sample_index": 1}, "", ["row_id", "sample_index"]),
        ({"gts": "x" * 5000}, "x" * 4000, []),
    ],
)
def test_the_expected_answer_is_kept(tmp_path: Path, more: dict[str, Any], expected: str, left_out: list[str]) -> None:
    report, events = read(tmp_path, ("1.jsonl", dump("q", **more)))
    assert of(events, "rollout_started")[0].expected == expected and list(report.files[0].left_out) == left_out
    assert of(events, "rollout_finished")[0].parts == {}


def nemo(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": ASK}, "response": {"output": list(items)}, "reward": 1.0} | more


def call(name: str, number: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": number, "name": name, "arguments": arguments}


def test_rollouts_of_nemo_gym(tmp_path: Path) -> None:
    """As a run they were once refused: calls, results and reasoning are apart from messages there."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Two at once."}]}
    spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]}
    heard = {"type": "function_call_output", "call_id": "b", "output": '{"n": 4}'}
    rows = [
        nemo(
            thought,
            spoken,
            call("f", "a", '{"x": 1}'),
            call("g", "b"),
            heard,
            spoken,
            _ng_task_index=7,
            accuracy=True,
            note="x",
        ),
        nemo(spoken, _ng_task_index=8, reward=None, accuracy=None),
        nemo(spoken, reward=0.5),
        nemo({"type": "web_search_call"}, responses_create_params={"input": "Hi", "instructions": "Be kind."}),
    ]
    rows = [{"_ng_task_index": 7} | row for row in rows]
    report, events = read(tmp_path, ("example_rollouts.jsonl", lines(*rows)))
    assert (report.tool, report.verdict, report.rollouts, report.groups) == ("NeMo Gym", "ok", 4, 2)
    assert report.files[0].notes == ["Its rollouts name no step: they are those of step 1."]
    assert list(report.files[0].left_out) == ["note"]
    ends = of(events, "rollout_finished")
    assert [end.reward for end in ends] == [1.0, None, 0.5, 1.0] and ends[0].parts == {"accuracy": 1.0}
    found = [event.messages for event in of(events, "turn") if event.rollout == "1/0/0"]
    roles = [[message.role for message in turn] for turn in found]
    assert roles == [["system", "user"], ["assistant"], ["tool"], ["assistant"]]
    assert found[3][0].reasoning is None
    first = found[1][0]
    assert (first.content, first.reasoning) == ("Let me look.", "Two at once.")
    assert [(one.id, one.name, one.arguments) for one in first.tool_calls] == [("a", "f", {"x": 1}), ("b", "g", {})]
    assert (found[2][0].name, found[2][0].tool_call_id, found[2][0].content) == ("g", "b", '{"n": 4}')
    assert turns(events, "1/0/2") == [[("system", "Be kind."), ("user", "Hi")], [("assistant", "[web_search_call]")]]


def test_a_rollout_recorded_step_by_step_is_read_from_its_last_step(tmp_path: Path) -> None:
    """So Aviary's are: the question is in each step, and none in what was asked."""
    asked = {"type": "message", "role": "user", "content": "12 * 5?"}
    heard = {"type": "function_call_output", "call_id": "a", "output": "60"}
    steps = [[asked, call("calc", "a"), heard], [asked, call("calc", "a"), heard, call("submit", "b")]]
    row = nemo(task_idx=3, question_id=7) | {"responses_create_params": {"input": []}, "response": {"output": steps}}
    report, events = read(tmp_path, ("r.jsonl", lines(row, row | {"reward": 0.0})))
    assert (report.verdict, report.rollouts, sizes(events)) == ("ok", 2, [2])
    assert [turn[0][0] for turn in turns(events, "1/0/0")] == ["user", "assistant", "tool", "assistant"]
    assert report.files[0].left_out == {"question_id": "it is a number for counting, not a figure"}


def test_a_call_after_a_result_is_a_turn_of_its_own(tmp_path: Path) -> None:
    heard = {"type": "function_call_output", "call_id": "a", "output": "4"}
    _report, events = read(tmp_path, ("r.jsonl", lines(nemo(call("f", "a"), heard, call("g", "b")))))
    assert [turn[0][0] for turn in turns(events, "1/0/0")] == ["system", "assistant", "tool", "assistant"]


BAD_NEMO = {
    "no items": (nemo(response={"output": None}), "neither a text nor a list"),
    "an item that is none": (nemo(response={"output": ["x"]}), "message 1 has no role"),
    "no name": (nemo({"type": "function_call"}), "a tool call has no name"),
    "a role": (nemo({"type": "message", "role": "wizard"}), "message 1 has no role"),
    "a reward": (nemo(reward="high"), "'high' is not a number"),
}


@pytest.mark.parametrize("kind", BAD_NEMO)
def test_a_bad_rollout_is_listed_and_others_are_kept(tmp_path: Path, kind: str) -> None:
    row, words = BAD_NEMO[kind]
    report, _events = read(tmp_path, ("r.jsonl", lines(nemo(), row)))
    assert (report.rollouts, report.bad_rows) == (1, 1) and words in report.bad[0].reason and report.bad[0].line == 2


def art(reward: float, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Red.", "reasoning": "hm"}
    whole = [*ASK, {"finish_reason": "stop", "index": 0, "message": message}]
    row = {"messages_and_choices": whole, "reward": reward, "metrics": {"len": 3, "ok": True}, "metadata": {}}
    return row | {"logs": []} | more


def test_trajectories_of_art(tmp_path: Path) -> None:
    rows = [art(1.0, metadata={"group_id": "x", "answer": "red"}), art(0.5, metadata={"group_id": "x"}), art(0.0)]
    plain = {"messages": [*ASK, {"role": "assistant", "content": "Blue."}], "reward": 0.25}
    report, events = read(tmp_path, ("0042.jsonl", lines(*rows, plain)))
    assert (report.tool, report.rollouts, report.last_step, sizes(events)) == ("ART", 4, 42, [2, 2])
    assert [end.reward for end in of(events, "rollout_finished")] == [1.0, 0.5, 0.0, 0.25]
    assert of(events, "rollout_finished")[0].parts == {"len": 3.0, "ok": 1.0}
    assert of(events, "rollout_started")[0].expected == "red"
    assert of(events, "turn")[1].messages[0].reasoning == "hm"


def test_calls_in_a_text_and_its_thoughts_are_kept_apart(tmp_path: Path) -> None:
    text = '<think>hm</think>Now.<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
    row = {"messages": [*ASK, {"role": "assistant", "content": text}], "reward": 0.25}
    _report, events = read(tmp_path, ("1.jsonl", lines(row)))
    message = of(events, "turn")[1].messages[0]
    assert (message.content, message.reasoning, message.tool_calls[0].arguments) == ("Now.", "hm", {"x": 1})


def test_groups_of_trajectories_are_groups(tmp_path: Path) -> None:
    rows = [{"trajectories": [art(1.0), art(0.0)]}, {"trajectories": [art(0.5)]}, {"trajectories": [art(0.5), "x"]}]
    report, events = read(tmp_path, ("0001.jsonl", lines(*rows)))
    assert (report.rollouts, sizes(events), report.bad_rows) == (4, [2, 1, 1], 1)


def trace(**more: Any) -> dict[str, Any]:
    ask = {"id": "c", "name": "f", "arguments": '{"x": 1}'}
    nodes = [
        {"parent": None, "message": ASK[0]},
        {"parent": 0, "message": ASK[1]},
        {"parent": 1, "sampled": True, "message": {"role": "assistant", "content": "", "tool_calls": [ask]}},
        {"parent": 2, "message": {"role": "tool", "tool_call_id": "c", "content": "4"}},
        {"parent": 3, "sampled": True, "message": {"role": "assistant", "content": "Four.", "reasoning_content": "hm"}},
    ]
    rewards = {"exact": {"score": 1.0, "weight": 2.0}, "short": {"score": 0.5, "weight": 1.0}, "late": None}
    task = {"type": "T", "data": {"question": "q", "answer": "4"}, "key": "t1"}
    return {"version": 1, "nodes": nodes, "rewards": rewards, "metrics": {"turns": 2, "odd": None}, "task": task} | more


def test_traces_of_verifiers(tmp_path: Path) -> None:
    branched = trace(info={"group_id": "g"})
    branched["nodes"].append({"parent": 1, "sampled": True, "message": {"role": "assistant", "content": "Other."}})
    rows = [
        trace(run={"type": "train", "id": "r", "step": 12}),
        trace(rewards={"exact": None}),
        trace(rewards={"exact": 0.25}, task={"data": {"question": "p"}}),
        branched,
    ]
    report, events = read(tmp_path, ("traces.jsonl", lines(*rows)))
    assert (report.tool, report.verdict, report.rollouts, report.last_step) == ("verifiers", "ok", 4, 12)
    ends = of(events, "rollout_finished")
    assert [end.reward for end in ends] == [2.5, None, 0.25, 2.5]
    assert ends[0].parts == {"exact": 1.0, "short": 0.5, "late": None, "turns": 2.0, "odd": None}
    assert turns(events, "12/0/0") == [
        [("system", "Be brief."), ("user", "Red or blue?")],
        [("assistant", "")],
        [("tool", "4")],
        [("assistant", "Four.")],
    ]
    found = [event.messages[0] for event in of(events, "turn") if event.rollout == "12/0/0"]
    assert found[1].tool_calls[0].arguments == {"x": 1} and found[3].reasoning == "hm"
    assert of(events, "rollout_started")[0].expected == "4"
    assert "1 trace has several branches: the last one is shown." in report.files[0].notes
    assert turns(events, "1/2/0")[1:] == [[("assistant", "Other.")]]


@pytest.mark.parametrize("parent", [7, -1, 4, "0", True])
def test_a_trace_that_goes_in_circles_is_listed(tmp_path: Path, parent: Any) -> None:
    broken = trace()
    broken["nodes"][4]["parent"] = parent
    report, _events = read(tmp_path, ("traces.jsonl", lines(trace(), broken)))
    assert [bad.reason for bad in report.bad] == ["its messages do not follow one another"]


def test_results_of_verifiers(tmp_path: Path) -> None:
    """Its calls are JSON in texts, which once was “a tool call has no name”."""
    text = json.dumps({"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}})
    done = [
        {"role": "assistant", "content": "", "tool_calls": [text]},
        {"role": "tool", "content": "4", "tool_call_id": "c"},
    ]
    row = {"example_id": 5, "prompt": ASK, "completion": done, "answer": "4", "reward": 0.5, "format": 1.0}
    row |= {"generation_ms": 4.5, "is_completed": True, "info": {"a": 1}}
    broken = row | {"completion": [{"role": "assistant", "content": "", "tool_calls": ["{broken"]}]}
    rows = [row, row | {"reward": 1.0}, row | {"example_id": 6}, broken]
    report, events = read(tmp_path, ("results.jsonl", lines(*rows)))
    assert (report.tool, report.rollouts, sizes(events), report.last_step) == ("verifiers", 3, [2, 1], 1)
    assert [end.reward for end in of(events, "rollout_finished")] == [0.5, 1.0, 0.5]
    assert of(events, "rollout_finished")[0].parts == {"format": 1.0}
    assert of(events, "turn")[1].messages[0].tool_calls[0].arguments == {"x": 1}
    assert of(events, "rollout_started")[0].expected == "4" and list(report.files[0].left_out) == ["info"]
    assert [bad.reason for bad in report.bad] == ["a tool call is not valid JSON"]


def test_completions_with_a_reward_need_no_step(tmp_path: Path) -> None:
    row = {"prompt": ASK, "completion": [{"role": "assistant", "content": "Red."}], "reward": 1.0, "task": "t"}
    report, _events = read(tmp_path, ("results.jsonl", lines(row)))
    assert (report.verdict, report.last_step) == ("ok", 1)
    assert "Its rollouts name no step: they are those of step 1." in report.files[0].notes
    again = tmp_path / "again"
    again.mkdir()
    report, _events = read(again, ("results.jsonl", lines({"prompt": "q", "completion": "a", "accuracy": 1.0})))
    assert "it has no step number, and neither has the file's name" in report.message


@pytest.mark.parametrize("name", ["step", "gen_step"])
def test_completions_of_ms_swift_are_columns(tmp_path: Path, name: str) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    row = {
        name: ["5", "5"] if name == "step" else [5, 5],
        "prompt": [prompt] * 2,
        "completion": ["ho<|im_end|>", "he<|im_end|>"],
        "Accuracy": [1.0, 0.0],
        "advantages": [0.7, -0.7],
    }
    report, events = read(tmp_path, ("completions.jsonl", lines(row)))
    assert (report.tool, report.rollouts, sizes(events), report.last_step) == ("ms-swift", 2, [2], 5)
    assert [end.reward for end in of(events, "rollout_finished")] == [1.0, 0.0]
    assert of(events, "group_scored")[0].advantages == [0.7, -0.7]
    assert turns(events, "5/0/1") == [[("user", "hi")], [("assistant", "he")]]
