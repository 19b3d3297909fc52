// @ts-check
/** The head of the run page: state, phase, progress, time left, freshness, notices, tiles. */
import { has, s, setAttr, setText, t } from "./dom.js";
import { duration, figure, percent, plain } from "./format.js";
import { counts } from "./rollouts.js";
import { last, sparkLines } from "./series.js";

/** @typedef {Record<string, any>} Row */

const $ = (/** @type {string} */ id) => document.getElementById(id);
const SILENT_S = 30;
const LEASED = new Set(["preparing", "running", "pausing", "stopping"]);
const CAN = {
  stop: new Set(["draft", "queued", "preparing", "running", "pausing", "paused"]),
  pause: new Set(["preparing", "running"]),
  resume: new Set(["paused"]),
};

/**
 * @param {Row} run
 * @param {Row[]} rollouts of the current step
 * @param {number | null} perStep
 */
export function drawHead(run, rollouts, perStep) {
  setAttr($("run"), "data-state", run.state);
  setAttr($("run-state"), "data-state", run.state);
  setText($("run-state"), t(`state.${run.state}`));
  setText($("run-phase"), phaseText(run, rollouts, perStep));
  setText($("run-steps"), run.total_steps ? t("step_of", { step: run.step, total: run.total_steps }) : "");
  setText($("run-pace"), run.step_seconds ? t("per_step", { t: duration(run.step_seconds, t) }) : "");
  setText(
    $("run-eta"),
    run.eta_seconds !== null && run.state === "running" ? t("left", { t: duration(run.eta_seconds, t) }) : "",
  );
  setText($("run-attempt"), run.attempt > 1 ? t("attempt", { n: run.attempt }) : "");
  setAttr($("run-progress"), "max", run.total_steps || 1);
  setAttr($("run-progress"), "value", run.step);
  for (const [action, states] of Object.entries(CAN)) {
    for (const node of document.querySelectorAll(`[data-action="${action}"]`))
      /** @type {HTMLElement} */ (node).hidden = !states.has(run.state);
  }
  drawNotices(run);
}

/**
 * @param {Row} run
 * @param {Row[]} rollouts
 * @param {number | null} perStep
 */
function phaseText(run, rollouts, perStep) {
  if (run.state !== "running" && run.state !== "preparing") return "";
  if (run.phase === "generating" && rollouts.length) {
    const known = counts(rollouts);
    return t("generating_of", { done: known.all - known.running, all: Math.max(known.all, perStep ?? 0) });
  }
  return run.phase && run.phase !== run.state && has(`phase.${run.phase}`) ? t(`phase.${run.phase}`) : "";
}

/** @param {Row} run */
function drawNotices(run) {
  const failure = $("run-failure");
  if (failure && run.error) {
    for (const part of ["message", "hint", "code"])
      setText(failure.querySelector(`[data-part="${part}"]`), plain(String(run.error[part] ?? "")));
  }
  if (failure) failure.hidden = !run.error;
  const waiting = $("run-waiting");
  if (waiting) {
    waiting.hidden = run.state !== "queued";
    setText(
      waiting.firstElementChild,
      run.waiting_for ? t("waiting_warm_up", { name: run.waiting_for }) : t("waiting_worker"),
    );
  }
  const silent = $("run-silent");
  const age = run.beat_age_seconds;
  if (silent) {
    silent.hidden = !(LEASED.has(run.state) && age !== null && age > SILENT_S);
    setText(silent.firstElementChild, t("trainer_silent", { t: duration(age, t) }));
  }
}

/**
 * How fresh the page is, in one word that is always true.
 * @param {string} status of the socket
 * @param {number} silentMs
 * @param {boolean} ended
 */
export function drawLive(status, silentMs, ended) {
  const node = $("run-live");
  let state = status;
  let text = t("reconnecting");
  if (status === "live") [state, text] = ended ? ["draft", t("ended")] : ["live", t("live")];
  else if (status === "stale") text = t("stale", { t: duration(Math.floor(silentMs / 1000), t) });
  else if (status === "paused") [state, text] = ["stale", t("paused_view")];
  else if (status === "login") [state, text] = ["bad", t("logged_out")];
  else if (status === "forbidden") [state, text] = ["bad", t("not_allowed")];
  else if (status === "gone") [state, text] = ["bad", t("gone")];
  else state = "reconnecting";
  setAttr(node, "data-state", state);
  setText(node, text);
}

const FORMATS = {
  figure: (/** @type {number | null} */ value) => figure(value),
  percent: (/** @type {number | null} */ value) => percent(value),
  duration: (/** @type {number | null} */ value) => duration(value, t),
};

/** @param {Map<string, import("./state.js").Curve>} curves */
export function drawTiles(curves) {
  for (const tile of document.querySelectorAll(".tile")) {
    const curve = curves.get(tile.getAttribute("data-metric") || "");
    if (!curve) continue;
    const format = FORMATS[/** @type {keyof typeof FORMATS} */ (tile.getAttribute("data-kind"))] || FORMATS.figure;
    setText(tile.querySelector(".tile-value"), format(last(curve.values)));
    drawSpark(tile, curve.values);
  }
}

/**
 * @param {Element} tile
 * @param {(number | null)[]} values
 */
function drawSpark(tile, values) {
  const lines = sparkLines(values, 96, 22);
  let svg = tile.querySelector("svg.spark");
  if (!lines.length) return;
  if (!svg) {
    svg = s("svg", { class: "spark", viewBox: "0 0 96 22", preserveAspectRatio: "none", "aria-hidden": "true" });
    tile.querySelector(".tile-row")?.append(svg);
  }
  while (svg.children.length > lines.length) svg.lastElementChild?.remove();
  lines.forEach((points, at) => {
    const line = svg.children[at] || svg.appendChild(s("polyline"));
    setAttr(line, "points", points);
  });
}
