// @ts-check
/** The grid of dots and the slowest rollouts below it, as the server drew them first: only what changes is touched. */
import { h, one, setAttr, setText, t } from "./dom.js";
import { duration, plain, scaleStep } from "./format.js";
import {
  addressOf,
  cellWords,
  gridOf,
  markOf,
  nameOf,
  sizeOf,
  slowest,
  stateOf,
  stepWords,
  turnOf,
  waitsFor,
} from "./flight.js";
import { rewardSpan } from "./rollouts.js";
import { Roving } from "./roving.js";

/** @typedef {import("./flight.js").Row} Row */
/** @typedef {import("./flight.js").Cell} Cell */
/**
 * @typedef {object} Now what the page knows
 * @property {number | null} step the newest one, which stays until the next one begins
 * @property {Row[]} rollouts of it, by group and index
 * @property {Map<string, Row[]>} turns
 * @property {boolean} whole whether the step's turns are known
 * @property {string} phase of the run
 * @property {Map<string, string>} ordered who ordered the end of which rollouts
 * @property {number} at milliseconds, by the server's clock
 */

export class FlightGrid {
  /**
   * @param {{box: HTMLElement, extra: HTMLElement | null, step: HTMLElement, count: HTMLElement,
   *   slow: HTMLElement | null, about: HTMLElement}} parts the page of an ended run has no list of the slowest
   * @param {{perStep: number | null, groupSize: number | null, environment: string,
   *   marks: Record<string, string>, sizes: Record<string, number>, slowAfter: number}} of what the config says, and
   *   what the server draws: marks of outcomes, sizes of dots, seconds after which a rollout is slow
   */
  constructor(parts, of) {
    this.parts = parts;
    this.of = of;
    this.shapes = new Map([parts.box, parts.extra].map((box) => [box, box?.dataset.shape ?? ""]));
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    /** @type {Map<string, string>} */
    this.words = new Map();
    this.stops = [new Roving(parts.box, ".flight-cell")];
    if (parts.extra) this.stops.push(new Roving(parts.extra, ".flight-cell"));
    for (const box of [parts.box, parts.extra]) if (box) this.adopt(box);
    for (const stop of this.stops) stop.settle();
  }

