"""A sweep: one job several times, with other values of a few options.

An axis is an option with its values. ``product`` makes a job of every combination; ``single`` changes one option at a
time, so that a gain has one cause. The seed is no setting: it repeats every setting.
"""

from __future__ import annotations

import functools
import itertools
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from training.config.job import JobConfig
from training.errors import ConfigError
from training.words import _, complaint_of, option_of, sentence

# The option that a person may have meant by a name that is none.

ALIKE = 0.7


def nearest_option(path: str, allowed: Collection[str] | None = None) -> str:
    """The one of the ``allowed`` (all options and groups, unless given) that is most like an unknown dotted path; empty
    where none is like it.

    An option under the wrong group or under none is the one of the same name, where only one group has it.
    """
    if path.count(".") > 1:  # within a stage or a part, which may not have every option
        return ""
    known = _paths() if allowed is None else tuple(allowed)
    name = path.rpartition(".")[2]
    same = [each for each in known if each.rpartition(".")[2] == name and each != path]
    if len(same) == 1:
        return same[0]
    found = get_close_matches(path, known, n=1, cutoff=ALIKE)
    return found[0] if found else _nearest_name(name, known)


def _nearest_name(name: str, known: Collection[str]) -> str:
    """The only option whose own name is most like this one, in whatever group."""
    names = {each.rpartition(".")[2] for each in known}
    found = get_close_matches(name, names, n=1, cutoff=ALIKE)
    same = [each for each in known if found and each.rpartition(".")[2] == found[0]]
    return same[0] if len(same) == 1 else ""


