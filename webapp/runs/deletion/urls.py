"""Addresses of what deletes; each lies under the thing that is deleted."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.runs.deletion import views

urlpatterns: list[URLPattern] = [
    path("delete/", views.project_delete, name="project-delete"),
    path("runs/<uuid:pk>/delete/", views.run_delete, name="run-delete"),
    path("models/checkpoints/<uuid:pk>/delete/", views.checkpoint_delete, name="checkpoint-delete"),
]
