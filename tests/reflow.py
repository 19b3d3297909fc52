"""Reflow templates: ``python -m tests.reflow [--check] [FILE …]``. Lines over 120 columns are cut where they can be.

A line is cut only where white space changes nothing that a browser shows: beside tags of block elements, between
attributes, and where there is white space already. Never inside ``{% … %}``, which Django reads on one line only, nor
in elements that show their white space, nor in one that a style sheet may look at for being empty. A long
``blocktranslate`` becomes ``trimmed``, which leaves its message as it is. Lines that fit stay as they are.

djlint and prettier were tried first: djlint leaves two thirds of the long lines, and prettier does not read templates
whose tags are balanced by ``{% if %}``; both put white space where it shows.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from webapp.ops.management.commands.collect_messages import messages_of_template

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "templates"
COLUMNS, STEP, ROUNDS = 120, 2, 8
# White space beside their tags is not shown.
BLOCKS = frozenset(
    {"article", "aside", "body", "caption", "col", "colgroup", "dd", "details", "dialog", "div", "dl", "dt"}
    | {"fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "head", "header", "hr", "html"}
    | {"legend", "li", "link", "main", "meta", "nav", "ol", "optgroup", "option", "p", "section", "summary", "table"}
    | {"tbody", "td", "template", "tfoot", "th", "thead", "title", "tr", "ul"}
)
INNER = frozenset({"button", "select", "svg"})  # nor inside these
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])
# Elements, and classes by the style sheets, that show their white space.
SHOWN = frozenset({"pre", "textarea", "script", "style"})
SHOWN_CLASSES = frozenset({"codeblock", "log-line", "prewrap", "replica-log", "said", "tree-leaf"})
OPENS = frozenset(["if", "for", "with", "block", "autoescape", "filter", "spaceless"])
MIDDLE = frozenset({"else", "elif", "empty"})
DJANGO = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}")
OPAQUE = re.compile(r"({%\s*(blocktranslate|comment|verbatim)\b.*?%})(.*?)({%\s*end\2\s*%})", re.DOTALL)
TAG = re.compile(r"</?([a-zA-Z][\w-]*)")
SENTENCE = re.compile(r'{%\s*translate\s+"([^"%{}\\]+)"\s*%}')
TEXT = re.compile(r"(?:(?!{%|{{|{#)[^\s<])+|.")


class Token(NamedTuple):
    """One part of a template: a tag with its attributes, a tag of Django's, or a word."""

    parts: tuple[str, ...]
    kind: str  # open, close, void, middle, django, message, text
    name: str = ""
    before: str = ""  # the white space before it
    shown: bool = False  # and whether that is shown
    filled: bool = False  # of an element: that it is never empty
    raw: str = ""  # as it stands in the source

    @property
    def text(self) -> str:
        """The whole of it on one line."""
        return " ".join(self.parts)

    @property
    def html(self) -> bool:
        """Whether it is a tag of HTML."""
        return self.kind in {"open", "close", "void"} and not self.name.startswith("%")

    @property
    def block(self) -> bool:
        """Whether white space beside it is not shown."""
        return (self.html and self.name in BLOCKS) or (self.name == "%include" and _includes_blocks(self.text))


# --- Reading ----------------------------------------------------------------------------------------------------------
def tokens_of(template: str) -> list[Token]:
    """A template in its parts."""
    found: list[Token] = []
    inside: list[str] = []  # elements that show their white space
    place = 0
    while place < len(template):
        start = place
        while place < len(template) and template[place].isspace():
            place += 1
        if place == len(template):
            break
        token, end = _token(template, place, inside[-1] if inside else "")
        shown = bool(inside)
        found.append(token._replace(before=template[start:place], shown=shown, raw=template[place:end]))
        if token.kind == "open" and ((inside and token.name == inside[-1]) or _shows(token)):
            inside.append(token.name)
        elif token.kind == "close" and inside and token.name == inside[-1]:
            inside.pop()
        place = end
    return _with_filled(found)


def _shows(token: Token) -> bool:
    return token.name in SHOWN or bool(SHOWN_CLASSES & set(re.findall(r"[\w-]+", token.text)))


def _token(text: str, place: int, inside: str) -> tuple[Token, int]:
    if opaque := OPAQUE.match(text, place):
        plain = opaque[2] == "blocktranslate" and opaque[3] == " ".join(opaque[3].split())
        return Token((opaque[0],), "message" if plain else "text"), opaque.end()
    if django := DJANGO.match(text, place):
        return _django(django[0]), django.end()
    if text.startswith("<!", place):
        end = text.index("-->", place) + 3 if text.startswith("<!--", place) else text.index(">", place) + 1
        return Token((text[place:end],), "text"), end
    tag = TAG.match(text, place)
    if tag and (inside not in {"script", "style"} or tag[1] == inside):
        return _tag(text, place, tag[1].lower())
    word = TEXT.match(text, place)
    assert word is not None
    return Token((word[0],), "text"), word.end()