@functools.cache
def _paths() -> tuple[str, ...]:
    """All groups, and all options with theirs."""
    found = []
    for name, info in JobConfig.model_fields.items():
        found.append(name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found += [f"{name}.{key}" for key in info.annotation.model_fields]
    return tuple(found)


Mode = Literal["product", "single"]
Value = str | int | float | bool | None
SEED, LEARNING_RATE = "run.seed", "optim.learning_rate"
MOST_AXES, MOST_VALUES, MOST_RUNS = 4, 8, 32
_PLAIN = (str, int, float, bool, types.NoneType)


class Axis(NamedTuple):
    """An option by its path, and the values that it takes."""

    option: str
    values: Sequence[Value]


class Point(NamedTuple):
    """One job of a sweep: its value of each axis, in their order, and its config."""

    values: dict[str, Value]
    config: JobConfig

    @property
    def setting(self) -> dict[str, Value]:
        """What it has in common with its repeats: its values but the seed."""
        return {option: value for option, value in self.values.items() if option != SEED}


@cache
def scalar_options() -> Mapping[str, FieldInfo]:
    """The options that an axis can be of: those with one plain value, by their paths."""
    found = {"kind": JobConfig.model_fields["kind"]}
    for group, info in JobConfig.model_fields.items():
        model = info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            found |= {f"{group}.{name}": each for name, each in model.model_fields.items() if _is_plain(each)}
    return found


def _is_plain(info: FieldInfo) -> bool:
    """Whether its values are plain; what a registration fills in is no choice of a person."""
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    kinds = typing.get_args(info.annotation) if _is_union(info.annotation) else (info.annotation,)
    plain = all(kind in _PLAIN or typing.get_origin(kind) is Literal for kind in kinds)
    return plain and extra.get("widget") not in ("registration", "code")


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (types.UnionType, typing.Union)


def value_at(config: JobConfig, option: str) -> Value:
    """The value that a config has of an option; of the learning rate the one that is trained with."""
    if option == LEARNING_RATE:
        return config.learning_rate
    group, _dot, name = option.rpartition(".")
    found: Value = getattr(getattr(config, group), name) if group else getattr(config, name)
    return found


def points_of(base: JobConfig, axes: Sequence[Axis], mode: Mode = "product") -> list[Point]:
    """The jobs of a sweep in order, the base setting first where one option is changed at a time.

    Raises ``ConfigError``, whose option names the axis, such as ``axes.0.values``.
    """
    typed = typed_axes(base, axes)
    combined = list(itertools.product(*(axis.values for axis in typed)) if mode == "product" else _single(base, typed))
    if len(combined) > MOST_RUNS:
        raise ConfigError(
            sentence(_("These are {n} runs; a sweep has at most {most}."), n=len(combined), most=MOST_RUNS),
            option="axes",
        )
    if len(combined) < 2:
        raise ConfigError(sentence(_("Give at least two values: one run is no sweep.")), option="axes")
    return [_point(base, [axis.option for axis in typed], values) for values in combined]


def typed_axes(base: JobConfig, axes: Sequence[Axis]) -> list[Axis]:
    """The axes with their values as the options have them. Raises ``ConfigError`` as ``points_of`` does."""
    _check_axes(axes)
    return [_typed(base, place, axis) for place, axis in enumerate(axes)]


def base_setting(base: JobConfig, axes: Sequence[Axis], mode: Mode) -> dict[str, Value]:
    """What every other setting is compared with: the config's own values; where the sweep does not have one of them,
    the first of that axis. The axes are typed."""
    found: dict[str, Value] = {}
    for axis in axes:
        own = value_at(base, axis.option)
        if axis.option != SEED:
            found[axis.option] = own if mode == "single" or own in axis.values else axis.values[0]
    return found


def _check_axes(axes: Sequence[Axis]) -> None:
    if not 1 <= len(axes) <= MOST_AXES:
        raise ConfigError(sentence(_("A sweep varies 1 to {most} options."), most=MOST_AXES), option="axes")
    for place, axis in enumerate(axes):
        if axis.option not in scalar_options():
            raise ConfigError(_unknown(axis.option), option=f"axes.{place}.option")
        if axis.option in {other.option for other in axes[:place]}:
            raise ConfigError(
                sentence(_("{option} is listed twice."), option=axis.option), option=f"axes.{place}.option"
            )
        if not 1 <= len(axis.values) <= MOST_VALUES:
            raise ConfigError(
                sentence(_("An option takes 1 to {most} values."), most=MOST_VALUES), option=f"axes.{place}.values"
            )


def _unknown(option: str) -> str:
    """That there is no such option, with the one that was probably meant."""
    if not option:
        return sentence(_("Choose the option that these values are of."))
    if close := nearest_option(option, scalar_options()):
        return sentence(_("{option} is no option with one value. Did you mean {close}?"), option=option, close=close)
    return sentence(_("{option} is no option with one value."), option=option)


def _typed(base: JobConfig, place: int, axis: Axis) -> Axis:
    """The axis with its values as the option has them, each of which the option allows by itself."""
    values: list[Value] = []
    for value in axis.values:
        found = _one_value(base, axis.option, value, f"axes.{place}.values")
        if any(found == other and type(found) is type(other) for other in values):
            raise ConfigError(
                sentence(_("{value} is listed twice."), value=written(found)), option=f"axes.{place}.values"
            )
        values.append(found)
    return Axis(axis.option, tuple(values))


def _one_value(base: JobConfig, option: str, value: Value, place: str) -> Value:
    """The value as the option has it, apart from rules that span several options: the whole config decides those. A
    learning rate of 0 is the method's own, which may be the form's or be listed too."""
    group, _dot, name = option.rpartition(".")
    part = (getattr(base, group) if group else base).model_copy()
    try:
        setattr(part, name, value)
    except ValidationError as exc:
        own = [error for error in exc.errors(include_url=False) if error["loc"][:1] == (name,)]
        if not own:
            return value
        why = sentence(
            _("{value} is no value of {option}: {why}"),
            value=written(value),
            option=option,
            why=complaint_of(own[0]),
        )
        raise ConfigError(why, option=place) from exc
    return value_at(base.model_copy(update={group: part}) if group else typing.cast(JobConfig, part), option)


def _single(base: JobConfig, axes: Sequence[Axis]) -> list[tuple[Value, ...]]:
    """The values of each job where one option is changed at a time; every seed repeats all of them."""
    own = [value_at(base, axis.option) for axis in axes]
    seeds = [place for place, axis in enumerate(axes) if axis.option == SEED]
    found = [own]
    for place, axis in enumerate(axes):
        if place not in seeds:
            found += [[*own[:place], value, *own[place + 1 :]] for value in axis.values if value != own[place]]
    for place in seeds:
        found = [[*row[:place], seed, *row[place + 1 :]] for row in found for seed in axes[place].values]
    return [tuple(row) for row in found]


def _point(base: JobConfig, options: Sequence[str], values: Sequence[Value]) -> Point:
    raw: dict[str, Any] = base.model_dump(mode="json")
    for option, value in zip(options, values, strict=True):
        group, _dot, name = option.rpartition(".")
        (raw[group] if group else raw)[name] = value
    try:
        config = JobConfig.model_validate(raw)
    except ValidationError as exc:
        raise _does_not_fit(options, values, exc) from exc
    return Point({option: value_at(config, option) for option in options}, config)


def _does_not_fit(options: Sequence[str], values: Sequence[Value], exc: ValidationError) -> ConfigError:
    """The first complaint about a job, at the axis that it names, or at the only one."""
    error = exc.errors(include_url=False)[0]
    path = option_of(error)
    place = options.index(path) if path in options else 0 if len(options) == 1 else None
    chosen = ", ".join(f"{option} = {written(value)}" for option, value in zip(options, values, strict=True))
    why = complaint_of(error) if path in options or not path else f"{path}: {complaint_of(error)}"
    return ConfigError(
        sentence(_("With {chosen}: {why}"), chosen=chosen, why=why),
        option="axes" if place is None else f"axes.{place}.values",
    )


def written(value: Value) -> str:
    """A value as a table and a name write it: the shorter way of a number, and as YAML reads it."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        exact = Decimal(repr(value)).normalize()
        return min(f"{exact:f}", f"{exact:e}", key=len)
    return str(value)
