"""A page of a comparison as one file that needs nothing else: to be sent, printed, kept."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.http import HttpResponse

STYLES = (
    "tokens.css",
    "base.css",
    *(f"components/{name}.css" for name in ("shell", "card", "table", "parts", "figures")),
    "pages/comparison.css",
)


def as_file(page: str, name: str, *more_styles: str) -> HttpResponse:
    """The page as a download that carries its style sheets; ``more_styles`` are those of its own."""
    # No page of ours has inline styles, but a standalone file cannot load a style sheet.
    folder = Path(settings.BASE_DIR) / "static" / "css"
    styles = "\n".join((folder / sheet).read_text(encoding="utf-8") for sheet in (*STYLES, *more_styles))
    answer = HttpResponse(page.replace("</head>", f"<style>{styles}</style></head>", 1))
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
