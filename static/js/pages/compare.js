// @ts-check
/** Curves of runs that train, over one axis for all. */
import { $, data, h, maybe } from "../lib/dom.js";
import { bandOf, bySetting, lineOf } from "../lib/overlay.js";
import { loadPlotly } from "../lib/plotly.js";

/** @typedef {import("../lib/overlay.js").Run} Run */

const page = maybe("overlay-data") ? data("overlay-data") : null;
const state = { axis: "step", gather: true };

/** @param {string} name of a CSS variable */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * @param {any} plotly
 * @param {{name: string, title: string}} chart
 */
function draw(plotly, chart) {
  const node = /** @type {HTMLElement} */ (document.querySelector(`[data-overlay="${CSS.escape(chart.name)}"]`));
  const traces = bySetting(page.runs).flatMap((group) =>
    state.gather && group.length > 1 ? gathered(group, chart.name) : group.map((run) => single(run, chart.name)),
  );
  const axis = { color: colour("--ink-3"), gridcolor: colour("--line"), zeroline: false, tickfont: { size: 10 } };
  const layout = {
    height: 200,
    margin: { l: 46, r: 10, t: 6, b: 24 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--surface"), font: { color: colour("--ink") } },
    showlegend: false,
    font: { family: colour("--font-text"), size: 11, color: colour("--ink-2") },
    xaxis: { ...axis, rangemode: "tozero", nticks: 6 },
    yaxis: { ...axis, fixedrange: true, nticks: 5, exponentformat: "e" },
  };
  plotly.react(node, traces, layout, { displayModeBar: false, responsive: true, showTips: false });
}

/**
 * @param {Run} run
 * @param {string} name
 * @returns {any}
 */
function single(run, name) {
  const line = lineOf(run, name, state.axis);
  return {
    type: "scatter",
    mode: line.x.length < 3 || name.startsWith("heldout/") ? "lines+markers" : "lines",
    x: line.x,
    y: line.y,
    name: run.name,
    connectgaps: false,
    line: { color: colour(`--curve-${run.number % 8}`), width: 1.5 },
  };
}

/**
 * @param {Run[]} group
 * @param {string} name
 * @returns {any[]}
 */
function gathered(group, name) {
  const band = bandOf(group.map((run) => lineOf(run, name, state.axis)));
  const tone = colour(`--curve-${group[0].number % 8}`);
  const label = page.words.of.replace("{name}", group[0].name).replace("{n}", String(group.length));
  const edge = { type: "scatter", mode: "lines", x: band.x, hoverinfo: "skip", line: { width: 0, color: tone } };
  return [
    { ...edge, y: band.low },
    { ...edge, y: band.high, fill: "tonexty", opacity: 0.2 },
    { type: "scatter", mode: "lines", x: band.x, y: band.mean, name: label, line: { color: tone, width: 2 } },
  ];
}

function drawAll() {
  for (const button of document.querySelectorAll("[data-axis]"))
    button.setAttribute("aria-pressed", String(button.getAttribute("data-axis") === state.axis));
  const gather = maybe("overlay-gather");
  gather?.setAttribute("aria-pressed", String(state.gather));
  loadPlotly(page.plotly).then(
    (plotly) => page.charts.forEach((/** @type {{name: string, title: string}} */ chart) => draw(plotly, chart)),
    () => {},
  );
}

if (page) {
  for (const chart of page.charts) {
    $("overlay-charts").append(
      h(
        "figure",
        { class: "chart" },
        h("header", { class: "chart-head" }, h("h3", {}, chart.title)),
        h("div", { "data-overlay": chart.name }),
      ),
    );
  }
  for (const button of document.querySelectorAll("[data-axis]")) {
    button.addEventListener("click", () => {
      state.axis = button.getAttribute("data-axis") ?? "step";
      drawAll();
    });
  }
  maybe("overlay-gather")?.addEventListener("click", () => {
    state.gather = !state.gather;
    drawAll();
  });
  document.addEventListener("tiltyard:theme", drawAll);
  drawAll();
}
