"""Checks before a launch: what would make the run fail in its first minute, found in seconds.

Nothing here imports torch or TRL, except the template check of a model that is already on disk, which loads its
tokenizer. Each check is independent: one that fails does not hide the next.

What a check says is a sentence of ``training.words``; a failure that was raised elsewhere has its code instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from training.children import RAY_ADDRESS
from training.config import TRACKERS, JobConfig, TrackerName
from training.config.job import kind_in
from training.errors import ConfigError, ModelError, TiltyardError
from training.model_check import check_model_folder
from training.policy.engine import sampling_path
from training.traps import Trap, traps
from training.words import Sentence, _, counted, ngettext, sentence

if TYPE_CHECKING:
    from training.data.schema import Row

SAMPLE_ROWS = 1000
STARTER = "starter"
_INSTALL: dict[TrackerName, str] = {
    "wandb": _("Install it in the worker's environment: pip install wandb"),
    "mlflow": _("Install it in the worker's environment: pip install mlflow-skinny"),
    "trackio": _("Install it in the worker's environment: pip install trackio"),
    "swanlab": _("Install it in the worker's environment: pip install swanlab"),
}


_READS: dict[str, tuple[str, ...]] = {
    "dataset": ("data",),
    "environment": ("environment",),
    "slots": ("environment", "rollout"),
    "rewards": ("rewards",),
    "batch": ("rollout", "optim"),
}
"""Groups of options that a check reads and a stage may have of its own; the others look at the whole job."""


class _Problem(Exception):
    """A check found something wrong and says it in its own words."""

    def __init__(self, text: Sentence, hint: str, *, option: str = "", hard: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.more: dict[str, str | bool] = {"option": option, "hard": hard}


class Check(BaseModel):
    """The outcome of one check, as forms and ``preflight --json`` show it.

    ``told`` is the message where the sentence is our own, for translation; ``code`` is that of an error from elsewhere.
    ``option`` is the one that it belongs to; a ``hard`` problem cannot be overridden. ``stage`` is the name of the one
    or the part that it was found in, where the job has several.
    """

    check: str
    ok: bool
    message: str
    hint: str = ""
    told: Sentence | None = None
    code: str = ""
    option: str = ""
    hard: bool = False
    stage: str = ""


def preflight(config: JobConfig, *, load_template: bool = True) -> list[Check]:
    """All checks of a job in the order of its config. Never raises for what it checks.

    ``load_template`` False leaves out the template check, which takes seconds to import transformers.
    """
    return list(each_check(config, load_template=load_template))


def each_check(config: JobConfig, *, load_template: bool = True, device: str = "") -> Iterator[Check]:
    """The same, each as soon as it is known: some of them take seconds. ``device`` is the one that it would run on, a
    key of ``training.memory.devices`` or as ``device_named`` takes it; without it, what is here."""
    checks: list[tuple[str, Callable[[JobConfig], Sentence]]] = [("model", _model)] if config.needs_model else []
    checks.append(("dataset", _dataset))
    if config.method.plays:
        checks += [("environment", _environment), ("slots", _slots), ("rewards", _rewards)]
    if config.samples_with_vllm and not config.by_verl:
        checks.append(("sampler", _sampler))
    if config.method.trains:
        checks.append(("batch", _batch))
    if load_template and config.needs_model and _local_folder(config) is not None:
        checks.append(("template", _template))
    known = bool(device) or not config.by_verl or not os.environ.get(RAY_ADDRESS)  # else it is the cluster's devices
    if load_template and config.needs_model and config.model.source != STARTER and known:
        checks.append(("memory", lambda config: _memory(config, device)))
    for name, check in checks:
        yield from _of_stages(name, check, config)
    if config.by_verl:
        yield from _hardware(config, device)
    if config.mix.parts:
        yield from (found for found in [_run("rewards", _one_meaning, config)] if not found.ok)
    yield from (_tracker(name) for name in config.report.to)
    yield from _traps(config, load_template)


def _of_stages(name: str, check: Callable[[JobConfig], Sentence], config: JobConfig) -> Iterator[Check]:
    """A check of the job; of each stage or part once, where they differ in what it reads."""
    groups = _READS.get(name, ())
    courses: dict[str, tuple[str, JobConfig]] = {}
    for stage, course in _courses(config):
        courses.setdefault(course.model_dump_json(include=set(groups)), (stage, course))
    for stage, course in courses.values():
        found = _run(name, check, course if groups else config)
        yield found.model_copy(update={"stage": stage}) if len(courses) > 1 else found


def _courses(config: JobConfig) -> list[tuple[str, JobConfig]]:
    """The job of each stage or part of a mix under its name; the job itself under none, where it has neither."""
    return list(config.named_courses.items())


def _traps(config: JobConfig, load_template: bool) -> Iterator[Check]:
    courses, found = _courses(config), dict[Trap, list[str]]()
    for stage, course in courses:
        for trap in traps(course, load_template=load_template):
            found.setdefault(trap, []).append(stage)
    for trap, stages in found.items():
        fields = {"option": trap.option, "hard": trap.hard, "stage": ", ".join(stages)}
        if len(stages) == len(courses):
            fields["stage"] = ""
        yield _check("settings", False, trap.sentence, trap.hint).model_copy(update=fields)


def _run(name: str, check: Callable[[JobConfig], Sentence], config: JobConfig) -> Check:
    try:
        return _check(name, True, check(config))
    except _Problem as problem:
        return _check(name, False, problem.text, problem.hint).model_copy(update=problem.more)
    except TiltyardError as error:
        return Check(check=name, ok=False, message=error.message, hint=error.hint, code=error.code)


def _check(name: str, ok: bool, text: Sentence, hint: str = "") -> Check:
    return Check(check=name, ok=ok, message=str(text), hint=hint, told=text)


def _tracker(name: TrackerName) -> Check:
    """Whether a tracker's package and keys are there. Both may be elsewhere, so a person may launch all the same."""
    tracker = TRACKERS[name]
    alone = os.environ.get(tracker.mode, "") in tracker.alone
    if tracker.package and find_spec(tracker.package) is None:
        text = sentence(_("%(title)s: its package is not installed here."), title=tracker.title)
        found = _check("trackers", False, text, _INSTALL[name])
    elif tracker.needs and not alone and not os.environ.get(tracker.needs):
        unset = _("%(title)s: the variable %(variable)s is not set in the worker's environment.")
        hint = _("Set it where the worker is started, then restart the worker.")
        found = _check("trackers", False, sentence(unset, title=tracker.title, variable=tracker.needs), hint)
    else:
        return _check("trackers", True, sentence(_("%(title)s receives every metric."), title=tracker.title))
    return found.model_copy(update={"option": "report.to"})


