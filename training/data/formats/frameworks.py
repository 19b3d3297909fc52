"""Rows of other training frameworks, which name a task and how it is scored: verl and NeMo Gym."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training.data.formats.base import DataFormat, Value, converted, fits
from training.data.formats.bfcl import Watch
from training.data.messages import messages_of, parts_of, tools_of
from training.data.options import ReadOptions
from training.data.problems import RowError, kind, shown
from training.data.schema import Raw, Record, Row, Sample, Spelling, make_row, row_from_dict, written
from training.plain import REASONING
from training.words import _, sentence

# verl's rows: prompt, data_source, ability, reward_model and extra_info, with an interaction's arguments.
#
# EnvTuning, WebShop, verl's own GSM8K scripts and ToolBench's converter use it, each with its own extra_info.

COLUMNS = ("data_source", "prompt", "ability", "reward_model", "extra_info")
TOOLBENCH = "toolbench"
TOOLBENCH_CATEGORY = "G1_category"
"""The category that ToolBench's converter writes for every row. It is no category of ToolBench's."""


def _recognise_verl(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        known = isinstance(row.get("reward_model"), dict) or isinstance(row.get("extra_info"), dict)
        return isinstance(row.get("prompt"), list) and known

    return fits(sample, test, _("have a list under `prompt`, with `reward_model` or `extra_info`"))


def _read_records_verl(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    watch = Watch(options.version)

    def convert(value: Value) -> Row:
        row = row_from_dict(value)
        watch.see_verl_row(value)
        system = row.messages[0].content if row.messages and row.messages[0].role == "system" else ""
        if "<thinking>" in system and str(value.get("data_source")).startswith("multi_turn_"):
            row.notes.append(("thinking_tag", {}))
        return row

    return converted(raws, convert)


def write_verl(row: Row) -> Value:
    """The five columns; what has no place among them goes to extra_info."""
    own = {name: value for name, value in row.extra.items() if name in COLUMNS}
    if own:
        rest = {name: value for name, value in row.extra.items() if name not in COLUMNS}
        return {**_placed(row), **rest}
    truth = row.extra.get("ground_truth")
    info = dict(row.extra)
    if row.tools is not None:
        info["tools"] = row.tools
    return {
        "data_source": str(row.extra.get("data_source", "tiltyard")),
        "prompt": prompt_of(row),
        "ability": "tools" if row.tools else "chat",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": info,
    }


def _placed(row: Row) -> Value:
    """The columns in the order in which verl's scripts write them."""
    values: Value = {}
    for name in COLUMNS:
        if name == "prompt":
            values[name] = prompt_of(row)
        elif name in row.extra:
            values[name] = row.extra[name]
    if row.tools is not None:
        values["tools"] = row.tools
    return values


def prompt_of(row: Row) -> list[Value]:
    """The messages with the roles that they had."""
    roles = row.spelling.roles
    spelled = roles if len(roles) == len(row.messages) else [message.role for message in row.messages]
    prompt = written(row)
    for role, message, item in zip(spelled, row.messages, prompt, strict=True):
        if message.tool_calls is None:
            item["role"] = role
    return prompt


def toolbench_row(row: Row, index: int, number: int) -> Value | None:
    """The row of ToolBench's converter; ``None`` where it leaves a row out. ``index`` counts within its output."""
    roles = row.spelling.roles
    is_ours = row.spelling.key == "messages" or len(roles) != len(row.messages)
    named = ["function" if item.role == "tool" else item.role for item in row.messages] if is_ours else roles
    prompt = [
        {"role": role, "from": role, "content": message.content}
        for role, message in zip(named, row.messages, strict=True)
        if message.content
    ]
    if not prompt:
        return None
    return {
        "prompt": prompt,
        "data_source": TOOLBENCH,
        "reward_model": {"style": "function", "ground_truth": None},
        "extra_info": {
            "index": index,
            "sample_id": row.extra.get("id", f"sample_{number}"),
            "category": TOOLBENCH_CATEGORY,
        },
    }


VERL_FORMAT = DataFormat(
    name="verl",
    title=_("verl"),
    about=_(
        "Parquet or JSON Lines with `prompt`, `data_source`, `ability`, `reward_model` and `extra_info`, which "
        "may hold `interaction_kwargs` or `tools_kwargs`. EnvTuning, WebShop and GSM8K rows keep all of it."
    ),
    example='{"data_source": "webshop", "prompt": […], "ability": "shopping", "reward_model": {…}, "extra_info": '
    '{"interaction_kwargs": {"name": "webshop", "session_id": 5238}}}',
    rank=0.95,
    learned="The assistant's turns of `prompt`, where there are any.",
    recognise=_recognise_verl,
    read=_read_records_verl,
    write=write_verl,
    written_as="parquet",
    options=("cut", "version"),
)


