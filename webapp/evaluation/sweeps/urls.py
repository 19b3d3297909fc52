"""Addresses of sweeps; launching makes them."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.evaluation.sweeps import views
from webapp.launch import sweep_views

urlpatterns: list[URLPattern] = [
    path("", views.sweep_list, name="sweep-list"),
    path("new/", sweep_views.sweep_new, name="sweep-new"),
    path("plan/", sweep_views.sweep_plan, name="sweep-plan"),
    path("<uuid:pk>/", views.sweep_detail, name="sweep-detail"),
    path("<uuid:pk>/delete/", views.sweep_remove, name="sweep-delete"),
    path("<uuid:pk>/delete/runs/", views.sweep_remove_all, name="sweep-delete-runs"),
]
