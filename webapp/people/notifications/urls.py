"""Addresses of notifications."""

from __future__ import annotations

from django.urls import URLPattern, path

from webapp.people.notifications import views

CHANNELS = "p/<slug:slug>/settings/channels/"
urlpatterns: list[URLPattern] = [
    path("notifications/", views.notification_list, name="notification-list"),
    path("notifications/bell/", views.bell, name="notification-bell"),
    path("notifications/read/", views.notifications_read, name="notifications-read"),
    path("notifications/settings/", views.notification_settings, name="notification-settings"),
    path("notifications/settings/mail/", views.mail_test, name="notification-mail-test"),
    path("notifications/<int:pk>/open/", views.notification_open, name="notification-open"),
    path("notifications/<int:pk>/read/", views.notification_mark, name="notification-mark"),
    path(CHANNELS, views.channel_list, name="channel-list"),
    path(CHANNELS + "<uuid:pk>/edit/", views.channel_edit, name="channel-edit"),
    path(CHANNELS + "<uuid:pk>/test/", views.channel_test, name="channel-test"),
    path(CHANNELS + "<uuid:pk>/resume/", views.channel_resume, name="channel-resume"),
    path(CHANNELS + "<uuid:pk>/delete/", views.channel_delete, name="channel-delete"),
]
