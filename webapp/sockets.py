"""Socket addresses, and who is refused before any of them is reached."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.security.websocket import OriginValidator
from django.urls import URLPattern, path, re_path

from webapp.chat.consumer import ChatConsumer
from webapp.environments.playground.consumer import PlayConsumer
from webapp.live.consumers import FORBIDDEN, GONE, RunConsumer
from webapp.reading.rewinding.consumer import RewindConsumer


class Unknown(AsyncWebsocketConsumer):
    """Any other address: closed at once with ``code``."""

    channel_layer_alias = ""  # the refusal of ``channels`` listens at Redis until its client has gone
    code = GONE

    async def connect(self) -> None:
        """Close."""
        await self.close(self.code)


class Foreign(Unknown):
    """A page of a foreign origin."""

    code = FORBIDDEN


class TrustedOrigins(OriginValidator):
    """Lets in pages of the trusted origins; a header that is not an origin counts as a foreign one."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Pass on, or refuse."""
        app = self.application if self._trusts_origin(scope["headers"]) else Foreign.as_asgi()
        return await app(scope, receive, send)

    def _trusts_origin(self, headers: list[tuple[bytes, bytes]]) -> bool:
        origins = [value for name, value in headers if name == b"origin"]
        try:
            return len(origins) == 1 and self.valid_origin(urlparse(origins[0].decode("ascii")))
        except ValueError:  # not ASCII, no port, half an address
            return False


websocket_urlpatterns: list[URLPattern] = [
    path("ws/runs/<uuid:run_id>/", RunConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
    path("ws/environments/<uuid:environment_id>/play/", PlayConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
    path("ws/rollouts/<uuid:rollout_id>/rewind/", RewindConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
    path("ws/chats/<uuid:chat_id>/", ChatConsumer.as_asgi()),  # type: ignore[list-item, arg-type]
    re_path(r"", Unknown.as_asgi()),  # type: ignore[list-item, arg-type]
]
