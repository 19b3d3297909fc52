"""ToolBench and StableToolBench: dialogues of single steps, files of answers, and files of queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from training.data.formats.base import DataFormat, Value, converted, each, fits, text_of, without, written_messages
from training.data.messages import messages_of, plain, tools_of
from training.data.options import ReadOptions
from training.data.problems import Ignored, RowError, kind, shown
from training.data.schema import Raw, Record, Row, Sample, Spelling, make_row
from training.data.strict import read_literal, strict_loads
from training.errors import DataError
from training.plain import LiteralError
from training.words import _, sentence

# ToolBench's ``toolllama_*`` JSON: one record for each step prefix, ReAct texts, the APIs as a Python list.

APIS = "access to the following APIs: "
_ACTION = re.compile(r"\nAction: *+([^\n]*+)\nAction Input: *+")
"""Possessive, so that a line of nothing but spaces is not tried at every one of them."""
_FINISH = "Finish"
_ROLES = {"tool": "function"}
STEPS_NAME = _("ToolBench's records")


def _recognise_steps(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        items = row.get("conversations")
        if not isinstance(items, list) or not items or not isinstance(items[0], dict):
            return False
        first = items[0].get("value")
        return items[0].get("from") == "system" and isinstance(first, str) and (APIS in first or "AutoGPT" in first)

    return fits(sample, test, _("have `conversations` whose system text lists ToolBench's APIs"))


def apis_of(system: str) -> list[Value]:
    """The APIs that a system text lists, or none. Raises ``LiteralError`` for a list that cannot be read."""
    _, found, text = system.partition(APIS)
    if not found:
        return []
    value = read_literal(text.strip())
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise LiteralError("it is no list of APIs")
    return value


def _convert_steps(value: Value) -> Row:
    text_of(value, "id", STEPS_NAME) if "id" in value else None
    items = value.get("conversations")
    if not isinstance(items, list) or not items:
        raise RowError("shape", format=STEPS_NAME, detail=sentence(_("`conversations` is no list of turns")))
    messages, others, roles = messages_of(items)
    row = make_row(
        messages,
        without(value, "conversations"),
        others=others if any(others) else None,
        spelling=Spelling(key="conversations", roles=roles),
    )
    system = next((message.content for message in messages if message.role == "system"), "")
    try:
        row.offered = [str(api.get("name")) for api in apis_of(system)]
    except LiteralError as exc:
        row.notes.append(("apis_unreadable", {"detail": str(exc)}))
    _note_calls(row)
    return row


def _note_calls(row: Row) -> None:
    """Remarks on calls of the assistant's texts."""
    for number, message in enumerate(row.messages, 1):
        found = _ACTION.search(message.content) if message.role == "assistant" else None
        if not found:
            continue
        name, where = found[1].strip(), f"message {number}"
        if row.offered and name != _FINISH and name not in row.offered:
            row.notes.append(("call_unknown", {"where": where, "name": shown(name)}))
        try:
            strict_loads(message.content[found.end() :])
        except RowError as exc:
            values: dict[str, str | int] = {"where": where, "name": shown(name), "detail": exc.sentence}
            row.notes.append(("call_breaks_schema", values))


def write_steps(row: Row) -> Value:
    """A record with roles as ToolBench names them; native calls have no place in it."""
    if any(message.tool_calls for message in row.messages):
        raise RowError(
            "shape", format=STEPS_NAME, detail=sentence(_("native tool calls cannot be written as ReAct text"))
        )
    return {**row.extra, "conversations": written_messages(row, "from", "value", _ROLES)}


STEPS_FORMAT = DataFormat(
    name="toolbench",
    title=_("ToolBench conversations"),
    about=_(
        "A JSON list of `toolllama_*` records, one for each step prefix. The APIs in the system text are a "
        "Python list, which is parsed without executing it; the text itself is not changed."
    ),
    example='[{"id": "Step 6: …", "conversations": [{"from": "system", "value": "You are AutoGPT, …"}]}]',
    rank=0.97,
    learned="The assistant's texts: thought, action and its input as ReAct writes them.",
    recognise=_recognise_steps,
    read=each(_convert_steps),
    write=write_steps,
    written_as="json",
)


# ToolBench's answer files: the search of one query (CoT or DFS), of which the path that answered is a conversation.

ANSWERS_NAME = _("ToolBench's answer files")
ANSWER = "answer_generation"
_SEARCH = ("tree", "trys", "compare_candidates", "chain")
"""The search itself, with every thought that led nowhere; some hundred kB of nested nodes a query."""
_IN_ROW = ("train_messages", "function", "chain", "query")


def _recognise_answers(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample,
        lambda row: isinstance(row.get(ANSWER), dict) and "query" in row[ANSWER] and "win" in row,
        _("hold a query's search with its `answer_generation`"),
    )


