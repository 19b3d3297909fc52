"""How many bytes a run will write, shown before it is launched: checkpoints, the final model, and its records.

A checkpoint holds the weights and two moments of AdamW for each weight that is trained; with LoRA only the adapter's.
The sizes come from the model's own headers, else from the number in its name; where neither is known, nothing is shown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from training.config import JobConfig
from training.errors import ModelError
from training.model_check import MAX_CONFIG_BYTES, count_elements, read_json

STARTER_PARAMETERS, STARTER_ADAPTER = 900_000, 30_000
MOMENTS = 2
PARAMETERS_PER_RANK = 3000  # of models whose shape is not known: a 7 B model has 40 M in an adapter of rank 16
TOKEN_VALUE_BYTES = 6  # at most, of a file of token values
TOKEN_BYTES, ROLLOUT_BYTES = 4, 2000  # of a journal line; the database holds the same once more
_NAMED = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([BM])(?![a-z0-9])", re.IGNORECASE)


class DiskForecast(NamedTuple):
    """Bytes: ``checkpoints`` of ``each``, the final ``model``, and ``records`` (journal and database)."""

    checkpoints: int
    each: int
    model: int
    records: int
    bounded: bool

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.checkpoints * self.each + self.model + self.records


def disk_forecast(config: JobConfig) -> DiskForecast | None:
    """What a resolved config will write; ``None`` where the model's size is not known."""
    records = _record_bytes(config)
    if not config.method.trains:
        return DiskForecast(0, 0, 0, records, True)
    sizes = _parameter_counts(config)
    if sizes is None:
        return None
    parameters, trained = sizes
    size = 2 if config.model.dtype == "bfloat16" else 4
    each = (trained if config.model.lora_rank else parameters) * size + MOMENTS * trained * size
    count, bounded = _most_checkpoints(config)
    return DiskForecast(count, each, parameters * size, records, bounded)


def disk_sentence(config: JobConfig, found: DiskForecast) -> str:
    """The forecast as a sentence, with its parts."""
    sizes = {name: filesizeformat(getattr(found, name)) for name in ("total", "each", "model", "records")}
    parts = []
    if found.checkpoints:
        kept = getattr(config.run, "keep_last", 0)
        what = {"count": found.checkpoints, "each": sizes["each"], "kept": kept}
        last = _("%(count)s checkpoints of %(each)s (the last %(kept)s and the best)")
        parts.append((last if kept else _("%(count)s checkpoints of %(each)s")) % what)
    if found.model:
        parts.append(_("the final model of %(model)s") % sizes)
    if found.records:
        parts.append(_("records of at most %(records)s") % sizes)
    forecast = _("About %(total)s: %(parts)s.") % {"total": sizes["total"], "parts": " + ".join(parts)}
    more = _("Checkpoints saved by time are added to these; none of them is deleted.")
    return forecast if found.bounded else f"{forecast} {more}"


def _record_bytes(config: JobConfig) -> int:
    if not config.method.plays:
        return 0
    rollouts = config.run.max_steps * config.rollouts_per_step
    values = config.run.keep_tokens_mib << 20 if config.method.trains else 0
    tokens = TOKEN_VALUE_BYTES * rollouts * (config.rollout.max_prompt_tokens + config.rollout.max_completion_tokens)
    return 2 * rollouts * (ROLLOUT_BYTES + TOKEN_BYTES * config.rollout.max_completion_tokens) + min(values, tokens)


def _most_checkpoints(config: JobConfig) -> tuple[int, bool]:
    """How many checkpoints there are at most (the newest that are kept, and the best), and whether that is a bound."""
    saved = config.run.max_steps // config.run.save_every if config.run.save_every else 0
    by_time = getattr(config.run, "save_every_minutes", 0)
    keep = getattr(config.run, "keep_last", 0)
    if keep:
        return (keep + 1 if by_time else min(saved, keep + 1)), True
    return saved, not by_time


def _parameter_counts(config: JobConfig) -> tuple[int, int] | None:
    """All parameters, and those that are trained."""
    source, rank = config.model.source, config.model.lora_rank
    if source == "starter":
        return STARTER_PARAMETERS, STARTER_ADAPTER * rank // 16 if rank else STARTER_PARAMETERS
    folder = Path(source) if source.startswith("/") else _cached_snapshot(source)
    found = _parameters_of_folder(folder, rank) if folder else None
    if found is not None:
        return found
    named = [float(n) * (1e9 if unit in "bB" else 1e6) for n, unit in _NAMED.findall(source.rsplit("/", 1)[-1])]
    if not named:
        return None
    total = round(named[0])
    return total, total * rank // PARAMETERS_PER_RANK if rank else total


def _cached_snapshot(source: str) -> Path | None:
    """The newest snapshot of a Hugging Face model that is on this machine."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    root = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    found = sorted((root / f"models--{source.replace('/', '--')}" / "snapshots").glob("*"), key=_modified_at)
    return found[-1] if found else None


def _modified_at(path: Path) -> float:
    return path.stat().st_mtime


def _parameters_of_folder(folder: Path, rank: int) -> tuple[int, int] | None:
    try:
        total = sum(count_elements(path) for path in folder.glob("*.safetensors"))
        config = read_json(folder / "config.json", MAX_CONFIG_BYTES) if rank else {}
    except (ModelError, OSError):
        return None
    if not total:
        return None
    return total, _adapter_parameters(config, total, rank) if rank else total


def _adapter_parameters(config: Any, total: int, rank: int) -> int:
    """The adapter of every linear layer: four of attention, three of the feed-forward part, in each block."""
    text = config.get("text_config") or config if isinstance(config, dict) else {}
    hidden, blocks, inner = (text.get(name) for name in ("hidden_size", "num_hidden_layers", "intermediate_size"))
    if not (isinstance(hidden, int) and isinstance(blocks, int)):
        return total * rank // PARAMETERS_PER_RANK
    inner = inner if isinstance(inner, int) else 4 * hidden
    return min(total, blocks * rank * (4 * (hidden + hidden) + 3 * (hidden + inner)))
