"""NeMo Gym: ``responses_create_params`` of OpenAI's Responses API, with whatever its verifier reads beside it."""

from __future__ import annotations

from typing import Any

from training.data.formats.base import DataFormat, Value, each, fits
from training.data.messages import messages_of
from training.data.problems import RowError, kind, shown
from training.data.raw import Sample
from training.data.schema import Row, Spelling, make_row
from training.words import _, sentence

NAME = _("NeMo Gym's rows")
PARAMS = "responses_create_params"
_MESSAGE_KEYS = ("role", "content", "name")


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample, lambda row: isinstance(row.get(PARAMS), dict), _("have `responses_create_params` of the Responses API")
    )


def _convert(value: Value) -> Row:
    params = value.get(PARAMS)
    if not isinstance(params, dict):
        detail = sentence(_("`{key}` is {kind}, not an object"), key=PARAMS, kind=kind(params))
        raise RowError("shape", format=NAME, detail=detail)
    messages, others, _roles = messages_of(_items(params))
    extra, spelling = dict(value), Spelling()
    if "ground_truth" not in value and value.get("expected_answer") not in (None, ""):
        extra["ground_truth"] = value["expected_answer"]
        spelling.added.append("ground_truth")
    tools = _tools(params.get("tools"))
    return make_row(messages, extra, tools=tools, others=others if any(others) else None, spelling=spelling)


def _items(params: Value) -> list[Value]:
    """The input as chat messages; instructions come first. Raises ``RowError``."""
    given = params.get("input")
    if isinstance(given, str) and given:
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise RowError("shape", format=NAME, detail=sentence(_("`input` is neither text nor a list of messages")))
    instructions = params.get("instructions")
    first = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    return [*first, *(turn for item in given for turn in _turns(item))]


def _turns(item: Value) -> list[Value]:
    """One item of the input; reasoning is no turn and stays in the row's parameters."""
    what = item.get("type") or "message"
    if what == "message":
        return [{name: item[name] for name in _MESSAGE_KEYS if item.get(name) is not None}]
    if what == "function_call":
        call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    if what == "function_call_output":
        return [{"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}]
    if what == "reasoning":
        return []
    raise RowError("shape", format=NAME, detail=sentence(_("an item has the unknown type {type}"), type=shown(what)))


def _tools(value: Any) -> list[Value] | None:
    """Function tools as chat completions write them: the Responses API has name and parameters without a wrapper."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(tool, dict) for tool in value):
        raise RowError("tools_type")
    return [
        tool
        if "function" in tool or tool.get("type", "function") != "function"
        else {"type": "function", "function": {name: item for name, item in tool.items() if name != "type"}}
        for tool in value
    ]


def write(row: Row) -> Value:
    """The row as it stood. Raises ``RowError`` for one that never was of NeMo Gym."""
    if not isinstance(row.extra.get(PARAMS), dict):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `responses_create_params`")))
    return {name: value for name, value in row.extra.items() if name not in row.spelling.added}


FORMAT = DataFormat(
    name="nemo_gym",
    title=_("NeMo Gym"),
    about=_(
        "`responses_create_params` with `input` (text, messages, function calls and their outputs), `instructions` and "
        "`tools`; `expected_answer` becomes `ground_truth`. All fields stay with the row, for the verifier."
    ),
    example='{"responses_create_params": {"input": [{"role": "user", "content": "…"}], "tools": […]}, '
    '"expected_answer": "…"}',
    rank=0.97,
    recognise=_recognise,
    read=each(_convert),
    write=write,
)