def _local_folder(config: JobConfig) -> Path | None:
    folder = Path(config.model.source).expanduser()
    return folder if config.model.source != "starter" and folder.is_dir() else None


def _model(config: JobConfig) -> Sentence:
    source = config.model.source
    if source == "starter":
        if config.method.learns_from == "rollouts":
            return sentence(
                _("A new tiny model that knows nothing yet: GRPO can hardly teach it. Train it with SFT first.")
            )
        if config.draws_tasks:
            raise _Problem(
                sentence(_("The starter model is built from a dataset's words, and there is no dataset.")),
                _("Choose a dataset, or a trained model."),
            )
        return sentence(_("A tiny model is built from the dataset's own words."))
    folder = _local_folder(config)
    if kind_in(source) == "run":
        return sentence(_("It starts once %(source)s has finished training its model."), source=source)
    if folder is None:
        if source.startswith((".", "/", "~")) or source.count("/") != 1:
            raise _Problem(sentence(_("There is no model folder %(source)s."), source=source), _("Fix model.source."))
        return sentence(_("%(source)s is fetched from Hugging Face when the run starts."), source=source)
    facts = check_model_folder(folder)
    path = sampling_path(facts.model_type)
    sampled_here = config.method.plays and not config.samples_with_vllm
    if path is None and facts.model_type and sampled_here:
        raise _Problem(
            sentence(_("Models of the family %(family)s cannot be sampled correctly."), family=facts.model_type),
            _("Choose a model of another family, such as qwen3, qwen3_5, llama, mistral or gpt_oss."),
        )
    name = facts.architecture or facts.model_type or "a model"
    count = f"{facts.parameters:,}"
    if path == "plain" and sampled_here:
        text = _("%(name)s with %(count)s parameters, safe to load. Every turn computes the whole prompt again.")
        return sentence(text, name=name, count=count)
    return sentence(_("%(name)s with %(count)s parameters, safe to load."), name=name, count=count)