  /**
   * Take the dots that stand in a box, and tell of the one that is looked at.
   * @param {HTMLElement} box
   */
  adopt(box) {
    for (const node of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll(".flight-cell")))
      this.cells.set(node.dataset.cell ?? "", node);
    for (const kind of ["focusin", "pointerover"]) box.addEventListener(kind, (event) => this.look(event.target));
    for (const kind of ["focusout", "pointerleave"]) box.addEventListener(kind, () => this.look(null));
  }

  /** @param {Now} now */
  draw(now) {
    const { box, extra } = this.parts;
    const groups = gridOf(now.rollouts, this.of.perStep, this.of.groupSize);
    const own = extra ? Math.ceil((this.of.perStep ?? 0) / (this.of.groupSize || 1)) : Infinity;
    this.shape(
      box,
      groups.filter(([cell]) => cell.group < own),
    );
    if (extra)
      this.shape(
        extra,
        groups.filter(([cell]) => cell.group >= own),
      );
    const span = rewardSpan(now.rollouts);
    const cells = groups.flat();
    for (const cell of cells) this.paint(cell, now, span);
    const ended = now.rollouts.filter((row) => row.status !== "running").length;
    setText(this.parts.step, stepWords(now.step, ended, cells.length));
    setText(this.parts.count, cells.length ? `${ended} / ${cells.length}` : "");
    this.drawSlowest(now);
  }

  /**
   * Replace a box's dots if its groups have changed.
   * @param {HTMLElement} box
   * @param {Cell[][]} groups
   */
  shape(box, groups) {
    const shape = groups.map((cells) => `${cells[0].group}:${cells.length}`).join();
    if (shape === this.shapes.get(box)) return;
    this.shapes.set(box, shape);
    setAttr(box, "data-size", sizeOf(groups.flat().length, this.of.sizes));
    box.replaceChildren(...groups.map((cells) => this.group(cells)));
    for (const stop of this.stops) stop.settle();
  }

  /** @param {Cell[]} cells */
  group(cells) {
    const name = t("group", { n: cells[0].group });
    return h(
      "div",
      { class: "flight-group", role: "group", "aria-label": name },
      ...cells.map((cell) => this.make(cell)),
    );
  }

  /** @param {Cell} cell */
  make(cell) {
    const key = `${cell.group}.${cell.index}`;
    const node = h("a", { class: "flight-cell", tabindex: "-1", "data-cell": key });
    this.cells.set(key, node);
    return node;
  }

  /**
   * @param {Cell} cell
   * @param {Now} now
   * @param {import("./rollouts.js").Span} span
   */
  paint(cell, now, span) {
    const key = `${cell.group}.${cell.index}`;
    const node = this.cells.get(key);
    if (!node) return;
    const { row } = cell;
    const state = stateOf(row, now.phase);
    const turns = row ? now.turns.get(row.id) || [] : [];
    const sign = row ? `${row.id}:${row.seq}:${turns.length}:${state}:${span.low}:${span.high}` : "none";
    if (node.dataset.sign === sign) return;
    if (row && row.id === node.dataset.rollout && unheard(row, now)) return; // the server has written more of it already
    node.dataset.sign = sign;
    setAttr(node, "data-status", state);
    setAttr(node, "data-outcome", row && row.status !== "running" ? row.outcome : null);
    setAttr(node, "data-rollout", row ? row.id : null);
    setAttr(node, "data-step", row ? row.step : null);
    setAttr(node, "data-reward", row && row.reward !== null ? scaleStep(row.reward, span.low, span.high) : null);
    setAttr(node, "href", row ? addressOf(row) : null);
    setAttr(node, "role", row ? null : "img");
    setText(node, markOf(row, turns, state, this.of.marks));
    this.words.set(key, cellWords(cell, turns, now.phase));
    setAttr(node, "aria-label", this.words.get(key) ?? "");
    setAttr(node, "title", this.words.get(key) ?? "");
  }

  /** @param {Now} now */
  drawSlowest(now) {
    const lines = Array.from(this.parts.slow?.children ?? []);
    const rows = slowest(now.rollouts, lines.length);
    lines.forEach((line, place) => this.line(line, rows[place] ?? null, place, now));
  }

  /**
   * @param {Element} line
   * @param {Row | null} row
   * @param {number} place
   * @param {Now} now
   */
  line(line, row, place, now) {
    const [link, age, about] = line.children;
    const same = row !== null && line.getAttribute("data-rollout") === row.id;
    const seconds = row ? Math.max(0, Math.floor((now.at - Date.parse(row.started_at)) / 1000)) : 0;
    setText(age, row ? duration(seconds, t) : "");
    setAttr(age, "data-slow", seconds > this.of.slowAfter ? "" : null);
    setAttr(line, "data-ordered", row && now.ordered.has(row.id) ? "" : null);
    if (same && unheard(row, now) && !now.ordered.has(row.id)) return;
    setAttr(line, "data-rollout", row ? row.id : null);
    setAttr(link, "href", row ? addressOf(row) : null);
    setText(link, row ? [nameOf(row), plain(row.task || "")].filter(Boolean).join(" · ") : "");
    setAttr(link, "title", row ? plain(row.task || "").slice(0, 300) : null);
    setText(about, row ? this.about(row, now) : place ? "" : t(now.rollouts.length ? "flight.none" : "flight.nothing"));
  }

  /**
   * @param {Row} row
   * @param {Now} now
   */
  about(row, now) {
    const by = now.ordered.get(row.id);
    if (by) return t("flight.ordered", { by: plain(by) });
    const turns = now.turns.get(row.id) || [];
    const words = [this.of.environment, t("turn", { n: turnOf(row, turns) }), waitsFor(turns, now.phase)];
    return words.filter(Boolean).join(" · ");
  }

  /** @param {EventTarget | null} target */
  look(target) {
    const node = /** @type {Element | null} */ (target)?.closest?.(".flight-cell");
    setText(this.parts.about, node?.getAttribute("aria-label") ?? "");
  }
}

/**
 * Ask before a rollout is ended: the dialog says which, and its form leads there.
 * @param {Element} button
 */
export function askOrder(button) {
  const [act, line] = [button.getAttribute("data-order"), button.closest("[data-rollout]")];
  const dialog = document.getElementById(`order-${act}`);
  if (!(dialog instanceof HTMLDialogElement) || !line) return;
  const form = one(dialog, "form", HTMLFormElement);
  form.action = `${form.dataset.address}${line.getAttribute("data-rollout")}/${act}/`;
  setText(dialog.querySelector("[data-name]"), line.querySelector("a")?.textContent ?? "");
  dialog.showModal();
}

/**
 * Whether this page never received its turns.
 * @param {Row} row
 * @param {Now} now
 */
function unheard(row, now) {
  return row.status === "running" && !now.whole && !now.turns.has(row.id);
}
