"""Addresses of rollouts, of the lists that find them, and of the groups and tasks of runs."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading import preview, views
from webapp.reading.inspector import views as inspector
from webapp.reading.rewinding import views as rewinding

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/", views.rollout_detail, name="rollout-detail"),
    path("<uuid:pk>/turns/", views.rollout_turns, name="rollout-turns"),
    path("<uuid:pk>/preview/", preview.rollout_preview, name="rollout-preview"),
    path("<uuid:pk>/pane/", views.rollout_pane, name="rollout-pane"),
    path("<uuid:pk>/found/", views.rollout_found, name="rollout-found"),
    path("<uuid:pk>/end/", views.rollout_end, name="rollout-end"),
    path("<uuid:pk>/fail/", views.rollout_fail, name="rollout-fail"),
    path("<uuid:pk>/case/", views.rollout_case, name="rollout-case"),
    path("<uuid:pk>/rewind/", rewinding.rollout_rewind, name="rollout-rewind"),
    path("<uuid:pk>/branches/", rewinding.branch_list, name="branch-list"),
    path("<uuid:pk>/branches/new/", rewinding.branch_continue, name="branch-continue"),
    path("<uuid:pk>/branches/continue/", rewinding.continuation_new, name="continuation-new"),
    path("<uuid:pk>/branches/<uuid:branch_id>/save/", rewinding.branch_save_view, name="branch-save"),
    path("<uuid:pk>/branches/<uuid:branch_id>/delete/", rewinding.branch_delete_view, name="branch-delete"),
    path("", inspector.rollout_list, name="project-rollouts"),
    path("causes/", inspector.rollout_causes, name="project-rollouts-causes"),
    path("save/", inspector.rollouts_save, name="project-rollouts-save"),
    path("views/<uuid:pk>/", inspector.view_open, name="rollout-view"),
    path("views/<uuid:pk>/delete/", inspector.view_delete_page, name="rollout-view-delete"),
]
run_urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/groups/<int:step>/<int:group>/", views.run_group, name="run-group"),
    path("<uuid:pk>/tasks/", views.run_tasks, name="run-tasks"),
    path("<uuid:pk>/rollouts/", inspector.rollout_list, name="run-rollouts"),
    path("<uuid:pk>/rollouts/causes/", inspector.rollout_causes, name="run-rollouts-causes"),
    path("<uuid:pk>/rollouts/fresh/", inspector.rollouts_fresh, name="run-rollouts-fresh"),
    path("<uuid:pk>/rollouts/save/", inspector.rollouts_save, name="run-rollouts-save"),
]
