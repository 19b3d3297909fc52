// @ts-check
/** Marks of what a live update changed: a background that fades. The style sheet leaves it out where motion is unwanted. */
import { setText } from "./dom.js";

/** @param {Element} node */
export function mark(node) {
  node.removeAttribute("data-changed");
  void (/** @type {HTMLElement} */ (node).offsetWidth); // else the animation would not begin again
  node.setAttribute("data-changed", "");
  node.addEventListener("animationend", () => node.removeAttribute("data-changed"), { once: true });
}

/**
 * Set a figure's text, and mark it where it had another one before.
 * @param {Element | null} node
 * @param {string} text
 */
export function setLiveText(node, text) {
  if (!node || node.textContent === text) return;
  setText(node, text);
  mark(node);
}

/**
 * The text of each live cell of a list, by its row, which its first link names, and its place.
 * @param {ParentNode} list
 * @returns {Map<string, {node: Element, text: string}>}
 */
export function liveCells(list) {
  const found = new Map();
  for (const row of list.querySelectorAll("tr")) {
    const name = row.querySelector("a")?.getAttribute("href");
    row.querySelectorAll("[data-live]").forEach((node, place) => {
      if (name) found.set(`${name} ${place}`, { node, text: node.textContent });
    });
  }
  return found;
}

/** Mark the cells that a list which came again has with another text. */
export function marksOfLists() {
  /** @type {ReturnType<typeof liveCells>} */
  let before = new Map();
  document.addEventListener("htmx:beforeSwap", (event) => {
    before = event.target instanceof Element ? liveCells(event.target) : new Map();
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (!before.size) return;
    for (const [key, { node, text }] of liveCells(document)) {
      const old = before.get(key);
      if (old && old.text !== text) mark(node);
    }
    before = new Map();
  });
}
