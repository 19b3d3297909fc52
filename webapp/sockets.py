"""Socket addresses."""

from __future__ import annotations

from django.urls import URLPattern, path, re_path

from webapp.environments.playground.consumer import PlayConsumer
from webapp.live.consumers import NotFoundConsumer, RunConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/runs/<uuid:run_id>/", RunConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
    path("ws/environments/<uuid:environment_id>/play/", PlayConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
    re_path(r"", NotFoundConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
]
