"""Addresses of reading a file differently, of its quality and of its bad rows."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.datasets import reading_views as views

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/read/", views.dataset_read, name="dataset-read"),
    path("<uuid:pk>/read/preview/", views.dataset_read_preview, name="dataset-read-preview"),
    path("<uuid:pk>/quality/", views.dataset_quality, name="dataset-quality"),
    path("<uuid:pk>/findings/", views.dataset_findings, name="dataset-findings"),
    path("<uuid:pk>/findings.csv", views.dataset_findings_csv, name="dataset-findings-csv"),
]