def _dataset(config: JobConfig) -> Sentence:
    from training.data.learned import lesson_of, pair_of
    from training.data.reader import load_rows

    if config.draws_tasks and config.environment.url:
        return sentence(_("No dataset: the environment draws its tasks by seed."))
    if not config.data.train:
        raise _Problem(sentence(_("No dataset is chosen.")), _("Set data.train."))
    limit = min(config.data.max_rows or SAMPLE_ROWS, SAMPLE_ROWS)
    rows = load_rows(Path(config.data.train), limit)
    if config.method.learns_from == "demonstrations" and all(lesson_of(row).why_not for row in rows):
        raise _Problem(
            sentence(_("The first rows have no assistant turn that is to be learned, so there is nothing to imitate.")),
            _("Choose a dataset of dialogues."),
        )
    if config.method.learns_from == "preferences" and not any(pair_of(row) for row in rows):
        raise _Problem(
            sentence(_("The first rows have no chosen and rejected answer, so there is nothing to compare.")),
            _("Choose a dataset of preference pairs, or make one of a run's rollouts."),
        )
    if len(rows) == SAMPLE_ROWS:
        return sentence(_("%(count)s or more rows are readable."), count=len(rows))
    return sentence(_("%(count)s rows are readable."), count=len(rows))


def _environment(config: JobConfig) -> Sentence:
    from training.rollout.protocols import check_environment

    if not config.environment.url:
        if config.environment.name:
            raise _Problem(
                sentence(_("The environment “%(name)s” has no address."), name=config.environment.name),
                _("Set environment.url, or start it."),
            )
        return sentence(_("No environment: each rollout is one turn, scored by the rewards alone."))
    answers = check_environment(config.environment)
    found = [answer for answer in answers if not isinstance(answer, TiltyardError)]
    if len(found) < len(answers):
        text = _("%(missing)s of %(count)s replicas do not answer.")
        raise _Problem(
            sentence(text, missing=len(answers) - len(found), count=len(answers)), _("Start them, or remove them.")
        )
    return sentence(_("%(name)s answers."), name=" ".join(part for part in (found[0].name, found[0].version) if part))


