// @ts-check
/** One request to our own server: JSON to it, JSON from it. Every wait ends. */
import { t } from "./dom.js";
import { plain } from "./format.js";
import { takeUntil } from "./taken.js";

/** @typedef {Record<string, any>} Row */
/**
 * @typedef {{body?: Row, once?: string, limitMs?: number, signal?: AbortSignal, fetch?: typeof fetch}} Options `once`
 *   is what the page showed: posted again from there after its answer was lost, the same body is done once
 */
export const LIMIT_MS = 30_000;
/**
 * The keys of posts that may have arrived although no answer came: sent again under its key, a post is done once.
 * @type {Map<string, string>}
 */
const keys = new Map();

/** Why there is no answer. */
export class Problem extends Error {
  /**
   * @param {"refused" | "late" | "dropped" | "login" | "offline"} kind
   * @param {{body?: Row, status?: number, id?: string | null, limitMs?: number}} [more] the server's answer and the
   *   id of the request, or the time that was waited
   */
  constructor(kind, more = {}) {
    super(kind);
    this.kind = kind;
    this.body = more.body ?? {};
    this.status = more.status ?? 0;
    this.id = more.id || "–";
    this.limitMs = more.limitMs ?? 0;
  }
}

/**
 * Get an address, or post a body to it. Throws `Problem`.
 * @param {string} address
 * @param {Options} [options]
 * @returns {Promise<any>}
 */
export function ask(address, options = {}) {
  const answer = request(address, options);
  if (options.body) takeUntil(answer);
  return answer;
}

/**
 * @param {string} address
 * @param {Options} options
 * @returns {Promise<any>}
 */
async function request(address, options) {
  const limitMs = options.limitMs ?? LIMIT_MS;
  const post = options.once && JSON.stringify([address, options.once, options.body]);
  if (post && !keys.has(post)) keys.set(post, newKey());
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort("late"), limitMs);
  options.signal?.addEventListener("abort", () => stop.abort("dropped"));
  let answer;
  try {
    answer = await (options.fetch ?? fetch)(address, {
      ...sent(options.body, post && keys.get(post)),
      signal: stop.signal,
      redirect: "manual", // to the login page: no answer to a request
    });
    const body = await answer.json();
    if (post && answer.status < 500 && answer.status !== 409) keys.delete(post); // else it may still be done
    if (answer.ok) return body;
    throw new Problem("refused", { body, status: answer.status, id: answer.headers.get("X-Request-Id") });
  } catch (error) {
    if (error instanceof Problem) throw error;
    if (stop.signal.aborted) throw new Problem(stop.signal.reason, { limitMs });
    if (!answer) throw new Problem("offline");
    if (answer.type === "opaqueredirect") throw new Problem("login");
    throw new Problem("refused", { status: answer.status, id: answer.headers.get("X-Request-Id") });
  } finally {
    clearTimeout(timer);
  }
}

/**
 * What an address answers, or null where there is no answer.
 * @param {string} address
 * @returns {Promise<any>}
 */
export const askOrNull = (address) => ask(address).catch(() => null);

/** Without TLS a browser has no `crypto.randomUUID`. */
const newKey = () => [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");

/**
 * @param {Row} [body]
 * @param {string} [key]
 * @returns {RequestInit}
 */
function sent(body, key) {
  if (!body) return { headers: { Accept: "application/json" } };
  const { "X-CSRFToken": token } = JSON.parse(document.body.getAttribute("hx-headers") || "{}");
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": token };
  if (key) headers["Idempotency-Key"] = key;
  return { method: "POST", headers, body: JSON.stringify(body) };
}

/**
 * The reason in a sentence.
 * @param {any} problem
 * @returns {string}
 */
export function sentenceOf(problem) {
  if (problem.kind === "late") return t("no_answer", { n: problem.limitMs / 1000 });
  if (problem.kind === "login" || problem.status === 401) return t("logged_out");
  if (problem.kind === "offline") return t("offline");
  if (problem.body?.message) return plain(String(problem.body.message));
  return t("request_failed", { status: problem.status || "–", id: problem.id || "–" });
}
