// @ts-check
/** A conversation as turns of the policy with what the environment answered to each. */

/** @typedef {Record<string, any>} Row */

/**
 * The turns after the opening, numbered from 1.
 * @param {Row[]} messages
 * @returns {{turn: number, said: Row, messages: Row[]}[]}
 */
export function answersOf(messages) {
  /** @type {{turn: number, said: Row, messages: Row[]}[]} */
  const found = [];
  for (const message of messages) {
    if (message.role === "assistant") found.push({ turn: found.length + 1, said: message, messages: [] });
    else found.at(-1)?.messages.push(message);
  }
  return found;
}
