// @ts-check
/** The run page: frames go into the state, the state goes onto the page, at most once a frame of the screen. */
import { $, all, batched, data, maybe } from "../lib/dom.js";
import { openSocket, socketUrl } from "../lib/early.js";
import { ordersOf } from "../lib/flight.js";
import { FlightGrid, askOrder } from "../lib/flight_grid.js";
import { drawHead, drawHeld, drawLive, drawQueue, drawTiles } from "../lib/head.js";
import { Live } from "../lib/live.js";
import { drawCheckpoints, drawEvents, Log } from "../lib/log.js";
import { Saying, saidOf } from "../lib/saying.js";
import { applyFrame, currentStep, emptyState, rolloutsOf, trim } from "../lib/state.js";
import { readView, writeView } from "../lib/view.js";
import { CurvePanel } from "./run_curves.js";

const OUTPUT_EVERY_MS = 5000;
const STEP_CARDS_MS = 3000;
const page = data("run-data");
const state = emptyState();
const view = readView(location.search, page.tabs, page.tab);
const terminal = new Set(page.terminal);
/** @type {Set<string>} */
let dirty = new Set();
let skewMs = 0;
/** @type {number | null} */
let stepSeen = page.step; // what the server drew: the first frame may know a later one
let reopened = false;
let asked = -1; // the step whose rollouts and turns were asked for

const curves = new CurvePanel({
  page,
  state,
  view,
  curves: page.curves,
  own: page.own_curves,
  plotly: page.plotly,
  baselines: page.baselines,
  components: page.components,
  ended: () => terminal.has(state.run?.state),
  onView: keepView,
  onStep: openStep,
  send: (frame) => live.send(frame),
});
const flight = maybe("flight")
  ? new FlightGrid(
      {
        box: $("flight"),
        extra: maybe("flight-extra"),
        step: $("flight-step"),
        count: $("flight-count"),
        slow: maybe("flight-slow"),
        about: $("flight-about"),
      },
      {
        perStep: page.per_step,
        groupSize: page.group_size,
        environment: page.environment,
        marks: page.flight.marks,
        sizes: page.flight.sizes,
        slowAfter: page.flight.slow_after,
      },
    )
  : null;
const saying = new Saying({
  ask: () => document.dispatchEvent(new Event("tiltyard:said")), // its text is the server's
  empty: () => !maybe("flight-said")?.hasAttribute("data-text"),
  busy: () => document.visibilityState !== "visible" || Boolean(maybe("flight-said")?.matches(":hover, :focus-within")),
});
const log = new Log($("log"), /** @type {HTMLInputElement} */ ($("log-follow")));

const live = new Live({
  url: socketUrl(page.socket),
  open: openSocket,
  least: page.seq,
  language: page.language,
  seq: () => state.seq,
  onFrame: (frame) => {
    if (frame.now) skewMs = Date.parse(frame.now) - Date.now();
    for (const part of applyFrame(state, frame)) dirty.add(part);
    const known = frame.type === "snapshot" && frame.seq <= page.seq; // the page was drawn from the same rows
    if (!known && hasEvaluation(frame)) document.dispatchEvent(new Event("tiltyard:evaluated"));
    if (frame.type === "snapshot" || (frame.type === "step" && frame.step === asked)) asked = -1;
    if (frame.type === "snapshot") begin(frame);
    else if (reopened) askStep(currentStep(state));
    reopened = false;
    draw();
  },
  onStatus: (status, silentMs) => drawLive(status, silentMs, terminal.has(state.run?.state)),
  onLine: () => {
    curves.forget();
    asked = -1; // what was asked for on the line before may be asked for again
    reopened = true;
    for (const part of ["points", "rollouts"]) dirty.add(part); // its first frame draws them, and they ask again
  },
});

/**
 * Whether an evaluation on held-out tasks has begun or ended: the card of them is the server's.
 * @param {Record<string, any>} frame
 */
function hasEvaluation(frame) {
  const kinds = (frame.events || []).map((/** @type {{kind: string}} */ event) => event.kind);
  return kinds.includes("held_out_evaluated") || kinds.includes("tasks_held_out");
}

/**
 * A first frame carries no turns and maybe not all rollouts: with rollouts in flight the page needs them at once.
 * @param {Record<string, any>} frame
 */
function begin(frame) {
  curves.forget();
  const flying = rolloutsOf(state, frame.step).some((row) => row.status === "running");
  if (flying || frame.more?.rollouts) askStep(frame.step);
}

/**
 * Ask the server for a step that is not known in full.
 * @param {number | null} step
 */
