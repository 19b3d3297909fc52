"""Addresses of the reward lab."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.rewards.lab import api_views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/score/", api_views.lab_score, name="lab-score"),
    path("<uuid:pk>/rollouts/<uuid:rollout>/", api_views.lab_rollout, name="lab-rollout"),
]