def _slots(config: JobConfig) -> Sentence:
    from training.rollout.protocols import check_environment, probe_slots

    needed = config.rollouts_per_step
    if not config.environment.url:
        return sentence(_("No environment, so no slots are needed."))
    found = [answer for answer in check_environment(config.environment) if not isinstance(answer, TiltyardError)]
    most = config.environment.sessions * len(found) or needed
    if any(facts.slots is None or facts.free is None for facts in found):
        shown = probe_slots(config.environment)
        if shown is None and most >= needed:
            return sentence(
                _("The server does not report how many sessions it takes; %(needed)s run at once."), needed=needed
            )
        slots = free = min(most, shown or most)
    else:
        free, slots = sum(facts.free or 0 for facts in found), sum(facts.slots or 0 for facts in found)
    if not free:
        raise _Problem(
            sentence(_("All of its %(slots)s slots are taken."), slots=slots),
            _("A step waits up to environment.patience_s for a free slot, then the run pauses."),
        )
    if min(free, most) < needed:
        rounds = -(-needed // min(free, most))
        text = _("It plays %(count)s at a time: the %(needed)s rollouts of a step take %(rounds)s rounds, one by one.")
        return sentence(text, count=min(free, most), needed=needed, rounds=rounds)
    return sentence(_("%(free)s free slots for %(needed)s rollouts."), free=free, needed=needed)


def _rewards(config: JobConfig) -> Sentence:
    from training.rewards.custom import refuse_custom
    from training.rewards.scoring import form_components, validate_components

    components = config.rewards.components or form_components()
    refuse_custom(components)
    problems = validate_components(components)
    if problems:
        raise ConfigError(" ".join(problems), hint="Fix rewards.components.")
    names = ", ".join(f"{component.name} × {component.weight:g}" for component in components)
    return sentence(_("Scored by %(names)s."), names=names)


def _one_meaning(config: JobConfig) -> Sentence:
    from training.rewards.scoring import require_one_meaning

    require_one_meaning(config)
    return Sentence("")


def _sampler(config: JobConfig) -> Sentence:
    from training.policy.vllm_server import NOT_INSTALLED, answering, installed_version, vllm_python

    if config.vllm.mode == "server":
        count = len(config.vllm.urls)
        silent = [url for url, problem in answering(config.vllm.urls).items() if problem]
        if silent:
            text = _("%(missing)s of %(count)s vLLM servers do not answer: %(urls)s.")
            hint = _("Start them, or correct their addresses; addresses in a private network must be allowed.")
            raise _Problem(sentence(text, missing=len(silent), count=count, urls=", ".join(silent)), hint)
        return counted(ngettext("One vLLM server answers.", "{n} vLLM servers answer."), count)
    try:
        python = vllm_python()
    except TiltyardError:
        raise _Problem(sentence(_("vLLM is not installed here.")), NOT_INSTALLED) from None
    version = installed_version(python)
    if version is None:
        raise _Problem(sentence(_("%(python)s has no vLLM."), python=str(python)), NOT_INSTALLED)
    return sentence(_("vLLM %(version)s is started with the run; it takes a minute or more."), version=version)


def _hardware(config: JobConfig, device: str) -> Iterator[Check]:
    """Each option that verl cannot train by, and whether verl is here."""
    from training.verl_backend.divided import untried
    from training.verl_backend.learner import device_kind
    from training.verl_backend.settings import misfits

    known = device_kind(config.run.device) if not device else "cpu" if "cpu" in (device, config.run.device) else "cuda"
    for option, why in misfits(config, known):
        yield _check("hardware", False, why).model_copy(update={"option": option, "hard": True})
    yield _run("hardware", _verl, config)
    for line in untried(config):
        yield _check("hardware", True, line)


def _verl(config: JobConfig) -> Sentence:
    from training.policy.vllm_server import installed_version
    from training.verl_backend import learner

    if config.hardware.hosts > 1 and not learner.cluster():
        raise _Problem(sentence(learner.NO_CLUSTER), learner.NAME_A_CLUSTER, option="hardware.hosts")
    not_installed = learner.NOT_INSTALLED
    try:
        python = learner.verl_python()
    except TiltyardError:
        raise _Problem(sentence(_("verl is not installed here.")), not_installed, option="hardware.devices") from None
    version = installed_version(python, "verl")
    if version is None:
        lacks = sentence(_("%(python)s has no verl."), python=str(python))
        raise _Problem(lacks, not_installed, option="hardware.devices")
    try:
        learner.require_vllm(config, python)
    except TiltyardError:
        raise _Problem(sentence(learner.NO_VLLM), learner.ADD_VLLM, option="rollout.engine") from None
    try:
        learner.require_megatron(config, python)
    except TiltyardError:
        megatron = sentence(learner.NO_MEGATRON)
        raise _Problem(megatron, learner.ADD_MEGATRON, option="hardware.sharding") from None
    text = _("verl %(version)s trains it, on %(count)s in all. A stop ends after all updates of what is sampled then.")
    apart = _(
        "verl %(version)s trains it, on %(count)s in all, and samples it on %(others)s in all. A stop ends after all "
        "updates of what is sampled then."
    )
    devices, others = (
        counted(ngettext("one device", "{n} devices"), count)
        for count in (config.hardware.training, config.hardware.sampling)
    )
    if config.hardware.sampler_devices:
        return sentence(apart, version=version, count=devices, others=others)
    return sentence(text, version=version, count=devices)


def _batch(config: JobConfig) -> Sentence:
    micro = config.optim.micro_batch_size
    whole = config.sft.batch_size
    if config.method.plays:
        whole = config.optim.mini_batch_size or config.rollouts_per_step
    if micro and whole % micro:
        raise _Problem(
            sentence(
                _("%(rows)s rows of a step cannot be divided into micro batches of %(micro)s."), rows=whole, micro=micro
            ),
            _("Fix optim.micro_batch_size."),
        )
    if tokens := config.optim.max_tokens_per_micro_batch:
        text = _("%(rows)s rows a step in micro batches of at most %(tokens)s tokens.")
        return sentence(text, rows=whole, tokens=f"{tokens:,}")
    count = whole // micro if micro else 1
    return sentence(_("%(rows)s rows a step in %(count)s micro batches."), rows=whole, count=count)


def _memory(config: JobConfig, device: str) -> Sentence:
    """Whether the job fits its device; nothing is said against a model whose size is not known yet."""
    from training.memory.advice import judge
    from training.memory.devices import device_here, device_named
    from training.memory.table import Model

    model = Model.of(config.model.source)
    if model is None:
        return sentence(_("Its size is known once it is here; the run looks before its first step."))
    try:
        verdict = judge(config, model, device_named(device) if device else device_here(config.run.device))
    except ModelError:
        return sentence(_("It cannot be estimated for this model; the run tries its longest rows first."))
    if not verdict.fits:
        raise _Problem(verdict.sentence, verdict.hint)
    return verdict.sentence


def _template(config: JobConfig) -> Sentence:
    folder = _local_folder(config)
    if folder is None:
        raise _Problem(
            sentence(_("There is no model folder %(source)s."), source=config.model.source), _("Fix model.source.")
        )
    check_model_folder(folder)  # the tokenizer's files are as hostile as the weights until checked
    from training.algorithms.loading import load_tokenizer
    from training.rollout.templates import WITHOUT_CALLS, WITHOUT_TOOLS, call_problem, other_dialect
    from training.rollout.tokens import ChatTemplate

    tokenizer, note = load_tokenizer(folder)
    template, rows = ChatTemplate(tokenizer), _first_rows(config)
    if config.method.plays:
        if (problem := call_problem(template, config, rows)) is not None:
            raise _Problem(problem, WITHOUT_CALLS, option="model.source", hard=True)
        if (remark := other_dialect(template, config)) is not None:
            raise _Problem(remark, _("Set rollout.dialect to auto."), option="rollout.dialect")
    if any(row.tools for row in rows) and not template.family.lists_tools:
        text = sentence(_("The chat template does not show the model its tools."))
        raise _Problem(text, WITHOUT_TOOLS, option="model.source")
    if note:
        return Sentence.of(note)
    if not (config.method.plays and template.family.dialect):
        return sentence(_("The chat template keeps earlier turns unchanged."))
    name = template.family.dialect if config.rollout.dialect == "auto" else config.rollout.dialect
    kept = _("The chat template keeps earlier turns unchanged, and calls are read in the dialect %(name)s.")
    return sentence(kept, name=name)


def _first_rows(config: JobConfig) -> list[Row]:
    from training.data.reader import load_rows

    try:
        return load_rows(Path(config.data.train), SAMPLE_ROWS) if config.data.train else []
    except TiltyardError:
        return []  # said by the check of the dataset
