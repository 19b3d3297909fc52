"""Addresses of rollouts, and of the groups and tasks of runs."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading import preview, views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/", views.rollout_detail, name="rollout-detail"),
    path("<uuid:pk>/turns/", views.rollout_turns, name="rollout-turns"),
    path("<uuid:pk>/preview/", preview.rollout_preview, name="rollout-preview"),
    path("<uuid:pk>/pane/", views.rollout_pane, name="rollout-pane"),
    path("<uuid:pk>/found/", views.rollout_found, name="rollout-found"),
    path("<uuid:pk>/end/", views.rollout_end, name="rollout-end"),
    path("<uuid:pk>/fail/", views.rollout_fail, name="rollout-fail"),
    path("<uuid:pk>/case/", views.rollout_case, name="rollout-case"),
]
run_urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/groups/<int:step>/<int:group>/", views.run_group, name="run-group"),
    path("<uuid:pk>/tasks/", views.run_tasks, name="run-tasks"),
]
