"""Formats whose rows are conversations, or pairs of answers: ours, OpenAI's, ShareGPT's, Alpaca's and others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from training.data.formats.base import (
    DataFormat,
    Value,
    call_texts,
    converted,
    each,
    fits,
    text_of,
    without,
    written_messages,
)
from training.data.formats.columns import mapped_row
from training.data.learned import pair_keys
from training.data.messages import messages_of, plain, tools_key, tools_of
from training.data.native import Markup, markup_of, pieces
from training.data.options import ColumnMapping, ReadOptions
from training.data.problems import RowError, kind
from training.data.schema import (
    Message,
    Raw,
    Record,
    Row,
    Sample,
    Spelling,
    as_it_stood,
    conversation_key,
    make_row,
    message_dict,
    other_fields,
    others_of,
    row_from_dict,
    written,
)
from training.words import _, sentence

# Our own format: one conversation a row, in JSON Lines. Also what any other conversation is read as.

ANY_KIND = _("hold a list of messages")


def _recognise_conversation(sample: Sample) -> tuple[int, str] | None:
    return fits(sample, lambda row: isinstance(row.get(conversation_key(row) or ""), list), ANY_KIND)


def write_conversation(row: Row) -> Value:
    """A row with its conversation under the key and with the roles that it had."""
    row = as_it_stood(row)
    roles = row.spelling.roles
    messages = written(row)
    if len(roles) == len(messages):
        for message, role, own in zip(messages, roles, row.messages, strict=True):
            message["role"] = role if own.tool_calls is None else own.role
    tools = {row.spelling.tools: row.tools} if row.tools is not None else {}
    return {row.spelling.key: messages, **tools, **row.extra}


CONVERSATION_FORMAT = DataFormat(
    name="conversation",
    title=_("Conversations"),
    about=_(
        "One conversation a row under `messages`, `conversation`, `conversations` or `prompt`. Roles of OpenAI, "
        "ShareGPT, ms-swift and of multi-turn GRPO (`tool_result`) are understood, and contents in parts of OpenAI, "
        "LLaMA-Factory and Anthropic; other fields stay with the row."
    ),
    example='{"conversation": [{"role": "user", "content": "25 * 37 + 128?"}]}',
    rank=0.5,
    recognise=_recognise_conversation,
    read=each(row_from_dict),
    write=write_conversation,
    takes_messages=True,
)


# OpenAI chat messages with tools, as fine-tuning files have them.


def _recognise_openai(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        messages = row.get("messages")
        if not isinstance(messages, list) or not messages:
            return False
        calls = any(isinstance(item, dict) and item.get("tool_calls") for item in messages)
        return (calls or isinstance(row.get("tools"), list)) and all(
            isinstance(item, dict) and item.get("role") in ("system", "developer", "user", "assistant", "tool")
            for item in messages
        )

    return fits(sample, test, _("have `messages` of OpenAI's roles with `tools` or `tool_calls`"))


def write_openai(row: Row) -> Value:
    """Calls under `function`, their arguments as JSON text, as the API has them."""
    messages = written(row)
    for message, shown in zip(row.messages, messages, strict=True):
        if message.tool_calls is not None:
            shown["content"] = message.content or None
            shown["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for call in message.tool_calls
            ]
    tools = {"tools": row.tools} if row.tools is not None else {}
    return {"messages": messages, **tools, **row.extra}


OPENAI_FORMAT = DataFormat(
    name="openai",
    title=_("OpenAI messages with tools"),
    about=_("`messages` with `tool_calls` and tool results, and the function schemas under `tools`."),
    example='{"messages": [{"role": "user", "content": "…"}], "tools": [{"type": "function", "function": {…}}]}',
    rank=0.8,
    recognise=_recognise_openai,
    read=each(row_from_dict),
    write=write_openai,
    takes_messages=True,
)


# ShareGPT: ``conversations`` of ``from`` and ``value``.

ROLES = {"user": "human", "assistant": "gpt", "tool": "observation"}


def _recognise_sharegpt(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        items = row.get("conversations")
        return (
            isinstance(items, list)
            and bool(items)
            and all(isinstance(item, dict) and "from" in item and "value" in item for item in items)
        )

    return fits(sample, test, _("have `conversations` of `from` and `value`"))


def write_sharegpt(row: Row) -> Value:
    """Calls become messages of their own, from `function_call`."""
    row = as_it_stood(row)
    roles = row.spelling.roles
    kept = roles if len(roles) == len(row.messages) and row.spelling.key == "conversations" else None
    items: list[Value] = []
    for number, (message, other) in enumerate(zip(row.messages, others_of(row), strict=True)):
        other = other_fields(message, other)
        if message.content or not message.tool_calls:
            role = kept[number] if kept and not message.tool_calls else ROLES.get(message.role, message.role)
            items.append({"from": role, "value": message.content} | other)
            other = {}
        for text in call_texts(message):
            items.append({"from": "function_call", "value": text} | other)
    tools = {"tools": json.dumps(row.tools, ensure_ascii=False)} if row.tools is not None else {}
    return {"conversations": items, **tools, **row.extra}


SHAREGPT_FORMAT = DataFormat(
    name="sharegpt",
    title=_("ShareGPT"),
    about=_("`conversations` of `from` (human, gpt, system, function_call, observation) and `value`."),
    example='{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]}',
    rank=0.75,
    recognise=_recognise_sharegpt,
    read=each(row_from_dict),
    write=write_sharegpt,
    written_as="json",
)


# ms-swift: agent rows, whose calls and results are messages of their own, and gym rows, which only name a task.

_OWN = {"tool_call", "tool_response"}


def _recognise_swift(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        items = row.get("messages")
        if not isinstance(items, list):
            return False
        roles = {item.get("role") for item in items if isinstance(item, dict) and isinstance(item.get("role"), str)}
        return bool(roles & _OWN) or isinstance(row.get("env_config"), dict) or isinstance(row.get("tools"), str)

    return fits(sample, test, _("have tool_call and tool_response messages, tools as text, or an `env_config`"))


def write_swift(row: Row) -> Value:
    """Each call a message of its own, JSON as text, tools as text."""
    roles = row.spelling.roles
    kept = roles if len(roles) == len(row.messages) else None
    items: list[Value] = []
    for number, (message, other) in enumerate(zip(row.messages, others_of(row), strict=True)):
        if message.content or not message.tool_calls:
            role = kept[number] if kept and not message.tool_calls else message.role
            role = "tool_response" if role == "tool" and not kept else role
            shown = message_dict(message, other) | {"role": role}
            items.append({name: value for name, value in shown.items() if name != "tool_calls"})
        for text in call_texts(message):
            fields = {} if message.content else other_fields(message, other)
            items.append({"role": "tool_call", "content": text} | fields)
    tools = {"tools": json.dumps(row.tools, ensure_ascii=False)} if row.tools is not None else {}
    return {**tools, "messages": items, **row.extra}


SWIFT_FORMAT = DataFormat(
    name="swift",
    title=_("ms-swift agent and gym rows"),
    about=_(
        "`messages` with roles tool_call and tool_response whose content is JSON text; parallel calls follow "
        "each other; `tools` is JSON text. Gym rows carry an `env_config`."
    ),
    example='{"tools": "[…]", "messages": [{"role": "tool_call", "content": "{\\"name\\": …}"}]}',
    rank=0.9,
    learned="The assistant's turns and calls but those with `loss` false; with `rejected_response` a pair for DPO.",
    recognise=_recognise_swift,
    read=each(row_from_dict),
    write=write_swift,
    takes_messages=True,
)


# A conversation as one text, as a chat template wrote it, such as a `text` column with the marks of ChatML.

MARKED_NAME = _("texts with the marks of a chat template")
COMPLETION, ANSWERS = "completion", ("response", "output", "answer", "solution", "target")
"""Columns that answer a prompt which ends with the mark that asks the model to speak: TRL's, and those of tables."""


