"""The form of a new run, its YAML, the preflight and the launch."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from django.test import Client
from django.urls import reverse
from django.utils import translation

from training.config import JobConfig, config_to_yaml
from training.presets import presets
from webapp.failures import CODES
from webapp.launch import preflight
from webapp.launch import views as launch_views
from webapp.launch.forms import GROUP_HELP, RunForm, option_groups, suggested_name
from webapp.launch.preflight import Check
from webapp.launch.yaml_text import YamlProblem, config_from_text
from webapp.runs.models import Run
from webapp.teams.models import Project, User


@pytest.fixture
def config(make_dataset: Any, make_environment: Any, settings: Any) -> JobConfig:
    settings.OUTBOUND_ALLOW = ["127.0.0.1/32"]
    environment = make_environment(url="http://127.0.0.1:65001")
    return JobConfig.model_validate(
        {"data": {"train": make_dataset().reference}, "environment": {"name": environment.reference}}
    )


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the slow checks find; a test may add to it."""
    found = [Check("Model", True, "fits")]
    monkeypatch.setattr(preflight, "_trainer_checks", lambda config, access: found)
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    return found


def _data(project: Project, config: JobConfig, name: str = "first", **over: Any) -> dict[str, Any]:
    """What a browser sends for the form of a config."""
    form = RunForm(project=project, config=config, name=name)
    data = {path: form[path].value() for path in form.fields} | over
    return {path: value for path, value in data.items() if value is not None and value is not False}


def test_every_option_is_in_the_form(project: Project) -> None:
    form = RunForm(project=project)
    registered = {"url", "protocol", "options", "replicas", "deterministic"}
    expected = {f"{group}.{name}" for group, model, _info in option_groups() for name in model.model_fields}
    expected -= {f"environment.{name}" for name in registered}
    assert expected <= set(form.fields)
    shown = {option.path for group in form.option_groups() for option in (*group.basic, *group.more)}
    assert shown == expected
    assert [model.__doc__ for _group, model, _info in option_groups()] == list(GROUP_HELP)


def test_form_gives_back_the_config_it_was_made_from(project: Project, config: JobConfig) -> None:
    config.rewards.components = []
    config.optim.learning_rate, config.grpo.beta, config.data.shuffle = 3e-4, 0.04, False
    form = RunForm(_data(project, config), project=project)
    assert form.is_valid(), form.errors
    assert form.config == config
    assert config_from_text(config_to_yaml(config)) == config


@pytest.mark.parametrize(
    ("over", "path", "words"),
    [
        ({"rollout.num_generations": "1"}, "rollout.num_generations", "at least 2 rollouts"),
        ({"rollout.num_generations": "x"}, "rollout.num_generations", "whole number"),
        ({"optim.max_grad_norm": "0"}, "optim.max_grad_norm", "above 0"),
        ({"optim.learning_rate": "-1"}, "optim.learning_rate", "greater than or equal to 0"),
        ({"optim.learning_rate": "nan"}, "optim.learning_rate", "number"),
        ({"grpo.epsilon": "1"}, "grpo.epsilon", "below 1"),
        ({"run.seed": str(2**31)}, "run.seed", "less than or equal to"),
        ({"grpo.loss_type": "evil"}, "grpo.loss_type", "valid choice"),
        ({"optim.micro_batch_size": "7"}, "optim.micro_batch_size", "cannot be divided"),
        ({"rollout.max_turn_tokens": "1000"}, "rollout.max_turn_tokens", "whole episode"),
        ({"rewards.components": "- {name: a}"}, "rewards.components", "weight"),
        ({"rewards.components": "&a [*a]"}, "rewards.components", "YAML"),
        ({"data.train": ""}, "data.train", "required"),
        ({"environment.name": ""}, "environment.name", "required"),
        ({"name": "../x"}, "name", "Use letters"),
    ],
)
def test_errors_stand_beside_their_option(
    over: dict[str, str], path: str, words: str, project: Project, config: JobConfig
) -> None:
    form = RunForm(_data(project, config, **over), project=project)
    assert not form.is_valid()
    assert words in " ".join(form.errors[path])


