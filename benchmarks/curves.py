"""Small curves as SVG for the documents: shares over steps, a line for each seed, legible on light and dark ground."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 480, 190
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 26, 24  # what the labels take
SMOOTHED = 5  # steps on either side of the one that a thick line shows the mean of
# Of the interface's own colours; each seed also has its own dashes.
STYLE = """\
text { font: 11px system-ui, sans-serif; fill: #4d5457; }
.grid { stroke: #cdd0cb; stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.raw { fill: none; stroke-width: 1; opacity: 0.35; }
.s0 { stroke: #0a6b60; } .s1 { stroke: #b0591a; stroke-dasharray: 6 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #b4bcbf; } .grid { stroke: #3a4144; } .s0 { stroke: #4cc0ae; } .s1 { stroke: #e89a5b; }
}"""


def curve_svg(title: str, lines: Mapping[str, Sequence[float]]) -> str:
    """A drawing of shares (0 to 1) by step, for at most two lines by their label."""
    steps = max(len(values) for values in lines.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>{escape(title)}</title><style>{STYLE}</style>',
        *(_grid_line(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        *(_step_label(step, steps) for step in (1, *range(10, steps + 1, 10))),
    ]
    for number, (label, values) in enumerate(lines.items()):
        parts.append(f'<polyline class="raw s{number}" points="{_points(values, steps)}"/>')
        parts.append(f'<polyline class="line s{number}" points="{_points(_smooth(values), steps)}"/>')
        x = LEFT + number * 215
        parts.append(f'<line class="line s{number}" x1="{x}" y1="12" x2="{x + 22}" y2="12"/>')
        parts.append(f'<text x="{x + 28}" y="16">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _grid_line(share: float) -> str:
    y = f"{_y(share):.1f}"
    line = f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'
    return f'{line}<text x="{LEFT - 6}" y="{_y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>'


def _step_label(step: int, steps: int) -> str:
    return f'<text x="{_x(step, steps):.0f}" y="{HEIGHT - 8}" text-anchor="middle">{step}</text>'


def _x(step: float, steps: int) -> float:
    return LEFT + (step - 1) / max(1, steps - 1) * (WIDTH - LEFT - RIGHT - 6)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _points(values: Sequence[float], steps: int) -> str:
    return " ".join(f"{_x(step, steps):.1f},{_y(value):.1f}" for step, value in enumerate(values, 1))


def _smooth(values: Sequence[float]) -> list[float]:
    near = [values[max(0, place - SMOOTHED) : place + SMOOTHED + 1] for place in range(len(values))]
    return [sum(part) / len(part) for part in near]
