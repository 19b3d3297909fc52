"""Addresses of endpoints."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.endpoints import views

urlpatterns: list[URLPattern] = [
    path("", views.endpoint_list, name="endpoint-list"),
    path("new/", views.endpoint_new, name="endpoint-new"),
    path("<uuid:pk>/", views.endpoint_detail, name="endpoint-detail"),
    path("<uuid:pk>/edit/", views.endpoint_edit, name="endpoint-edit"),
    path("<uuid:pk>/test/", views.endpoint_try, name="endpoint-test"),
    path("<uuid:pk>/delete/", views.endpoint_remove, name="endpoint-delete"),
]
