"""Addresses of models."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.registry import views
from webapp.removal import views as removal

urlpatterns: list[URLPattern] = [
    path("", views.model_list, name="model-list"),
    path("new/", views.model_new, name="model-new"),
    path("checkpoints/<uuid:pk>/delete/", removal.checkpoint_delete, name="checkpoint-delete"),
    path("<uuid:pk>/delete/", views.model_remove, name="model-delete"),
]
