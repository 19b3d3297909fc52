// @ts-check
/** Which charts there are, which curves each draws, and which of these the page lacks. */
import { COMPONENT } from "./plot.js";
import { has, t } from "./dom.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./shapes.js").Mark} Mark */
/** @typedef {{key: string, title: string, names: string[], removable: boolean}} Spec */

const SUCCESS = ["rollouts/task_success", "heldout/success"];
/** @type {Record<string, string[]>} charts of several metrics */
const TOGETHER = { success: SUCCESS, losses: ["loss", "heldout/loss"] };
export const SPREAD = "reward_std"; // within groups: the band around the reward
const ENDS = ["heldout/success_low", "heldout/success_high"];
/** A figure of one part of a mix: its name, and which figure. */
export const PART = /^parts\/([^/]+)\/([^/]+)$/;

/**
 * The catalogue's title of a metric, else its own name.
 * @param {string} name
 */
export function titleOf(name) {
  return has(`metric.${name}`) ? t(`metric.${name}`) : name;
}

/**
 * The charts to show: the curated ones, those that only this run's trainer knows, then those that were added.
 * @param {State} state
 * @param {string[]} curated names in the order of the run's method; `components` means one curve for each
 * @param {string[]} added
 * @param {string[]} own names of a foreign run's trainer
 * @param {string[]} order components in the order of the run's spec, which gives each its colour in the lab too
 * @returns {Spec[]}
 */
export function specsOf(state, curated, added, own = [], order = []) {
  const names = Array.from(state.curves.keys());
  /** @type {Spec[]} */
  const specs = [];
  for (const key of curated) {
    const used =
      key === "components" ? inOrder(names, order) : membersOf(key, names).filter((name) => names.includes(name));
    if (used.length) specs.push({ key, title: titleOf(key), names: used, removable: false });
  }
  const used = new Set(specs.flatMap((spec) => spec.names));
  for (const name of own) {
    if (state.curves.has(name) && !used.has(name))
      specs.push({ key: name, title: titleOf(name), names: [name], removable: false });
  }
  const shown = new Set(specs.map((spec) => spec.key));
  for (const name of added) {
    if (state.curves.has(name) && !shown.has(name))
      specs.push({ key: name, title: titleOf(name), names: [name], removable: true });
  }
  return specs;
}

/**
 * The metrics that a chart draws together; `parts/success` is that of each part of a mix.
 * @param {string} key
 * @param {string[]} names all that there are
 */
function membersOf(key, names) {
  if (Object.hasOwn(TOGETHER, key)) return TOGETHER[key];
  const figure = key.match(/^parts\/([^/]+)$/)?.[1];
  return figure ? names.filter((name) => name.match(PART)?.[2] === figure) : [key];
}

/**
 * The curves of components: those of the spec in its order, then others by name.
 * @param {string[]} names
 * @param {string[]} order
 */
export function inOrder(names, order) {
  const place = (/** @type {string} */ name) => {
    const at = order.indexOf(name.match(COMPONENT)?.[1] ?? "");
    return at < 0 ? order.length : at;
  };
  return names.filter((name) => COMPONENT.test(name)).sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/**
 * The metrics that a chart of these draws, with those that are drawn around them: intervals, the spread, the sum.
 * @param {string[]} names
 */
export function neededBy(names) {
  const more = [
    ...(names.includes(SUCCESS[1]) ? ENDS : []),
    ...(names.includes("reward") ? [SPREAD] : []),
    ...(names.some((name) => COMPONENT.test(name)) ? ["reward"] : []),
  ];
  return Array.from(new Set([...names, ...more]));
}

/**
 * The metrics whose curves the page wants and does not have: the server sends those that few look at when asked.
 * @param {State} state
 * @param {string[]} curated
 * @param {string[]} added
 * @param {string[]} own
 * @returns {string[]}
 */
export function missingCurves(state, curated, added, own = []) {
  const names = Array.from(state.names.keys());
  const wanted = new Set([...curated.flatMap((key) => membersOf(key, names)), ...own, ...added]);
  if (curated.includes("reward")) wanted.add(SPREAD);
  if (curated.includes("success")) for (const name of ENDS) wanted.add(name);
  return names.filter(
    (name) => !state.curves.has(name) && (wanted.has(name) || (curated.includes("components") && COMPONENT.test(name))),
  );
}

/**
 * The advisories that a chart shows: those that its curves are evidence of. One that no chart shows is in the first.
 * @param {Mark[]} marks
 * @param {Spec[]} specs all charts
 * @param {Spec} spec
 */
export function marksFor(marks, specs, spec) {
  const shows = (/** @type {Spec} */ chart, /** @type {Mark} */ mark) =>
    mark.names.some((name) => chart.names.includes(name));
  return marks.filter((mark) => shows(spec, mark) || (spec === specs[0] && !specs.some((chart) => shows(chart, mark))));
}
