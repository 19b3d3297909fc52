"""Addresses of models."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.runs.registry import views

urlpatterns: list[URLPattern] = [
    path("", views.model_list, name="model-list"),
    path("new/", views.model_new, name="model-new"),
    path("<uuid:pk>/delete/", views.model_remove, name="model-delete"),
]