def _django(text: str) -> Token:
    if SENTENCE.fullmatch(text):
        return Token((text,), "message", "%translate")
    word = re.match(r"{%\s*(\w+)", text)
    name = word[1] if word else ""
    if name in OPENS:
        return Token((text,), "open", f"%{name}")
    if name.startswith("end"):
        return Token((text,), "close", f"%{name[3:]}")
    return Token((text,), "middle" if name in MIDDLE else "django", f"%{name}")


def _tag(text: str, place: int, name: str) -> tuple[Token, int]:
    """A tag of HTML with its attributes; quotes and Django's tags are passed over whole."""
    parts, start, at, quote = [], place, place, ""
    while True:
        if found := DJANGO.match(text, at):
            at = found.end()
        elif quote or text[at] in "\"'":
            quote = "" if quote == text[at] else quote or text[at]
            at += 1
        elif text[at] == ">":
            break
        elif text[at].isspace():
            parts.append(text[start:at])
            start = at = at + len(re.match(r"\s+", text[at:])[0])  # type: ignore[index]
        else:
            at += 1
    parts.append(text[start : at + 1])
    ends = parts[0].startswith("</")
    kind = "close" if ends else "void" if name in VOID or text[at - 1] == "/" else "open"
    return Token(tuple(part for part in parts if part), kind, name), at + 1


def _with_filled(tokens: list[Token]) -> list[Token]:
    """The tokens, with elements marked that hold something whatever the conditions in them say."""
    found, stack = list(tokens), list[tuple[int, str]]()
    for number, token in enumerate(tokens):
        if stack and not stack[-1][1].startswith("%"):
            literal = token.html or token.kind in {"text", "message"} or token.name == "%translate"
            if (literal and token.kind != "close") or token.before:
                found[stack[-1][0]] = found[stack[-1][0]]._replace(filled=True)
        if token.kind == "open":
            stack.append((number, token.name))
        elif token.kind == "close":
            while stack and stack[-1][1] != token.name:  # balanced by another condition
                stack.pop()
            if stack:
                found[number] = found[number]._replace(filled=found[stack.pop()[0]].filled)
    return found


@cache
def _includes_blocks(tag: str) -> bool:
    """Whether what an ``{% include %}`` brings begins and ends with tags of blocks."""
    named = re.match(r"""{%\s*include\s+["']([\w./-]+)["']""", tag)
    path = TEMPLATES / named[1] if named else None
    if path is None or not path.is_file():
        return False
    shown = [token for token in tokens_of(path.read_text(encoding="utf-8")) if not _silent(token)]
    return bool(shown) and shown[0].block and shown[-1].block


def _silent(token: Token) -> bool:
    """Whether it is a condition, a comment or the like, which shows nothing itself."""
    if token.name.startswith("%"):
        return token.kind in {"open", "close", "middle"} or token.name in {"%load", "%extends"}
    return token.kind in {"django", "text"} and token.text.startswith(("{#", "{% comment"))


# --- Cutting ----------------------------------------------------------------------------------------------------------
def reflow(template: str) -> str:
    """The template with its long lines cut. Raises ``ValueError`` where that would change it."""
    for _round in range(ROUNDS):
        before, template = template, _once(template)
        if template == before:
            return template
    raise ValueError("the reflowed template does not come to rest")


def _once(template: str) -> str:
    lines: list[str] = []
    for group in _groups(tokens_of(template)):
        before = group[0].before
        indent = before.rpartition("\n")[2]
        raw = indent + group[0].raw + "".join(token.before + token.raw for token in group[1:])
        fits = all(len(line) <= COLUMNS for line in raw.split("\n"))
        whole = any("\n" in token.before + token.text for token in group[1:]) or "\n" in group[0].text
        cut = [raw] if fits or whole else _laid_out(group, len(indent.expandtabs()))
        lines += [""] * max(0, before.count("\n") - bool(lines)) + cut
    made = "\n".join(lines) + template[len(template.rstrip()) :]
    if _words(made) != _words(template) or set(messages_of_template(made)) != set(messages_of_template(template)):
        raise ValueError("the reflowed template would differ from its source")
    return made


