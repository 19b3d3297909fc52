// @ts-check
/** Which keys vote. */

const KEYS = ["ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp", "Backspace"];

/**
 * The key of a vote, or "" where the event is meant for something else: a field, a menu, a shortcut of the browser.
 * @param {{ key: string, altKey: boolean, ctrlKey: boolean, metaKey: boolean, shiftKey: boolean }} event
 * @param {boolean} typing whether the focus is where keys have a meaning of their own
 * @returns {string}
 */
export function keyOf(event, typing) {
  if (typing || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return "";
  return KEYS.includes(event.key) ? event.key : "";
}
