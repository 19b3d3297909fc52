"""``manage.py collect_messages``: bring locale/*/LC_MESSAGES/django.po up to date without the gettext tools."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polib
from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.translation.template import templatize

# Collect the texts that people see without the gettext tools: Python by its syntax tree, templates by Django's reader.
#
# Only calls with literal texts count; the names below are those in our code. Translated text lives in
# ``locale/<language>/LC_MESSAGES/django.po``.

PLAIN = {"_", "gettext", "gettext_lazy", "gettext_noop"}
PLURAL = {"ngettext", "ngettext_lazy"}
CONTEXT = {"pgettext", "pgettext_lazy"}
FOLDERS = ("webapp", "training", "envs")
_STRING = r"""(u?"(?:[^"\\]|\\.)*"|u?'(?:[^'\\]|\\.)*')"""
_CALL = re.compile(rf"\b(_|gettext|ngettext|pgettext)\(\s*{_STRING}(?:\s*,\s*{_STRING})?", re.DOTALL)


class Message(NamedTuple):
    """One text: its context, itself, its plural."""

    context: str | None
    text: str
    plural: str = ""


def messages_of_python(source: str) -> Iterator[Message]:
    """Literal texts in calls of the gettext family."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if name in PLAIN and texts:
            yield Message(None, texts[0])
        elif name in PLURAL and len(texts) > 1:
            yield Message(None, texts[0], texts[1])
        elif name in CONTEXT and len(texts) > 1:
            yield Message(texts[0], texts[1])


def messages_of_template(source: str) -> Iterator[Message]:
    """Texts of ``{% translate %}``, ``{% blocktranslate %}`` and ``_("…")``."""
    for name, first, second in _CALL.findall(templatize(source)):
        text, other = ast.literal_eval(first), ast.literal_eval(second) if second else ""
        if name == "ngettext":
            yield Message(None, text, other)
        elif name == "pgettext":
            yield Message(text, other)
        else:
            yield Message(None, text)


def messages_collect(root: Path) -> dict[Message, list[str]]:
    """Every text with the files that have it."""
    found: dict[Message, list[str]] = {}

    def add(path: Path, messages: Iterator[Message]) -> None:
        for message in messages:
            places = found.setdefault(message, [])
            if message.text and (place := str(path.relative_to(root))) not in places:
                places.append(place)

    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            add(path, messages_of_python(path.read_text(encoding="utf-8")))
    for path in sorted((root / "templates").rglob("*.*")):
        if path.suffix in {".html", ".txt"}:
            add(path, messages_of_template(path.read_text(encoding="utf-8")))
    return {message: places for message, places in found.items() if message.text}


def catalogue_update(path: Path, messages: dict[Message, list[str]]) -> tuple[int, int]:
    """Bring a ``.po`` up to date: new texts come in empty, those no longer used go. Returns (new, gone)."""
    catalogue = polib.pofile(str(path), encoding="utf-8", wrapwidth=110) if path.exists() else _empty_catalogue()
    known = {(entry.msgctxt, entry.msgid): entry for entry in catalogue}
    wanted = {(message.context, message.text): message for message in messages}
    gone = [entry for key, entry in known.items() if key not in wanted]
    gone += catalogue.obsolete_entries()
    for entry in gone:
        catalogue.remove(entry)
    new = 0
    for key, message in sorted(wanted.items(), key=lambda item: (item[0][1], item[0][0] or "")):
        entry = known.get(key)
        if entry is None:
            entry = polib.POEntry(msgid=message.text, msgctxt=message.context)
            catalogue.append(entry)
            new += 1
        entry.occurrences = [(place, "") for place in messages[message]]
        if message.plural and entry.msgid_plural != message.plural:
            entry.msgid_plural, entry.msgstr_plural, entry.msgstr = message.plural, {0: entry.msgstr}, ""
    catalogue.sort(key=lambda entry: (entry.msgid, entry.msgctxt or ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    catalogue.save(str(path))
    return new, len(gone)


def _empty_catalogue() -> polib.POFile:
    catalogue = polib.POFile(wrapwidth=110)
    catalogue.metadata = {
        "Project-Id-Version": "tiltyard",
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Language": "zh_Hans",
        "Plural-Forms": "nplurals=1; plural=0;",
    }
    return catalogue


def placeholders(text: str) -> set[str]:
    """``%(name)s`` and ``{name}`` in a text: a translation has the same."""
    return set(re.findall(r"%\(\w+\)[-+.\d]*[sdfgr]|%[sd]|\{\w*\}", text))


def catalogue_problems(path: Path, messages: dict[Message, list[str]]) -> list[str]:
    """Texts that are missing, empty, fuzzy, left over, or lack a placeholder."""
    catalogue = polib.pofile(str(path), encoding="utf-8") if path.exists() else polib.POFile()
    known = {(entry.msgctxt, entry.msgid): entry for entry in catalogue if not entry.obsolete}
    wanted = {(message.context, message.text): message for message in messages}
    problems = [
        f"missing: {text!r} ({', '.join(messages[wanted[context, text]])})"
        for context, text in wanted
        if (context, text) not in known
    ]
    for key, entry in known.items():
        translations = list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]
        if key not in wanted:
            problems.append(f"no longer used: {entry.msgid!r}")
        elif entry.fuzzy:
            problems.append(f"fuzzy: {entry.msgid!r}")
        elif not translations or not all(translations):
            problems.append(f"not translated: {entry.msgid!r}")
        # A language with one form for all counts says the number, which the English singular may not.
        elif any(placeholders(text) != placeholders(entry.msgid_plural or entry.msgid) for text in translations):
            problems.append(f"placeholders differ: {entry.msgid!r}")
    return sorted(problems)


class Command(BaseCommand):
    """Add new texts, remove those no longer used, and say what is left to translate."""

    help = __doc__
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Update the Chinese catalogue."""
        root = Path(settings.BASE_DIR)
        path = root / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
        messages = messages_collect(root)
        new, gone = catalogue_update(path, messages)
        left = catalogue_problems(path, messages)
        self.stdout.write(f"{path}: {len(messages)} texts, {new} new, {gone} gone, {len(left)} to do")
