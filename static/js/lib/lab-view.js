// @ts-check
/** The lab's view, kept in the address so that it can be sent to someone. Pure. */

/** @typedef {{spec: string, against: string, aggregation: string, scale: string, step: number | null, sort: string,
 *   only: string, offset: number, rollout: string | null, component: string}} LabView */

const CHOICES = {
  aggregation: ["sum_then_normalize", "normalize_then_sum"],
  scale: ["group", "batch", "none"],
  sort: ["step", "spread", "changed", "phantom", "reward"],
  only: ["all", "zero_variance", "phantom", "excluded", "changed"],
};
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const NUMBER = /^\d{1,7}$/;

/**
 * Whether the choice of the spread matters: components that are compared one by one are always divided by their own.
 * @param {string} aggregation
 */
export const scaleMatters = (aggregation) => aggregation !== "normalize_then_sum";

/**
 * @param {string} search
 * @param {string} spec the key of the one that the server chose
 * @param {string[]} keys of all that can be chosen
 * @returns {LabView}
 */
export function readLabView(search, spec, keys) {
  const query = new URLSearchParams(search);
  const among = (/** @type {keyof typeof CHOICES} */ name) => {
    const asked = query.get(name) || "";
    return CHOICES[name].includes(asked) ? asked : CHOICES[name][0];
  };
  const number = (/** @type {string} */ name) => (NUMBER.test(query.get(name) || "") ? Number(query.get(name)) : null);
  const against = query.get("against") || "";
  const rollout = query.get("rollout") || "";
  return {
    spec,
    against: keys.includes(against) && against !== spec ? against : "",
    aggregation: among("aggregation"),
    scale: among("scale"),
    step: number("step"),
    sort: among("sort"),
    only: among("only"),
    offset: number("offset") ?? 0,
    rollout: UUID.test(rollout) ? rollout : null,
    component: (query.get("component") || "").slice(0, 64),
  };
}

/**
 * The address's query: only what differs from a fresh page.
 * @param {LabView} view
 */
export function writeLabView(view) {
  const query = new URLSearchParams();
  query.set("spec", view.spec);
  if (view.against) query.set("against", view.against);
  for (const [name, choices] of Object.entries(CHOICES)) {
    const value = /** @type {any} */ (view)[name];
    if (value !== choices[0]) query.set(name, value);
  }
  if (view.step !== null) query.set("step", String(view.step));
  if (view.offset) query.set("offset", String(view.offset));
  if (view.rollout) query.set("rollout", view.rollout);
  if (view.component) query.set("component", view.component);
  return `?${query}`;
}
