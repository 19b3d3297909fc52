// @ts-check
/** What is around a page as far as our scripts need it: an address, a server, sockets, a storage, a screen. */

/**
 * What the scripts of pages find around a page: a wide screen that is looked at, an address, a storage, a server. Frames
 * come at once, and an interval ticks when a test lets it.
 * @param {string} [search] of the address
 * @returns {any} `answers`: of the server, by the end of an address, each a body, a status and a body, or what makes
 *   one; `asked`: what it was asked for; `went`: where scripts led; `shown`: the address that they wrote; `socket`: the
 *   newest, with what was `sent`, and `said` for its server; `ticks`: the work of intervals; `screen`: narrow
 *   where it `matches`; `copied`: what was put on the clipboard
 */
export function browser(search = "") {
  const here = { answers: /** @type {any} */ ({}), asked: /** @type {any[]} */ ([]), went: /** @type {string[]} */ ([]), shown: "", screen: Object.assign(new EventTarget(), { matches: false }), copied: /** @type {string[]} */ ([]), ticks: /** @type {any[]} */ ([]) }; // prettier-ignore
  const window = Object.assign(/** @type {any} */ (new EventTarget()), { Idiomorph: { defaults: { callbacks: {} } } });
  const kept = new Map();
  const watch = class {
    observe() {}
    unobserve() {}
  };
  const WebSocket = class {
    readyState = 1;
    sent = /** @type {any[]} */ ([]);
    constructor() {
      Object.assign(here, { socket: this, said: (/** @type {any} */ frame) => /** @type {any} */ (this).onmessage({ data: JSON.stringify(frame) }) }); // prettier-ignore
    }
    send(/** @type {string} */ text) {
      this.sent.push(JSON.parse(text));
    }
    close() {
      this.readyState = 3;
    }
  };
  const fetch = async (/** @type {any} */ address, /** @type {any} */ given) => {
    here.asked.push([address, given.body && JSON.parse(given.body)]);
    const [path] = address.split("?");
    const found = Object.entries(here.answers).find(([end]) => path.endsWith(end))?.[1] ?? [404, {}];
    const answer = typeof found === "function" ? await found(here.asked.at(-1)[1]) : found;
    const [status, body] = Array.isArray(answer) ? answer : [200, answer];
    return { ok: status < 300, status, headers: new Headers(), json: async () => structuredClone(body) };
  };
  Object.assign(globalThis, {
    window,
    fetch,
    WebSocket,
    addEventListener: window.addEventListener.bind(window),
    location: { search, pathname: "/here/", href: `http://here/${search}`, hash: "", assign: (/** @type {any} */ to) => void here.went.push(String(to)) }, // prettier-ignore
    history: { state: null, replaceState: (/** @type {any} */ _state, /** @type {any} */ _title, /** @type {string} */ to) => void (here.shown = to) }, // prettier-ignore
    sessionStorage: { getItem: (/** @type {string} */ key) => kept.get(key) ?? null, setItem: kept.set.bind(kept), removeItem: kept.delete.bind(kept) }, // prettier-ignore
    matchMedia: () => here.screen,
    IntersectionObserver: watch,
    ResizeObserver: watch,
    requestAnimationFrame: (/** @type {() => void} */ work) => work(),
    setInterval: (/** @type {() => void} */ work) => here.ticks.push(work),
    clearInterval() {},
    getComputedStyle: () => ({ getPropertyValue: (/** @type {string} */ name) => name }),
    FormData: class {
      constructor(/** @type {any} */ form) {
        this.get = (/** @type {string} */ name) => form.querySelectorAll(`[name="${name}"]`).find((/** @type {any} */ node) => node.type !== "radio" || node.checked)?.value ?? null; // prettier-ignore
      }
    },
    CSS: { escape: (/** @type {string} */ text) => text },
    innerHeight: 800,
  });
  const clipboard = { writeText: async (/** @type {string} */ text) => void here.copied.push(text) };
  Object.defineProperty(globalThis, "navigator", { value: { clipboard, onLine: true }, configurable: true });
  return here;
}

/** Until what was asked for has been answered. */
export async function settled() {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
