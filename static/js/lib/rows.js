// @ts-check
/** Going through rows by keyboard. */

/**
 * Which row is next: the first or the last where none is at hand.
 * @param {number} at of the row that has the focus, or -1
 * @param {number} count
 * @param {1 | -1} by
 */
export function nextRow(at, count, by) {
  if (at < 0) return by > 0 ? 0 : count - 1;
  return Math.max(0, Math.min(count - 1, at + by));
}

/**
 * Give the focus to the next link of a list.
 * @param {ParentNode} box
 * @param {string} selector
 * @param {1 | -1} by
 */
export function step(box, selector, by) {
  const links = /** @type {HTMLElement[]} */ (Array.from(box.querySelectorAll(selector)));
  if (links.length)
    links[
      nextRow(
        links.findIndex((link) => link === document.activeElement),
        links.length,
        by,
      )
    ].focus();
}
