// @ts-check
/** The input of Plotly for a chart: traces of its lines, axes, and the line that a curve becomes. Pure but for `styles`. */
import { placeOn } from "./axis.js";
import { decimate, isFlat, positive, smooth, valueAt } from "./series.js";

/** @typedef {import("./state.js").Curve} Curve */
/** @typedef {{x: number[], y: (number | null)[]}} Points */
/**
 * A line of a chart: smoothed, with the points as they are behind it as a ghost. `reach`: how far known points lie
 * apart.
 * @typedef {Points & {ghost: Points | null, reach: number}} Drawn
 */

export const MARGIN = { l: 46, r: 10, t: 6, b: 20 };
export const HEIGHT = 150;
export const COMPONENT = /^rewards\/(.+)\/mean$/;
const POINTS = 800;
const GHOST = 0.28;

/**
 * @param {Curve} curve
 * @param {{smooth: number, log: boolean}} view
 * @param {import("./axis.js").Axis} [axis] none: over steps
 * @returns {Drawn}
 */
export function drawnLine(curve, view, axis) {
  const fit = (/** @type {(number | null)[]} */ values) => (view.log ? positive(values) : values);
  const over = (/** @type {number[]} */ steps) => (axis ? steps.map((step) => placeOn(axis, step)) : steps);
  const raw = { x: over(curve.steps), y: fit(curve.values) };
  const means = curve.means;
  const width = raw.x.length ? raw.x[raw.x.length - 1] - raw.x[0] : 0;
  const reach = means ? width / Math.max(means.steps.length, 1) : 0;
  if (!(view.smooth > 0) || isFlat(curve.values)) return { ...raw, ghost: null, reach };
  const y = smooth(fit((means ?? curve).values), view.smooth, means?.counts);
  return { x: means ? over(means.steps) : raw.x, y, ghost: raw, reach };
}

/**
 * A curve without its ends: the means of what was thinned. Lines that are added up need the same steps.
 * @param {Curve} curve
 * @param {{smooth: number}} view
 * @param {import("./axis.js").Axis} [axis]
 * @returns {Drawn}
 */
export function meanLine(curve, view, axis) {
  const { steps, values } = curve.means ?? curve;
  const known = { steps, values, attempts: [] };
  const line = drawnLine(curve.means ? { ...known, means: curve.means } : known, { ...view, log: false }, axis);
  return { ...line, ghost: null };
}

/**
 * A line, after its ghost.
 * @param {Drawn} line
 * @param {string} tone
 * @param {{dash?: string, range?: [number, number] | null}} [how] `dash` of another run, where the tone is the metric's
 */
export function lineTraces(line, tone, { dash = "solid", range = null } = {}) {
  const thinned = (/** @type {Points} */ points) => {
    const { x, y } = seenPoints(points, range);
    return decimate(x, y, POINTS);
  };
  const thin = thinned(line);
  const few = thin.x.length < 3;
  const plain = pencil(thin, tone, few ? "markers" : "lines", 1.5);
  const trace = { ...plain, line: { ...plain.line, dash }, marker: { color: tone, size: 5 } };
  if (!line.ghost) return [...(few ? [] : dotsOf(thin, tone)), trace];
  const ghost = pencil(thinned(line.ghost), tone, "lines", 1);
  return [{ ...ghost, hoverinfo: "skip", opacity: GHOST }, trace];
}

/**
 * Points that stand alone between gaps, which a line alone would not show.
 * @param {Points} points
 * @param {string} tone
 */
function dotsOf({ x, y }, tone) {
  const known = (/** @type {number} */ at) => y[at] !== null && y[at] !== undefined;
  const alone = x.map((_place, at) => at).filter((at) => known(at) && !known(at - 1) && !known(at + 1));
  const points = { x: alone.map((at) => x[at]), y: alone.map((at) => y[at]) };
  return alone.length ? [{ ...pencil(points, tone, "markers", 1), marker: { color: tone, size: 5 } }] : [];
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
 * @param {number[]} steps of the points
 * @param {(Curve | undefined)[]} ends lower and upper end of the intervals
 * @param {boolean} log
 * @param {string} tone
 */
export function starTrace(points, steps, ends, log, tone) {
  const away = (/** @type {Curve | undefined} */ found) =>
    steps.map((step, at) => {
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

/** Plotly's own parts are off in every chart. */
export const BARE = { displayModeBar: false, responsive: true, showTips: false };

/** The style sheet's colours and fonts as they are now, by the name of a variable. */
export function styles() {
  const css = getComputedStyle(document.documentElement);
  return (/** @type {string} */ name) => css.getPropertyValue(name).trim();
}

/**
 * The look of the axes of all charts.
 * @param {(name: string) => string} colour
 */
export function axisLook(colour) {
  return {
    color: colour("--ink-3"),
    gridcolor: colour("--line"),
    linecolor: colour("--line"),
    zeroline: false,
    tickfont: { size: 10 },
  };
}

/**
 * The ground of all charts.
 * @param {(name: string) => string} colour
 */
export function ground(colour) {
  return {
    margin: MARGIN,
    height: HEIGHT,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colour("--font-text"), size: 11, color: colour("--ink-2") },
    showlegend: false,
  };
}

/**
 * All of a chart but its lines and what is drawn around them.
 * @param {{range: [number, number] | null, values: [number, number] | null, log: boolean, axis: string, shares?: boolean, colour: (name: string) => string}} how
 */
export function frameOf({ range, values, log, axis: kind, shares = false, colour }) {
  const axis = axisLook(colour);
  return {
    ...ground(colour),
    hovermode: "x",
    dragmode: "zoom",
    xaxis: {
      ...axis,
      type: "linear", // else Plotly looks through the points for dates and words
      showgrid: false,
      showline: true,
      nticks: 6,
      dtick: kind === "step" && range && range[1] - range[0] < 6 ? 1 : undefined, // no half steps
      tickformat: { step: ",d", time: "~g" }[kind] ?? "~s",
      range: range ? [...range] : undefined,
      autorange: range === null,
      kind,
      whole: kind === "step",
    },
    yaxis: {
      ...axis,
      fixedrange: true,
      nticks: 5,
      type: log ? "log" : "linear",
      range: values ?? undefined,
      autorange: values === null,
      shares,
      tickformat: shares ? ".0%" : undefined,
      exponentformat: "e",
      automargin: false,
      ticklabeloverflow: "allow", // none reaches past the plot, and Plotly would measure each to find out
    },
  };
}

/**
 * The points of a line that are seen in a range, and the next one on either side, to which the line continues.
 * @param {Points} points
 * @param {[number, number] | null} range
 * @returns {Points}
 */
export function seenPoints(points, range) {
  if (!range) return { x: points.x, y: points.y };
  const from = points.x.findIndex((x) => x >= range[0]);
  const past = points.x.findIndex((x) => x > range[1]);
  const [first, end] = [from < 0 ? points.x.length - 1 : from - 1, past < 0 ? points.x.length : past + 1];
  return { x: points.x.slice(Math.max(first, 0), end), y: points.y.slice(Math.max(first, 0), end) };
}

/**
 * The values that are seen in a range.
 * @param {Points} points
 * @param {[number, number] | null} range
 */
export function seenValues(points, range) {
  return points.y.filter((_value, at) => !range || (range[0] <= points.x[at] && points.x[at] <= range[1]));
}
