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

from tests.working import done
from training.config import JobConfig, config_to_yaml
from training.presets import presets
from webapp.common.words import CODES
from webapp.launch import preflight
from webapp.launch import views as launch_views
from webapp.launch.findings import Check, YamlProblem, config_from_text
from webapp.launch.forms import GROUP_HELP, RunForm, config_of, option_groups, suggested_name
from webapp.launch.models import LaunchCheck
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run


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
    monkeypatch.setattr(preflight, "_trainer_checks", lambda *asked: iter(found))
    monkeypatch.setattr(preflight, "_check_room", lambda config, environment, room: Check("Environment server", True))
    return found


def _data(project: Project, config: JobConfig, name: str = "first", **over: Any) -> dict[str, Any]:
    """What a browser sends for the form of a config."""
    form = RunForm(project=project, config=config, name=name)
    data = {path: form[path].value() for path in form.fields} | over
    return {path: value for path, value in data.items() if value is not None and value is not False}


def checked(run: Run) -> Run:
    """The run after a worker has checked it."""
    for item in LaunchCheck.objects.filter(run=run, state="open"):
        done(item)
    run.refresh_from_db()
    return run


def test_every_option_is_in_the_form(project: Project) -> None:
    form = RunForm(project=project)
    registered = {"url", "protocol", "options", "replicas", "deterministic"}
    expected = {f"{group}.{name}" for group, model, _info in option_groups() for name in model.model_fields}
    expected -= {f"environment.{name}" for name in registered} | {"endpoint.name", "endpoint.currency"}
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
def test_errors_are_shown_at_their_option(
    over: dict[str, str], path: str, words: str, project: Project, config: JobConfig
) -> None:
    form = RunForm(_data(project, config, **over), project=project)
    assert not form.is_valid()
    assert words in " ".join(form.errors[path])


def test_sft_needs_no_environment(project: Project, config: JobConfig) -> None:
    form = RunForm(_data(project, config, kind="sft", **{"environment.name": ""}), project=project)
    assert form.is_valid(), form.errors
    hidden = {group.name for group in form.option_groups() if not group.relevant}
    others = {"grpo", "rloo", "ppo", "dpo", "sample", "evaluate", "endpoint", "mix", "curriculum", "hardware"}
    assert hidden == {"environment", "rewards", "rollout", "vllm", *others}


def test_launch_makes_one_run_of_a_double_click(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client], trainer: list[Check]
) -> None:
    client, address, data = client_for(bob), reverse("run-new", args=[project.slug]), _data(project, config)
    first, second = client.post(address, data), client.post(address, data)
    run = Run.objects.get()
    assert first.status_code == second.status_code == 302
    assert str(run.pk) in first["Location"] and first["Location"] == second["Location"]
    assert (
        LaunchCheck.objects.count() == 1
        and checked(run).state == "queued"
        and run.config["data"]["train"] == config.data.train
    )
    taken = client.post(address, _data(project, config))
    assert taken.status_code == 422 and "already a run" in taken.content.decode()


def test_a_reference_that_is_not_there_is_reported_at_its_option(
    project: Project, bob: User, config: JobConfig, client_for: Callable[..., Client]
) -> None:
    data = _data(project, config) | {"launch_anyway": "yes", "data.train": "dataset:nothing@1"}
    missing = client_for(bob).post(reverse("run-new", args=[project.slug]), data)
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


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"environment": {"name": "environment:shop"}, "data": {"train": "dataset:chats@2"}}, "shop-grpo-1"),
        ({"kind": "sft", "data": {"train": "dataset:chats@2"}}, "chats-sft-1"),
        ({"kind": "sft", "data": {"train": "chats"}}, "chats-sft-1"),
        ({}, "run-grpo-1"),
    ],
)
def test_a_run_is_named_by_its_environment_or_its_data(project: Project, options: dict[str, Any], name: str) -> None:
    assert suggested_name(project, JobConfig.model_validate(options)) == name


def test_a_spec_from_the_lab_replaces_only_the_spec(
    project: Project, bob: User, make_run: Any, make_reward_spec: Any, client_for: Callable[..., Client]
) -> None:
    """It used to take the dataset, the environment and the model, and to drop every other option."""
    spec = make_reward_spec()
    source = make_run(
        config=JobConfig.model_validate(
            {
                "optim": {"learning_rate": 2e-4},
                "rollout": {"max_turns": 3, "max_turn_tokens": 48, "temperature": 0.7},
                "run": {"max_steps": 25, "seed": 9},
                "rewards": {"score_timeout_s": 4, "components": [{"name": "env_success", "weight": 0.5}]},
            }
        )
    )
    address = reverse("run-new", args=[project.slug]) + f"?from={source.pk}&reward={spec.reference}"
    answer = client_for(bob).get(address)
    form = answer.context["form"]
    kept = {
        "optim.learning_rate": 2e-4,
        "rollout.max_turns": 3,
        "rollout.max_turn_tokens": 48,
        "rollout.temperature": 0.7,
        "run.max_steps": 25,
        "run.seed": 9,
        "rewards.score_timeout_s": 4,
        "rewards.spec": spec.reference,
        "rewards.components": "",
    }
    assert {path: form[path].value() for path in kept} == kept
    changed = [("rewards.spec", "–", spec.reference), ("rewards.components", "env_success × 0.5", "–")]
    assert form.changed_options() == changed
    page = answer.content.decode()
    assert f"Changed from {source.name}" in page and "env_success × 0.5" in page
    plain = client_for(bob).get(reverse("run-new", args=[project.slug]) + f"?from={source.pk}").content.decode()
    assert "Changed from" not in plain


