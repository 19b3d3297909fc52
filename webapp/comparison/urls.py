"""Addresses of comparisons."""

from __future__ import annotations

from django.urls import path

from webapp.comparison import views

urlpatterns = [
    path("", views.compare_page, name="compare"),
    path("report.html", views.compare_report, name="compare-report"),
    path("figures.csv", views.compare_csv, {"table": "figures"}, name="compare-figures-csv"),
    path("tasks.csv", views.compare_csv, {"table": "tasks"}, name="compare-tasks-csv"),
    path("tasks/<int:task>/", views.compare_task, name="compare-task"),
]
