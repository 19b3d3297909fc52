"""Makes docs/presets.md from the preset files; a test keeps it current."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from training.config import JobConfig
from training.presets import Needs, Preset, presets

_HEAD = """\
# Presets

Made from `training/presets/*.yaml` by `python -m training.presets`. *Runs → New run* shows them first; one click makes
what a preset needs, and fills the form or launches the run; it continues when the page is closed. In the size *demo*
the starter model learns the task on a CPU within ten minutes, in a world that is small enough: begin there
([curves](demos.md)). *Full* has the values of the document that it follows, *test* shows within minutes that everything
works. Options that are not listed have their defaults (docs/configuration.md).
"""


def reference() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *(_section(preset) for preset in presets().values())])


def _section(preset: Preset) -> str:
    lines = [f"## `{preset.id}`: {preset.title.en}", "", preset.about.en, "", f"Source: {preset.source}.", ""]
    for size in preset.sizes:
        lines += [f"- {size} needs {line}" for line in _needs(preset.needs_for(size))]
    if preset.demo:
        lines.append(f"- demo takes about {preset.demo.minutes} minutes on two processors, its warm-up included")
    if preset.device:
        by_verl = ", trained by verl (docs/verl.md)" if preset.config_for("full").by_verl else ""
        lines.append(f"- full fits {preset.device_title} (`--device {preset.device}`, docs/memory.md){by_verl}")
    lines += ["", *_table(preset), *_stages(preset)]
    lines += ["", *(f"- {note.en}" for note in preset.notes)] if preset.notes else []
    return "\n".join(lines) + "\n"


def _needs(needs: Needs) -> list[str]:
    found = []
    if needs.environment is not None:
        found.append(f"the environment `{needs.environment.program}`{_with(needs.environment.arguments)}")
    if needs.dataset is not None:
        what = "word problems" if needs.dataset.program else "rows"
        found.append(f"{what} of `{needs.dataset.command}`{_with(needs.dataset.arguments)}")
    if needs.reward is not None:
        parts = (f"{item.weight:g} · `{item.name}`{_with(item.params)}" for item in needs.reward.components)
        found.append(f"the reward {' + '.join(parts)}")
    if needs.start is not None:
        after = f"the newest run of `{needs.start.after}` that did not fail, if any" if needs.start.after else ""
        made = f"a run of `{needs.start.preset}`" if needs.start.preset else ""
        found.append(f"as its starting model {', else '.join(part for part in (after, made) if part)}")
    return found


def _with(arguments: dict[str, Any]) -> str:
    return f" ({', '.join(f'{name} {value}' for name, value in arguments.items())})" if arguments else ""


def _table(preset: Preset) -> list[str]:
    """Every option that one of the sizes sets, and the source of the full value."""
    sizes = {size: _values(preset.config_for(size)) for size in preset.sizes}
    changed = [
        path
        for path, value in _values(JobConfig()).items()
        if any(values[path] != value for values in sizes.values()) or path in preset.values
    ]
    lines = [f"| option | {' | '.join(sizes)} | source |", f"|---|{'---|' * len(sizes)}---|"]
    for path in changed:
        cells = " | ".join(f"`{values[path]}`" for values in sizes.values())
        lines.append(f"| `{path}` | {cells} | {preset.values.get(path, 'ours') if path != 'kind' else ''} |")
    return lines


def _stages(preset: Preset) -> list[str]:
    """What each stage has of its own, in the full size."""
    stages = preset.config_for("full").stages
    lines = ["", "Stages of the full size:", ""] if stages else []
    for number, stage in enumerate(stages, start=1):
        end = f"until step {stage.until_step}" if stage.until_step else "until the run ends"
        own = [f"{group}.{name}" for group, values in stage.options.items() for name in values if name != "components"]
        values = [f"`{path}: {stage.options[path.partition('.')[0]][path.partition('.')[2]]}`" for path in own]
        parts = (f"{item['weight']:g} · `{item['name']}`" for item in stage.rewards.get("components", []))
        reward = " + ".join(parts)
        values += [f"the reward {reward}"] if reward else []
        lines.append(f"{number}. {stage.name}, {end}: {', '.join(values) or 'nothing of its own'}")
    return lines


def _values(config: JobConfig) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": config.kind}
    for group in JobConfig.model_fields:
        value = getattr(config, group)
        if isinstance(value, BaseModel):
            found |= {f"{group}.{name}": getattr(value, name) for name in type(value).model_fields}
    return {path: value for path, value in found.items() if value not in ([], {}) and path != "curriculum.stages"}
