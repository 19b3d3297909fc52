// @ts-check
/** The menu of one chart: a picture, its figures as a table, a stack or lines, a pin. */
import { h, icon, setAttr, t } from "./dom.js";
import { styles } from "./plot.js";
import { loadPlotly } from "./plotly.js";

/** @typedef {import("./chart.js").Chart} Chart */

const PICTURE = { width: 960, height: 480 };
const ROOM = { l: 60, r: 24, t: 48, b: 40 };

/** @param {Chart} chart */
export function menuOf(chart) {
  const { options } = chart.all;
  const item = (/** @type {string} */ key, /** @type {() => unknown} */ act) =>
    h("button", { class: "menu-item", type: "button", "data-act": key, onclick: act }, t(`chart.${key}`));
  const menu = /** @type {HTMLDetailsElement} */ (
    h(
      "details",
      { class: "menu chart-menu", "data-menu": true },
      h(
        "summary",
        {
          class: "button button-quiet button-icon button-small",
          "aria-label": t("chart.menu", { name: chart.spec.title }),
        },
        icon("down"),
      ),
      h(
        "div",
        { class: "menu-panel" },
        chart.spec.key === "components" && item("stack", () => options.onStack?.()),
        options.behind && item("behind", () => options.onBehind?.()),
        item("png", () => picture(chart, "png")),
        item("svg", () => picture(chart, "svg")),
        options.csv && h("a", { class: "menu-item", "data-act": "csv", download: true }, t("chart.csv")),
        options.onPin && item("pin", () => options.onPin?.(chart.spec)),
      ),
    )
  );
  menu.addEventListener("toggle", () => {
    setAttr(menu.querySelector('[data-act="csv"]'), "href", options.csv?.(chart.spec.names) ?? null);
    const behind = menu.querySelector('[data-act="behind"]');
    if (behind) /** @type {HTMLElement} */ (behind).hidden = !chart.all.isLead(chart.spec);
    setAttr(behind, "aria-pressed", String(chart.all.view.behind !== false));
    setAttr(menu.querySelector('[data-act="stack"]'), "aria-pressed", String(chart.all.view.stack));
  });
  menu.addEventListener("click", (event) => {
    if (/** @type {Element} */ (event.target).closest("[data-act]")) menu.open = false;
  });
  return menu;
}

/**
 * The chart as it is shown, with its title and the names of its lines, as a file.
 * @param {Chart} chart
 * @param {"png" | "svg"} format
 */
async function picture(chart, format) {
  const { options, view } = chart.all;
  const plot = /** @type {any} */ (chart.plot);
  const data = pictured(plot.data);
  const layout = {
    ...plot.layout,
    ...PICTURE,
    margin: ROOM,
    title: { text: options.picture?.(chart.spec) ?? chart.spec.title, font: { size: 15 } },
    showlegend: data.filter((/** @type {any} */ trace) => trace.showlegend).length > 1,
    legend: { orientation: "h", y: -0.12 },
    paper_bgcolor: styles()("--surface"),
    xaxis: { ...plot.layout.xaxis, title: { text: view.x === "step" ? t("step") : t(`axis.${view.x}`), standoff: 4 } },
  };
  const plotly = await loadPlotly(options.plotly);
  const url = await plotly.toImage({ data, layout }, { format, ...PICTURE, scale: format === "png" ? 2 : 1 });
  const name = chart.spec.key.replace(/[^\w.-]+/g, "-");
  h("a", { href: url, download: `${name}.${format}` }).click();
}

/**
 * Traces with a legend: an entry for each name, none for ghosts, bands and marks.
 * @param {any[]} traces
 */
export function pictured(traces) {
  const seen = new Set();
  return traces.map((trace) => {
    const first = Boolean(trace.name) && !seen.has(trace.name);
    if (first) seen.add(trace.name);
    return { ...trace, showlegend: first };
  });
}
