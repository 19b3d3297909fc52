// @ts-check
/** One question at a time to the server: it waits until the hand rests, and only the newest answer counts. */

/** @typedef {Record<string, any>} Row */

export class Problem extends Error {
  /**
   * @param {string} kind why there is no answer: offline, late, or the server's status
   * @param {Row} [body] the server's answer
   * @param {number} [status]
   */
  constructor(kind, body = {}, status = 0) {
    super(kind);
    this.kind = kind;
    this.body = body;
    this.status = status;
  }
}

/**
 * Post JSON and read JSON. Every wait ends.
 * @param {string} address
 * @param {Row} body
 * @param {{token: string, limitMs: number, signal?: AbortSignal, fetch?: typeof fetch}} options
 * @returns {Promise<Row>}
 */
export async function post(address, body, options) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort("late"), options.limitMs);
  options.signal?.addEventListener("abort", () => stop.abort("dropped"));
  let answer;
  try {
    answer = await (options.fetch ?? fetch)(address, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": options.token },
      body: JSON.stringify(body),
      signal: stop.signal,
      redirect: "manual", // to the login page: no answer to a question
    });
    const reply = await answer.json();
    if (answer.ok) return reply;
    throw new Problem("refused", reply, answer.status);
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (stop.signal.aborted) throw new Problem(String(stop.signal.reason));
    if (answer?.type === "opaqueredirect") throw new Problem("login");
    throw answer ? new Problem("refused", {}, answer.status) : new Problem("offline");
  } finally {
    clearTimeout(timer);
  }
}

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
