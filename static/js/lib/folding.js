// @ts-check
/** Charts in which nothing moves are folded away. Pure. */
import { isFlat } from "./series.js";

/** @typedef {import("./curves.js").Spec} Spec */
/** @typedef {import("./state.js").Curve} Curve */

export const FEW_POINTS = 5; // too few to know whether they move

/**
 * Whether none of a chart's curves moves: each is constant, or has no finite figure.
 * @param {Spec} spec
 * @param {Map<string, Curve>} curves
 * @param {boolean} ended nothing will be added
 */
export function isStill(spec, curves, ended) {
  const newest = Math.max(...Array.from(curves.values(), (curve) => curve.steps.at(-1) ?? 0));
  return spec.names.every((name) => {
    const { steps, values } = curves.get(name) ?? { steps: [], values: [] };
    const enough = ended ? values.length > 1 : values.length >= FEW_POINTS;
    const over = steps.length > 0 && newest - steps[steps.length - 1] >= FEW_POINTS; // measured once, as at the first step
    return (enough || over) && isFlat(values);
  });
}

/**
 * Whether a chart is folded is decided when it is first seen. One that begins to move later comes after all others:
 * what a person reads must not jump.
 */
export class Folding {
  constructor() {
    /** @type {Map<string, boolean>} */
    this.folded = new Map();
    /** @type {string[]} */
    this.late = [];
  }

  /**
   * @param {Spec[]} specs
   * @param {(spec: Spec) => boolean} still
   * @returns {{shown: Spec[], folded: Spec[]}}
   */
  split(specs, still) {
    for (const spec of specs) {
      const was = this.folded.get(spec.key);
      const now = was !== false && !spec.removable && still(spec);
      if (was && !now) this.late.push(spec.key);
      this.folded.set(spec.key, now);
    }
    const place = (/** @type {Spec} */ spec) => this.late.indexOf(spec.key);
    const shown = specs.filter((spec) => !this.folded.get(spec.key));
    return {
      shown: [
        ...shown.filter((spec) => place(spec) < 0),
        ...shown.filter((spec) => place(spec) >= 0).sort((a, b) => place(a) - place(b)),
      ],
      folded: specs.filter((spec) => this.folded.get(spec.key)),
    };
  }
}
