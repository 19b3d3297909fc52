// @ts-check
/** One question at a time to the server: it waits until the hand rests, and only the newest answer counts. */

/** @typedef {Record<string, any>} Row */

export class Asker {
  /**
   * @param {{send: (body: Row, signal: AbortSignal) => Promise<Row>, asking: (body: Row) => void,
   *   answered: (reply: Row, body: Row) => void, failed: (problem: any) => void, restMs?: number}} options
   */
  constructor(options) {
    this.options = options;
    this.number = 0;
    /** @type {any} */
    this.timer = null;
    /** @type {AbortController | null} */
    this.stop = null;
  }

  /**
   * Ask once the hand rests.
   * @param {() => Row | null} body made when it is sent; null asks nothing
   * @param {number} [restMs]
   */
  ask(body, restMs = this.options.restMs ?? 120) {
    clearTimeout(this.timer);
    const number = (this.number += 1);
    this.timer = setTimeout(() => this.send(body(), number), restMs);
  }

  /**
   * @param {Row | null} body
   * @param {number} number
   */
  async send(body, number) {
    this.stop?.abort();
    if (body === null) return;
    const stop = (this.stop = new AbortController());
    this.options.asking(body);
    try {
      const reply = await this.options.send(body, stop.signal);
      if (number === this.number) this.options.answered(reply, body);
    } catch (problem) {
      if (number === this.number) this.options.failed(problem);
    }
  }
}
