// @ts-check
/** One request to our own server: JSON to it, JSON from it. Every wait ends. */
import { t } from "./dom.js";
import { plain } from "./format.js";

/** @typedef {Record<string, any>} Row */
export const LIMIT_MS = 30_000;

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
 * @param {{body?: Row, limitMs?: number, signal?: AbortSignal, fetch?: typeof fetch}} [options]
 * @returns {Promise<any>}
 */
export async function ask(address, options = {}) {
  const limitMs = options.limitMs ?? LIMIT_MS;
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort("late"), limitMs);
  options.signal?.addEventListener("abort", () => stop.abort("dropped"));
  let answer;
  try {
    answer = await (options.fetch ?? fetch)(address, {
      ...sent(options.body),
      signal: stop.signal,
      redirect: "manual", // to the login page: no answer to a request
    });
    const body = await answer.json();
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

/**
 * @param {Row} [body]
 * @returns {RequestInit}
 */
function sent(body) {
  if (!body) return { headers: { Accept: "application/json" } };
  const { "X-CSRFToken": token } = JSON.parse(document.body.getAttribute("hx-headers") || "{}");
  const headers = { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": token };
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
