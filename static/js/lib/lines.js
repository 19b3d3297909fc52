// @ts-check
/** The lines of a chart, taken from the runs that are drawn, and the traces that they become. */
import { bandTraces, gapMarks, stepMarks } from "./around.js";
import { stepAt } from "./axis.js";
import { shownCurve } from "./closer.js";
import { has, t } from "./dom.js";
import { COMPONENT, drawnLine, lineTraces, meanLine, seenPoints, seenValues, starTrace } from "./plot.js";
import { valueAt } from "./series.js";
import { PART, SPREAD } from "./specs.js";
import { stackTraces } from "./stack.js";

/** @typedef {import("./plot.js").Drawn & {name: string, label: string, at: number, dash: string, source: Source}} Line */
/** @typedef {import("./curves.js").Source} Source */
/** @typedef {import("./specs.js").Spec} Spec */
/** @typedef {import("./curves.js").Curves} Curves */

const HELD_OUT = "heldout/";
const EVALUATED = "heldout/success";
const DASHES = ["solid", "dash", "dot", "dashdot"];
const REWARDS = /^(reward|reward_std|rewards\/.+|heldout\/reward|groups\/best_reward_mean|parts\/.+reward)$/;
export const GHOST = -2; // of the line behind the chart that answers, which has a scale of its own
export const TOTAL = -1; // the place of the line that a stack adds up to: no curve's colour, but that of text

/** @param {string} name of a metric that shares its chart with others */
const nameOf = (name) => (has(`metric.${name}`) ? t(`metric.${name}`) : (name.match(PART)?.[1] ?? name));

/**
 * Whether a chart piles up its lines: those of the components of one run, on a scale that can be added up, where one
 * weight of each makes its value its term.
 * @param {Spec} spec
 * @param {Curves} all
 */
export function isStacked(spec, all) {
  const weights = all.options.weights;
  return (
    spec.key === "components" &&
    all.view.stack &&
    !all.view.log &&
    all.sources.length === 1 &&
    spec.names.length > 1 &&
    weights !== null &&
    spec.names.every((name) => (name.match(COMPONENT)?.[1] ?? "") in weights)
  );
}

/**
 * The lines of all runs, of a zoomed chart the parts that are known more closely.
 * @param {Spec} spec
 * @param {Curves} all
 * @returns {Line[]}
 */
export function readLines(spec, all) {
  const lines = all.sources.flatMap((source) =>
    spec.names
      .filter((name) => source.number === 0 || (source.curves.has(name) && (source.alike || !REWARDS.test(name))))
      .map((name) => lineOf(spec, all, source, name)),
  );
  const { behind = "" } = all.options;
  const ghostly = all.isLead(spec) && all.view.behind !== false && all.sources.length === 1;
  if (ghostly && !spec.names.includes(behind) && all.sources[0].curves.has(behind)) {
    const label = t("behind", { name: nameOf(behind) });
    const both = lines.map((line) => ({ ...line, label: line.label || nameOf(line.name) })); // there are two now
    return [...both, { ...lineOf(spec, all, all.sources[0], behind), label, at: GHOST }];
  }
  if (!isStacked(spec, all) || !all.sources[0].curves.has("reward")) return lines;
  return [...lines, { ...lineOf(spec, all, all.sources[0], "reward"), label: t("sum_reward"), at: TOTAL }];
}

/**
 * @param {Spec} spec
 * @param {Curves} all
 * @param {Source} source
 * @param {string} name
 * @returns {Line}
 */
function lineOf(spec, all, source, name) {
  const { view, range, options, sources } = all;
  const part = name.match(COMPONENT)?.[1] ?? "";
  const tasks = name === EVALUATED && source.number === 0 ? (all.state?.run?.health?.held_out?.tasks ?? 0) : 0;
  const known = tasks ? t("held_out_tasks", { n: tasks }) : nameOf(name);
  const label = options.components[part] ?? (part || spec.names.length < 2 ? part : known);
  const whole = source.curves.get(name) ?? { steps: [], values: [], attempts: [] };
  const curve = shownCurve(whole, source.parts.get(name), all.stepsOf(range, source));
  const drawn = isStacked(spec, all)
    ? times(meanLine(curve, view, all.axis(source)), part ? (options.weights?.[part] ?? 1) : 1)
    : drawnLine(curve, name.startsWith(HELD_OUT) ? { ...view, smooth: 0 } : view, all.axis(source));
  const byRun = sources.length > 1 && !part; // else the colour is the metric's
  const dash = byRun ? "solid" : DASHES[source.number % DASHES.length];
  const at = byRun ? source.number : placeOf(part, Math.max(spec.names.indexOf(name), 0), options.components);
  return { name, label, at, dash, source, ...drawn };
}

/**
 * A line of values as one of terms.
 * @param {import("./plot.js").Drawn} line
 * @param {number} weight
 */
function times(line, weight) {
  return weight === 1 ? line : { ...line, y: line.y.map((value) => (value === null ? null : value * weight)) };
}

/**
 * The place that gives a line its colour: a component's is that in the spec, on every page.
 * @param {string} part name of the component
 * @param {number} at place in its chart
 * @param {Record<string, string>} components in the order of the spec
 */
function placeOf(part, at, components) {
  const place = Object.keys(components).indexOf(part);
  return place < 0 ? at : place;
}

