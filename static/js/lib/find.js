// @ts-check
/** Finding by words. */

/**
 * Whether every word of what was typed stands somewhere in a text.
 * @param {string} text in lower case
 * @param {string} typed
 */
export function fits(text, typed) {
  return typed
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
