// @ts-check
/** Curves of runs that train, over one axis for all. */
import { $, data, h, maybe } from "../lib/dom.js";
import { bandOf, bySetting, lineOf } from "../lib/overlay.js";
import { BARE, MARGIN, axisLook, ground, styles } from "../lib/plot.js";
import { loadPlotly } from "../lib/plotly.js";

/** @typedef {import("../lib/overlay.js").Run} Run */

const page = maybe("overlay-data") ? data("overlay-data") : null;
const state = { axis: "step", gather: true };

const colour = (/** @type {string} */ name) => styles()(name);

/**
 * @param {any} plotly
 * @param {{name: string, title: string}} chart
 */
function draw(plotly, chart) {
  const node = /** @type {HTMLElement} */ (document.querySelector(`[data-overlay="${CSS.escape(chart.name)}"]`));
  const traces = bySetting(page.runs).flatMap((group) =>
    state.gather && group.length > 1 ? gathered(group, chart.name) : group.map((run) => single(run, chart.name)),
  );
  const axis = axisLook(colour);
  const layout = {
    ...ground(colour),
    height: 200,
    margin: { ...MARGIN, b: 24 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--surface"), font: { color: colour("--ink") } },
    xaxis: { ...axis, rangemode: "tozero", nticks: 6 },
    yaxis: { ...axis, fixedrange: true, nticks: 5, exponentformat: "e" },
  };
  plotly.react(node, traces, layout, BARE);
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
