"""The pages of one model: their data, the forms on them, and how the model is served once it was downloaded."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import add_errors
from webapp.common.words import failure
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask
from webapp.results.card import card_of, card_text
from webapp.results.lineage import (
    Origins,
    Score,
    children,
    headline,
    lineage,
    origins_of,
    origins_of_checkpoint,
    scores,
    scores_of,
)
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind, ModelMark, RegisteredModel
from webapp.runs.registry.selectors import (
    MAX_NOTES_CHARS,
    MAX_SECTION_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    SECTIONS,
    Weights,
    model_describe,
    model_mark,
    models_of,
    weights_of_checkpoint,
    weights_of_run,
)
from webapp.runs.registry.sending import README, push_on, push_order
from webapp.runs.states import RunState

# --- Serving --------------------------------------------------------------------------------------------------------
# Commands for vLLM, and a short script for transformers.

ADAPTER_CONFIG = "adapter_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
DEFAULT_MAX_LORA_RANK = 16  # of vLLM; a larger rank must be named
MAX_CONFIG_BYTES = 1 << 20

SCRIPT = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = {folder}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()

messages = [{{"role": "user", "content": "What is 2 + 3?"}}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=64, do_sample=False)
print(tokenizer.decode(outputs[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""
ADAPTER_SCRIPT = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base, folder = {base}, {folder}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), folder).eval()

messages = [{{"role": "user", "content": "What is 2 + 3?"}}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=64, do_sample=False)
print(tokenizer.decode(outputs[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))
"""


class Way(NamedTuple):
    """One way to serve a model: a title, its requirements, and the text to copy."""

    id: str
    title: str
    about: str
    text: str


def ways(model: RegisteredModel, origins: Origins, address: str) -> list[Way]:
    """Commands for this model; none while its files cannot be had. ``address`` is that of this site."""
    if model.kind == ModelKind.HUB:
        at = model.revision
        return [
            _vllm_way(model.source, f" --revision {shlex.quote(at)}" if at else ""),
            _transformers_way(model.source),
        ]
    folder = model.folder
    if folder is None or not folder.is_dir():
        return []
    name = folder_name(model)
    found = [_download_way(model, name, address)]
    if (folder / ADAPTER_CONFIG).is_file():
        return [*found, *_adapter_ways(_base_of(origins), name, folder)]
    found += [_vllm_way(f"./{name}", _template_option(name, folder)), _transformers_way(f"./{name}")]
    adapter = model.adapter
    if adapter is not None and (adapter / ADAPTER_CONFIG).is_file():
        words = {"base": _base_of(origins)}
        about = _("its adapter alone, downloaded with ?part=adapter, on its base model: %(base)s") % words
        found.append(_lora_way(_base_of(origins), f"./{name}", adapter, about))
    return found


def folder_name(model: RegisteredModel) -> str:
    """The folder that a download unpacks into."""
    return model.name.replace(" ", "-")


def _download_way(model: RegisteredModel, name: str, address: str) -> Way:
    tar = shlex.quote(f"{name}.tar")
    text = (
        f'curl --fail --header "Authorization: Bearer $TOKEN" --output {tar} \\\n'
        f"  {address}/api/v1/models/{model.pk}/download\n"
        f"tar --extract --file {tar}\n"
        f"(cd {shlex.quote(name)} && sha256sum --check SHA256SUMS)\n"
    )
    return Way("serve-download", _("1 · Download"), _("with an API token of yours in TOKEN"), text)


def _vllm_way(source: str, more: str = "") -> Way:
    text = f"vllm serve {shlex.quote(source)}{more} --served-model-name {_served_name(source)}\n"
    return Way("serve-vllm", "vLLM", _("an OpenAI-compatible server on port 8000"), text)


def _transformers_way(source: str) -> Way:
    return Way("serve-transformers", "transformers", _("a Python script"), SCRIPT.format(folder=json.dumps(source)))


def _adapter_ways(base: str, name: str, folder: Path) -> list[Way]:
    script = ADAPTER_SCRIPT.format(base=json.dumps(base), folder=json.dumps(f"./{name}"))
    return [
        _lora_way(base, f"./{name}", folder, _("this checkpoint is a LoRA adapter: its base model is needed as well")),
        Way("serve-transformers", "transformers", _("a Python script, with peft"), script),
    ]


