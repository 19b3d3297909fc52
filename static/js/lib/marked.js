// @ts-check
/** Marks in text that the server drew: the words that earned a reward. All of it is only ever text. */
import { h } from "./dom.js";
import { segments } from "./lab-text.js";

/** @typedef {import("./lab-text.js").Span} Span */

/**
 * The text of a box with one character for each hidden one, which the server shows as a mark such as U+202E.
 * @param {Node[]} nodes
 */
export function plainText(nodes) {
  return nodes.map((node) => (node.nodeType === 3 ? node.textContent : "\u0001")).join("");
}

/**
 * Wrap the pieces that spans cover.
 * @param {HTMLElement} box
 * @param {Span[]} spans by code points
 * @param {(names: string[], notes: string[]) => Record<string, any>} props of a mark
 */
export function mark(box, spans, props) {
  const units = [...box.childNodes];
  const text = plainText(units);
  /** @type {Node[]} */
  const made = [];
  let [at, inside] = [0, 0];
  for (const piece of segments(text, spans)) {
    const target = piece.names.length ? h("mark", { class: "earned", ...props(piece.names, piece.notes) }) : null;
    let left = piece.text.length;
    while (left > 0 && at < units.length) {
      const unit = units[at];
      const length = unit.nodeType === 3 ? (unit.textContent ?? "").length : 1;
      const take = Math.min(left, length - inside);
      const part = unit.nodeType === 3 ? (unit.textContent ?? "").slice(inside, inside + take) : unit;
      const node = typeof part === "string" ? document.createTextNode(part) : part;
      if (target) target.append(node);
      else made.push(node);
      [left, inside] = [left - take, inside + take];
      if (inside >= length) [at, inside] = [at + 1, 0];
    }
    if (target) made.push(target);
  }
  box.replaceChildren(...made);
}
