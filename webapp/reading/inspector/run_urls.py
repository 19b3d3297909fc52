"""Addresses of a run's rollouts."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.reading.inspector import views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/rollouts/", views.rollout_list, name="run-rollouts"),
    path("<uuid:pk>/rollouts/fresh/", views.rollouts_fresh, name="run-rollouts-fresh"),
    path("<uuid:pk>/rollouts/save/", views.rollouts_save, name="run-rollouts-save"),
]
