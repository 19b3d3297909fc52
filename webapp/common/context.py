"""The context of every page's template."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest


def page(request: HttpRequest) -> dict[str, Any]:
    """Theme (light, dark or system) and the product's name; the project is set by the view that authorised it."""
    theme = request.COOKIES.get("tiltyard-theme", "system")
    return {
        "theme": theme if theme in {"light", "dark"} else "system",
        "product_name": settings.PRODUCT_NAME,
    }
