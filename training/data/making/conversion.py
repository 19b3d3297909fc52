"""Convert a dataset file into another format, whole or in two parts, and name what the format cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field

from training.data.files.containers import Spool
from training.data.files.parquet import write_parquet
from training.data.files.sniff import to_json
from training.data.formats import FORMATS
from training.data.formats.base import DataFormat
from training.data.formats.frameworks import toolbench_row
from training.data.formats.gsm8k import write_rl, write_sft
from training.data.formats.toolbench import STEPS_FORMAT as TOOLBENCH
from training.data.making.operations import Lineage, split
from training.data.options import Options, ReadOptions, SplitOptions
from training.data.problems import MAX_BAD_ROWS_LISTED, MAX_COLUMNS, CheckLimits, Finding, RowError
from training.data.reader import Source, open_dataset
from training.data.schema import Raw, Row
from training.errors import DataError
from training.words import _, sentence

# What a format cannot hold of a row: each written row is read back and compared, and every difference has a name.

Value = dict[str, Any]
MESSAGES, CALLS, IDS = _("messages"), _("tool calls"), _("ids of tool calls")
FIELDS, TOOLS, REASONING = _("fields of messages"), _("tools"), _("reasoning")
COLUMN = "column "
"""Comes before the name of a column."""


class Losses:
    """Reads rows back that were written in a format. One reader serves all rows, as of a file."""

    def __init__(self, form: DataFormat) -> None:
        self._value: Value = {}
        self._records = form.read(self._written(), ReadOptions(format=form.name))

    def _written(self) -> Iterator[Raw]:
        while True:
            yield Raw(1, 0, self._value)

    def of(self, row: Row, value: Value) -> list[str]:
        """Names of what is in the row and not in what was written of it."""
        self._value = value
        again = next(self._records).row
        return differences(row, again) if again is not None else [MESSAGES]


def differences(row: Row, again: Row) -> list[str]:
    """Names of what is in ``row`` and not in ``again``. How turns are cut into messages does not matter."""
    found = []
    if _role_texts(row) != _role_texts(again):
        found.append(MESSAGES)
    if not row.is_plain or not again.is_plain or row.others or _reasoning(row):
        found += _other_losses(row, again)
    found += [COLUMN + name[:80] for name, value in row.extra.items() if not _holds(again, name, value)]
    return found


def _role_texts(row: Row) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in row.messages if message.content]


def _other_losses(row: Row, again: Row) -> list[str]:
    found = []
    if _calls(row) != _calls(again):
        found.append(CALLS)
    elif _ids(row) - _ids(again):
        found.append(IDS)
    if _reasoning(row) != _reasoning(again):
        found.append(REASONING)
    if any(row.others or []) and _others(row) != _others(again):
        found.append(FIELDS)
    if row.tools is not None and row.tools not in (again.tools, _info(again).get("tools")):
        found.append(TOOLS)
    return found


def _calls(row: Row) -> list[tuple[str, Value]]:
    return [(call.name, call.arguments) for message in row.messages for call in message.tool_calls or []]


def _reasoning(row: Row) -> list[str]:
    return [message.reasoning for message in row.messages if message.reasoning]


def _ids(row: Row) -> set[str]:
    """Ids and names by which results name their calls."""
    return {text for message in row.messages for text in (message.tool_call_id, message.name) if text}


def _others(row: Row) -> list[Value]:
    return [other for other in row.others or [] if other]


def _info(row: Row) -> Value:
    info = row.extra.get("extra_info")
    return info if isinstance(info, dict) else {}


def _holds(again: Row, name: str, value: Any) -> bool:
    if name in again.extra and again.extra[name] == value:
        return True
    info = _info(again)
    return name in info and info[name] == value


# Convert a dataset file into another format, whole or in two parts.
#
# ToolBench's records written for verl come out just as ToolBench's converter writes them: the same columns, the first
# ``max_samples`` records, the same shuffle (seed 42), the same numbering within each part.

Writer = Callable[[Row], Value]
OWN = "jsonl"
GUIDE = "verl_toolbench"
PROGRESS_ROWS = 256


class ConvertOptions(Options):
    """The output files, their format and how the source is read."""

    output: Path | None = Field(default=None, description="Where the rows go, if they are not split.")
    split: bool = Field(default=False, description="Shuffle the rows and write two parts.")
    train_output: Path | None = Field(default=None, description="Where the first part goes.")
    val_output: Path | None = Field(default=None, description="Where the second part goes.")
    train_ratio: float = Field(default=0.9, ge=0, le=1, description="Share of the first part.")
    max_samples: int | None = Field(default=None, ge=1, description="Rows at most, from the beginning.")
    to: str = Field(default="", max_length=40, description="Format to write; empty takes it from the file's ending.")
    reading: ReadOptions = Field(default_factory=ReadOptions, description="How the file is read.")


class Converted(Options):
    """The outcome: ``rows_in`` are ``rows`` kept and ``bad_rows`` left out."""

    format: str
    rows_in: int
    rows: int
    bad_rows: int
    bad: list[Finding]
    outputs: dict[str, int]
    lost: dict[str, int] = Field(
        default_factory=dict, description="What the format has no place for, with how many rows have it."
    )
    lineage: Lineage | None = None


def writers() -> dict[str, Writer]:
    """Name → how a row is written."""
    named: dict[str, Writer] = {name: each.write for name, each in FORMATS.items() if each.write is not None}
    return {OWN: Row.normal, **named, GUIDE: _guide, "helloagents_sft": write_sft, "helloagents_rl": write_rl}


def _guide(row: Row) -> Value:
    """A row as ToolBench's converter writes it; its numbers are set where it is written."""
    return toolbench_row(row, 0, 0) or {}


