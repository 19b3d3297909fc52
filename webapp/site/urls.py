"""Addresses of the front page, of a project at a glance, of the workers, of the installation's health,
of runs and of notifications."""

from __future__ import annotations

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path

from webapp.engine import doctor_views
from webapp.foreign import views as foreign_views
from webapp.people.notifications import views as notifications
from webapp.reading.urls import run_urlpatterns as reading
from webapp.retention.views import retention_page
from webapp.site import home, usage, workers
from webapp.site.monitoring import views as monitoring
from webapp.site.palette import views as palette
from webapp.site.run_pages import devices, flight, list_views, parts, views

run_urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("webapp.launch.urls")),
    path("imports/new/", foreign_views.import_new, name="run-import"),
    path("imports/<uuid:pk>/", foreign_views.import_detail, name="run-import-detail"),
    path("imports/<uuid:pk>/progress/", foreign_views.import_progress, name="run-import-progress"),
    path("", list_views.run_list_page, name="run-list"),
    path("columns/", list_views.run_columns, name="run-columns"),
    path("tag/", list_views.runs_tag, name="run-tag"),
    path("archive/", list_views.runs_archive, name="run-archive"),
    path("queue/", list_views.runs_queue, name="run-queue-chosen"),
    path("runs.csv", list_views.runs_csv, name="run-csv"),
    path("<uuid:pk>/star/", list_views.run_star, name="run-star"),
    path("<uuid:pk>/label/", list_views.run_label, name="run-label"),
    path("<uuid:pk>/", views.run_detail, name="run-detail"),
    path("<uuid:pk>/preview/", list_views.run_preview, name="run-preview"),
    path("<uuid:pk>/held-out/", parts.run_held_out, name="run-held-out"),
    path("<uuid:pk>/held-out/<int:step>/", parts.run_held_out_step, name="run-held-out-step"),
    path("<uuid:pk>/bfcl-scores.zip", views.run_score_files, name="run-score-files"),
    path("<uuid:pk>/curves.csv", views.run_curves_csv, name="run-curves-csv"),
    path("<uuid:pk>/parts/", views.run_parts, name="run-parts"),
    path("<uuid:pk>/advisories/", views.run_advisories, name="run-advisories"),
    path("<uuid:pk>/spend/", views.run_spending, name="run-spend"),
    path("<uuid:pk>/times/", views.run_times, name="run-times"),
    path("<uuid:pk>/devices/", devices.run_devices, name="run-devices"),
    path("<uuid:pk>/said/", flight.run_said, name="run-said"),
    path("<uuid:pk>/stop/", views.run_stop_view, name="run-stop"),
    path("<uuid:pk>/pause/", views.run_pause_view, name="run-pause"),
    path("<uuid:pk>/queue/", views.run_queue_view, name="run-queue"),
    path("<uuid:pk>/resume/", views.run_resume_view, name="run-resume"),
    path("<uuid:pk>/log/", views.run_log, name="run-log"),
    path("<uuid:pk>/log/older/", views.run_log_older, name="run-log-older"),
    path("<uuid:pk>/log/output/", views.run_output, name="run-output"),
    path("<uuid:pk>/pairs/", views.run_pairs, name="run-pairs"),
    path("<uuid:pk>/config/", views.run_config, name="run-config"),
    path("<uuid:pk>/verl/", foreign_views.run_verl, name="run-verl"),
    path("<uuid:pk>/export/", foreign_views.metrics_page, name="run-export"),
    path("<uuid:pk>/exports/", foreign_views.metrics_list, name="run-exports"),
    path("<uuid:pk>/exports/<uuid:file_id>/", foreign_views.metrics_file, name="run-export-file"),
    path("<uuid:pk>/events/", views.run_events, name="run-events"),
    *reading,
]
CHANNELS = "p/<slug:slug>/settings/channels/"
notification_urlpatterns: list[URLPattern] = [
    path("notifications/", notifications.notification_list, name="notification-list"),
    path("notifications/bell/", notifications.bell, name="notification-bell"),
    path("notifications/read/", notifications.notifications_read, name="notifications-read"),
    path("notifications/settings/", notifications.notification_settings, name="notification-settings"),
    path("notifications/settings/mail/", notifications.mail_test, name="notification-mail-test"),
    path("notifications/<int:pk>/open/", notifications.notification_open, name="notification-open"),
    path("notifications/<int:pk>/read/", notifications.notification_mark, name="notification-mark"),
    path(CHANNELS, notifications.channel_list, name="channel-list"),
    path(CHANNELS + "<uuid:pk>/edit/", notifications.channel_edit, name="channel-edit"),
    path(CHANNELS + "<uuid:pk>/test/", notifications.channel_test, name="channel-test"),
    path(CHANNELS + "<uuid:pk>/resume/", notifications.channel_resume, name="channel-resume"),
    path(CHANNELS + "<uuid:pk>/delete/", notifications.channel_delete, name="channel-delete"),
]
urlpatterns: list[URLPattern | URLResolver] = [
    path("", home.home, name="home"),
    path("healthz", workers.healthz, name="healthz"),
    path("readyz", workers.readyz, name="readyz"),
    path("metrics", monitoring.metrics, name="metrics"),
    path("workers/", workers.worker_list, name="worker-list"),
    path("workers/drain/", workers.worker_drain, name="worker-drain"),
    path("usage/", usage.usage_page, name="device-usage"),
    path("usage/limit/", usage.limit_set, name="device-limit"),
    path("usage/usage.csv", usage.usage_csv, name="device-usage-csv"),
    path("p/<slug:slug>/", home.project_page, name="project-page"),
    path("palette/", palette.palette_anywhere, name="palette-anywhere"),
    path("p/<slug:slug>/palette/", palette.palette, name="palette"),
    path("p/<slug:slug>/shelves/", home.project_shelves, name="project-shelves"),
    path("p/<slug:slug>/pins/<uuid:pk>/remove/", home.pin_remove, name="pin-remove"),
    path("p/<slug:slug>/settings/retention/", retention_page, name="retention-page"),
    path("p/<slug:slug>/settings/doctor/", doctor_views.doctor_rules, name="doctor-rules"),
    path("p/<slug:slug>/runs/", include(run_urlpatterns)),
    *notification_urlpatterns,
]
if settings.DEBUG:
    urlpatterns.append(path("styleguide/", home.styleguide, name="styleguide"))
