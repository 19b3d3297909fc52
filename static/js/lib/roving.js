// @ts-check
/** One tab stop for a grid of buttons: Tab enters and leaves it, the arrow keys go from one button to the next. */

/** @typedef {{top: number, left: number}} Place */

export class Roving {
  /**
   * @param {HTMLElement} box
   * @param {string} selector of its buttons
   */
  constructor(box, selector) {
    this.box = box;
    this.selector = selector;
    box.addEventListener("keydown", (event) => this.onKey(event));
    box.addEventListener("focusin", (event) => this.stop(/** @type {Element} */ (event.target).closest(selector)));
  }

  nodes() {
    return /** @type {HTMLElement[]} */ ([...this.box.querySelectorAll(this.selector)]);
  }

  /**
   * Call it when buttons came or went: one of them stays the stop, or the chosen one becomes it.
   * @param {Element | null} [chosen]
   */
  settle(chosen = null) {
    const nodes = this.nodes();
    const stop = chosen ?? nodes.find((node) => node.getAttribute("tabindex") === "0") ?? nodes[0];
    this.stop(stop);
  }

  /** @param {Element | null | undefined} stop */
  stop(stop) {
    if (!stop) return;
    for (const node of this.nodes()) {
      const index = node === stop ? "0" : "-1";
      if (node.getAttribute("tabindex") !== index) node.setAttribute("tabindex", index);
    }
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const nodes = this.nodes();
    const at = nodes.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (at < 0 || !/^(Arrow(Up|Down|Left|Right)|Home|End)$/.test(event.key)) return;
    event.preventDefault(); // at an edge too: the page has other uses of the same keys
    nodes[nextPlace(event.key, at, nodes.length, () => nodes.map((node) => node.getBoundingClientRect()))].focus();
  }
}

/**
 * Where a key leads in a grid of `count`; the same place for keys that lead nowhere.
 * @param {string} key
 * @param {number} at
 * @param {number} count
 * @param {() => Place[]} [places] of all on the screen; without them up and down are left and right
 */
export function nextPlace(key, at, count, places) {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const up = key === "ArrowUp";
  if (places && (up || key === "ArrowDown")) return rowPlace(places(), at, up ? -1 : 1);
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key] ?? 0;
  return Math.max(0, Math.min(count - 1, at + by));
}

/**
 * The nearest one in the next row of that direction.
 * @param {Place[]} places
 * @param {number} at
 * @param {number} direction 1 for down, -1 for up
 */
function rowPlace(places, at, direction) {
  const here = places[at];
  let [found, least] = [at, Infinity];
  places.forEach((place, number) => {
    const rows = (place.top - here.top) * direction;
    const cost = rows * 1e4 + Math.abs(place.left - here.left);
    if (rows > 1 && cost < least) [found, least] = [number, cost];
  });
  return found;
}
