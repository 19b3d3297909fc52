"""Addresses of chats."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.chat import views

urlpatterns: list[URLPattern] = [
    path("", views.chat_list, name="chat-list"),
    path("new/", views.chat_new, name="chat-new"),
    path("<uuid:pk>/", views.chat_detail, name="chat-detail"),
    path("<uuid:pk>/delete/", views.chat_delete, name="chat-delete"),
]
