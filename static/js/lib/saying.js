// @ts-check
/** When the newest text of a run is fetched again: not before a person could read the one that is shown. */

export const READ_MS = 6000;
const BUSY_MS = 1000;

export class Saying {
  /**
   * @param {{ask: () => void, empty: () => boolean, busy: () => boolean, now?: () => number, later?: (work: () => void, ms: number) => unknown}} options
   *   ``empty``: no text is shown; ``busy``: the page is hidden, or a person points at the text
   */
  constructor(options) {
    this.options = options;
    this.now = options.now ?? (() => performance.now());
    this.later = options.later ?? ((/** @type {() => void} */ work, /** @type {number} */ ms) => setTimeout(work, ms));
    this.shownAt = this.now();
    /** @type {string | null} */
    this.known = null; // before the first frame the server's own text is the newest
    this.waiting = false;
  }

  /**
   * What the page knows: another text of it means that there are newer words.
   * @param {string} text
   */
  heard(text) {
    const fresh = text !== this.known && (this.known !== null || this.options.empty());
    this.known = text;
    if (fresh && text && !this.waiting) this.wait(this.options.empty() ? 0 : this.shownAt + READ_MS - this.now());
  }

  /** @param {number} ms */
  wait(ms) {
    this.waiting = true;
    this.later(
      () => {
        if (this.options.busy()) return this.wait(BUSY_MS);
        this.waiting = false;
        this.shownAt = this.now();
        this.options.ask();
      },
      Math.max(0, ms),
    );
  }
}

/**
 * The rollouts of a step that have said their last words, in a text that changes when another one has.
 * @param {Record<string, any>[]} rollouts
 * @param {number | null} step
 */
export function saidOf(rollouts, step) {
  const ended = rollouts.filter((row) => row.status === "completed" || row.status === "truncated").length;
  if (ended) return `${step}: ${ended}`;
  return rollouts.some((row) => row.turns > 0) ? `${step}: in flight` : "";
}
