"""Addresses of suites."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.evaluation.suites import views

urlpatterns: list[URLPattern] = [
    path("", views.suite_list, name="suite-list"),
    path("new/", views.suite_new, name="suite-new"),
    path("<uuid:pk>/", views.suite_detail, name="suite-detail"),
    path("<uuid:pk>/edit/", views.suite_edit, name="suite-edit"),
    path("<uuid:pk>/evaluate/", views.suite_evaluate_view, name="suite-evaluate"),
    path("<uuid:pk>/delete/", views.suite_delete_view, name="suite-delete"),
]
