// @ts-check
/** Charts over the time of day. The headings and labels are the server's; the newest figures are filled in here. */
import { h, setText } from "./dom.js";
import { figure } from "./format.js";
import { BARE, axisLook, ground, styles } from "./plot.js";
import { last } from "./series.js";

/** @typedef {{name: string, values: (number | null)[]}} Series */

/** @param {string} iso a moment; Plotly knows no zones, so it gets the reader's own wall clock. */
export function wallClock(iso) {
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {number | null} value */
const shownFigure = (value) => (Number.isInteger(value) ? String(value) : figure(value));

/**
 * The series of a chart: those that its heading names, or one for each kind of error.
 * @param {Element} node
 * @param {Record<string, any>} history
 * @returns {Series[]}
 */
export function seriesOf(node, history) {
  if (node.getAttribute("data-chart") === "errors") {
    return Object.entries(history.errors).map(([name, values]) => ({ name, values }));
  }
  return Array.from(node.querySelectorAll("[data-series]")).map((item) => {
    const name = item.getAttribute("data-series") || "";
    return { name, values: history[name] };
  });
}

/**
 * @param {Element} node the figure
 * @param {Record<string, any>} history
 * @param {any} plotly
 */
export function drawTimeChart(node, history, plotly) {
  const colour = styles();
  const series = seriesOf(node, history);
  const errors = node.getAttribute("data-chart") === "errors";
  const at = history.at.map(wallClock);
  if (errors) {
    drawErrorLegend(node, series);
    /** @type {HTMLElement} */ (node.querySelector(".chart-none")).hidden = series.length > 0;
    /** @type {HTMLElement} */ (node.querySelector(".chart-box")).hidden = series.length === 0;
    if (!series.length) return; // axes without a line say less than the sentence
  }
  const traces = series.map((line, place) => {
    const item = node.querySelector(`[data-series="${CSS.escape(line.name)}"]`);
    const key = Number(item?.getAttribute("data-curve") ?? place);
    const tone = colour(`--curve-${key % 8}`);
    const shared = {
      x: at,
      y: line.values,
      hoverinfo: errors ? "x+y+name" : "x+y",
      name: line.name,
      showlegend: false,
    };
    return errors
      ? { ...shared, type: "bar", marker: { color: tone } }
      : {
          ...shared,
          type: "scatter",
          mode: at.length < 3 ? "markers" : "lines",
          connectgaps: false,
          line: { color: tone, width: 1.5 },
        };
  });
  for (const line of series) {
    const item = node.querySelector(`[data-series="${CSS.escape(line.name)}"] b`);
    const sum = line.values.reduce((all, value) => (all ?? 0) + (value ?? 0), 0);
    setText(item, shownFigure(errors ? sum : last(line.values)));
  }
  const axis = axisLook(colour);
  const layout = {
    ...ground(colour),
    barmode: "stack",
    hovermode: "x",
    dragmode: "zoom",
    xaxis: {
      ...axis,
      type: "date",
      tickformat: "%H:%M",
      hoverformat: "%d %b %H:%M",
      range: [at[0], at[at.length - 1]],
      showgrid: false,
      showline: true,
      nticks: 6,
    },
    yaxis: { ...axis, fixedrange: true, nticks: 5, rangemode: "tozero", exponentformat: "e" },
  };
  plotly.react(node.querySelector(".chart-plot"), traces, layout, BARE);
}

/**
 * @param {Element} node
 * @param {Series[]} series
 */
function drawErrorLegend(node, series) {
  const items = series.map((line, at) =>
    h(
      "span",
      { class: "chart-figure", "data-series": line.name, "data-curve": at % 8 },
      h("span", { class: "chart-key" }),
      h("span", { class: "chart-label mono" }, line.name),
      h("b"),
    ),
  );
  node.querySelector(".chart-figures")?.replaceChildren(...items);
}
