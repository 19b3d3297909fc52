"""Pages of models."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.ids import name_validator
from webapp.common.pages import add_errors, newest_only, page_number
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.sudo import Act, ask
from webapp.runs.registry import selectors, services
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form that registers a model.

OFFERED = 200
"""Checkpoints that the form lists, the newest; the list of checkpoints has a button for each of the others."""


def _checkpoint_of_query(initial: dict[str, Any] | None) -> list[UUID]:
    """The checkpoint that the address asks for."""
    try:
        return [UUID(str((initial or {}).get("checkpoint")))]
    except ValueError:
        return []


class CheckpointChoice(forms.ModelChoiceField):
    """A checkpoint by its run and step."""

    def label_from_instance(self, obj: Checkpoint) -> str:
        """``run · step N``, with a word for the finished model."""
        step = _("%(run)s · step %(step)s") % {"run": obj.run.name, "step": obj.step}
        return f"{step} · {_('final')}" if obj.final else step


class ModelForm(forms.Form):
    """Where the weights come from; only the fields of the chosen kind count."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("Name that runs of this project use for it."),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Where the weights come from"),
        choices=[(kind.value, kind.label) for kind in (ModelKind.HUB, ModelKind.FOLDER, ModelKind.RUN)],
        widget=forms.RadioSelect,
        initial=ModelKind.HUB,
    )
    source = forms.CharField(
        label=gettext_lazy("Hugging Face id"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("owner/name, for example Qwen/Qwen3-0.6B. Only safetensors weights are ever loaded."),
    )
    revision = forms.CharField(
        label=gettext_lazy("Revision"),
        required=False,
        max_length=64,
        help_text=gettext_lazy("A commit pins the weights; empty uses the newest and records which it was."),
    )
    folder = forms.ChoiceField(label=gettext_lazy("Folder"), required=False)
    checkpoint = CheckpointChoice(label=gettext_lazy("Checkpoint"), required=False, queryset=Checkpoint.objects.none())

    def __init__(self, *args: Any, project: Project, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        folders = selectors.model_folders()
        fresh = selectors.checkpoints_of(project).filter(models=None)  # a second name for the same weights is of no use
        newest = list(fresh.values_list("pk", flat=True)[:OFFERED])
        if not self.is_bound:  # what was sent may be any of them
            fresh = fresh.filter(pk__in={*newest, *_checkpoint_of_query(kwargs.get("initial"))})
        self.has_folders, self.has_checkpoints = bool(folders), bool(newest)
        choices = [("", "—"), *((folder.name, folder.name) for folder in folders)]
        self.fields["folder"].choices = choices  # type: ignore[attr-defined]
        self.fields["folder"].help_text = _("Folders with a model that the administrator put on this server.")
        self.fields["checkpoint"].queryset = fresh  # type: ignore[attr-defined]
        help_text = _("A checkpoint or finished model of a run of this project.")
        self.fields["checkpoint"].help_text = f"{help_text} {newest_only(len(newest), OFFERED)}".strip()

    def values(self) -> dict[str, Any]:
        """Arguments of ``model_register``."""
        data = self.cleaned_data
        kind = data["kind"]
        source = data["source"] if kind == ModelKind.HUB else data["folder"] if kind == ModelKind.FOLDER else ""
        return {
            "name": data["name"],
            "kind": kind,
            "source": source,
            "revision": data["revision"] if kind == ModelKind.HUB else "",
            "checkpoint": data["checkpoint"] if kind == ModelKind.RUN else None,
        }


PER_PAGE = 50


@login_required
@require_GET
def model_list(request: HttpRequest, slug: str) -> HttpResponse:
    """Everything a run can start from."""
    project = project_for(request.user, slug)
    asked = request.GET.get("q", "").strip()[:80].replace("\x00", "")
    registered = Paginator(selectors.models_named(project, asked), PER_PAGE)
    models = registered.get_page(page_number(request.GET.get("models")))
    starter = asked.lower() in selectors.STARTER  # it is not a row of the project, and comes first
    checkpoints = Paginator(selectors.checkpoints_shown(project), PER_PAGE)
    is_owner = getattr(project, "role", "") == Role.OWNER
    context = {
        "project": project,
        "can_edit": can_edit(project),
        "q": asked,
        "models": models,
        "starter": starter and models.number == 1,
        "count": registered.count + starter,
        "folders": selectors.model_folders(),
        "is_owner": is_owner,
        "models_dir": settings.MODELS_DIR if is_owner else "",
        "page": checkpoints.get_page(page_number(request.GET.get("page"))),
    }
    return render(request, "registry/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def model_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Register a model under a name."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        initial = {
            key: request.GET[key][:200] for key in ("kind", "folder", "checkpoint", "name") if key in request.GET
        }
        form = ModelForm(project=project, initial=initial)
        return render(request, "registry/new.html", {"project": project, "form": form})
    form = ModelForm(request.POST, project=project)
    if form.is_valid():
        try:
            made = services.model_register(project=project, user=cast(User, request.user), **form.values())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("%(name)s is registered.") % {"name": made.name})
            return redirect("model-detail", slug=slug, pk=made.pk)
    return render(request, "registry/new.html", {"project": project, "form": form}, status=422)


@login_required
@require_POST
def model_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one registered model; its files stay."""
    _project, model = own(request, slug, RegisteredModel, pk, need=Role.EDITOR, within=selectors.models_of)
    ask(request, Act.DELETE_MODEL, reverse("model-list", args=[slug]))
    try:
        services.model_delete(model=model)
        messages.success(request, _("%(name)s was removed from the list; its files stay.") % {"name": model.name})
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    return redirect("model-list", slug=slug)