def test_sft_needs_no_environment(project: Project, config: JobConfig) -> None:
    form = RunForm(_data(project, config, kind="sft", **{"environment.name": ""}), project=project)
    assert form.is_valid(), form.errors
    hidden = {group.name for group in form.option_groups() if not group.relevant}
    assert hidden == {"environment", "rewards", "rollout", "grpo", "sample"}


def test_launch_makes_one_run_of_a_double_click(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client], trainer: list[Check]
) -> None:
    client, address, data = client_for(bob), reverse("run-new", args=[project.slug]), _data(project, config)
    first, second = client.post(address, data), client.post(address, data)
    run = Run.objects.get()
    assert first.status_code == second.status_code == 302
    assert str(run.pk) in first["Location"] and first["Location"] == second["Location"]
    assert run.state == "queued" and run.config["data"]["train"] == config.data.train
    taken = client.post(address, _data(project, config))
    assert taken.status_code == 422 and "already a run" in taken.content.decode()


def test_a_soft_problem_stops_until_the_person_says_so(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client], trainer: list[Check]
) -> None:
    trainer.append(Check("Memory", False, "It may not fit.", "Make the batch smaller."))
    client, address, data = client_for(bob), reverse("run-new", args=[project.slug]), _data(project, config)
    stopped = client.post(address, data)
    assert stopped.status_code == 422 and "It may not fit." in stopped.content.decode()
    assert "launch_anyway" in stopped.content.decode() and not Run.objects.exists()
    assert client.post(address, data | {"launch_anyway": "yes"}).status_code == 302


def test_a_hard_problem_cannot_be_overridden(
    project: Project,
    bob: User,
    config: JobConfig,
    client_for: Callable[..., Client],
    trainer: list[Check],
    settings: Any,
) -> None:
    settings.OUTBOUND_ALLOW = []
    client, address = client_for(bob), reverse("run-new", args=[project.slug])
    data = _data(project, config) | {"launch_anyway": "yes"}
    answer = client.post(address, data)
    assert answer.status_code == 422 and "private to the server" in answer.content.decode()
    missing = client.post(address, data | {"data.train": "dataset:nothing@1"})
    assert missing.status_code == 422 and "no dataset" in missing.content.decode()
    assert not Run.objects.exists()


def test_viewer_sees_why_not(project: Project, rita: User, client_for: Callable[..., Client]) -> None:
    client, address = client_for(rita), reverse("run-new", args=[project.slug])
    assert "Viewers cannot launch runs" in client.get(address).content.decode()
    assert client.post(address).status_code == 403


def test_clone_is_prefilled_with_a_free_name(
    project: Project, bob: User, make_run: Any, client_for: Callable[..., Client]
) -> None:
    run = make_run(config=JobConfig.model_validate({"run": {"max_steps": 77}}), name="webshop-grpo-7")
    page = client_for(bob).get(reverse("run-new", args=[project.slug]) + f"?from={run.pk}").content.decode()
    assert 'value="77"' in page and 'value="webshop-grpo-1"' in page
    assert suggested_name(project, JobConfig(), "webshop-grpo-7") == "webshop-grpo-1"
    client = client_for(bob)
    for wrong in ("nonsense", str(uuid.uuid4()), "\x00"):
        assert client.get(reverse("run-new", args=[project.slug]), {"from": wrong}).status_code == 404


def test_run_of_another_project_cannot_be_cloned(
    project: Project, charlie: User, make_run: Any, client_for: Callable[..., Client]
) -> None:
    address = reverse("run-new", args=["elsewhere"]) + f"?from={make_run().pk}"
    assert client_for(charlie).get(address).status_code == 404