def convert(source: Path, options: ConvertOptions, on_progress: Callable[[int], None] | None = None) -> Converted:
    """Convert a file. Raises ``DataError`` where it cannot be read or the choices do not go together.

    ``on_progress`` hears now and then how many rows have been read.
    """
    outputs = _outputs(options)
    target = options.to or ("verl" if all(path.suffix == ".parquet" for path in outputs) else OWN)
    if target not in writers():
        raise DataError(
            sentence(_("{name} cannot be written."), name=repr(target[:40])),
            hint=sentence(_("There are: {names}."), names=", ".join(writers())),
        )
    opened = open_dataset(source, options.reading)
    with Spool() as spool:
        done = _spool(opened, spool, target, options, on_progress)
        parts, done.lineage = _parts(len(spool), options)
        for path, numbers in zip(outputs, parts, strict=True):
            done.outputs[str(path)] = _write_part(path, target, _Part(spool, numbers, _is_guide(opened, target)))
    return done


def _outputs(options: ConvertOptions) -> list[Path]:
    if not options.split:
        if options.output is None:
            raise DataError(_("No output is given."), hint=_("Give --output, or --split with two outputs."))
        return [options.output]
    train, val = options.train_output, options.val_output
    if options.output is not None:  # as ToolBench's converter names the parts
        named = options.output
        train = train or named.with_name(f"{named.stem}_train{named.suffix}")
        val = val or named.with_name(f"{named.stem}_val{named.suffix}")
    if train is None or val is None or train == val:
        raise DataError(_("A split needs two outputs."), hint=_("Give --train_output and --val_output."))
    return [train, val]


def _is_guide(source: Source, target: str) -> bool:
    """Whether this is what ToolBench's converter does."""
    return target == GUIDE or (target == "verl" and source.format is TOOLBENCH)


def _spool(
    source: Source, spool: Spool, target: str, options: ConvertOptions, on_progress: Callable[[int], None] | None
) -> Converted:
    """Write every good row to the spool, and count the others."""
    is_guide = _is_guide(source, target)
    write = writers()[target]
    losses = _losses(target, is_guide)
    done = Converted(format=source.format.name, rows_in=0, rows=0, bad_rows=0, bad=[], outputs={})
    for record in islice(source.records(), min(options.max_samples or CheckLimits.max_rows, CheckLimits.max_rows)):
        done.rows_in += 1
        if on_progress and not done.rows_in % PROGRESS_ROWS:
            on_progress(done.rows_in)
        try:
            if record.row is None:
                raise record.error or RowError("not_object")
            value = toolbench_row(record.row, 0, done.rows) if is_guide else write(record.row)
            if value is None:
                raise RowError("conversation_empty", key="conversations")
            spool.add(value)
            for name in losses.of(record.row, value) if losses else ():
                if name in done.lost or len(done.lost) < MAX_COLUMNS:
                    done.lost[name] = done.lost.get(name, 0) + 1
            done.rows += 1
        except RowError as exc:
            done.bad_rows += 1
            if len(done.bad) < MAX_BAD_ROWS_LISTED:
                done.bad.append(exc.finding(record.line))
    return done


def _losses(target: str, is_guide: bool) -> Losses | None:
    """The reader of rows that were written so; our own spelling holds everything."""
    if target == OWN:
        return None
    named = "verl" if is_guide else "gsm8k" if target.startswith("helloagents_") else target
    return Losses(FORMATS[named])


def _parts(count: int, options: ConvertOptions) -> tuple[list[list[int]], Lineage | None]:
    if not options.split:
        return [list(range(count))], None
    made = split(count, SplitOptions(train_ratio=options.train_ratio))
    return [made.train, made.validation], made.lineage


class _Part:
    """Rows of the spool by number; ToolBench's rows are numbered within their part."""

    def __init__(self, spool: Spool, numbers: list[int], is_guide: bool) -> None:
        self._spool, self._numbers, self._is_guide = spool, numbers, is_guide

    def rows(self) -> Iterator[Value]:
        """The rows, decoded."""
        for index, value in enumerate(self._spool.rows(self._numbers)):
            if self._is_guide:
                value["extra_info"]["index"] = index
            yield value

    def lines(self) -> Iterator[bytes]:
        """The rows as JSON, each with a line end; as they are stored, where nothing is set."""
        if self._is_guide:
            return (to_json(value).encode() + b"\n" for value in self.rows())
        return self._spool.lines(self._numbers)


def _write_part(path: Path, target: str, part: _Part) -> int:
    path = path.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        return write_parquet(path, part.rows)
    form = FORMATS.get(target)
    is_list = path.suffix == ".json" and form is not None and form.written_as == "json"
    count = 0
    with _whole(path) as file:
        if not is_list:
            for line in part.lines():
                file.write(line)
                count += 1
            return count
        file.write(b"[")
        for count, line in enumerate(part.lines(), 1):
            file.write((b",\n" if count > 1 else b"\n") + line.rstrip(b"\n"))
        file.write(b"\n]\n")
    return count


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file that is there whole or not at all."""
    temporary = path.with_name(path.name + ".part")
    try:
        with open(temporary, "wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
