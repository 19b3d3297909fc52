// @ts-check
/** Curves on one shared step axis: small multiples, one crosshair through all of them, figures in the headings. */
import { Chart, COMPONENT } from "./chart.js";
import { batched, has, setText, t } from "./dom.js";
import { figure } from "./format.js";
import { Folding, isStill } from "./folding.js";
import { lacksPoints } from "./closer.js";
import { last, stepSpan } from "./series.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./shapes.js").Mark} Mark */
/** @typedef {{key: string, title: string, names: string[], removable: boolean}} Spec */

export const REDRAW_MS = 250;
const SUCCESS = ["rollouts/task_success", "heldout/success"];
const ENDS = ["heldout/success_low", "heldout/success_high"];

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
 * @param {string[]} curated names in the order of the run's method; `components` stands for one curve each
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
    const used = key === "components" ? inOrder(names, order) : membersOf(key).filter((name) => names.includes(name));
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
 * The metrics that a chart draws together.
 * @param {string} key
 */
const membersOf = (key) => (key === "success" ? SUCCESS : [key]);

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
 * The metrics whose curves the page wants and does not have: the server sends those that few look at when asked.
 * @param {State} state
 * @param {string[]} curated
 * @param {string[]} added
 * @param {string[]} own
 * @returns {string[]}
 */
export function missingCurves(state, curated, added, own = []) {
  const wanted = new Set([...curated.flatMap(membersOf), ...own, ...added]);
  if (curated.includes("success")) for (const name of ENDS) wanted.add(name);
  return Array.from(state.names.keys()).filter(
    (name) => !state.curves.has(name) && (wanted.has(name) || (curated.includes("components") && COMPONENT.test(name))),
  );
}

/**
 * The advisories that a chart shows: those that its curves are evidence of. One that no chart shows stands in the first.
 * @param {Mark[]} marks
 * @param {Spec[]} specs all charts
 * @param {Spec} spec
 */
export function marksFor(marks, specs, spec) {
  const shows = (/** @type {Spec} */ chart, /** @type {Mark} */ mark) =>
    mark.names.some((name) => chart.names.includes(name));
  return marks.filter((mark) => shows(spec, mark) || (spec === specs[0] && !specs.some((chart) => shows(chart, mark))));
}

export class Curves {
  /**
   * @param {HTMLElement} box
   * @param {HTMLDetailsElement} fold where charts are put away in which nothing moves
   * @param {{plotly: any, baselines: Record<string, import("./shapes.js").Baseline[]>, components: Record<string, string>, onRemove: (key: string) => void, onStep: (step: number) => void, marks?: () => Mark[], onZoom?: () => void, ended?: () => boolean}} options
   */
  constructor(box, fold, options) {
    this.box = box;
    this.fold = fold;
    this.folding = new Folding();
    this.options = options;
    /** @type {Map<string, Chart>} */
    this.charts = new Map();
    /** @type {[number, number] | null} */
    this.range = null;
    /** @type {[number, number] | null} */
    this.span = null;
    /** @type {Spec[]} */
    this.specs = [];
    this.view = { smooth: 0, log: false };
    this.drawing = false;
    this.again = false;
    this.redraw = batched(() => this.draw(), REDRAW_MS);
    this.seen = new IntersectionObserver((entries) => this.onSeen(entries), { rootMargin: "200px" });
    new ResizeObserver(batched(() => this.resize(), 100)).observe(box);
    document.addEventListener("tiltyard:theme", () => this.recolour());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
  }

  /**
   * @param {State} state
   * @param {Spec[]} specs
   * @param {{smooth: number, log: boolean}} view
   */
  update(state, specs, view) {
    this.state = state;
    this.specs = specs;
    this.view = view;
    const wanted = new Set(specs.map((spec) => spec.key));
    for (const [key, chart] of this.charts) {
      if (wanted.has(key)) continue;
      this.seen.unobserve(chart.node);
      chart.node.remove();
      this.options.plotly.purge(chart.plot);
      this.charts.delete(key);
    }
    const ended = this.options.ended?.() ?? false;
    const { shown, folded } = this.folding.split(specs, (spec) => isStill(spec, state.curves, ended));
    this.place(this.box, shown);
    this.place(/** @type {HTMLElement} */ (this.fold.querySelector(".charts")), folded);
    this.fold.hidden = !folded.length;
    setText(this.fold.querySelector("summary"), this.stillText(folded));
    this.redraw();
  }