def test_presets_apply(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    client, address = client_for(bob), reverse("run-new", args=[project.slug])
    for number, preset in enumerate(presets().values()):
        size = preset.sizes[number % len(preset.sizes)]  # each is tested by itself in tests/training/test_presets.py
        page = client.get(address, {"preset": preset.id, "size": size})
        assert page.context["form"]["run.max_steps"].value() == preset.config_for(size).run.max_steps
        assert page.context["form"]["name"].value() == f"{preset.run_name(size)}-1"


def test_yaml_both_ways(project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client]) -> None:
    client, address = client_for(bob), reverse("run-yaml", args=[project.slug])
    config.run.max_steps = 123
    text = client.post(address, _data(project, config)).context["yaml"]
    assert yaml.safe_load(text)["run"]["max_steps"] == 123
    back = client.post(address, {"yaml": text, "name": "first"})
    assert back.context["form"]["run.max_steps"].value() == 123
    saved = client.post(address, _data(project, config, download="yes"))
    assert saved["Content-Disposition"] == 'attachment; filename="first.yaml"'
    assert config_from_text(saved.content.decode()) == config


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("run:\n  max_steps: [", 2, "YAML"),
        ("run:\n  max_steps: 0\n", 2, "at least 1"),
        ("kind: grpo\nrun:\n  nonsense: 1", 3, "no such option"),
        ("kind: [1]", 1, "one of"),
        ("optim:\n  micro_batch_size: 7\n", 2, "divided"),
        ("- a\n", 1, "option groups"),
        ("", 1, "option groups"),
        ("a: &a [x]\nb: *a", 0, "aliases"),
        ("[" * 5000, 0, ""),
        ("!!python/object/apply:os.system ['id']", 1, ""),
        ("x: " + "y" * 70_000, 0, "64 KB"),
        ("rewards:\n  components:\n  - {name: UPPER, weight: 1}", 3, "not allowed"),
        ("run: {max_steps: .nan}", 1, "number"),
        ("a: 2020-13-45", 0, ""),
    ],
)
def test_yaml_problems_name_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        config_from_text(text)
    problem = caught.value.problems[0]
    assert words in problem.message and (not line or problem.line == line)


def test_yaml_problems_are_shown(project: Project, bob: User, client_for: Callable[..., Client]) -> None:
    answer = client_for(bob).post(reverse("run-yaml", args=[project.slug]), {"yaml": "run:\n  max_steps: 0"})
    assert answer.status_code == 422 and "Line 2" in answer.content.decode()


def test_the_trainer_is_asked_in_a_process_of_its_own(
    config: JobConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho \'[{"check": "model", "ok": false, "message": "m", "hint": "h"}]\'; env >&2\n')
    script.chmod(0o700)
    monkeypatch.setattr(preflight.sys, "executable", str(script))
    assert preflight._trainer_checks(config, {}) == [Check("Model", False, "m", "h")]
    script.write_text("#!/bin/sh\nsleep 30\n")
    monkeypatch.setattr(preflight, "WALL_LIMIT_S", 0.3)
    assert "longer than" in preflight._trainer_checks(config, {})[0].message
    script.write_text("#!/bin/sh\necho nonsense; exit 3\n")
    monkeypatch.setattr(preflight, "WALL_LIMIT_S", 10)
    assert "did not work" in preflight._trainer_checks(config, {})[0].message
    assert "DATABASE_URL" not in preflight._environment({})


