"""Addresses of comparisons."""

from __future__ import annotations

from django.urls import path

from webapp.comparison import views

urlpatterns = [
    path("", views.compare_page, name="compare"),
    path("tasks/<int:task>/", views.compare_task, name="compare-task"),
]