def _lora_way(base: str, source: str, folder: Path, about: str) -> Way:
    rank = _adapter_rank(folder)
    rank_words = f" --max-lora-rank {rank}" if rank > DEFAULT_MAX_LORA_RANK else ""
    module = f"{_served_name(source)}={source}"
    text = f"vllm serve {shlex.quote(base)} --enable-lora{rank_words} --lora-modules {shlex.quote(module)}\n"
    return Way("serve-lora", _("vLLM with a LoRA adapter"), about, text)


def _base_of(origins: Origins) -> str:
    """Where the serving program finds the base model: its id, or a folder of that name next to the adapter."""
    base = weights_of_run(origins.stages[0].run) if origins.stages else None
    if base is not None and base.kind == ModelKind.HUB:
        return base.name
    if base is not None and base.kind == ModelKind.FOLDER:
        return f"./{base.name}"
    return "./base-model"


def _template_option(name: str, folder: Path) -> str:
    return f" --chat-template {shlex.quote(f'./{name}/{CHAT_TEMPLATE}')}" if (folder / CHAT_TEMPLATE).is_file() else ""


def _served_name(source: str) -> str:
    """A simple name that clients use for the model."""
    return re.sub(r"[^\w.-]+", "-", source.rsplit("/", 1)[-1]).strip("-") or "model"


def _adapter_rank(folder: Path) -> int:
    try:
        with (folder / ADAPTER_CONFIG).open("rb") as file:
            found = json.loads(file.read(MAX_CONFIG_BYTES))
        return int(found.get("r") or 0)
    except (OSError, ValueError, AttributeError, TypeError):
        return 0


# --- Forms ----------------------------------------------------------------------------------------------------------
# Forms of people's texts on a model.

HELP = {
    "intended_use": gettext_lazy("What it is for, and for whom."),
    "limitations": gettext_lazy("Where it fails, and what it must not be used for."),
    "licence": gettext_lazy("The terms of use; those of its base model and of its data apply as well."),
}


class AboutForm(forms.Form):
    """Tags and notes. The service has the rules; this form only carries them."""

    tags = forms.CharField(
        label=gettext_lazy("Tags"),
        required=False,
        max_length=(MAX_TAG_CHARS + 2) * MAX_TAGS * 2,
        help_text=gettext_lazy("A few short words with spaces or commas between them, for example: tool-use 0.6b."),
    )
    notes = forms.CharField(
        label=gettext_lazy("Notes"),
        required=False,
        max_length=MAX_NOTES_CHARS * 2,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text=gettext_lazy("Plain text for your team."),
    )

    @classmethod
    def of(cls, model: RegisteredModel) -> AboutForm:
        """The form with a model's present values."""
        return cls(initial={"tags": " ".join(model.tags), "notes": model.notes})

    def values(self) -> dict[str, Any]:
        """Arguments of ``model_describe``."""
        return {"tags": re.split(r"[\s,，、]+", self.cleaned_data["tags"]), "notes": self.cleaned_data["notes"]}


class PushForm(forms.Form):
    """Where a model is pushed to."""

    repository = forms.CharField(
        label=gettext_lazy("Name on the hub"),
        max_length=200,
        help_text=gettext_lazy("owner/name: the account that the server's token may write to, and a name."),
    )
    private = forms.BooleanField(label=gettext_lazy("Private: only that account sees it"), required=False, initial=True)
    confirm = forms.BooleanField(
        label=gettext_lazy("These weights may leave this server, and so may what they learned from their data."),
        required=False,
    )

    def values(self) -> dict[str, Any]:
        """Arguments of ``push_order``."""
        data = self.cleaned_data
        return {"repository": data["repository"], "private": data["private"], "confirmed": data["confirm"]}


