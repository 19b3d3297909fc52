"""Addresses of the run doctor."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.engine.doctor import views

urlpatterns: list[URLPattern] = [
    path("p/<slug:slug>/settings/doctor/", views.doctor_rules, name="doctor-rules"),
]