def _recognise_marked(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample, lambda row: _marked(row) is not None, _("hold a conversation as one text with a template's marks")
    )


def _marked(value: Value) -> tuple[str, Markup] | None:
    """The column that holds the conversation, and its marks."""
    for name, text in value.items():
        markup = markup_of(text) if isinstance(text, str) else None
        if markup is not None:
            return name, markup
    return None


def _read_records_marked(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    return converted(raws, lambda value: _convert_marked(value, options.shape))


def _convert_marked(value: Value, shape: str) -> Row:
    found = _marked(value)
    if found is None:
        raise RowError("shape", format=MARKED_NAME, detail=sentence(_("no column of it has such marks")))
    name, markup = found
    turns = pieces(markup, value[name], "")
    extra, spelling = without(value, name), Spelling(key=name)
    if turns[-1][0] == "assistant" and not turns[-1][1].strip():  # the mark that asks the model to speak
        turns.pop()
        answer = next((key for key in (COMPLETION, *ANSWERS) if isinstance(extra.get(key), str) and extra[key]), None)
        if answer == COMPLETION:
            del extra[COMPLETION]
        elif answer is not None and "ground_truth" not in extra:
            extra["ground_truth"] = extra[answer]
            spelling.added.append("ground_truth")
        if answer == COMPLETION or (answer is not None and shape == "sft"):
            turns += pieces(markup, value[answer], "assistant")
    messages: list[Message] = [plain(role, text) for role, text in turns]  # type: ignore[arg-type]
    return make_row(messages, extra, spelling=spelling, facts=("marked",))


MARKED_FORMAT = DataFormat(
    name="marked",
    title=_("Texts with the marks of a chat template"),
    about=_(
        "A conversation as one text, such as a `text` column, with the marks of ChatML, Llama 3, Gemma or Zephyr. It "
        "is split into turns at them. If it ends with the mark that asks the model to speak, a `completion` is the "
        "next turn; a `response` or `answer` becomes `ground_truth`, and a turn for SFT."
    ),
    example='{"text": "<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\nhello<|im_end|>\\n"}',
    rank=0.96,
    learned="The assistant's turns; an answer in a column of its own with shape `sft`.",
    recognise=_recognise_marked,
    read=_read_records_marked,
    options=("cut", "shape"),
)


# Alpaca's instructions, as LLaMA-Factory has them: with ``input``, ``system`` and earlier turns under ``history``.

ALPACA_NAME = _("Alpaca's instructions")
MAPPING = ColumnMapping(prompt="instruction", input="input", history="history", system="system", answer="output")


def _recognise_alpaca(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample,
        lambda row: isinstance(row.get("instruction"), str) and isinstance(row.get("output"), str),
        _("have an `instruction` with an `output`"),
    )


def _read_records_alpaca(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    return converted(raws, lambda value: mapped_row(value, MAPPING, options.shape))


def write_alpaca(row: Row) -> Value:
    """The columns as in the file. Raises ``RowError`` for a row that never had them."""
    if not isinstance(row.extra.get("instruction"), str) or "output" not in row.extra:
        raise RowError("shape", format=ALPACA_NAME, detail=sentence(_("it has no `instruction` with an `output`")))
    return without(row.extra, *row.spelling.added)


ALPACA_FORMAT = DataFormat(
    name="alpaca",
    title=_("Alpaca instructions"),
    about=_(
        "`instruction` and `output`, maybe with `input` (below the instruction), `system` (the first message) and "
        "`history` (earlier pairs of question and answer). The output becomes `ground_truth`, and a turn for SFT."
    ),
    example='{"instruction": "Translate", "input": "你好", "output": "Hello", "history": [["…", "…"]]}',
    rank=0.9,
    learned="The answers of `history`, and with shape `sft` the `output`.",
    recognise=_recognise_alpaca,
    read=_read_records_alpaca,
    write=write_alpaca,
    written_as="json",
    options=("cut", "shape"),
)


# AgentGym: AgentTraj's trajectories and AgentEval's ids of episodes.

AGENTGYM_NAME = _("AgentGym's rows")
_ROLES = {"user": "human", "assistant": "gpt"}


def _recognise_agentgym(sample: Sample) -> tuple[int, str] | None:
    return fits(sample, lambda row: isinstance(row.get("item_id"), str), _("name an episode by `item_id`"))


def _convert_agentgym(value: Value) -> Row:
    text_of(value, "item_id", AGENTGYM_NAME)
    items = value.get("conversations")
    if items is None:
        return make_row([], without(value, "conversations"), spelling=_spelling(value, []))
    if not isinstance(items, list):
        raise RowError(
            "shape", format=AGENTGYM_NAME, detail=sentence(_("`conversations` is {kind}, not a list"), kind=kind(items))
        )
    messages, others, roles = messages_of(items)
    return make_row(
        messages,
        without(value, "conversations"),
        others=others if any(others) else None,
        spelling=_spelling(value, roles),
    )


def _spelling(value: Value, roles: list[str]) -> Spelling:
    return Spelling(key="conversations" if "conversations" in value else "", roles=roles)


def write_agentgym(row: Row) -> Value:
    """A trajectory, or an id whose conversation is null."""
    if not isinstance(row.extra.get("item_id"), str):
        raise RowError("shape", format=AGENTGYM_NAME, detail=sentence(_("it has no `item_id`")))
    if not row.messages:
        return {**row.extra, "conversations": None} if row.spelling.key else dict(row.extra)
    items = written_messages(row, "from", "value", _ROLES)
    return {**row.extra, "conversations": items}


AGENTGYM_FORMAT = DataFormat(
    name="agentgym",
    title=_("AgentTraj and AgentEval"),
    about=_(
        "`item_id` such as webshop_6, and the trajectory under `conversations` (from human and gpt, with "
        "`loss`) or null; an id alone starts from the environment's opening."
    ),
    example='{"item_id": "webshop_5238", "conversations": null}',
    rank=0.96,
    learned="The assistant's turns but those with `loss` false; nothing of an id alone.",
    recognise=_recognise_agentgym,
    read=each(_convert_agentgym),
    write=write_agentgym,
    written_as="json",
)


# Preference pairs as TRL reads them for DPO: ``chosen`` and ``rejected``, with ``prompt`` or a common beginning.
#
# The row asks what both answer. The pair stays with it as it is, for methods that learn from it.

PREFERENCE_NAME = _("pairs of `chosen` and `rejected`")
_TURN = "\n\nAssistant:"
_ASKED = ("prompt", "messages", "conversations", "conversation")
"""The columns with the question of a pair: with TRL, and with LLaMA-Factory."""


def _recognise_preference(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        return all(isinstance(given, str | list | dict) and given for given in map(row.get, pair_keys(row)))

    return fits(sample, test, _("have a `chosen` and a `rejected` answer"))


def _convert_preference(value: Value) -> Row:
    messages, others, roles = _asked(value)
    source = value["input"] if isinstance(value.get("input"), dict) else value  # OpenAI's
    under = tools_key(source)
    extra = {name: item for name, item in value.items() if name not in (*_ASKED[1:], "tools", under)}
    return make_row(
        messages,
        extra,
        tools=tools_of(source.get(under)),
        others=others if any(others) else None,
        spelling=Spelling(roles=roles, tools_as_text=isinstance(source.get(under), str), tools=under),
        facts=("preference",),
    )


def _asked(value: Value) -> tuple[list[Message], list[Value], list[str]]:
    """The messages before both answers. Raises ``RowError``."""
    source = value["input"] if isinstance(value.get("input"), dict) else value
    prompt = next((source[name] for name in _ASKED if source.get(name)), None)
    if isinstance(prompt, str) and prompt:
        return [plain("user", prompt)], [], ["user"]
    if isinstance(prompt, list) and prompt:
        return messages_of(prompt)
    chosen, rejected = map(value.get, pair_keys(value))
    if isinstance(chosen, list) and isinstance(rejected, list):
        return messages_of(_common(chosen, rejected))
    if isinstance(chosen, str) and isinstance(rejected, str):
        text = "".join(_common(chosen, rejected))
        text = text[: text.rfind(_TURN)] if _TURN in text else ""
        if text:
            return [plain("user", text.removeprefix("\n\nHuman:").strip())], [], ["user"]
    raise _nothing_common()


def _common(chosen: Sequence[Any], rejected: Sequence[Any]) -> list[Any]:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))
    same = [one for one, _other in pairs]
    if not same:
        raise _nothing_common()
    return same


def _nothing_common() -> RowError:
    detail = sentence(_("there is no `prompt`, and the two begin with nothing in common"))
    return RowError("shape", format=PREFERENCE_NAME, detail=detail)


def write_preference(row: Row) -> Value:
    """The columns as in the file. Raises ``RowError`` for a row without a pair."""
    if not all(name in row.extra for name in pair_keys(row.extra)):
        raise RowError("shape", format=PREFERENCE_NAME, detail=sentence(_("it has no `chosen` and `rejected`")))
    return dict(row.extra) | ({row.spelling.tools: row.tools} if row.tools is not None else {})


PREFERENCE_FORMAT = DataFormat(
    name="preference",
    title=_("Preference pairs"),
    about=_(
        "`chosen` and `rejected` answers, texts or lists of messages, with a `prompt` or with the beginning that both "
        "have in common. The row asks what both answer; the pair is kept with it, for DPO."
    ),
    example='{"prompt": "…", "chosen": "…", "rejected": "…"}',
    rank=0.97,
    learned="DPO: `chosen` over `rejected`. SFT: assistants' turns that both have in common, where there are any.",
    recognise=_recognise_preference,
    read=each(_convert_preference),
    write=write_preference,
    takes_messages=True,
)
