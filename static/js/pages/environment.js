// @ts-check
/** The page of one environment: the charts of its last day. Everything else on it is the server's. */
import { ask } from "../lib/ask.js";
import { data } from "../lib/dom.js";
import { drawTimeChart } from "../lib/timechart.js";

const EVERY_MS = 15_000;
const page = data("environment-data");
const box = /** @type {HTMLElement} */ (document.getElementById("history"));
const empty = /** @type {HTMLElement} */ (document.getElementById("no-history"));
/** @type {Record<string, any> | null} */
let shown = null;

async function refresh() {
  if (document.visibilityState !== "visible") return;
  try {
    shown = await ask(page.history);
    draw();
  } catch {
    // The next round asks again; the live part of the page says when the server is away.
  }
}

function draw() {
  if (!shown) return;
  box.hidden = shown.at.length < 2 || shown.slots.every((/** @type {number | null} */ value) => value === null);
  empty.hidden = !box.hidden;
  if (box.hidden) return;
  for (const node of box.querySelectorAll(".chart")) drawTimeChart(node, shown, /** @type {any} */ (window).Plotly);
}

document.addEventListener("tiltyard:theme", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, EVERY_MS);
refresh();
