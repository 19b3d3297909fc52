"""Addresses of models, and of what deletes: each of these lies under the thing that is deleted."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.runs.registry import views as registry_views
from webapp.runs.removal import views as removal_views

urlpatterns: list[URLPattern] = [
    path("models/", registry_views.model_list, name="model-list"),
    path("models/new/", registry_views.model_new, name="model-new"),
    path("models/<uuid:pk>/delete/", registry_views.model_remove, name="model-delete"),
    path("models/checkpoints/<uuid:pk>/delete/", removal_views.checkpoint_delete, name="checkpoint-delete"),
    path("runs/<uuid:pk>/delete/", removal_views.run_delete, name="run-delete"),
    path("delete/", removal_views.project_delete, name="project-delete"),
]
