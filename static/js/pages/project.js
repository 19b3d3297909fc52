// @ts-check
/** The charts that are pinned to a project's page, with the figures of their runs as of now. */
import { $, data, h, setText, t } from "../lib/dom.js";
import { askOrNull } from "../lib/ask.js";
import { Curves } from "../lib/curves.js";
import { partAround } from "../lib/closer.js";
import { addCurves } from "../lib/points.js";
import { neededBy } from "../lib/specs.js";
import { emptyState } from "../lib/state.js";

/** @typedef {import("../lib/curves.js").Source} Source */

const page = data("pins-data");
const AGAIN_MS = 30_000; // while a run is active
const POINTS = 400;
const PART_POINTS = 2000;

class Pinned {
  /**
   * @param {Record<string, any>} pin
   */
  constructor(pin) {
    this.pin = pin;
    this.node = $(`pin-${pin.id}`);
    this.box = /** @type {HTMLElement} */ (this.node.querySelector(".charts"));
    this.box.replaceChildren();
    this.state = emptyState();
    /** @type {Source} */
    this.source = { number: 0, curves: this.state.curves, parts: this.state.parts, axes: null, alike: true };
    this.asked = "";
    const fold = /** @type {HTMLDetailsElement} */ (h("details", {}, h("summary"), h("div", { class: "charts" })));
    this.curves = new Curves(this.box, fold, {
      plotly: page.plotly,
      baselines: {},
      components: pin.components,
      weights: pin.weights,
      onRemove: () => {},
      onStep: (step) => (location.href = `${pin.url}?tab=rollouts&step=${step}`),
      onZoom: () => this.lookCloser(),
      csv: (names) => `${pin.csv}?${new URLSearchParams(names.map((name) => ["name", name]))}`,
      picture: (spec) => `${pin.name}: ${spec.title}`,
    });
  }

  /** Ask for the figures, and draw them. */
  async load() {
    const { pin } = this;
    const names = new URLSearchParams(neededBy(pin.names).map((name) => ["name", name]));
    const found = await askOrNull(`${page.api}/runs/${pin.run}/metrics?points=${POINTS}&${names}`);
    if (pin.view.x !== "step") this.source.axes = (await askOrNull(`${page.api}/runs/${pin.run}/axes`))?.axes ?? {};
    const when = this.node.querySelector('[data-part="when"]');
    if (!found) return setText(when, t("offline"));
    addCurves(this.state, { ...found, type: "snapshot" });
    // Not "removable", but like a chart that a person added: it is shown even where nothing moves.
    const spec = { key: pin.key, title: pin.title, names: pin.names, removable: false };
    const known = pin.view.x === "step" || this.source.axes?.[pin.view.x];
    this.curves.folding.folded.set(pin.key, false);
    this.curves.update(this.state, [spec], known ? pin.view : { ...pin.view, x: "step" }, [this.source]);
    setText(
      when,
      t("as_of", {
        time: new Date().toLocaleTimeString(document.documentElement.lang, { hour: "2-digit", minute: "2-digit" }),
      }),
    );
  }

  /** The points of a zoom. */
  async lookCloser() {
    const steps = this.curves.stepsOf(this.curves.range);
    const names = this.curves.coarse();
    if (!steps || !names.length) return;
    const [first, last] = partAround(steps);
    const asked = new URLSearchParams(names.map((name) => ["name", name]));
    const query = `points=${PART_POINTS}&first=${first}&last=${last}&${asked}`;
    if (query === this.asked) return;
    this.asked = query;
    const found = await askOrNull(`${page.api}/runs/${this.pin.run}/metrics?${query}`);
    if (!found)
      this.asked = ""; // the next look asks again
    else addCurves(this.state, { ...found, first, last });
    this.curves.recolour();
  }
}

const pinned = page.pins.map((/** @type {any} */ pin) => new Pinned(pin));
for (const one of pinned) one.load();
setInterval(() => {
  if (document.visibilityState !== "visible") return;
  for (const one of pinned) if (!one.pin.ended) one.load();
}, AGAIN_MS);
