"""Addresses of rewards."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from webapp.rewards import custom_views, views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.reward_list, name="reward-list"),
    path("new/", views.reward_new, name="reward-new"),
    path("custom/", custom_views.custom_edit, name="reward-custom"),
    path("custom/test/", custom_views.custom_try, name="reward-custom-test"),
    path("<uuid:pk>/", views.reward_detail, name="reward-detail"),
    path("<uuid:pk>/edit/", views.reward_edit, name="reward-edit"),
    path("<uuid:pk>/try/", views.reward_try, name="reward-try"),
    path("<uuid:pk>/delete/", views.reward_remove, name="reward-delete"),
    path("lab/", include("webapp.rewards.lab.urls")),
    path("cases/<uuid:pk>/delete/", views.reward_case_remove, name="reward-case-delete"),
]
