"""Addresses of the rollouts of a project and of a run, and of the views of rollouts that were named."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading.inspector import views

urlpatterns: list[URLPattern] = [
    path("", views.rollout_list, name="project-rollouts"),
    path("causes/", views.rollout_causes, name="project-rollouts-causes"),
    path("save/", views.rollouts_save, name="project-rollouts-save"),
    path("views/<uuid:pk>/", views.view_open, name="rollout-view"),
    path("views/<uuid:pk>/delete/", views.view_delete_page, name="rollout-view-delete"),
]

# Below a run.
run_urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/rollouts/", views.rollout_list, name="run-rollouts"),
    path("<uuid:pk>/rollouts/causes/", views.rollout_causes, name="run-rollouts-causes"),
    path("<uuid:pk>/rollouts/fresh/", views.rollouts_fresh, name="run-rollouts-fresh"),
    path("<uuid:pk>/rollouts/save/", views.rollouts_save, name="run-rollouts-save"),
]
