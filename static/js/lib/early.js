// @ts-check
/**
 * The first socket of a page, opened while the page is still being read: what it says waits for the page's script.
 * A page names it in the tag of this script: `<script type="module" async data-socket="/ws/…">`.
 */

/** @typedef {{url: string, socket: WebSocket, heard: MessageEvent[]}} Early */

/** @type {Early | null} */
let early = null;

/**
 * The whole address of a socket.
 * @param {string} path
 */
export function socketUrl(path) {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
}

/**
 * Open a socket before anybody listens to it.
 * @param {string} url
 */
export function openEarly(url) {
  /** @type {Early} */
  const opened = { url, socket: new WebSocket(url), heard: [] };
  opened.socket.onmessage = (event) => opened.heard.push(event);
  early = opened;
}

/**
 * The socket that was opened early, if it is this one and still open, else a new one. Who takes it sets `onmessage` at
 * once, and hears what has come in the meantime.
 * @param {string} url
 * @returns {WebSocket}
 */
export function openSocket(url) {
  const taken = early;
  early = null;
  if (!taken) return new WebSocket(url);
  const { socket, heard } = taken;
  if (taken.url !== url || socket.readyState > 1) {
    socket.close();
    return new WebSocket(url);
  }
  queueMicrotask(() => heard.forEach((event) => socket.onmessage?.(event)));
  return socket;
}

const path = globalThis.document?.querySelector("script[data-socket]")?.getAttribute("data-socket");
if (path) openEarly(socketUrl(path));
