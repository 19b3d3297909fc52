"""Addresses of the reward lab."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.rewards.lab import views

urlpatterns: list[URLPattern] = [
    path("", views.lab, name="lab"),
    path("save/", views.lab_save, name="lab-save"),
    path("<uuid:pk>/", views.lab_set, name="lab-set"),
    path("<uuid:pk>/progress/", views.lab_set_progress, name="lab-set-progress"),
    path("<uuid:pk>/delete/", views.lab_set_remove, name="lab-set-delete"),
    path("<uuid:pk>/score/", views.lab_score, name="lab-score"),
    path("<uuid:pk>/rollouts/<uuid:rollout>/", views.lab_rollout, name="lab-rollout"),
]
