"""Addresses of the front page, of a project at a glance and of the workers."""

from __future__ import annotations

from django.conf import settings
from django.urls import URLPattern, path

from webapp.home import views, worker_views

urlpatterns: list[URLPattern] = [
    path("", views.home, name="home"),
    path("workers/", worker_views.worker_list, name="worker-list"),
    path("p/<slug:slug>/", views.project_page, name="project-page"),
]
if settings.DEBUG:
    urlpatterns.append(path("styleguide/", views.styleguide, name="styleguide"))
