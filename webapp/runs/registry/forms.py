"""The form that registers a model."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from webapp.common.ids import name_validator
from webapp.common.pages import newest_only
from webapp.people.teams.models import Project
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import checkpoints_of, model_folders

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
        folders = model_folders()
        fresh = checkpoints_of(project).filter(models=None)  # a second name for the same weights is of no use
        newest = list(fresh.values_list("pk", flat=True)[:OFFERED])
        if not self.is_bound:  # what was sent may be any of them
            fresh = fresh.filter(pk__in={*newest, *_checkpoint_of_query(kwargs.get("initial"))})
        self.has_folders, self.has_checkpoints = bool(folders), bool(newest)
        choices = [("", "—"), *((folder.name, folder.name) for folder in folders)]
        self.fields["folder"].choices = choices  # type: ignore[attr-defined]
        self.fields["folder"].help_text = _("Folders with a model that the administrator put on this server.")
        self.fields["checkpoint"].queryset = fresh  # type: ignore[attr-defined]
        told = _("A checkpoint or finished model of a run of this project.")
        self.fields["checkpoint"].help_text = f"{told} {newest_only(len(newest), OFFERED)}".strip()

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