/**
 * The traces of a chart's lines for Plotly, and the values that its scale must hold.
 * @param {Spec} spec
 * @param {Curves} all
 * @param {Line[]} lines
 * @param {(name: string) => string} colour
 * @returns {{traces: any[], values: (number | null)[], behind: (number | null)[]}} `behind`: those of the line behind
 */
export function tracesOf(spec, all, lines, colour) {
  const shown = all.range ?? all.span;
  const tone = (/** @type {Line} */ line) => colour(line.at === TOTAL ? "--ink" : `--curve-${line.at % 8}`);
  const evaluations = spec.names.includes(EVALUATED) ? [] : (all.state?.curves.get(EVALUATED)?.steps ?? []);
  const gaps = all.sources.flatMap((source) => {
    const own = spec.names.flatMap((name) => source.curves.get(name) ?? []);
    return gapMarks(own, all.axis(source), colour("--bad"));
  });
  const marks = [...stepMarks(all.saved(), evaluations, all.axis(), colour("--ink-3")), ...gaps];
  if (isStacked(spec, all)) {
    const parts = lines.filter((line) => line.at !== TOTAL);
    const seen = parts.map((line) => seenPoints(line, all.range));
    const { traces, edges } = stackTraces(seen, parts.map(tone), parts.map((line) => line.label)); // prettier-ignore
    const total = lines
      .filter((line) => line.at === TOTAL)
      .flatMap((line) => named(lineTraces(line, tone(line), { range: all.range }), line.label));
    const ends = [edges.high, edges.low].flatMap((y) => seenValues({ x: edges.x, y }, shown));
    return {
      traces: [...traces, ...total, ...marks],
      values: [...ends, ...total.flatMap((trace) => trace.y), 0],
      behind: [],
    };
  }
  const ghosts = lines.filter((line) => line.at === GHOST);
  const faint = ghosts.flatMap((line) => named(faintTraces(line, colour("--ink-3"), all.range), line.label));
  const traces = lines
    .filter((line) => line.at !== GHOST)
    .flatMap((line) => named(lineTracesOf(spec, all, line, tone(line)), line.label || spec.title));
  const ends = traces.flatMap((trace) => (trace.error_y ? intervalEnds(trace, shown) : []));
  const values = [...traces.flatMap((trace) => seenValues(trace, shown)), ...ends];
  return {
    traces: [...faint, ...traces, ...marks],
    values,
    behind: ghosts.flatMap((line) => seenValues(line, shown)),
  };
}

/**
 * @param {Line} line
 * @param {string} tone
 * @param {[number, number] | null} range
 */
function faintTraces(line, tone, range) {
  return lineTraces({ ...line, ghost: null }, tone, { range }).map((trace) => ({
    ...trace,
    opacity: 0.5,
    yaxis: "y3",
  }));
}

/**
 * The ends of the intervals that are seen, which the scale must hold too.
 * @param {any} trace
 * @param {[number, number] | null} range
 * @returns {(number | null)[]}
 */
function intervalEnds({ x, y, error_y: { array, arrayminus } }, range) {
  const ends = (/** @type {number[]} */ away, /** @type {number} */ sign) =>
    y.map((/** @type {number | null} */ value, /** @type {number} */ at) => value === null ? null : value + sign * away[at]); // prettier-ignore
  return [...seenValues({ x, y: ends(array, 1) }, range), ...seenValues({ x, y: ends(arrayminus, -1) }, range)];
}

/**
 * The interval of an evaluation at a place; null for lines without one.
 * @param {Line} line
 * @param {number} place
 * @param {Curves} all
 * @returns {number[] | null}
 */
export function endsAt(line, place, all) {
  if (!line.name.startsWith(HELD_OUT)) return null;
  const step = Math.round(stepAt(all.axis(line.source), place));
  const ends = ["low", "high"].map((end) => {
    const curve = line.source.curves.get(`${line.name}_${end}`);
    return curve ? valueAt(curve.steps, curve.values, step) : undefined;
  });
  return ends.every((end) => typeof end === "number") ? /** @type {number[]} */ (ends) : null;
}

/**
 * The last trace of a line is the line itself: it has the name that a picture's legend shows.
 * @param {any[]} traces
 * @param {string} name
 */
function named(traces, name) {
  return traces.map((trace, at) => (at === traces.length - 1 ? { ...trace, name } : trace));
}

/**
 * @param {Spec} spec
 * @param {Curves} all
 * @param {Line} line
 * @param {string} tone
 * @returns {any[]}
 */
function lineTracesOf(spec, all, line, tone) {
  const { curves } = line.source;
  if (line.name.startsWith(HELD_OUT)) {
    const ends = ["low", "high"].map((end) => curves.get(`${line.name}_${end}`));
    const steps = line.x.map((place) => Math.round(stepAt(all.axis(line.source), place)));
    return [starTrace(line, steps, ends, all.view.log, tone)];
  }
  const spread = spec.key === "reward" && all.sources.length === 1 && !all.view.log && curves.has(SPREAD);
  const band = spread ? bandTraces(line, lineOf(spec, all, line.source, SPREAD), tone) : [];
  return [...band, ...lineTraces(line, tone, { dash: line.dash, range: all.range })];
}