class CardForm(forms.Form):
    """The team's own sections of the model card."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, label in SECTIONS.items():
            self.fields[name] = forms.CharField(
                label=label,
                required=False,
                max_length=MAX_SECTION_CHARS * 2,
                help_text=HELP[name],
                widget=forms.Textarea(attrs={"rows": 4}),
            )

    @classmethod
    def of(cls, model: RegisteredModel) -> CardForm:
        """The form with a model's present values."""
        return cls(initial=model.card)

    def values(self) -> dict[str, Any]:
        """Arguments of ``model_describe``."""
        return {"card": dict(self.cleaned_data)}


# --- Page -----------------------------------------------------------------------------------------------------------
# The data of a model's page.

EDITS = ("about", "card")


def page_data(request: HttpRequest, project: Project, model: RegisteredModel) -> dict[str, Any]:
    """Everything that the page's templates need, but for forms that were sent with mistakes."""
    origins = origins_of(model)
    found = scores(model, origins)
    editor, push = can_edit(project), model.pushes.first()
    edit = request.GET.get("edit", "")
    return {
        "project": project,
        "model": model,
        "can_edit": editor,
        "edit": edit if editor and edit in EDITS else "",
        "nodes": lineage(model, origins),
        "children": children(model),
        "scores": found,
        "score": headline(found),
        "marks": ModelMark.choices,
        "bytes": model_bytes(model),
        "adapter": model.adapter is not None,
        "ways": ways(model, origins, request.build_absolute_uri("/").rstrip("/")),
        # The card is long and needs more queries: it is made only when it is opened.
        "card": card_text(model, origins, found) if request.GET.get("show") == "card" else "",
        "base_evaluate_url": base_evaluate_url(project, origins, found),
        "push": push,
        "push_failure": failure(push.error) if push is not None else None,
        "push_on": push_on(),
        "hub": urlsplit(settings.HUB_URL).netloc,
        "push_form": PushForm(),
        "about_form": AboutForm.of(model),
        "card_form": CardForm.of(model),
    }


def model_bytes(model: RegisteredModel) -> int | None:
    """The size of its files here; ``None`` where they are not here."""
    folder = model.folder
    if folder is None:
        return None
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except OSError:
        return None


def base_evaluate_url(project: Project, origins: Origins, found: list[Score]) -> str:
    """Where its base can be evaluated on the tasks of its own newest evaluation; empty where that is done, or where
    the base has no name that a config could say."""
    if not found or found[0].base_url or not origins.ancestors:
        return ""
    source = reference_of(project, origins.ancestors[0])
    if not source:
        return ""
    query = urlencode({"from": found[0].run.pk, "kind": "evaluate", "model": source})
    return f"{reverse('run-new', args=[project.slug])}?{query}"


def reference_of(project: Project, weights: Weights) -> str:
    """How a config names these weights; empty where nothing names them."""
    if weights.kind == ModelKind.STARTER:
        return "starter"
    rows = RegisteredModel.objects.filter(project=project)
    if weights.kind == ModelKind.RUN:
        rows = rows.filter(checkpoint__run=UUID(weights.name), checkpoint__path=weights.at)
    else:
        rows = rows.filter(kind=weights.kind, source=weights.name, revision=weights.at)
    model = rows.first()
    if model is not None:
        return model.reference
    return weights.name if weights.kind == ModelKind.HUB and not weights.at else ""


class RunModel(NamedTuple):
    """The finished model of an ended run, registered or not yet, whether its base played the same tasks, and
    the evaluation of it that says most."""

    checkpoint: Checkpoint
    model: RegisteredModel | None
    compare_url: str
    evaluate_url: str
    score: Score | None


def model_of_run(run: Run, whole: Sequence[Checkpoint] | None = None) -> RunModel | None:
    """The finished model of a run that succeeded; ``None`` where it left none. ``whole`` are the run's whole
    checkpoints, the newest first, where they were read before."""
    if run.state != RunState.SUCCEEDED or not run.method.trains or run.imported_from:
        return None
    known = RegisteredModel.objects.filter(checkpoint__run=run, checkpoint__final=True).order_by(
        "-checkpoint__attempt", "-checkpoint__step", "created_at"
    )
    model = known.select_related("checkpoint").first()
    checkpoint = model.checkpoint if model is not None else _final_checkpoint(run, whole)
    if checkpoint is None:
        return None
    checkpoint.run = run
    found = scores_of(run.project, weights_of_checkpoint(checkpoint), origins_of_checkpoint(checkpoint))
    source = model.reference if model is not None else run.reference
    query = urlencode({"from": run.pk, "kind": "evaluate", "model": source})
    evaluate_url = f"{reverse('run-new', args=[run.project.slug])}?{query}"
    compare_url = next((item.base_url for item in found if item.base_url), "")
    return RunModel(checkpoint, model, compare_url, evaluate_url, headline(found))


