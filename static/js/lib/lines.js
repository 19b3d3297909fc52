// @ts-check
/** The lines of a chart, taken from the runs that are drawn, and the traces that they become. */
import { bandTraces, gapMarks, stepMarks } from "./around.js";
import { stepAt } from "./axis.js";
import { shownCurve } from "./closer.js";
import { has, t } from "./dom.js";
import { COMPONENT, drawnLine, lineTraces, meanLine, seenPoints, seenValues, starTrace } from "./plot.js";
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
  const label = options.components[part] ?? (part || spec.names.length < 2 ? part : nameOf(name));
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
 * @returns {{traces: any[], values: (number | null)[]}}
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
    return { traces: [...traces, ...total, ...marks], values: [...ends, ...total.flatMap((trace) => trace.y), 0] };
  }
  const traces = lines.flatMap((line) => named(lineTracesOf(spec, all, line, tone(line)), line.label || spec.title));
  return { traces: [...traces, ...marks], values: traces.flatMap((trace) => seenValues(trace, shown)) };
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
