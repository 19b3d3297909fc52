"""Addresses of the reward lab."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.rewards.lab import page_views

urlpatterns: list[URLPattern] = [
    path("", page_views.lab, name="lab"),
    path("save/", page_views.lab_save, name="lab-save"),
    path("<uuid:pk>/", page_views.lab_set, name="lab-set"),
    path("<uuid:pk>/progress/", page_views.lab_set_progress, name="lab-set-progress"),
    path("<uuid:pk>/delete/", page_views.lab_set_remove, name="lab-set-delete"),
    path("<uuid:pk>/score/", page_views.lab_score, name="lab-score"),
    path("<uuid:pk>/rollouts/<uuid:rollout>/", page_views.lab_rollout, name="lab-rollout"),
]
