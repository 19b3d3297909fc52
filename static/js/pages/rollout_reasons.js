// @ts-check
/** Next to each part of a reward that earned nothing: why. */
import { ask } from "../lib/ask.js";
import { all, h } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { reasonOf } from "../lib/found.js";

/** @typedef {Record<string, any>} Row */

/**
 * @param {ParentNode} root with a line for each part
 * @param {Row[]} parts
 */
export function drawReasons(root, parts) {
  for (const part of parts) {
    const line = all(root, "tr[data-part]").find((row) => row.dataset.part === part.name);
    const reason = reasonOf(part);
    if (!line || !reason || line.dataset.explained) continue;
    line.dataset.explained = "yes";
    line.after(
      h("tr", { class: "part-why" }, h("td", { colspan: "4", class: "small soft", dir: "auto" }, plain(reason))),
    );
  }
}

/**
 * Ask for the reasons and draw them; without an answer there are none.
 * @param {HTMLElement | null} root
 * @param {string} id of the rollout
 */
export async function showReasons(root, id) {
  if (!root || !all(root, "tr[data-zero]").length) return;
  const found = await ask(`/api/v1/rollouts/${id}/words`).catch(() => null);
  if (found) drawReasons(root, found.parts);
}