def test_a_form_that_comes_back_still_shows_what_was_changed(project: Project, make_run: Any, config: Any) -> None:
    config.optim.learning_rate = 1e-5
    source, changed = make_run(config=config), config.model_copy(deep=True)
    changed.optim.learning_rate = 3e-4
    form = RunForm(_data(project, changed, origin=str(source.pk)), project=project)
    assert form.is_valid(), form.errors
    assert form.changed_options() == [("optim.learning_rate", "1e-05", "0.0003")]


def test_an_option_that_is_gone_takes_no_other_with_it(project: Project, make_run: Any) -> None:
    """The config of an older version came back as all defaults."""
    stored = JobConfig.model_validate({"optim": {"learning_rate": 2e-4}}).model_dump(mode="json")
    stored["optim"]["gone"] = 1
    stored["long_gone"] = {"x": 1}
    assert config_of(make_run(config=stored)).optim.learning_rate == 2e-4


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

    def found(text: str, limit_s: float = 10) -> list[Check]:
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o700)
        return list(preflight._trainer_checks(config, {}, limit_s))

    monkeypatch.setattr(preflight.sys, "executable", str(script))
    model = '{"check": "model", "ok": false, "message": "m", "hint": "h"}'
    assert found(f"echo '[';echo '{model}'; echo ']'; env >&2") == [Check("Model", False, "m", "h")]
    slow = found(f"echo '['; echo '{model}'; sleep 30", 0.5)
    assert [item.level for item in slow] == ["problem", "remark"] and "longer than 0.5 seconds" in slow[1].message
    assert "failed to run on this server" in found("echo nonsense; exit 3")[0].message
    assert "DATABASE_URL" not in preflight.child_environment({})


def test_a_finding_is_shown_while_the_next_one_is_made(
    config: JobConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """All of them came at the end, after up to 33 seconds without a sign."""
    script, go = tmp_path / "python", tmp_path / "go"
    first = '{"check": "model", "ok": true, "message": "m"}'
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    script.write_text(f"#!/bin/sh\necho '['; echo '{first}'; {wait}; echo ,; echo '{first}'; echo ']'\n")
    script.chmod(0o700)
    monkeypatch.setattr(preflight.sys, "executable", str(script))
    found = preflight._trainer_checks(config, {}, 20)
    assert next(found) == Check("Model", True, "m")  # it waits for a file that is not there yet
    go.touch()
    assert list(found) == [Check("Model", True, "m")]


@pytest.mark.parametrize(
    ("item", "english", "chinese"),
    [
        (
            {
                "message": "There is no model folder /x.",
                "hint": "Fix model.source.",
                "told": {"template": "There is no model folder %(source)s.", "values": {"source": "/x"}},
            },
            Check("Model", False, "There is no model folder /x.", "Fix model.source."),
            Check("模型", False, "模型文件夹 /x 不存在。", "请修正 model.source。"),
        ),
        (
            {"message": "No rows.", "hint": "Look.", "code": "data_unreadable", "told": None},
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
    line = json.dumps({"check": "model", "ok": False, **item}).encode()
    assert list(preflight._finding_of(line)) == [english]
    with translation.override("zh-hans"):
        assert list(preflight._finding_of(line)) == [chinese]


def test_a_finding_whose_places_do_not_fit_is_no_finding() -> None:
    item = {"check": "model", "ok": True, "message": "m", "told": {"template": "{there}", "values": 5}}
    assert "failed to run on this server" in next(preflight._finding_of(json.dumps(item).encode())).message


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


def test_a_soft_problem_is_shown_at_its_option(
    project: Project, bob: User, config: JobConfig, trainer: list[Check], client_for: Callable[..., Client]
) -> None:
    trainer.append(Check("Learning rate", False, "This collapses.", "", False, "optim.learning_rate"))
    client, address = client_for(bob), reverse("run-preflight", args=[project.slug])
    page = client.post(address, _data(project, config))
    assert '<p class="field-warning">This collapses.</p>' in page.content.decode()
    assert not page.context["form"].errors


def test_nothing_holds_a_tuned_model(project: Project, make_run: Any) -> None:
    for source, found in (("Qwen/Qwen3-0.6B", ["grpo.beta"]), ("starter", [])):
        run = make_run(config={"kind": "sft", "model": {"source": source}})
        config = JobConfig.model_validate({"model": {"source": f"run:{run.name}"}})
        assert [check.path for check in preflight._check_pull(project, config)] == found
        config.grpo.beta = 0.001
        assert preflight._check_pull(project, config) == []


def test_a_model_that_is_still_trained_is_named_as_such(project: Project, make_run: Any) -> None:
    for name, words in ((make_run(state="running").name, "still training"), ("gone", "not in this project")):
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
