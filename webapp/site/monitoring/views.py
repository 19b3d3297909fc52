"""``GET /metrics``: who may read the figures, and in which of Prometheus' formats."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from prometheus_client.exposition import choose_encoder

from webapp.common.errors import error_body
from webapp.common.pages import bearer, client_address
from webapp.site.monitoring.figures import Scrape

FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")
"""Headers of a proxy: through one on this machine everybody would have a loopback address."""


@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Figures of the whole installation, from whichever web process is asked: for the bearer of
    ``TILTYARD_METRICS_TOKEN``, and without that setting for this machine alone."""
    refusal = _refusal(request)
    if refusal is not None:
        return refusal
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(Scrape()), content_type=content_type)


class InsideMiddleware:
    """Answer a monitor that asks by ``TILTYARD_METRICS_HOST``, a name inside our network such as ``web:8000``.

    That name is none of ``TILTYARD_HOSTS``: a page that is asked for by it would have addresses that no browser finds.
    So this path alone is answered, before hosts are checked and requests without TLS are sent elsewhere, and only to
    the bearer of the token.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        inside = settings.METRICS_HOST and request.META.get("HTTP_HOST") == settings.METRICS_HOST
        if inside and settings.METRICS_TOKEN and request.path == "/metrics":
            return metrics(request)
        return self.get_response(request)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if not settings.METRICS_TOKEN:
        if _is_local(request):
            return None
        why = _("Without TILTYARD_METRICS_TOKEN, only this machine may read the metrics, and not through a proxy.")
        return JsonResponse(error_body(request, "forbidden", why), status=403)
    if hmac.compare_digest(bearer(request).encode(), settings.METRICS_TOKEN.encode()):
        return None
    why = _("Send the token of TILTYARD_METRICS_TOKEN as “Authorization: Bearer …”.")
    headers = {"WWW-Authenticate": "Bearer"}
    return JsonResponse(error_body(request, "login_required", why), status=401, headers=headers)


def _is_local(request: HttpRequest) -> bool:
    if any(name in request.headers for name in FORWARDED):
        return False
    try:
        address = ip_address(client_address(request))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
