"""verl's rows: prompt, data_source, ability, reward_model and extra_info, where an interaction's arguments stand.

EnvTuning, WebShop, verl's own GSM8K scripts and ToolBench's converter use it, each with its own extra_info.
"""

from __future__ import annotations

from collections.abc import Iterator

from training.data.formats.base import DataFormat, Value, converted, fits
from training.data.formats.bfcl_versions import Watch
from training.data.options import ReadOptions
from training.data.raw import Raw, Record, Sample
from training.data.schema import Row, row_from_dict, written
from training.words import _

COLUMNS = ("data_source", "prompt", "ability", "reward_model", "extra_info")
TOOLBENCH = "toolbench"
TOOLBENCH_CATEGORY = "G1_category"
"""What ToolBench's converter writes for every row. It is no category of ToolBench's."""


def _recognise(sample: Sample) -> tuple[int, str] | None:
    def test(row: Value) -> bool:
        known = isinstance(row.get("reward_model"), dict) or isinstance(row.get("extra_info"), dict)
        return isinstance(row.get("prompt"), list) and known

    return fits(sample, test, _("have a list under `prompt`, with `reward_model` or `extra_info`"))


def _read_records(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
    watch = Watch(options.version)

    def convert(value: Value) -> Row:
        row = row_from_dict(value)
        watch.see_verl_row(value)
        system = row.messages[0].content if row.messages and row.messages[0].role == "system" else ""
        if "<thinking>" in system and str(value.get("data_source")).startswith("multi_turn_"):
            row.notes.append(("thinking_tag", {}))
        return row

    return converted(raws, convert)


def write(row: Row) -> Value:
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
    stood = row.spelling.roles
    spelled = stood if len(stood) == len(row.messages) else [message.role for message in row.messages]
    prompt = written(row)
    for role, message, said in zip(spelled, row.messages, prompt, strict=True):
        if message.tool_calls is None:
            said["role"] = role
    return prompt


def toolbench_row(row: Row, index: int, number: int) -> Value | None:
    """What ToolBench's converter writes; ``None`` where it leaves a row out. ``index`` counts within its output."""
    stood = row.spelling.roles
    is_ours = row.spelling.key == "messages" or len(stood) != len(row.messages)
    named = ["function" if item.role == "tool" else item.role for item in row.messages] if is_ours else stood
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


FORMAT = DataFormat(
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
    recognise=_recognise,
    read=_read_records,
    write=write,
    written_as="parquet",
    options=("cut", "version"),
)