@pytest.mark.parametrize(
    ("item", "english", "chinese"),
    [
        (
            {
                "message": "There is no model folder /x.",
                "hint": "Fix model.source.",
                "template": "There is no model folder %(source)s.",
                "values": {"source": "/x"},
            },
            Check("Model", False, "There is no model folder /x.", "Fix model.source."),
            Check("模型", False, "模型文件夹 /x 不存在。", "请修正 model.source。"),
        ),
        (
            {"message": "No rows.", "hint": "Look.", "code": "data_unreadable", "template": "", "values": {}},
            Check(
                "Model", False, "The dataset cannot be read.", CODES["data_unreadable"].hint, detail="No rows. Look."
            ),
            Check(
                "模型",
                False,
                "无法读取数据集。",
                "请查看数据集页面；如果有损坏的行，请上传修正后的版本。",
                detail="No rows. Look.",
            ),
        ),
        ({"message": "Plain.", "hint": ""}, Check("Model", False, "Plain."), Check("模型", False, "Plain.")),
    ],
)
def test_the_trainers_findings_are_said_in_the_readers_language(
    item: dict[str, Any], english: Check, chinese: Check
) -> None:
    output = json.dumps([{"check": "model", "ok": False, **item}]).encode()
    assert preflight._parse(output) == [english]
    with translation.override("zh-hans"):
        assert preflight._parse(output) == [chinese]


def test_a_finding_whose_places_do_not_fit_is_no_finding() -> None:
    item = {"check": "model", "ok": True, "message": "m", "template": "%(there)s", "values": {}}
    assert preflight._parse(json.dumps([item]).encode()) is None


def test_preflight_panel(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client], trainer: list[Check]
) -> None:
    address = reverse("run-preflight", args=[project.slug])
    headers = {"HX-Request": "true"}
    answer = client_for(bob).post(address, _data(project, config), headers=headers)
    assert "Everything is ready" in answer.content.decode() and not Run.objects.exists()
    wrong = client_for(bob).post(address, _data(project, config, **{"run.max_steps": "0"}), headers=headers)
    assert "need a change first" in wrong.content.decode()
    assert launch_views  # imported for its URL names


def test_a_soft_problem_stands_beside_its_option(
    project: Project, bob: User, config: JobConfig, trainer: list[Check], client_for: Callable[..., Client]
) -> None:
    trainer.append(Check("Learning rate", False, "This collapses.", "", False, "optim.learning_rate"))
    client, address = client_for(bob), reverse("run-new", args=[project.slug])
    page = client.post(address, _data(project, config))
    assert page.status_code == 422 and '<p class="field-warning">This collapses.</p>' in page.content.decode()
    assert not page.context["form"].errors
    launched = client.post(address, _data(project, config, launch_anyway="yes"))
    assert launched.status_code == 302


def test_nothing_holds_a_tuned_model(project: Project, make_run: Any) -> None:
    """A pretrained model after SFT, without KL; the starter's chain has nothing to lose."""
    for source, found in (("Qwen/Qwen3-0.6B", ["grpo.beta"]), ("starter", [])):
        run = make_run(config={"kind": "sft", "model": {"source": source}})
        config = JobConfig.model_validate({"model": {"source": f"run:{run.name}"}})
        assert [check.path for check in preflight._check_pull(project, config)] == found
        config.grpo.beta = 0.001
        assert preflight._check_pull(project, config) == []


def test_a_model_that_is_still_trained_is_named_as_such(project: Project, make_run: Any) -> None:
    run = make_run(state="running")
    for name, words in ((run.name, "still training"), ("gone", "not in this project")):
        form = RunForm(project=project, config=JobConfig.model_validate({"model": {"source": f"run:{name}"}}))
        assert words in dict(form.fields["model.source"].widget.choices)[f"run:{name}"]  # type: ignore[attr-defined]


def test_what_options_say_of_each_other_is_in_the_readers_language(
    project: Project, bob: User, client_for: Callable[..., Client]
) -> None:
    client, address = client_for(bob), reverse("run-yaml", args=[project.slug])
    client.cookies["tiltyard-language"] = "zh-hans"
    for text, sentence in (
        ("optim: {mini_batch_size: 99}", "小批 99 大于整批：每步有 64 条轨迹"),
        ("optim: {micro_batch_size: 7}", "每步 64 条轨迹（提示数 × 生成数）无法分成大小为 7 的微批"),
        ("rewards: {components: [{name: coherence, weight: 0}]}", "所有权重都是 0"),
    ):
        assert sentence in client.post(address, {"yaml": text}).content.decode(), text
