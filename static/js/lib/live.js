// @ts-check
/**
 * The socket of a run: connects, comes back after a loss, and says truthfully how fresh the page is.
 *
 * 1. `after=<seq>` on every reconnect: the server sends what was missed, or a snapshot when that is too much.
 * 2. No frame for STALE_MS is shown as stale; no frame for DEAD_MS and the socket is given up and opened again.
 * 3. Waking up (tab shown again, network back) tries at once instead of waiting for the pause to end.
 */

export const STALE_MS = 12_000;
export const DEAD_MS = 20_000;
export const PAUSE_FIRST_MS = 500;
export const PAUSE_MAX_MS = 15_000;
const FINAL = { 4401: "login", 4403: "forbidden", 4404: "gone" };
const SLOW = new Set([4429, 1013]);

/** @typedef {"connecting" | "live" | "stale" | "paused" | "reconnecting" | "login" | "forbidden" | "gone"} Status */
/**
 * @typedef {object} Options
 * @property {string} url
 * @property {number} least the `seq` that the page was made of: the first frame must not be older
 * @property {string} [language] of the page, where frames have words
 * @property {() => number} seq
 * @property {(frame: Record<string, any>) => void} onFrame
 * @property {(status: Status, silentMs: number) => void} onStatus
 * @property {() => void} [onLine] a new line begins: requests on the one before will not be answered
 * @property {(url: string) => any} [open]
 * @property {() => number} [now]
 * @property {() => number} [random]
 */

/**
 * How long to wait before try number `tries` (from 0): doubling, capped, with full jitter above a third.
 * @param {number} tries
 * @param {number} random from 0 to 1
 */
export function pauseMs(tries, random) {
  const full = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** Math.min(tries, 10));
  return full / 3 + (random * full * 2) / 3;
}

export class Live {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    this.open = options.open || ((/** @type {string} */ url) => new WebSocket(url));
    this.now = options.now || (() => performance.now());
    this.random = options.random || Math.random;
    /** @type {any} */
    this.socket = null;
    /** @type {Status} */
    this.status = "connecting";
    this.tries = 0;
    this.frameAt = this.now();
    this.pausedByServer = false;
    /** @type {any} */
    this.timer = null;
    /** @type {any} */
    this.retry = null;
    this.stopped = false;
  }

  start() {
    this.connect();
    this.timer = setInterval(() => this.check(), 1000);
  }

  stop() {
    this.stopped = true;
    clearInterval(this.timer);
    clearTimeout(this.retry);
    this.drop();
  }

  connect() {
    clearTimeout(this.retry);
    this.retry = null;
    this.drop();
    const seq = this.options.seq();
    const language = this.options.language ? `&language=${this.options.language}` : "";
    const from = seq > 0 ? `after=${seq}` : `least=${this.options.least}`;
    const socket = this.open(`${this.options.url}?${from}${language}`);
    this.socket = socket;
    this.openedAt = this.now();
    this.options.onLine?.();
    socket.onmessage = (/** @type {{data: string}} */ event) => this.socket === socket && this.receive(event.data);
    socket.onclose = (/** @type {{code: number}} */ event) => this.socket === socket && this.closed(event.code);
  }

  /** Let go of the socket without hearing of it again. */
  drop() {
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    try {
      socket.close();
    } catch {
      // it was never open
    }
  }

  /** @param {string} text */
  receive(text) {
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return this.closed(1002); // not ours: begin again
    }
    this.frameAt = this.now();
    this.tries = 0;
    this.pausedByServer = frame.type === "beat" && frame.paused === true;
    this.say();
    this.options.onFrame(frame);
  }

  /** @param {number} code */
  closed(code) {
    this.drop();
    const final = /** @type {Record<number, Status>} */ (FINAL)[code];
    if (final) {
      this.stopped = true;
      clearInterval(this.timer);
      this.status = final;
      this.options.onStatus(final, 0);
      return;
    }
    if (SLOW.has(code)) this.tries = Math.max(this.tries, 4);
    const wait = pauseMs(this.tries, this.random());
    this.tries += 1;
    this.retry = setTimeout(() => this.connect(), wait);
    this.say();
  }

  /** Once a second: say how fresh we are, and give up a socket that has died without a word. */
  check() {
    if (this.stopped) return;
    const since = this.now() - Math.max(this.frameAt, this.openedAt ?? 0);
    if (this.socket && since > DEAD_MS) this.closed(1006);
    else this.say();
  }

  say() {
    if (this.stopped) return;
    const silent = this.now() - this.frameAt;
    /** @type {Status} */
    let status = "live";
    if (silent > STALE_MS) status = "stale";
    else if (!this.socket || this.socket.readyState !== 1) status = this.tries ? "reconnecting" : "connecting";
    else if (this.pausedByServer) status = "paused";
    this.status = status;
    this.options.onStatus(status, silent);
  }

  /** The tab is looked at again, or the network is back. */
  wake() {
    if (this.stopped) return;
    if (!this.socket || this.socket.readyState > 1) this.connect();
    else if (this.now() - this.frameAt > STALE_MS) this.connect();
    this.say();
  }

  /**
   * Send a small request; false when there is no line to send it on.
   * @param {Record<string, unknown>} frame
   */
  send(frame) {
    if (!this.socket || this.socket.readyState !== 1) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }
}