function askStep(step) {
  if (!flight || step === null || state.run === null || state.whole.has(step) || asked === step) return;
  if (live.send({ type: "step", step })) asked = step;
}

/** After a step: the cards that the server draws are fetched. The last of several quick steps is not left out. */
const askCards = batched(() => document.dispatchEvent(new Event("tiltyard:step")), STEP_CARDS_MS);

const draw = batched(() => {
  const parts = dirty;
  dirty = new Set();
  const before = maybe("run")?.dataset.state;
  if (state.run && stepSeen !== state.run.step) {
    stepSeen = state.run.step;
    askCards();
  }
  if (state.run && before && before !== state.run.state) dropMessages();
  if (state.run && (parts.has("run") || parts.has("rollouts"))) {
    drawHead(state.run, rolloutsOf(state, currentStep(state)), page);
    drawQueue(state.run, state.queue);
    drawHeld(state.run, Date.now() + skewMs);
    drawLive(live.status, 0, terminal.has(state.run.state));
  }
  if (parts.has("points") || parts.has("snapshot")) {
    drawTiles(state.curves);
    if (view.tab === "curves") curves.draw();
  }
  if (["run", "rollouts", "turns", "events", "snapshot"].some((part) => parts.has(part))) drawFlying();
  if (parts.has("events")) {
    log.update(state.events);
    drawEvents($("events"), state.events);
  }
  if (parts.has("checkpoints")) drawRollBacks();
  if (state.steps.size > 12) trim(state);
}, 40);

/** The button that makes a child is the server's, and there while a child can be made. */
function drawRollBacks() {
  drawCheckpoints($("checkpoints"), state.checkpoints, maybe("run-branch")?.getAttribute("href") ?? null);
}

document.addEventListener("htmx:afterSwap", drawRollBacks);

/** The notes on the state before ("the run pauses …") is over. */
function dropMessages() {
  for (const node of document.querySelectorAll("#main > .notices > [role=status]")) node.remove();
}

function drawFlying() {
  if (!flight || view.tab !== "curves" || !state.run) return; // until the first frame the server's own drawing stays
  const step = currentStep(state); // stays until the next one begins
  if (state.left && step === state.from && !state.whole.has(step)) return; // the rest was asked for
  saying.heard(saidOf(rolloutsOf(state, step), step));
  flight.draw({
    step,
    rollouts: rolloutsOf(state, step),
    turns: state.turns,
    whole: step !== null && state.whole.has(step),
    phase: state.run.state === "running" ? state.run.phase : "",
    ordered: ordersOf(state.events),
    at: Date.now() + skewMs,
  });
}

/** @param {boolean} [push] */
function keepView(push = false) {
  const address = location.pathname + writeView(view);
  if (address === location.pathname + location.search) return;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** @param {string} tab */
function showTab(tab) {
  view.tab = tab;
  for (const link of document.querySelectorAll("[data-tab]")) {
    if (link.getAttribute("data-tab") === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const panel of all(document, ".panel")) panel.hidden = panel.id !== `panel-${tab}`;
  if (tab === "curves") {
    curves.draw();
    drawFlying();
  } else if (tab === "log") {
    log.scroll();
    lookAtOutput();
  }
}

/** The process's output comes from the server: an open log asks for it again while the run is active. */
function lookAtOutput() {
  if (view.tab !== "log" || !log.follow.checked || terminal.has(state.run?.state)) return;
  $("log-output").dispatchEvent(new CustomEvent("log-look"));
}

/** @param {number} step */
function openStep(step) {
  if (page.urls.rollouts) location.href = `${page.urls.rollouts}?step_from=${step}&step_to=${step}`;
}

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const tab =
    target.closest("[data-tab]")?.getAttribute("data-tab") ||
    target.closest("[data-tab-link]")?.getAttribute("data-tab-link");
  if (tab && page.tabs.includes(tab) && !event.metaKey && !event.ctrlKey) {
    event.preventDefault();
    showTab(tab);
    keepView(true);
  }
  const order = target.closest("[data-order]");
  if (order) askOrder(order);
});
window.addEventListener("popstate", () => {
  Object.assign(view, readView(location.search, page.tabs));
  showTab(view.tab);
});
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && live.wake());
window.addEventListener("online", () => live.wake());
window.addEventListener("pageshow", (event) => event.persisted && live.wake());
setInterval(() => {
  if (document.visibilityState !== "visible") return;
  drawFlying();
  if (state.run) drawHeld(state.run, Date.now() + skewMs);
}, 1000);

setInterval(() => document.visibilityState === "visible" && lookAtOutput(), OUTPUT_EVERY_MS);

showTab(view.tab);
drawFlying();
live.start();