def _final_checkpoint(run: Run, whole: Sequence[Checkpoint] | None) -> Checkpoint | None:
    if whole is not None:
        return next((item for item in whole if item.final), None)
    return Checkpoint.objects.filter(run=run, final=True).order_by("-attempt", "-step").first()


# --- Views ----------------------------------------------------------------------------------------------------------


def _models_in_full(project: Project) -> QuerySet[RegisteredModel]:
    found = models_of(project).select_related(
        "project", "created_by", "checkpoint__run__parent", "checkpoint__run__resume_checkpoint"
    )
    return found.defer(None)


@login_required
@require_GET
def model_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page of one model: its facts, lineage and scores."""
    project, model = own(request, slug, RegisteredModel, pk, within=_models_in_full)
    return render(request, "model_pages/detail.html", page_data(request, project, model))


@login_required
@require_GET
def model_named(request: HttpRequest, slug: str, model_name: str) -> HttpResponse:
    """The page of a model by its name, for people who type addresses."""
    project = project_for(request.user, slug)
    model = models_of(project).filter(name=model_name).first()
    if model is None:
        raise Http404
    return redirect("model-detail", slug=slug, pk=model.pk)


@login_required
@require_POST
def model_mark_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Mark a model, or take its mark away."""
    _project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=_models_in_full)
    try:
        model_mark(model=model, mark=request.POST.get("mark", ""))
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("model-detail", slug=slug, pk=pk)
    words = {
        "": _("%(name)s has no mark any more."),
        ModelMark.CANDIDATE: _("%(name)s is a candidate."),
        ModelMark.PRODUCTION: _("%(name)s is in production."),
    }
    messages.success(request, words[model.mark] % {"name": model.name})
    return redirect("model-detail", slug=slug, pk=pk)


@login_required
@require_POST
def model_about(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change tags and notes."""
    return _save_and_show(request, slug, pk, "about", AboutForm(request.POST))


@login_required
@require_http_methods(["GET", "POST"])
def model_card(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The model card as a file; by POST, the team's own sections of it."""
    if request.method == "POST":
        return _save_and_show(request, slug, pk, "card", CardForm(request.POST))
    _project, model = own(request, slug, RegisteredModel, pk, within=_models_in_full)
    answer = HttpResponse(card_of(model), content_type="text/markdown; charset=utf-8")
    answer["Content-Disposition"] = content_disposition_header(True, README) or "attachment"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


@login_required
@require_POST
def model_push(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Have the model's files sent to the hub."""
    project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=_models_in_full)
    form = PushForm(request.POST)
    if form.is_valid():
        ask(request, Act.PUSH, reverse("model-detail", args=[slug, pk]))
        try:
            push_order(model=model, user=cast(User, request.user), readme=card_of(model), **form.values())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return redirect(reverse("model-detail", args=[slug, pk]) + "#push")
    context = page_data(request, project, model) | {"push_form": form, "push_again": True}
    return render(request, "model_pages/detail.html", context, status=422)


def _save_and_show(request: HttpRequest, slug: str, pk: UUID, part: str, form: Any) -> HttpResponse:
    """Save a form's texts on a model; with mistakes the page is shown again, with the form open."""
    project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=_models_in_full)
    if form.is_valid() and _save_form(model, form):
        messages.success(request, _("Saved."))
        return redirect("model-detail", slug=slug, pk=pk)
    context = page_data(request, project, model) | {"edit": part, f"{part}_form": form}
    return render(request, "model_pages/detail.html", context, status=422)


def _save_form(model: RegisteredModel, form: forms.Form) -> bool:
    try:
        model_describe(model=model, **form.values())  # type: ignore[attr-defined]
    except ValidationError as exc:
        add_errors(form, exc)
        return False
    return True