  /**
   * @param {HTMLElement} box
   * @param {Spec[]} specs in the order of their charts
   */
  place(box, specs) {
    specs.forEach((spec, place) => {
      let chart = this.charts.get(spec.key);
      if (!chart) {
        chart = new Chart(spec, this);
        this.charts.set(spec.key, chart);
        this.seen.observe(chart.node);
      }
      chart.spec = spec;
      chart.dirty = true;
      chart.name(); // the heading takes its room before the chart is looked at
      if (box.children[place] !== chart.node) box.insertBefore(chart.node, box.children[place] || null);
    });
  }

  /**
   * What is folded away, in a line: which charts, and at what they stand.
   * @param {Spec[]} folded
   */
  stillText(folded) {
    const names = folded.map((spec) => {
      const values = spec.names.map((name) => figure(last(this.state?.curves.get(name)?.values ?? [])));
      return `${spec.title} ${Array.from(new Set(values)).join(" / ")}`;
    });
    return t(folded.length === 1 ? "still_chart" : "still_charts", { n: folded.length, names: names.join(" · ") });
  }

  /** The curves of which the server has more points of what is shown than are known here; those in view come first. */
  coarse() {
    const charts = Array.from(this.charts.values()).sort((a, b) => Number(b.visible) - Number(a.visible));
    const names = charts.flatMap((chart) => chart.spec.names);
    return names.filter((name) => lacksPoints(this.state?.curves.get(name), this.state?.parts.get(name), this.range));
  }

  /**
   * All charts take their lines at once, so that they show the same steps, and are then drawn one a turn of the event
   * loop, so that rollouts which arrive meanwhile are not held up. What changes meanwhile waits for the next round:
   * beginning anew would leave the last charts behind for as long as figures arrive.
   */
  draw() {
    if (this.drawing) return void (this.again = true);
    const round = Array.from(this.charts.values()).filter((chart) => chart.visible && chart.dirty);
    const names = Array.from(this.charts.values()).flatMap((chart) => chart.spec.names);
    if (this.state) this.span = stepSpan(names.map((name) => this.state?.curves.get(name)?.steps ?? []));
    for (const chart of round) chart.read();
    this.drawing = round.length > 0;
    const next = () => {
      const chart = round.shift();
      if (chart && this.charts.get(chart.spec.key) === chart) chart.draw();
      if (round.length) return void setTimeout(next, 0);
      this.drawing = false;
      if (this.again) this.redraw();
      this.again = false;
    };
    if (this.drawing) next();
  }

  /** @param {IntersectionObserverEntry[]} entries */
  onSeen(entries) {
    for (const entry of entries) {
      for (const chart of this.charts.values()) if (chart.node === entry.target) chart.visible = entry.isIntersecting;
    }
    this.redraw();
  }

  /** @param {Spec} spec */
  marksOf(spec) {
    return marksFor(this.options.marks?.() ?? [], this.specs, spec);
  }

  recolour() {
    for (const chart of this.charts.values()) chart.dirty = true;
    this.redraw();
  }

  resize() {
    for (const chart of this.charts.values())
      if (chart.drawn && chart.plot.clientWidth) this.options.plotly.Plots.resize(chart.plot);
  }

  /**
   * Move the crosshair of every chart; null takes it away.
   * @param {number | null} step
   */
  point(step) {
    for (const chart of this.charts.values()) chart.point(step);
  }

  /** @param {[number, number] | null} range */
  zoom(range) {
    this.range = range;
    this.options.onZoom?.();
    this.recolour();
  }
}