def _groups(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens of each line; one that may not be cut reaches over several."""
    group: list[Token] = []
    for token in tokens:
        if group and "\n" in token.before and not token.shown:
            yield group
            group = []
        group.append(token)
    if group:
        yield group


def _laid_out(tokens: list[Token], indent: int) -> list[str]:
    """A line in as many as it takes: first cut beside the outermost blocks, each part then by itself."""
    whole = " " * indent + _joined(tokens)
    if len(whole) <= COLUMNS:
        return [whole]
    depths = _depths(tokens)
    cuts = [at for at in range(1, len(tokens)) if _beside_block(tokens[at - 1], tokens[at])]
    if not cuts:
        return _filled_in(tokens, indent)
    outermost = min(depths[at] for at in cuts)
    places = [0, *(at for at in cuts if depths[at] == outermost), len(tokens)]
    lines = []
    for start, end in pairwise(places):
        part = tokens[start:end]
        back = part[0].kind in {"close", "middle"} and start > 0
        lines += _laid_out(part, max(0, indent + STEP * (depths[start] - back)))
    return lines


def _depths(tokens: list[Token]) -> list[int]:
    """How deep each token begins, before it opens or closes anything."""
    depths, depth = [], 0
    for token in tokens:
        depths.append(depth)
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
    return depths


def _beside_block(first: Token, second: Token) -> bool:
    """Whether a line may be cut between the two because no white space is shown there."""
    if second.shown:
        return False
    if second.before and (first.block or second.block):
        return True
    begins = first.kind == "open" and first.html and (first.block or first.name in INNER)
    ends = second.kind == "close" and second.html and (second.block or second.name in INNER)
    if begins and second.kind == "close":
        return False
    if begins:
        return first.filled
    if ends:
        return second.filled
    return first.block or second.block


def _filled_in(tokens: list[Token], indent: int) -> list[str]:
    """A line cut where it has white space, as late as possible; what follows stands a little to the right."""
    lines, further = [" " * indent], " " * (indent + 2 * STEP)
    for space, part in _unbroken(tokens, COLUMNS - len(further)):
        glue = " " if space == " " and lines[-1].strip() else ""
        if lines[-1].strip() and len(lines[-1] + glue + part) > COLUMNS:
            lines.append(further + part)
        else:
            lines[-1] += glue + part
    return lines


def _unbroken(tokens: list[Token], room: int) -> Iterator[tuple[str, str]]:
    """What cannot be cut, each with the white space before it: none where it may be cut but has none (``trimmed``)."""
    space, part = "", ""
    for number, token in enumerate(tokens):
        fixed = number == 0 or token.shown or not token.before
        first, *rest = [("", token.parts[0]), *((" ", each) for each in token.parts[1:])]
        if token.kind == "message" and not token.shown and len(token.raw) + (len(part) if fixed else 0) > room:
            first, *rest = _trimmed(token.raw)
        if fixed:
            part += (token.before if number else "") + first[1]
        else:
            yield space, part
            space, part = " ", first[1]
        for before, piece in rest:
            yield space, part
            space, part = before, piece
    yield space, part


def _trimmed(message: str) -> list[tuple[str, str]]:
    """A long message in its words, told apart by Django's ``trimmed`` however the lines are."""
    found = OPAQUE.match(SENTENCE.sub(r"{% blocktranslate %}\1{% endblocktranslate %}", message))
    assert found is not None
    head = found[1]
    if " trimmed" not in head:
        head = re.sub(r"^{%\s*blocktranslate", "{% blocktranslate trimmed", head)
    words = re.findall(r"(?:{{.*?}}|{%.*?%}|[^\s{]|{(?![{%]))+", found[3])
    first, *rest = words
    return [("", head), ("", first), *((" ", word) for word in rest), ("", found[4])]


def _joined(tokens: list[Token]) -> str:
    spaces = [token.before if token.shown else " " * bool(token.before) for token in tokens]
    return "".join([tokens[0].text, *(space + token.text for space, token in zip(spaces[1:], tokens[1:], strict=True))])


def _words(template: str) -> list[str]:
    """What a template says, without white space that is not shown."""
    plain = re.sub(r"({%\s*blocktranslate) trimmed\b", r"\1", template)
    spelled = r'{% translate "\1" %}'
    plain = re.sub(r"{%\s*blocktranslate\s*%}(.*?){%\s*endblocktranslate\s*%}", spelled, plain, flags=re.DOTALL)
    return re.sub(r"\s+", "", plain).split("<")


def main() -> int:
    """Reflow files, or say which would change."""
    parser = argparse.ArgumentParser(description="Cut the long lines of templates.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file would change")
    parser.add_argument("files", nargs="*", type=Path, help="templates; without any, all of them")
    options = parser.parse_args()
    changed = []
    for path in options.files or sorted(TEMPLATES.rglob("*.html")):
        source = path.read_text(encoding="utf-8")
        made = reflow(source)
        if made != source:
            changed.append(path)
            if not options.check:
                path.write_text(made, encoding="utf-8")
    for path in changed:
        print(f"{'would be' if options.check else 'was'} reflowed: {path}")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