def _read_records_answers(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    for raw in raws:
        for record in converted([raw], _convert_answers):
            yield record._replace(ignored=(*record.ignored, *_left(raw.value or {})))


def _left(value: Value) -> list[Ignored]:
    """The parts of the search that no row has."""
    answer = value.get(ANSWER)
    whole = value | ({"chain": answer.get("chain")} if isinstance(answer, dict) else {})
    return [Ignored(name, "search") for name in _SEARCH if whole.get(name)]


def _convert_answers(value: Value) -> Row:
    answer = value.get(ANSWER)
    if not isinstance(answer, dict) or not isinstance(answer.get("query"), str):
        raise RowError("shape", format=ANSWERS_NAME, detail=sentence(_("it has no `answer_generation` with a `query`")))
    paths = answer.get("train_messages")
    path = paths[-1] if isinstance(paths, list) and paths else None
    extra = {name: item for name, item in value.items() if name not in (ANSWER, *_SEARCH)}
    extra |= {name: item for name, item in answer.items() if name not in _IN_ROW}
    return make_row(
        _turns(path, answer["query"]),
        extra | {"query": answer["query"]},
        tools=tools_of(answer.get("function")) or None,
        spelling=Spelling(),
        facts=() if path else ("no_answer",),
    )


def _turns(path: Any, query: str) -> list[Any]:
    if not isinstance(path, list) or not path:
        return [plain("user", query)]
    messages, _others, _roles = messages_of(path)
    return messages


ANSWERS_FORMAT = DataFormat(
    name="toolbench_answers",
    title=_("ToolBench answers"),
    about=_(
        "An answer file of ToolBench or StableToolBench, one query each (many of them in a zip archive or "
        "folder). The path that reached an answer becomes the conversation, its functions the tools; a search "
        "without a valid answer leaves the question. The search tree is reported as ignored."
    ),
    example='{"win": true, "tree": {…}, "answer_generation": {"query": "…", "train_messages": [[…]], "function": […]}}',
    rank=0.98,
    learned="The assistant's turns of the path that reached an answer; nothing of a search without one.",
    recognise=_recognise_answers,
    read=_read_records_answers,
    written_as="json",
)


# StableToolBench's query files, and the files of ids that choose some of their queries.

QUERIES_NAME = _("StableToolBench's queries")
MAX_IDS = 1_000_000


def _is_ids(value: Value) -> bool:
    return bool(value) and all(
        name.isdigit() and isinstance(place, int) and not isinstance(place, bool)
        for name, place in islice(value.items(), MAX_IDS)
    )


def _recognise_queries(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample,
        lambda row: (isinstance(row.get("query"), str) and isinstance(row.get("query_id"), int)) or _is_ids(row),
        _("have a `query` with a `query_id`, or are a table of query ids"),
    )


def _convert_queries(value: Value) -> Row:
    text = text_of(value, "query", QUERIES_NAME)
    query_id = value.get("query_id")
    if not isinstance(query_id, int) or isinstance(query_id, bool):
        raise RowError(
            "shape",
            format=QUERIES_NAME,
            detail=sentence(_("`query_id` is {kind}, not a whole number"), kind=kind(query_id)),
        )
    apis = value.get("api_list")
    if apis is not None and not (isinstance(apis, list) and all(isinstance(api, dict) for api in apis)):
        raise RowError("shape", format=QUERIES_NAME, detail=sentence(_("`api_list` is no list of APIs")))
    names = [str(api.get("api_name")) for api in apis or []]
    return make_row([plain("user", text)], dict(value), offered=names)


def _read_records_queries(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    wanted = read_ids(options.ids) if options.ids else None
    for raw in raws:
        if raw.value is not None and _is_ids(raw.value):
            for name in raw.value:
                yield Record(raw.line, raw.offset, make_row([], {"query_id": int(name)}))
        elif wanted is None or raw.value is None or raw.value.get("query_id") in wanted:
            yield from converted([raw], _convert_queries)


def read_ids(path: Path) -> set[int]:
    """The ids of a file like ``{"588": 0, …}``. Raises ``DataError``."""
    from training.data.files.containers import open_values

    first = next(iter(open_values(path).values()), None)
    if first is None or first.value is None or not _is_ids(first.value):
        raise DataError(
            sentence(_("{name} is no table of query ids."), name=path.name),
            hint=_('It looks like {"588": 0, "608": 1}.'),
        )
    return {int(name) for name in first.value}


def write_queries(row: Row) -> Value:
    """The query as in the file; an id alone has none."""
    if "query" in row.extra:
        return dict(row.extra)
    text = next((message.content for message in row.messages if message.role == "user"), None)
    if text is None or not isinstance(row.extra.get("query_id"), int):
        raise RowError("shape", format=QUERIES_NAME, detail=sentence(_("it has no query with a query_id")))
    return {"query": text, **row.extra}


QUERIES_FORMAT = DataFormat(
    name="toolbench_queries",
    title=_("StableToolBench queries"),
    about=_(
        "A JSON list of queries with their `api_list` and `query_id`; or a table of ids alone, if the "
        "environment has their texts. `ids` keeps only the queries of such a table."
    ),
    example='[{"query_id": 588, "query": "…", "api_list": [{"category_name": "Search", "tool_name": "…"}]}]',
    rank=0.96,
    learned="Nothing: rows are questions.",
    recognise=_recognise_queries,
    read=_read_records_queries,
    write=write_queries,
    written_as="json",
    options=("cut", "ids"),
)