# NeMo Gym: ``responses_create_params`` of OpenAI's Responses API, with all that its verifier reads next to it.

NAME = _("NeMo Gym's rows")
PARAMS = "responses_create_params"
_MESSAGE_KEYS = ("role", "content", "name")


def _recognise_nemo_gym(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample, lambda row: isinstance(row.get(PARAMS), dict), _("have `responses_create_params` of the Responses API")
    )


def _read_records_nemo_gym(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    return converted(raws, lambda value: _convert(value, options.shape))


def _convert(value: Value, shape: str) -> Row:
    params = value.get(PARAMS)
    if not isinstance(params, dict):
        detail = sentence(_("`{key}` is {kind}, not an object"), key=PARAMS, kind=kind(params))
        raise RowError("shape", format=NAME, detail=detail)
    items, extra, spelling = _items(params), dict(value), Spelling()
    played = _played(value)
    if played is not None and shape == "sft":
        items += turns_of(played)
        if "label" not in value and _is_number(value.get("reward")):
            extra["label"] = value["reward"] > 0
            spelling.added.append("label")
    messages, others, _roles = messages_of(items)
    facts = () if played is None else ("played",) if shape == "sft" else ("rollouts",)
    if "ground_truth" not in value and value.get("expected_answer") not in (None, ""):
        extra["ground_truth"] = value["expected_answer"]
        spelling.added.append("ground_truth")
    tools = tools_of(params.get("tools")) or None
    others = others if any(others) else None  # type: ignore[assignment]
    return make_row(messages, extra, tools=tools, others=others, spelling=spelling, facts=facts)


def _played(value: Value) -> list[Value] | None:
    """The answer of a policy, where the row is a recorded rollout."""
    response = value.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    return output if isinstance(output, list) and output and all(isinstance(item, dict) for item in output) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _items(params: Value) -> list[Value]:
    """The input as chat messages; instructions come first. Raises ``RowError``."""
    given = params.get("input")
    if isinstance(given, str) and given:
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise RowError("shape", format=NAME, detail=sentence(_("`input` is neither text nor a list of messages")))
    instructions = params.get("instructions")
    first = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    return [*first, *turns_of(given)]


def turns_of(items: list[Value]) -> list[Value]:
    """Items of the Responses API as chat messages. Raises ``RowError``.

    The API writes each call, the words before it and the reasoning as items of their own; what follows each other
    without a result between is one turn.
    """
    turns: list[Value] = []
    thought = ""
    for item in items:
        what = item.get("type") or "message"
        if what == "reasoning":
            thought += _thought(item)
            continue
        turn = _turn(item, what)
        last = turns[-1] if turns else {}
        if turn.get("role") == "assistant" and thought:
            turn, thought = turn | {REASONING[0]: thought}, ""
        if "tool_calls" in turn and last.get("role") == "assistant":
            last["tool_calls"] = last.get("tool_calls", []) + turn.pop("tool_calls")
            turns[-1] = turn | last
        else:
            turns.append(turn)
    return turns


def _thought(item: Value) -> str:
    """The text of a reasoning item: what was thought, or else its summary; neither where it is encrypted."""
    for name in ("content", "summary"):
        if isinstance(item.get(name), list) and item[name]:
            return parts_of(item[name], "a reasoning item").reasoning
    return ""


def _turn(item: Value, what: Any) -> Value:
    """One item as a message."""
    if what == "message":
        return {name: item[name] for name in _MESSAGE_KEYS if item.get(name) is not None}
    if what == "function_call":
        call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if what == "function_call_output":
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    raise RowError("shape", format=NAME, detail=sentence(_("an item has the unknown type {type}"), type=shown(what)))


def write_nemo_gym(row: Row) -> Value:
    """The row as in the file. Raises ``RowError`` for one that never was of NeMo Gym."""
    if not isinstance(row.extra.get(PARAMS), dict):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `responses_create_params`")))
    return {name: value for name, value in row.extra.items() if name not in row.spelling.added}


NEMO_GYM_FORMAT = DataFormat(
    name="nemo_gym",
    title=_("NeMo Gym"),
    about=_(
        "`responses_create_params` with `input` (text, messages, function calls and their outputs), `instructions` "
        "and `tools`; `expected_answer` becomes `ground_truth`. All fields stay with the row, for the verifier. "
        "Recorded rollouts (`response`, `reward`) are read as tasks, or as demonstrations for SFT; demonstrations "
        "without a reward are marked as bad."
    ),
    example='{"responses_create_params": {"input": [{"role": "user", "content": "…"}], "tools": […]}, '
    '"expected_answer": "…"}',
    rank=0.97,
    learned="The assistant's turns of `input`; with shape `sft` also those of `response`, if rewarded.",
    recognise=_recognise_nemo_gym,
    read=_read_records_nemo_gym,
    options=("cut", "shape"),
    write=write_nemo_gym,
)
