"""Addresses of rewards and of the reward lab."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from webapp.rewards import custom_views, views
from webapp.rewards.lab import views as lab

lab_urlpatterns: list[URLPattern] = [
    path("", lab.lab, name="lab"),
    path("save/", lab.lab_save, name="lab-save"),
    path("<uuid:pk>/", lab.lab_set, name="lab-set"),
    path("<uuid:pk>/progress/", lab.lab_set_progress, name="lab-set-progress"),
    path("<uuid:pk>/delete/", lab.lab_set_remove, name="lab-set-delete"),
    path("<uuid:pk>/score/", lab.lab_score, name="lab-score"),
    path("<uuid:pk>/rollouts/<uuid:rollout>/", lab.lab_rollout, name="lab-rollout"),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.reward_list, name="reward-list"),
    path("new/", views.reward_new, name="reward-new"),
    path("custom/", custom_views.custom_edit, name="reward-custom"),
    path("custom/test/", custom_views.custom_try, name="reward-custom-test"),
    path("<uuid:pk>/", views.reward_detail, name="reward-detail"),
    path("<uuid:pk>/edit/", views.reward_edit, name="reward-edit"),
    path("<uuid:pk>/try/", views.reward_try, name="reward-try"),
    path("<uuid:pk>/delete/", views.reward_remove, name="reward-delete"),
    path("lab/", include(lab_urlpatterns)),
    path("cases/<uuid:pk>/delete/", views.reward_case_remove, name="reward-case-delete"),
]
