// @ts-check
/** What is drawn around the lines of a chart: the band of a spread, and marks at steps. Pure. */
import { placeOn } from "./axis.js";
import { valueAt } from "./series.js";

/** @typedef {import("./plot.js").Drawn} Drawn */

const MARK_AT = 0.035; // of the height: just above the axis, whose line would cut it
const BAND = "24"; // how much of the tone, in hex

/**
 * One deviation around a line, as two traces with the band between them; nothing where no deviation is known.
 * @param {Drawn} line
 * @param {Drawn} spread its deviation, drawn in the same way
 * @param {string} tone as #rrggbb
 * @returns {any[]}
 */
export function bandTraces(line, spread, tone) {
  /** @type {{x: number[], low: number[], high: number[]}} */
  const band = { x: [], low: [], high: [] };
  line.x.forEach((x, at) => {
    const middle = line.y[at];
    const away = valueAt(spread.x, spread.y, x, Math.max(spread.reach, line.reach));
    if (middle === null || away === null || away === undefined) return;
    band.x.push(x);
    band.low.push(middle - away);
    band.high.push(middle + away);
  });
  if (!band.x.length) return [];
  const edge = { type: "scatter", mode: "lines", x: band.x, hoverinfo: "skip", showlegend: false };
  return [
    { ...edge, y: band.low, line: { width: 0, color: tone } },
    { ...edge, y: band.high, line: { width: 0, color: tone }, fill: "tonexty", fillcolor: `${tone}${BAND}` },
  ];
}

/**
 * ◆ checkpoints and ★ evaluations along the lower edge of a chart, on an axis of their own.
 * @param {number[]} checkpoints steps
 * @param {number[]} evaluations steps
 * @param {import("./axis.js").Axis | undefined} axis
 * @param {string} ink
 */
export function stepMarks(checkpoints, evaluations, axis, ink) {
  return [
    { steps: checkpoints, symbol: "diamond", size: 5 },
    { steps: evaluations, symbol: "star", size: 7 },
  ]
    .filter((kind) => kind.steps.length)
    .map(({ steps, symbol, size }) => markTrace(steps.map((step) => placeOn(axis, step)), symbol, size, ink)); // prettier-ignore
}

/**
 * ✕ where a figure was NaN or infinite: the line has a gap there.
 * @param {import("./state.js").Curve[]} curves of one run
 * @param {import("./axis.js").Axis | undefined} axis
 * @param {string} ink
 */
export function gapMarks(curves, axis, ink) {
  const steps = curves.flatMap(({ steps, values }) => steps.filter((_step, at) => values[at] === null));
  const places = [...new Set(steps)].map((step) => placeOn(axis, step));
  return places.length ? [markTrace(places, "x-thin-open", 7, ink)] : [];
}

/**
 * @param {number[]} places on the axis
 * @param {string} symbol
 * @param {number} size
 * @param {string} ink
 */
function markTrace(places, symbol, size, ink) {
  return {
    type: "scatter",
    mode: "markers",
    x: places,
    y: places.map(() => MARK_AT),
    cliponaxis: false,
    yaxis: "y2",
    hoverinfo: "skip",
    showlegend: false,
    marker: { color: ink, size, symbol },
  };
}

export const MARK_AXIS = { overlaying: "y", range: [0, 1], visible: false, fixedrange: true };
