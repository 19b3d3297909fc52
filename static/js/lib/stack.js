// @ts-check
/** Components as areas on top of each other: gains are above zero, losses below. Pure. */

/** @typedef {import("./plot.js").Points} Points */

/**
 * The values of lines over one x for all. Between two known points a line is straight; where it has not begun, or has
 * ended, its component was no part of the reward, so it adds nothing.
 * @param {Points[]} lines
 * @returns {{x: number[], y: number[][]}}
 */
export function aligned(lines) {
  const x = Array.from(new Set(lines.flatMap((line) => line.x))).sort((a, b) => a - b);
  return { x, y: lines.map((line) => values(line, x)) };
}

/**
 * @param {Points} line
 * @param {number[]} x
 */
function values(line, x) {
  const known = line.x.flatMap((at, place) => {
    const y = line.y[place];
    return y === null || !Number.isFinite(y) ? [] : [{ at, y }];
  });
  let next = 0;
  return x.map((at) => {
    while (next < known.length && known[next].at < at) next += 1;
    if (next === known.length) return 0;
    const right = known[next];
    if (right.at === at) return right.y;
    if (next === 0) return 0;
    const left = known[next - 1];
    return left.y + ((right.y - left.y) * (at - left.at)) / (right.at - left.at);
  });
}

/**
 * Traces of a stack, and the lowest and highest of its edges.
 * @param {Points[]} lines
 * @param {string[]} tones
 * @param {string[]} names
 */
export function stackTraces(lines, tones, names) {
  const { x, y } = aligned(lines);
  const areas = y.flatMap((line, at) =>
    [
      { group: "above", part: line.map((value) => Math.max(value, 0)) },
      { group: "below", part: line.map((value) => Math.min(value, 0)) },
    ]
      .filter(({ part }) => part.some((value) => value !== 0))
      .map(({ group, part }) => ({
        type: "scatter",
        mode: "lines",
        x,
        y: part,
        stackgroup: group,
        name: names[at],
        hoverinfo: "none",
        showlegend: false,
        line: { color: tones[at], width: 1 },
        fillcolor: `${tones[at]}73`,
      })),
  );
  const total = (/** @type {(value: number) => number} */ part, /** @type {number} */ place) =>
    y.reduce((sum, line) => sum + part(line[place]), 0);
  const high = x.map((_at, place) => total((value) => Math.max(value, 0), place));
  const low = x.map((_at, place) => total((value) => Math.min(value, 0), place));
  return { traces: areas, edges: { x, high, low } };
}
