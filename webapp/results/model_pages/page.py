"""The data of a model's page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse

from webapp.common.words import failure
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project
from webapp.results.model_pages.card import card_text
from webapp.results.model_pages.forms import AboutForm, CardForm, PushForm
from webapp.results.model_pages.lineage import Origins, children, lineage, origins_of, origins_of_checkpoint
from webapp.results.model_pages.scores import Score, headline, scores, scores_of
from webapp.results.model_pages.serving import ways
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind, ModelMark, RegisteredModel
from webapp.runs.registry.selectors import Weights, weights_of_checkpoint
from webapp.runs.registry.sending import push_on
from webapp.runs.states import RunState

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
