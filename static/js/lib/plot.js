// @ts-check
/** What Plotly gets for a chart: traces of its lines, axes, and the line that a curve becomes. Pure. */
import { decimate, isFlat, positive, smooth, valueAt } from "./series.js";

/** @typedef {import("./state.js").Curve} Curve */
/** @typedef {{x: number[], y: (number | null)[]}} Points */
/**
 * A line of a chart: smoothed, with the points as they are behind it as a ghost. `reach`: steps between known points.
 * @typedef {Points & {ghost: Points | null, reach: number}} Drawn
 */

export const MARGIN = { l: 46, r: 10, t: 6, b: 20 };
export const HEIGHT = 150;
const POINTS = 800;
const GHOST = 0.28;

/**
 * @param {Curve} curve
 * @param {{smooth: number, log: boolean}} view
 * @returns {Drawn}
 */
export function drawnLine(curve, view) {
  const fit = (/** @type {(number | null)[]} */ values) => (view.log ? positive(values) : values);
  const raw = { x: curve.steps, y: fit(curve.values) };
  const means = curve.means;
  const width = curve.steps.length ? curve.steps[curve.steps.length - 1] - curve.steps[0] : 0;
  const reach = means ? Math.ceil(width / Math.max(means.steps.length, 1)) : 0;
  if (!(view.smooth > 0) || isFlat(curve.values)) return { ...raw, ghost: null, reach };
  const of = means ?? curve;
  return { x: of.steps, y: smooth(fit(of.values), view.smooth, means?.counts), ghost: raw, reach };
}

/**
 * A line, after its ghost.
 * @param {Drawn} line
 * @param {string} tone
 */
export function lineTraces(line, tone) {
  const thin = decimate(line.x, line.y, POINTS);
  const few = thin.x.length < 3;
  const trace = { ...pencil(thin, tone, few ? "markers" : "lines", 1.5), marker: { color: tone, size: 5 } };
  if (!line.ghost) return [trace];
  const ghost = pencil(decimate(line.ghost.x, line.ghost.y, POINTS), tone, "lines", 1);
  return [{ ...ghost, hoverinfo: "skip", opacity: GHOST }, trace];
}

/**
 * @param {Points} points
 * @param {string} tone
 * @param {string} mode
 * @param {number} width
 */
function pencil(points, tone, mode, width) {
  return {
    type: "scatter",
    mode,
    x: points.x,
    y: points.y,
    hoverinfo: "none",
    connectgaps: false,
    showlegend: false,
    line: { color: tone, width },
  };
}

/**
 * Evaluations: a ★ each with its interval. They are few, and no average of their neighbours.
 * @param {Points} points as they are
 * @param {(Curve | undefined)[]} ends lower and upper end of the intervals
 * @param {boolean} log
 * @param {string} tone
 */
export function starTrace(points, ends, log, tone) {
  const away = (/** @type {Curve | undefined} */ found) =>
    points.x.map((step, at) => {
      const value = found ? valueAt(found.steps, found.values, step) : undefined;
      const middle = points.y[at];
      return value === undefined || value === null || middle === null ? 0 : Math.abs(value - middle);
    });
  return {
    ...pencil({ x: points.x, y: log ? positive(points.y) : points.y }, tone, "lines+markers", 1),
    line: { color: tone, width: 1, dash: "dot" },
    marker: { color: tone, size: 9, symbol: "star" },
    error_y: {
      type: "data",
      symmetric: false,
      array: away(ends[1]),
      arrayminus: away(ends[0]),
      color: tone,
      thickness: 1,
      width: 3,
    },
  };
}

/**
 * All of a chart but its lines and what stands beside them.
 * @param {{range: [number, number] | null, values: [number, number] | null, log: boolean, colour: (name: string) => string}} how
 */
export function frameOf({ range, values, log, colour }) {
  const axis = {
    color: colour("--ink-3"),
    gridcolor: colour("--line"),
    linecolor: colour("--line"),
    zeroline: false,
    tickfont: { size: 10 },
  };
  return {
    margin: MARGIN,
    height: HEIGHT,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "x",
    dragmode: "zoom",
    font: { family: colour("--font-text"), size: 11, color: colour("--ink-2") },
    showlegend: false,
    xaxis: {
      ...axis,
      showgrid: false,
      showline: true,
      nticks: 6,
      dtick: range && range[1] - range[0] < 6 ? 1 : undefined, // no half steps
      tickformat: ",d",
      range: range ? [...range] : undefined,
      autorange: range === null,
    },
    yaxis: {
      ...axis,
      fixedrange: true,
      nticks: 5,
      type: log ? "log" : "linear",
      range: values ?? undefined,
      autorange: values === null,
      exponentformat: "e",
      automargin: false,
    },
  };
}

/**
 * The values of a line that are seen in a range of steps, those next to it included.
 * @param {Points} points
 * @param {[number, number] | null} range
 */
export function seenValues(points, range) {
  if (!range) return points.y;
  const from = points.x.findIndex((x) => x >= range[0]);
  if (from < 0) return [];
  const past = points.x.findIndex((x) => x > range[1]);
  return points.y.slice(from, past < 0 ? undefined : past);
}
