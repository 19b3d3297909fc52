"""BFCL: questions, their answers and the documents of their functions, of v3 or of v4 and never of both.

Multi-turn questions name classes, whose functions are in documents; single-turn ones bring their functions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from training.data.formats.base import DataFormat, Value, converted, fits, text_of
from training.data.messages import messages_of, tools_of
from training.data.options import ReadOptions
from training.data.problems import RowError, kind
from training.data.schema import Message, Raw, Record, Row, Sample, Spelling, make_row
from training.data.strict import strict_loads
from training.errors import DataError
from training.words import _, sentence

# Which BFCL a row, an answer or a function document is of, by its content.

_TABLE = Path(__file__).with_name("bfcl_versions.json")


@cache
def _versions() -> dict[str, str]:
    """Digest → version."""
    table: dict[str, list[str]] = json.loads(_TABLE.read_text(encoding="ascii"))
    return {digest: version for version, digests in table.items() for digest in digests}


def digest(*parts: Any) -> str:
    """The key of an entry in the table."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]


def version_of_entry(entry_id: Any, config: Any) -> str:
    """The version of an entry by its scenario; empty where both have it."""
    return _versions().get(digest("entry", entry_id, config), "")


def version_of_answer(entry_id: Any, truth: Any) -> str:
    """The version of a ground truth; empty where both have it."""
    return _versions().get(digest("answer", entry_id, truth), "")


def version_of_document(document: dict[str, Any]) -> str:
    """The version of a function document; empty where both have it."""
    return _versions().get(digest("document", document), "")


class Watch:
    """Sees to it that one dataset holds one version: the one chosen, or the first that shows itself."""

    def __init__(self, chosen: str = "") -> None:
        self.version = chosen

    def see(self, found: str) -> None:
        """One thing's version. Raises ``RowError`` where it is the other one."""
        if found and self.version and found != self.version:
            raise RowError("bfcl_mixed", found=found, expected=self.version)
        self.version = self.version or found

    def see_row(self, entry_id: Any, config: Any, truth: Any, tagged: Any = None) -> None:
        """Note all that shows the version of a row. Raises ``RowError``."""
        if isinstance(tagged, str):
            self.see(f"v{tagged.lower().lstrip('v')[:1]}")
        if isinstance(config, str):
            config = strict_loads(config)
        self.see(version_of_entry(entry_id, config))
        if truth is not None:
            self.see(version_of_answer(entry_id, truth))

    def see_verl_row(self, value: dict[str, Any]) -> None:
        """The version of a row whose BFCL entry is in verl's interaction arguments. Raises ``RowError``."""
        info = value.get("extra_info")
        kwargs = info.get("interaction_kwargs") if isinstance(info, dict) else None
        if isinstance(kwargs, dict) and kwargs.get("involved_classes") is not None:
            self.see_row(kwargs.get("id"), kwargs.get("initial_config"), kwargs.get("ground_truth"))


NAME = _("BFCL's questions")
CLASSES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
MAX_FILES = 50


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        question, truth = row.get("question"), row.get("ground_truth")
        has_tools = isinstance(row.get("involved_classes"), list) or isinstance(row.get("function"), list | dict)
        has_question = isinstance(question, list) and has_tools
        return "id" in row and (has_question or (isinstance(truth, list) and len(row) == 2))

    why = _("have an `id` with `question` and `involved_classes` or `function`, or with `ground_truth` alone")
    return fits(sample, test, why)


def read_documents(folder: Path, watch: Watch) -> dict[str, dict[str, Value]]:
    """Class → function → document. Raises ``DataError`` for a folder without any, or of the other version."""
    from training.data.files.containers import open_values

    found: dict[str, dict[str, Value]] = {}
    for name, stem in CLASSES.items():
        path = folder / f"{stem}.json"
        if not path.is_file():
            continue
        rows = [raw.value for raw in open_values(path).values() if raw.value is not None]
        for row in rows:
            _see(watch, version_of_document(row), path)
        found[name] = {str(row.get("name")): row for row in rows}
    if not found:
        raise DataError(
            sentence(_("{name} holds no function documents."), name=folder.name),
            hint=_("Choose the folder multi_turn_func_doc."),
        )
    return found


def read_answers(path: Path, watch: Watch) -> dict[str, list[Any]]:
    """Id → ground truth, of one file or of all in a folder. Raises ``DataError``."""
    from training.data.files.containers import open_values

    files = sorted(path.glob("*.json"))[:MAX_FILES] if path.is_dir() else [path]
    answers: dict[str, list[Any]] = {}
    for file in files:
        for raw in open_values(file).values():
            value = raw.value or {}
            if isinstance(value.get("id"), str) and isinstance(value.get("ground_truth"), list):
                _see(watch, version_of_answer(value["id"], value["ground_truth"]), file)
                answers[value["id"]] = value["ground_truth"]
    if not answers:
        raise DataError(
            sentence(_("{name} holds no answers."), name=path.name),
            hint=_('They look like {"id": …, "ground_truth": [[…]]}.'),
        )
    return answers


