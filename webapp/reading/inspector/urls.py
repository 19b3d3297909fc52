"""Addresses of the rollouts of a project, and of the views of rollouts that were named."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading.inspector import views

urlpatterns: list[URLPattern] = [
    path("", views.rollout_list, name="project-rollouts"),
    path("save/", views.rollouts_save, name="project-rollouts-save"),
    path("views/<uuid:pk>/", views.view_open, name="rollout-view"),
    path("views/<uuid:pk>/delete/", views.view_delete_page, name="rollout-view-delete"),
]
