// @ts-check
/** Finding by words. */

/**
 * Whether a text contains every word that was typed.
 * @param {string} text in lower case
 * @param {string} typed
 */
export function fits(text, typed) {
  return typed
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
