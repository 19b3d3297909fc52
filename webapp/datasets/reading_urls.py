"""Addresses of reading a file differently, of its quality and of its bad rows."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.datasets import views as views_module

urlpatterns: list[URLPattern] = [
    path("<uuid:pk>/read/", views_module.dataset_read, name="dataset-read"),
    path("<uuid:pk>/read/preview/", views_module.dataset_read_preview, name="dataset-read-preview"),
    path("<uuid:pk>/quality/", views_module.dataset_quality, name="dataset-quality"),
    path("<uuid:pk>/findings/", views_module.dataset_findings, name="dataset-findings"),
    path("<uuid:pk>/findings.csv", views_module.dataset_findings_csv, name="dataset-findings-csv"),
]
