// @ts-check
/** Which key of a reading page means what. Pure. */

/** @type {Record<string, string>} */
const ACTIONS = {
  ArrowLeft: "group-before",
  ArrowRight: "group-after",
  k: "step-before",
  j: "step-after",
  p: "found-before",
  n: "found-after",
  f: "found",
  r: "raw",
  g: "group",
  "?": "keys",
};

/**
 * The action of a key; empty where it is not for us: with a modifier, or typed into a field.
 * @param {{key: string, ctrlKey: boolean, metaKey: boolean, altKey: boolean}} event
 * @param {boolean} busy whether the focus is on something that uses keys itself
 */
export function actionOf(event, busy) {
  if (busy || event.ctrlKey || event.metaKey || event.altKey) return "";
  return ACTIONS[event.key] ?? "";
}

/** Elements that use keys themselves: fields, dialogs, text that scrolls, grids of buttons. */
export const BUSY = "input, textarea, select, dialog, [contenteditable], [role=group][tabindex], [data-grid]";
