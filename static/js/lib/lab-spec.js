// @ts-check
/** Components of a reward spec as the lab edits them: reading fields, finding changes, naming new ones. Pure. */

/** @typedef {{component: string, above: number}} Gate */
/** @typedef {{kind: string, begin: number, end: number, first: number, last: number}} Schedule */
/** @typedef {{name: string, function?: string, weight: number, params?: Record<string, any>, clip?: number[] | null,
 *   scale?: number[] | null, gate?: Gate | null, schedule?: Schedule | null, categories?: string[]}} Component */

const NAME_CHARS = 64;

/** The name under which a component's function is registered. @param {Component} part */
export const registered = (part) => part.function || part.name;

/**
 * The text of one field, as the value that a component takes. An error is the key of a sentence.
 * @param {string} kind
 * @param {string | boolean} raw
 * @param {boolean} [optional] whether empty means "none"
 * @returns {{value?: any, error?: string}}
 */
export function readParam(kind, raw, optional = false) {
  if (typeof raw === "boolean") return { value: raw };
  if (kind === "lines") return { value: raw.split("\n").map((line) => line.trim()).filter(Boolean) }; // prettier-ignore
  if (kind !== "number" && kind !== "integer") return { value: raw };
  const text = raw.trim();
  if (text === "" && optional) return { value: null };
  const value = text === "" ? NaN : Number(text);
  if (!Number.isFinite(value)) return { error: "lab.not_number" };
  if (kind === "integer" && !Number.isSafeInteger(value)) return { error: "lab.not_whole" };
  return { value };
}

/**
 * The five options around a component's value, from what their fields say.
 * @param {Record<string, any>} given by the names of the fields; numbers or null
 * @returns {{shape: Record<string, any>, errors: Record<string, string>}}
 */
export function readShape(given) {
  /** @type {Record<string, string>} */
  const errors = {};
  const bounds = (/** @type {string} */ name) => {
    const ends = [given[`${name}_low`] ?? null, given[`${name}_high`] ?? null];
    if (ends[0] === null && ends[1] === null) return null;
    if (ends.includes(null)) errors[`${name}_low`] = "lab.needs_both";
    return ends;
  };
  const clip = bounds("clip");
  const scale = bounds("scale");
  const gate = given.gate_component ? { component: given.gate_component, above: given.gate_above ?? 0 } : null;
  const keys = ["begin", "end", "first", "last"];
  const schedule = given.schedule_kind ? { kind: given.schedule_kind, ...Object.fromEntries(keys.map((key) => [key, given[`schedule_${key}`] ?? 0])) } : null; // prettier-ignore
  return { shape: { clip, scale, gate, schedule, categories: given.categories ?? [] }, errors };
}

/**
 * The values of those fields for a component.
 * @param {Component} part
 * @returns {Record<string, any>}
 */
export function shapeFields(part) {
  const { clip, scale, gate, schedule } = part;
  return {
    ...(clip && { clip_low: clip[0], clip_high: clip[1] }),
    ...(scale && { scale_low: scale[0], scale_high: scale[1] }),
    ...(gate && { gate_component: gate.component, gate_above: gate.above }),
    ...(schedule && Object.fromEntries(Object.entries(schedule).map(([key, value]) => [`schedule_${key}`, value]))),
    categories: (part.categories ?? []).join("\n"),
  };
}

/**
 * A component without what says nothing, its keys in one order: equal components become equal text.
 * @param {Component} part
 * @param {Record<string, any>} [defaults] of its parameters
 * @returns {Component}
 */
export function canonical(part, defaults = {}) {
  const params = Object.entries(part.params ?? {}).filter(
    ([key, value]) => JSON.stringify(value) !== JSON.stringify(defaults[key]),
  );
  /** @type {any} */
  const out = {
    name: part.name,
    weight: part.weight,
    params: Object.fromEntries(params.sort(([a], [b]) => (a < b ? -1 : 1))),
  };
  if (part.function && part.function !== part.name) out.function = part.function;
  if (part.clip) out.clip = [...part.clip];
  if (part.scale) out.scale = [...part.scale];
  if (part.gate) out.gate = { component: part.gate.component, above: part.gate.above ?? 0 };
  if (part.schedule) out.schedule = Object.assign({ kind: "linear", begin: 0, first: 1 }, part.schedule);
  if (part.categories?.length) out.categories = [...part.categories];
  return out;
}

/**
 * The names of components that differ between two lists, added and removed ones among them.
 * @param {Component[]} before canonical
 * @param {Component[]} after canonical
 * @returns {string[]}
 */
export function changedNames(before, after) {
  const text = (/** @type {Component[]} */ parts) => new Map(parts.map((part) => [part.name, JSON.stringify(part)]));
  const [old, now] = [text(before), text(after)];
  return [...new Set([...old.keys(), ...now.keys()])].filter((name) => old.get(name) !== now.get(name));
}

/**
 * The state of the spec: which components differ from the saved one, how many are wrong, what the weights sum to.
 * @param {Component[]} base canonical
 * @param {{name: string, part: Component | null}[]} fields every component, `null` where one of its fields is wrong
 * @returns {{changed: string[], wrong: number, sum: number | null}} no sum while a weight may be unknown
 */
export function standing(base, fields) {
  const parts = /** @type {Component[]} */ (fields.map((item) => item.part).filter(Boolean));
  const wrong = fields.filter((item) => !item.part).map((item) => item.name);
  const changed = changedNames(base, parts);
  return {
    changed: [...changed, ...wrong.filter((name) => !changed.includes(name))],
    wrong: wrong.length,
    sum: wrong.length ? null : weightSum(parts),
  };
}

/**
 * A name for one more component of a function: its own, or that with the next free number.
 * @param {string} name
 * @param {string[]} taken
 */
export function freshName(name, taken) {
  if (!taken.includes(name)) return name;
  for (let number = 2; ; number += 1) {
    const tail = `_${number}`;
    const made = name.slice(0, NAME_CHARS - tail.length) + tail;
    if (!taken.includes(made)) return made;
  }
}

/**
 * The ends of a weight's slider: at least 0 to 1, wider where the weight is.
 * @param {number} weight
 */
export function sliderRange(weight) {
  const size = Math.abs(weight);
  const high = size <= 1 ? 1 : Math.min(100, 10 ** Math.ceil(Math.log10(size)));
  return { low: weight < 0 ? -high : 0, high, step: high / 100 };
}

/**
 * The sum of weights without the dust of floating point.
 * @param {Component[]} parts
 */
export function weightSum(parts) {
  return Math.round(parts.reduce((sum, part) => sum + part.weight, 0) * 1e6) / 1e6;
}

/**
 * The component that a complaint of the server is about: named by its key, its place in the list, or in its words.
 * @param {string} key
 * @param {string} sentence
 * @param {string[]} names of the components in order
 * @returns {string | undefined}
 */
export function ownerOf(key, sentence, names) {
  if (names.includes(key)) return key;
  const place = /^(?:components\.)?(\d+)(?:\.|$)/.exec(key);
  if (place) return names[Number(place[1])];
  if (key === "against") return undefined;
  const first = /`([a-z][a-z0-9_]*)`/.exec(sentence)?.[1];
  return names.find((name) => name === first);
}
