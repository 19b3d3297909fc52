// @ts-check
/** A pointer over a chart: the crosshair of all charts, a click that opens a step, a drag that zooms. */
import { stepAt } from "./axis.js";
import { h } from "./dom.js";
import { MARGIN } from "./plot.js";
import { nearest } from "./series.js";

/** @typedef {import("./chart.js").Chart} Chart */

const DOUBLE_CLICK_MS = 320;
const DRAG_PX = 6;

/**
 * The known place that is nearest to where the pointer is.
 * @param {Chart} chart
 * @param {number} pixel within the chart
 * @returns {number | null}
 */
function placeAt(chart, pixel) {
  const place = valueAtPixel(chart, pixel);
  if (place === null) return null;
  const known = chart.lines.flatMap((line) => nearest(line.x, place) ?? []);
  return known.length ? known.reduce((a, b) => (Math.abs(b - place) < Math.abs(a - place) ? b : a)) : null;
}

/**
 * @param {Chart} chart
 * @param {number} pixel
 * @returns {number | null}
 */
function valueAtPixel(chart, pixel) {
  const range = /** @type {any} */ (chart.plot).layout?.xaxis?.range;
  if (!range) return null;
  const share = Math.min(1, Math.max(0, (pixel - MARGIN.l) / Math.max(chart.width(), 1)));
  return range[0] + share * (range[1] - range[0]);
}

/**
 * Listen to the pointer over a chart, for as long as the chart is there.
 * @param {Chart} chart
 */
export function follow(chart) {
  const box = /** @type {HTMLElement} */ (chart.plot.parentElement);
  const zoom = h("div", { class: "chart-zoom", hidden: true });
  box.append(zoom);
  /** @type {number | null} */
  let from = null; // where a drag began
  /** @type {any} */
  let click = null; // waits a moment: the first half of a double click must not leave the page
  const pixel = (/** @type {PointerEvent | MouseEvent} */ event) => event.clientX - box.getBoundingClientRect().left;

  box.addEventListener("pointermove", (event) => {
    const at = pixel(event);
    if (from !== null && Math.abs(at - from) > DRAG_PX) {
      zoom.hidden = false;
      zoom.style.left = `${Math.min(at, from)}px`;
      zoom.style.width = `${Math.abs(at - from)}px`;
    } else if (event.pointerType !== "touch") chart.all.point(placeAt(chart, at));
  });
  box.addEventListener("pointerleave", () => from === null && chart.all.point(null));
  box.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return; // a finger scrolls
    from = pixel(event);
    box.setPointerCapture(event.pointerId);
  });
  box.addEventListener("pointercancel", () => {
    from = null;
    zoom.hidden = true;
  });
  box.addEventListener("pointerup", (event) => {
    const [began, at] = [from, pixel(event)];
    from = null;
    zoom.hidden = true;
    if (began === null || Math.abs(at - began) <= DRAG_PX) return;
    const ends = [began, at].sort((a, b) => a - b).map((each) => valueAtPixel(chart, each));
    if (ends[0] !== null && ends[1] !== null) chart.all.zoom([ends[0], ends[1]]);
    box.addEventListener("click", (done) => done.stopImmediatePropagation(), { capture: true, once: true });
  });
  box.addEventListener("click", (event) => {
    clearTimeout(click);
    const place = placeAt(chart, pixel(event));
    if (event.detail > 1 || place === null) return;
    const step = Math.round(stepAt(chart.all.axis(), place));
    click = setTimeout(() => chart.all.options.onStep(step), DOUBLE_CLICK_MS);
  });
  box.addEventListener("dblclick", () => chart.all.zoom(null));
}
