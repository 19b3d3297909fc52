"""The tables of docs/inspector.md, made of the filters' own texts: ``python -m tests.inspector_docs`` writes them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "docs" / "inspector.md"
SECTION = re.compile(r"(<!-- made of webapp/reading/inspector/filters.py -->\n).*?(<!-- to here -->)", re.S)


def tables() -> str:
    """Filters, bounds and orders, as Markdown."""
    from webapp.reading.inspector.filters import CHOICES, MEASURES, SORTS
    from webapp.reading.inspector.saving import TARGETS

    lines = ["", "| parameter | values | what it says |", "|---|---|---|"]
    lines.append("| `q` | a phrase | A turn says it, as it is written, in any case. |")
    for choice in CHOICES.values():
        values = ", ".join(f"`{value}`" for value in choice.values) or "a value"
        lines.append(f"| `{choice.name}` | {values}{'; several' if choice.many else ''} | {choice.help} |")
    lines += ["", "| bounds | title | what it says |", "|---|---|---|"]
    for item in MEASURES.values():
        names = ", ".join(f"`{item.name}_{end}`" for end in ("from", "to", "below"))
        lines.append(f"| {names} | {item.title} | {item.help} |")
    lines.append("| `part_<component>_from`, `…_to`, `…_below` | the component's | The component's raw value. |")
    lines += ["", f"Orders (`sort`): {', '.join(f'`{name}`' for name in SORTS)}; `-` before it turns it around."]
    lines += ["", "| save as | what is made |", "|---|---|"]
    lines += [f"| `{target.kind}` | {target.title}. {target.about} |" for target in TARGETS.values()]
    return "\n".join([*lines, "", ""])


def written(page: str) -> str:
    """The page with its tables as the code has them now."""
    found, made = SECTION.search(page), tables()
    if found is None:
        raise ValueError("docs/inspector.md has lost the marks around its tables")
    return page[: found.end(1)] + made + page[found.start(2) :]


if __name__ == "__main__":
    sys.path.insert(0, str(FILE.parent.parent))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    import django

    django.setup()
    from django.utils.translation import override

    with override("en"):
        FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")
