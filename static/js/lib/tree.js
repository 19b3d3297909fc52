// @ts-check
/** Any JSON as a tree that can be read: names, values, and folds for what is long. Only ever text. */
import { h, t } from "./dom.js";
import { plain } from "./format.js";

const OPEN_ENTRIES = 12;
const MAX_ENTRIES = 200;
const MAX_TEXT = 400;

/**
 * @param {any} value
 * @param {number} [depth]
 * @returns {HTMLElement}
 */
export function tree(value, depth = 0) {
  if (typeof value !== "object" || value === null) return leaf(value);
  const entries = Object.entries(value);
  if (!entries.length) return h("span", { class: "muted" }, Array.isArray(value) ? "[]" : "{}");
  if (
    entries.every(([, item]) => typeof item !== "object" || item === null) &&
    Array.isArray(value) &&
    entries.length <= 40
  )
    return h("span", { class: "tree-row" }, ...value.map((item) => h("span", { class: "tag tree-tag" }, text(item))));
  const list = h("dl", { class: "tree" });
  for (const [name, item] of entries.slice(0, MAX_ENTRIES)) {
    const inner = branch(item, depth + 1);
    list.append(h("dt", {}, plain(name)), h("dd", { class: inner.tagName === "DL" ? "tree-deep" : null }, inner));
  }
  if (entries.length > MAX_ENTRIES)
    list.append(h("dt", {}, "…"), h("dd", {}, t("flight_more", { n: entries.length - MAX_ENTRIES })));
  return list;
}

/**
 * @param {any} value
 * @param {number} depth
 */
function branch(value, depth) {
  const inside = typeof value === "object" && value !== null ? Object.keys(value).length : 0;
  if (!inside || (depth < 3 && inside <= OPEN_ENTRIES)) return tree(value, depth);
  const fold = h("details", { class: "fold-plain" }, h("summary", { class: "muted" }, t("play.items", { n: inside })));
  // Filled when it is opened: a state may be large and most of it is never looked at.
  fold.addEventListener("toggle", () => fold.children.length === 1 && fold.append(tree(value, depth)), { once: true });
  return fold;
}

/** @param {any} value */
function leaf(value) {
  return h("span", { class: value === null ? "muted" : "tree-leaf" }, text(value));
}

/** @param {any} value */
function text(value) {
  const whole = plain(typeof value === "string" ? value : JSON.stringify(value));
  return whole.length > MAX_TEXT ? `${whole.slice(0, MAX_TEXT)}…` : whole;
}
