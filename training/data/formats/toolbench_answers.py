"""ToolBench's answer files: the search of one query (CoT or DFS), of which the path that answered is a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training.data.facts import Ignored
from training.data.formats.base import DataFormat, Value, converted, fits
from training.data.messages import messages_of, plain
from training.data.options import ReadOptions
from training.data.problems import RowError
from training.data.raw import Raw, Record, Sample
from training.data.schema import Row, Spelling, make_row
from training.data.tools import tools_of
from training.words import _, sentence

NAME = _("ToolBench's answer files")
ANSWER = "answer_generation"
_SEARCH = ("tree", "trys", "compare_candidates", "chain")
"""The search itself, with every thought that led nowhere; some hundred kB of nested nodes a query."""
_IN_ROW = ("train_messages", "function", "chain", "query")


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample,
        lambda row: isinstance(row.get(ANSWER), dict) and "query" in row[ANSWER] and "win" in row,
        _("hold a query's search with its `answer_generation`"),
    )


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    for raw in raws:
        for record in converted([raw], _convert):
            yield record._replace(ignored=(*record.ignored, *_left(raw.value or {})))


def _left(value: Value) -> list[Ignored]:
    """What of the search stands in no row."""
    answer = value.get(ANSWER)
    whole = value | ({"chain": answer.get("chain")} if isinstance(answer, dict) else {})
    return [Ignored(name, "search") for name in _SEARCH if whole.get(name)]


def _convert(value: Value) -> Row:
    answer = value.get(ANSWER)
    if not isinstance(answer, dict) or not isinstance(answer.get("query"), str):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `answer_generation` with a `query`")))
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


FORMAT = DataFormat(
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
    recognise=_recognise,
    read=_read_records,
    written_as="json",
)
