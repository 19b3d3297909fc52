// @ts-check
/** The rollouts of the present step as a grid that keeps its shape: one cell each, from waiting to scored. */
import { h, setAttr, setText, t } from "./dom.js";
import { duration, plain, scaleStep, score } from "./format.js";
import { endWords } from "./outcome.js";
import { lastTool, modelTurns, rewardSpan } from "./rollouts.js";
import { Roving } from "./roving.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {{group: number, index: number, row: Row | null}} Cell */

const SLOW_S = 60;

/**
 * Every rollout that the step will have, by group and index; those that have not begun have no row.
 * @param {Row[]} rollouts of the step, by group and index
 * @param {number | null} perStep
 * @param {number | null} groupSize
 * @returns {Cell[][]}
 */
export function gridOf(rollouts, perStep, groupSize) {
  /** @type {Map<number, Map<number, Row>>} */
  const known = new Map();
  for (const row of rollouts) {
    const group = known.get(row.group) ?? new Map();
    known.set(row.group, group.set(row.index, row));
  }
  const size = groupSize ?? 0;
  const wanted = size ? Math.ceil((perStep ?? 0) / size) : 0;
  for (let number = 0; known.size < wanted; number += 1) if (!known.has(number)) known.set(number, new Map());
  return Array.from(known.entries())
    .sort((a, b) => a[0] - b[0])
    .map(([group, rows]) => {
      const count = Math.max(size, ...Array.from(rows.keys(), (index) => index + 1));
      return Array.from({ length: count }, (_, index) => ({ group, index, row: rows.get(index) ?? null }));
    });
}

/**
 * The rollout that has been played for longest.
 * @param {Row[]} rollouts
 * @returns {Row | null}
 */
export function slowest(rollouts) {
  const flying = rollouts.filter((row) => row.status === "running");
  return flying.reduce((/** @type {Row | null} */ a, b) => (a && a.started_at <= b.started_at ? a : b), null);
}

/** @param {Row} row */
const nameOf = (row) => `${row.group}.${row.policy ? plain(row.policy) : row.index}`;

/**
 * What a cell is, in words: its label, its tooltip, and the line below the grid.
 * @param {Cell} cell
 * @param {Row[]} turns
 * @param {number} nowMs
 */
export function cellWords(cell, turns, nowMs) {
  const { row } = cell;
  if (!row) return `${cell.group}.${cell.index} · ${t("not_begun")}`;
  const count = turns.length ? modelTurns(turns) : row.turns;
  if (row.status === "running") {
    const age = Math.max(0, (nowMs - Date.parse(row.started_at)) / 1000);
    const words = [nameOf(row), t("turn", { n: count + 1 }), lastTool(turns), duration(Math.floor(age), t)];
    return words.filter(Boolean).join(" · ");
  }
  const words = [nameOf(row), endWords(row), t(count === 1 ? "one_turn" : "turns", { n: count })];
  if (row.reward !== null) words.push(`${t("reward")} ${score(row.reward)}`);
  return words.join(" · ");
}

export class Flight {
  /**
   * @param {{box: HTMLElement, count: HTMLElement, slow: HTMLElement, about: HTMLElement}} parts
   * @param {{perStep: number | null, groupSize: number | null}} size
   */
  constructor(parts, size) {
    this.parts = parts;
    this.size = size;
    this.shape = "";
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    /** @type {Map<string, () => string>} */
    this.words = new Map();
    this.looked = "";
    this.stops = new Roving(parts.box, ".flight-cell");
    for (const kind of ["focusin", "pointerover"]) parts.box.addEventListener(kind, (event) => this.look(event.target));
    for (const kind of ["focusout", "pointerleave"]) parts.box.addEventListener(kind, () => this.look(null));
  }

