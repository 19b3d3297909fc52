// @ts-check
/**
 * Parts that come again by themselves are morphed (Idiomorph): what did not change stays, with its focus, the text that
 * is selected in it and a press that has begun. What the reader changed is not in the server's answer, and stays too.
 */

/**
 * Whether the reader or a script set this attribute, so that an answer must not.
 * @param {string} name
 * @param {Element} node
 */
export function isOwn(name, node) {
  if (name === "open" || name === "data-changed") return true;
  if (name === "aria-describedby") return node instanceof HTMLAnchorElement; // which a card describes now
  if (name === "checked" && node instanceof HTMLInputElement) return node.checked !== node.defaultChecked;
  if (name === "selected" && node instanceof HTMLOptionElement) return node.selected !== node.defaultSelected;
  const isField = node instanceof HTMLTextAreaElement || (node instanceof HTMLInputElement && node.type !== "hidden");
  return name === "value" && isField && node.value !== node.defaultValue;
}

/** Have Idiomorph leave the reader's attributes. */
export function keepOwn() {
  const { Idiomorph } = /** @type {any} */ (window);
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (/** @type {string} */ name, /** @type {Element} */ node) =>
    !isOwn(name, node);
}
