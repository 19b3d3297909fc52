"""StableToolBench's query files, and the files of ids that choose some of their queries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from training.data.formats.base import DataFormat, Value, converted, fits, text_of
from training.data.messages import plain
from training.data.options import ReadOptions
from training.data.problems import RowError, kind
from training.data.raw import Raw, Record, Sample
from training.data.schema import Row, make_row
from training.errors import DataError
from training.words import _, sentence

NAME = _("StableToolBench's queries")
MAX_IDS = 1_000_000


def _is_ids(value: Value) -> bool:
    return bool(value) and all(
        name.isdigit() and isinstance(place, int) and not isinstance(place, bool)
        for name, place in islice(value.items(), MAX_IDS)
    )


def _recognise(sample: Sample) -> tuple[int, str] | None:
    return fits(
        sample,
        lambda row: (isinstance(row.get("query"), str) and isinstance(row.get("query_id"), int)) or _is_ids(row),
        _("have a `query` with a `query_id`, or are a table of query ids"),
    )


def _convert(value: Value) -> Row:
    text = text_of(value, "query", NAME)
    query_id = value.get("query_id")
    if not isinstance(query_id, int) or isinstance(query_id, bool):
        raise RowError(
            "shape",
            format=NAME,
            detail=sentence(_("`query_id` is {kind}, not a whole number"), kind=kind(query_id)),
        )
    apis = value.get("api_list")
    if apis is not None and not (isinstance(apis, list) and all(isinstance(api, dict) for api in apis)):
        raise RowError("shape", format=NAME, detail=sentence(_("`api_list` is no list of APIs")))
    names = [str(api.get("api_name")) for api in apis or []]
    return make_row([plain("user", text)], dict(value), offered=names)


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    wanted = read_ids(options.ids) if options.ids else None
    for raw in raws:
        if raw.value is not None and _is_ids(raw.value):
            for name in raw.value:
                yield Record(raw.line, raw.offset, make_row([], {"query_id": int(name)}))
        elif wanted is None or raw.value is None or raw.value.get("query_id") in wanted:
            yield from converted([raw], _convert)


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


def write(row: Row) -> Value:
    """The query as it stood; an id alone has none."""
    if "query" in row.extra:
        return dict(row.extra)
    text = next((message.content for message in row.messages if message.role == "user"), None)
    if text is None or not isinstance(row.extra.get("query_id"), int):
        raise RowError("shape", format=NAME, detail=sentence(_("it has no query with a query_id")))
    return {"query": text, **row.extra}


FORMAT = DataFormat(
    name="toolbench_queries",
    title=_("StableToolBench queries"),
    about=_(
        "A JSON list of queries with their `api_list` and `query_id`; or a table of ids alone, if the "
        "environment has their texts. `ids` keeps only the queries of such a table."
    ),
    example='[{"query_id": 588, "query": "…", "api_list": [{"category_name": "Search", "tool_name": "…"}]}]',
    rank=0.96,
    learned="Nothing: rows are questions.",
    recognise=_recognise,
    read=_read_records,
    write=write,
    written_as="json",
    options=("cut", "ids"),
)