  /**
   * @param {Row[]} rollouts of the present step, by group and index
   * @param {Map<string, Row[]>} turns
   * @param {number} nowMs by the server's clock
   */
  draw(rollouts, turns, nowMs) {
    const groups = gridOf(rollouts, this.size.perStep, this.size.groupSize);
    const all = groups.reduce((sum, cells) => sum + cells.length, 0);
    const shape = groups.map((cells) => `${cells[0].group}:${cells.length}`).join();
    if (shape !== this.shape) this.build(groups, all, shape);
    const span = rewardSpan(rollouts);
    for (const cell of groups.flat()) this.paint(cell, turns, nowMs, span);
    const done = rollouts.filter((row) => row.status !== "running").length;
    setText(this.parts.count, all ? `${done} / ${all}` : "");
    const slow = slowest(rollouts);
    const old = slow !== null && nowMs - Date.parse(slow.started_at) > SLOW_S * 1000;
    const words =
      slow && cellWords({ group: slow.group, index: slow.index, row: slow }, turns.get(slow.id) || [], nowMs);
    setText(this.parts.slow, words ? t("slowest", { what: words }) : all ? t("none_playing") : t("no_flight"));
    setAttr(this.parts.slow, "data-slow", old ? "" : null);
    setAttr(this.parts.slow, "title", slow ? plain(slow.task || "").slice(0, 300) : null);
    setText(this.parts.about, this.words.get(this.looked)?.() ?? "");
  }

  /**
   * @param {Cell[][]} groups
   * @param {number} all
   * @param {string} shape
   */
  build(groups, all, shape) {
    this.shape = shape;
    this.cells.clear();
    this.words.clear();
    setAttr(this.parts.box, "data-size", all > 192 ? "small" : all > 64 ? "middle" : "large");
    this.parts.box.replaceChildren(
      ...groups.map((cells) =>
        h(
          "div",
          { class: "flight-group", role: "group", "aria-label": t("group", { n: cells[0].group }) },
          ...cells.map((cell) => this.make(cell)),
        ),
      ),
    );
    this.stops.settle();
  }

  /** @param {Cell} cell */
  make(cell) {
    const key = `${cell.group}.${cell.index}`;
    const node = h("button", { class: "flight-cell", type: "button", tabindex: "-1", "data-cell": key });
    this.cells.set(key, node);
    return node;
  }

  /**
   * @param {Cell} cell
   * @param {Map<string, Row[]>} turns
   * @param {number} nowMs
   * @param {import("./rollouts.js").Span} span
   */
  paint(cell, turns, nowMs, span) {
    const key = `${cell.group}.${cell.index}`;
    const node = this.cells.get(key);
    if (!node) return;
    const { row } = cell;
    const known = row ? turns.get(row.id) || [] : [];
    this.words.set(key, () => cellWords(cell, known, nowMs));
    const sign = row ? `${row.id}:${row.seq}:${known.length}:${span.low}:${span.high}` : "none";
    if (node.dataset.sign === sign) return;
    node.dataset.sign = sign;
    const running = row?.status === "running";
    const scored = row && row.reward !== null && !running;
    setAttr(node, "data-status", row ? row.status : "waiting");
    setAttr(node, "data-rollout", row ? row.id : null);
    setAttr(node, "data-step", row ? row.step : null);
    setAttr(node, "data-reward", scored ? scaleStep(row.reward, span.low, span.high) : null);
    setAttr(node, "aria-disabled", row ? null : "true");
    setText(node, running ? String((known.length ? modelTurns(known) : row.turns) + 1) : "");
    const words = running ? `${nameOf(row)} · ${t("outcome.in_flight")}` : cellWords(cell, known, nowMs); // the age is below
    setAttr(node, "aria-label", words);
    setAttr(node, "title", words);
  }

  /** @param {EventTarget | null} target */
  look(target) {
    const key = /** @type {Element | null} */ (target)?.closest?.(".flight-cell")?.getAttribute("data-cell") ?? "";
    this.looked = key;
    setText(this.parts.about, this.words.get(key)?.() ?? "");
  }
}
