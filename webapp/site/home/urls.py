"""Addresses of the front page, of a project at a glance, of the workers and of the installation's health."""

from __future__ import annotations

from django.conf import settings
from django.urls import URLPattern, path

from webapp.site.home import health, views, worker_views

urlpatterns: list[URLPattern] = [
    path("", views.home, name="home"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("workers/", worker_views.worker_list, name="worker-list"),
    path("p/<slug:slug>/", views.project_page, name="project-page"),
]
if settings.DEBUG:
    urlpatterns.append(path("styleguide/", views.styleguide, name="styleguide"))
