// @ts-check
/** Charts over the time of day. The headings and labels are the server's; the newest figures are filled in here. */
import { h, setText } from "./dom.js";
import { figure } from "./format.js";
import { last } from "./series.js";

/** @typedef {{name: string, values: (number | null)[]}} Series */

/** @param {string} iso a moment; Plotly knows no zones, so it gets the reader's own wall clock. */
export function wallClock(iso) {
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {number | null} value */
const shownFigure = (value) => (Number.isInteger(value) ? String(value) : figure(value));

const MARGIN = { l: 46, r: 10, t: 6, b: 20 };

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
  const css = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => css.getPropertyValue(name).trim();
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
  const axis = {
    color: colour("--ink-3"),
    gridcolor: colour("--line"),
    linecolor: colour("--line"),
    zeroline: false,
    tickfont: { size: 10 },
  };
  const layout = {
    margin: MARGIN,
    height: 150,
    barmode: "stack",
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "x",
    dragmode: "zoom",
    font: { family: colour("--font-text"), size: 11, color: colour("--ink-2") },
    showlegend: false,
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
  const plot = node.querySelector(".chart-plot");
  plotly.react(plot, traces, layout, { displayModeBar: false, responsive: true, showTips: false });
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
