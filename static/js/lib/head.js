// @ts-check
/** The head of the run page: state, phase, progress, time left, freshness, notices, tiles. */
import { setLiveText } from "./changed.js";
import { all, h, has, maybe, s, setAttr, setText, t } from "./dom.js";
import { coarse, duration, figure, percent, plain } from "./format.js";
import { heldText } from "./held.js";
import { last, sparkLines } from "./series.js";

/** @typedef {Record<string, any>} Row */

const ASK_AGAIN_MS = 5000;

/**
 * @param {Row} run
 * @param {Row[]} rollouts of the current step
 * @param {Row} page what the server gave the page's script
 */
export function drawHead(run, rollouts, page) {
  setAttr(maybe("run"), "data-state", run.state);
  const checked = run.state === "draft" && run.phase === "checking"; // to a person it is no draft any more
  setAttr(maybe("run-state"), "data-state", checked ? "checking" : run.state);
  setText(maybe("run-state"), t(checked ? "phase.checking" : `state.${run.state}`));
  setText(maybe("run-phase"), phaseText(run, rollouts, page.per_step));
  setText(maybe("run-steps"), run.total_steps ? t("step_of", { step: run.step, total: run.total_steps }) : "");
  const stage = run.health?.stages?.at(-1);
  setText(maybe("run-stage"), stage ? t("stage_of", stage) : "");
  setText(maybe("run-pace"), run.step_seconds ? t("per_step", { t: duration(run.step_seconds, t) }) : "");
  setText(
    maybe("run-eta"),
    run.eta_seconds !== null && run.state === "running" ? t("left", { t: duration(run.eta_seconds, t) }) : "",
  );
  setText(maybe("run-attempt"), run.attempt > 1 ? t("attempt", { n: run.attempt }) : "");
  setAttr(maybe("run-progress"), "max", run.total_steps || 1);
  setAttr(maybe("run-progress"), "value", run.step);
  // Hides a button before the server has drawn the new ones.
  for (const [action, states] of Object.entries(page.acts)) {
    for (const node of all(document, `[data-action="${action}"]`)) node.hidden = !states.includes(run.state);
  }
  const ended = page.terminal.includes(run.state);
  for (const node of all(document, "[data-live-only]")) node.hidden = ended || Boolean(page.imported);
  if (!page.acts.stop.includes(run.state)) /** @type {HTMLDialogElement | null} */ (maybe("stop-dialog"))?.close();
  drawNotices(run, page.silent_after);
  drawReports(run.reports);
  drawStall(run.progress_age_seconds, page.stall_after);
  renewParts(run.state);
}

const asked = { state: "", at: -Infinity };

/**
 * Buttons and the trainer's output are the server's: they are fetched again when they were made for another state.
 * @param {string} state
 */
function renewParts(state) {
  const box = maybe("run-actions");
  if (!box || box.dataset.state === state) return;
  if (asked.state === state && performance.now() - asked.at < ASK_AGAIN_MS) return; // the answer is on its way
  Object.assign(asked, { state, at: performance.now() });
  box.dispatchEvent(new CustomEvent("run-state"));
}

/**
 * @param {number | null} age seconds since the trainer was last heard
 * @param {number} limit
 */
function drawStall(age, limit) {
  const stalled = age !== null && age >= limit;
  const badge = maybe("run-stalled");
  if (badge) badge.hidden = !stalled;
  setText(badge, stalled ? t("no_progress", { t: coarse(age, t) }) : "");
  const help = maybe("run-stall-help");
  if (help) help.hidden = !stalled;
}

/**
 * @param {Row} run
 * @param {Row[]} rollouts
 * @param {number | null} perStep
 */
function phaseText(run, rollouts, perStep) {
  if (run.state !== "running" && run.state !== "preparing") return "";
  if (run.phase === "generating" && rollouts.length) {
    const done = rollouts.filter((row) => row.status !== "running").length;
    return t("generating_of", { done, all: Math.max(rollouts.length, perStep ?? 0) });
  }
  return run.phase && run.phase !== run.state && has(`phase.${run.phase}`) ? t(`phase.${run.phase}`) : "";
}

/**
 * The reason of a wait, with its countdown: call it once a second.
 * @param {Row | null} run
 * @param {number} now milliseconds, by the server's clock
 */
export function drawHeld(run, now) {
  const box = maybe("run-held");
  if (!box) return;
  const text = run ? heldText(run.held, run.waits_for, now, t) : "";
  box.hidden = !text;
  setText(box.firstElementChild, text);
}

/** @param {[string, string][]} lines name and sentence */
function drawReports(lines) {
  const box = maybe("run-reports");
  if (!box) return;
  const kept = new Set(lines.map(([name]) => name));
  for (const node of [...box.children]) if (!kept.has(node.getAttribute("data-report") || "")) node.remove();
  for (const [name, text] of lines) {
    const line = box.querySelector(`[data-report="${name}"]`) || box.appendChild(h("p", { "data-report": name }));
    setText(line, text);
  }
  box.hidden = !box.children.length;
}

/**
 * @param {Row} run
 * @param {number} silentAfter seconds
 */
function drawNotices(run, silentAfter) {
  const failure = maybe("run-failure");
  if (failure && run.failure) {
    for (const [part, text] of Object.entries(run.failure))
      setText(failure.querySelector(`[data-part="${part}"]`), plain(text));
  }
  if (failure) failure.hidden = !run.error;
  setAttr(failure, "data-kind", run.state === "paused" ? "warning" : "error");
  const silent = maybe("run-silent");
  const age = run.beat_age_seconds;
  if (silent) {
    silent.hidden = !(age !== null && age > silentAfter); // null while no worker has the run
    setText(silent.firstElementChild, t("trainer_silent", { t: duration(age, t) }));
  }
}

/**
 * The run's place in the queue, and what it waits for. Until a frame has it, the server's own drawing stays.
 * @param {Row} run
 * @param {Row | null | undefined} queue
 */
export function drawQueue(run, queue) {
  const box = maybe("run-waiting");
  if (!box) return;
  box.hidden = run.state !== "queued" || queue === null || !(queue || box.children.length);
  if (!queue) return;
  const lines = queue.lines.map((/** @type {Row} */ line) =>
    h("p", { class: "small" }, plain(line.text), " ", line.url && h("a", { href: line.url }, line.link)),
  );
  box.replaceChildren(h("p", { class: "notice-title" }, plain(queue.title)), ...lines);
}

/**
 * How fresh the page is, in one word that is always true.
 * @param {string} status of the socket
 * @param {number} silentMs
 * @param {boolean} ended
 */
export function drawLive(status, silentMs, ended) {
  const node = maybe("run-live");
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
    setLiveText(tile.querySelector(".tile-value"), format(last(curve.values)));
    if (!curve.means) drawSpark(tile, curve.values); // of a thinned curve the newest figures are those that came with the page
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
