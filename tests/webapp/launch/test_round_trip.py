"""Whatever a config says, the form and the YAML say it back: nothing is rounded, dropped or reset."""

from __future__ import annotations

import typing
from typing import Any, Literal

import pytest
from django.forms import CheckboxInput, CheckboxSelectMultiple
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from training.config import METHODS, JobConfig
from training.config.job import config_from_yaml, config_to_yaml
from webapp.launch.forms import RunForm
from webapp.people.teams.models import Project

pytestmark = pytest.mark.django_db
REGISTERED = {"url", "protocol", "options", "replicas", "deterministic"}  # filled in when an environment is chosen
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20)
NUMBERS = st.floats(-100, 100, allow_nan=False)


def _limits(info: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for limit in info.metadata:
        found |= {name: getattr(limit, name) for name in ("ge", "gt", "le", "lt") if hasattr(limit, name)}
    return found


def _values(info: Any) -> st.SearchStrategy[Any] | None:
    """Any value that the option may have by itself; ``None`` for texts and lists, which are drawn by name below."""
    limits, kind = _limits(info), info.annotation
    if typing.get_origin(kind) is Literal:
        return st.sampled_from(typing.get_args(kind))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(limits["ge"], limits.get("le", limits.get("lt", 10**9 + 1) - 1))
    if kind is float:
        low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
        return st.floats(low, high, exclude_min="gt" in limits, exclude_max="lt" in limits, allow_subnormal=False)
    return None


COMPONENT = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True),
        "weight": NUMBERS.filter(lambda weight: abs(weight) > 1e-6),
        "params": st.dictionaries(
            WORDS, st.one_of(WORDS, NUMBERS, st.booleans(), st.none(), st.lists(WORDS)), max_size=3
        ),
    }
)
NAMED: dict[str, st.SearchStrategy[Any]] = {
    "model.source": WORDS,
    "model.revision": st.from_regex(r"[A-Za-z0-9._/-]{0,30}", fullmatch=True),
    "data.train": WORDS,
    "environment.name": WORDS,
    "endpoint.url": st.sampled_from(["", "http://gpu-1:8000/v1", "https://models.example/v1"]),
    "endpoint.model": WORDS,
    "endpoint.key_variable": st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True),
    "hardware.verl_options": st.lists(
        st.sampled_from(
            [
                "actor_rollout_ref.actor.fsdp_config.param_offload=true",
                "actor_rollout_ref.rollout.cudagraph_capture_sizes=[1, 2]",
                "actor_rollout_ref.rollout.max_num_seqs = 64",
            ]
        ),
        unique=True,
    ),
    "evaluate.continue_from": st.sampled_from(["", "rollout:7f22e1d6-63ee-5fc0-8587-f5218c962248@2"]),
    "rewards.spec": WORDS,
    "rewards.components": st.lists(COMPONENT, max_size=2),
    "vllm.urls": st.lists(st.sampled_from(["http://gpu-1:8000", "https://vllm.example"]), max_size=3),
    "sample.policies": st.lists(st.sampled_from(["empty", "repeat", "copy_prompt", "beg"]), unique=True),
}


def _options() -> dict[str, st.SearchStrategy[Any]]:
    found = dict(NAMED)
    for group, info in JobConfig.model_fields.items():
        model = info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            drawn = {f"{group}.{name}": _values(option) for name, option in model.model_fields.items()}
            hidden = {f"environment.{name}" for name in REGISTERED}
            found |= {path: values for path, values in drawn.items() if values is not None and path not in hidden}
    return found


OPTIONS = _options()


@st.composite
def configs(draw: st.DrawFn) -> JobConfig:
    """A config that the model itself accepts, with up to eight options away from their defaults."""
    raw: dict[str, Any] = {"kind": draw(st.sampled_from(sorted(METHODS)))}
    raw |= {"data": {"train": "dataset:a@1"}, "environment": {"name": "env:b"}}
    for path in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=8, unique=True)):
        group, _dot, name = path.partition(".")
        raw.setdefault(group, {})[name] = draw(OPTIONS[path])
    try:
        return JobConfig.model_validate(raw)
    except ValidationError:
        reject()


def _sent(project: Project, config: JobConfig) -> dict[str, Any]:
    """What a browser sends: the text of each control, none for an unticked box."""
    form, data = RunForm(project=project, config=config, name="first"), {}
    for path in form.fields:
        bound, widget = form[path], form.fields[path].widget
        if isinstance(widget, CheckboxInput):
            data |= {path: "on"} if bound.value() else {}
        elif isinstance(widget, CheckboxSelectMultiple):
            data[path] = list(bound.value() or [])
        else:
            text = widget.format_value(bound.value())
            data[path] = "".join(text) if isinstance(text, list) else text or ""
    return data


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(config=configs())
def test_form_and_yaml_give_back_any_config(project: Project, config: JobConfig) -> None:
    form = RunForm(_sent(project, config), project=project)
    assert form.is_valid(), form.errors
    assert form.config is not None and form.config.model_dump() == config.model_dump()
    for only_changed in (False, True):
        again = config_from_yaml(config_to_yaml(form.config, only_changed=only_changed))
        assert again.model_dump() == config.model_dump()


def test_every_option_is_drawn() -> None:
    """A new option is in the round trip, or its name is here with the reason."""
    left_out = {"model.lora_targets", "hardware.gpu_model"}  # texts: tests/training, tests/webapp/common/workers
    left_out |= {"evaluate.data", "report.to", "report.project", "report.name", "report.tags"}  # tried by their tests
    left_out |= {"curriculum.stages", "mix.parts"}  # tests/webapp/engine/test_stages.py and test_mix.py
    left_out |= {"endpoint.name", "endpoint.currency"}  # filled in from the project's endpoint
    options = {
        f"{group}.{name}"
        for group, info in JobConfig.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
        for name in info.annotation.model_fields
    }
    assert options - set(OPTIONS) == left_out | {f"environment.{name}" for name in REGISTERED}


def test_options_of_verl_are_lines_and_wrong_ones_are_named_next_to_them(project: Project) -> None:
    """Drawn configs seldom have verl and its options at once."""
    lines = ["actor_rollout_ref.actor.fsdp_config.param_offload=true", "actor_rollout_ref.rollout.max_num_seqs=64"]
    raw: dict[str, Any] = {"data": {"train": "dataset:a@1"}, "environment": {"name": "env:b"}}
    config = JobConfig.model_validate(raw | {"hardware": {"devices": 2, "verl_options": lines}})
    sent = _sent(project, config)
    assert sent["hardware.verl_options"] == "\n".join(lines)
    form = RunForm(sent, project=project)
    assert form.is_valid(), form.errors
    assert form.config is not None and form.config.model_dump() == config.model_dump()
    again = config_from_yaml(config_to_yaml(form.config, only_changed=True))
    assert again.hardware.verl_options == lines

    wrong = f"{lines[0]}\ndata.train_files=x\nactor_rollout_ref.rollout.max_num_seqs=0"
    form = RunForm(sent | {"hardware.verl_options": wrong}, project=project)
    assert not form.is_valid() and set(form.errors) == {"hardware.verl_options"}
    said = form.errors["hardware.verl_options"]
    assert len(said) == 2 and "data.train_files follows from data.train" in said[0] and "not 0" in said[1]
    assert said[0].startswith("Entry 2: data.train_files") and said[1].startswith("Entry 3: actor_rollout_ref.rollout")