def _see(watch: Watch, version: str, path: Path) -> None:
    try:
        watch.see(version)
    except RowError as exc:
        raise DataError(
            sentence(
                _("{name} is of BFCL {version}, and the data of {expected}; the two versions do not mix."),
                name=path.name,
                version=version,
                expected=watch.version,
            ),
            hint=_("Use questions, answers and documents of the same version."),
        ) from exc


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    watch = Watch(options.version)
    documents = read_documents(options.documents, watch) if options.documents else None
    answers = read_answers(options.answers, watch) if options.answers else None

    def convert(value: Value) -> Row:
        name = text_of(value, "id", NAME)
        messages, spelling = _opening(value)
        extra, truth = dict(value), value.get("ground_truth")
        if answers is not None and "ground_truth" not in value:
            if name not in answers:
                raise RowError("bfcl_unanswered", id=name[:60])
            extra["ground_truth"] = truth = answers[name]
            spelling.added.append("ground_truth")
        watch.see_row(name, value.get("initial_config"), truth, value.get("bfcl_version"))
        if watch.version and "bfcl_version" not in value and "question" in value:
            extra["bfcl_version"] = watch.version
            spelling.added.append("bfcl_version")
        tools = None if documents is None else _tools(value, documents)
        if "function" in value and "involved_classes" not in value:
            tools = _own_tools(value["function"])
        return make_row(messages, extra, tools=tools, spelling=spelling)

    return converted(raws, convert)


def _opening(value: Value) -> tuple[list[Message], Spelling]:
    """The first turn; an answer alone has none."""
    question = value.get("question")
    if question is None and isinstance(value.get("ground_truth"), list):
        return [], Spelling()
    if not isinstance(question, list) or not question or not all(isinstance(turn, list) for turn in question):
        raise RowError(
            "shape",
            format=NAME,
            detail=sentence(_("`question` is {kind}, not a list of turns"), kind=kind(question)),
        )
    messages, *_others = messages_of(question[0])
    return messages, Spelling()


def _tools(value: Value, documents: dict[str, dict[str, Value]]) -> list[Value]:
    """The schemas of the functions that are known from the start."""
    missed = value.get("missed_function")
    hidden = {name for names in (missed if isinstance(missed, dict) else {}).values() for name in names}
    classes = value.get("involved_classes")
    known = [name for name in classes if name in documents] if isinstance(classes, list) else []
    return [tool_of(row) for name in known for row in documents[name].values() if row.get("name") not in hidden]


def _own_tools(given: Any) -> list[Value]:
    """The functions that a single-turn question brings. Raises ``RowError``."""
    functions = [given] if isinstance(given, dict) else given
    if not isinstance(functions, list) or not all(isinstance(each, dict) for each in functions):
        raise RowError("shape", format=NAME, detail=sentence(_("`function` is no list of functions")))
    return tools_of([tool_of(each) for each in functions]) or []


def tool_of(document: Value) -> Value:
    """A function document as an OpenAI function schema."""
    function = {
        "name": str(document.get("name")),
        "description": str(document.get("description", "")),
        "parameters": _schema(document.get("parameters", {})),
    }
    return {"type": "function", "function": function}


def _schema(value: Any) -> Any:
    """BFCL's type names as JSON schema has them."""
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _schema(item) for name, item in value.items()}
    if isinstance(changed.get("type"), str):
        changed["type"] = TYPES.get(changed["type"], changed["type"])
    return changed


def write(row: Row) -> Value:
    """The question, or the answer that was read alone, without what reading added."""
    if not isinstance(row.extra.get("id"), str) or not {"question", "ground_truth"} & set(row.extra):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no `id` with `question`")))
    return {name: value for name, value in row.extra.items() if name not in row.spelling.added}


FORMAT = DataFormat(
    name="bfcl",
    title=_("BFCL"),
    about=_(
        "Multi-turn questions of v3 or v4, with the answers (`answers`) and function documents (`documents`) next to "
        "them; the version is detected from the content, and versions are never mixed. Single-turn questions bring "
        "their `function` list, which becomes the tools."
    ),
    example='{"id": "multi_turn_base_46", "question": [[{"role": "user", "content": "…"}]], "initial_config": {…}, '
    '"involved_classes": ["GorillaFileSystem"]}',
    rank=0.96,
    learned="Nothing: rows are questions.",
    recognise=_recognise,
    read=_read_records,
    write=write,
    options=("answers", "documents", "version"),
)
