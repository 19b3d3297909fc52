// @ts-check
/** The state of the scoring: under way, done, or why not. Screen readers announce it politely. */
import * as asked from "../lib/ask.js";
import { $, setAttr, setText, t } from "../lib/dom.js";
import { duration, plain, score } from "../lib/format.js";
import { count } from "../lib/lab-figures.js";

/** @typedef {Record<string, any>} Row */
const language = document.documentElement.lang;
export const SCORE_LIMIT_MS = 60_000;

/**
 * Why there is no answer, in a sentence.
 * @param {any} problem
 * @returns {string}
 */
export function sentenceOf(problem) {
  if (problem.status === 422 && problem.body?.detail) return t("lab.fix_first"); // the detail is next to the fields
  if (problem.limitMs === SCORE_LIMIT_MS) return t("lab.no_answer", { n: SCORE_LIMIT_MS / 1000 });
  return asked.sentenceOf(problem);
}

export class Status {
  /** @param {number} rollouts of the set */
  constructor(rollouts) {
    this.rollouts = rollouts;
    this.counted = false;
  }

  scoring() {
    if (!this.counted) setText($("lab-status"), t("lab.scoring", { n: count(this.rollouts, language) }));
    $("lab-progress").hidden = false;
    setAttr($("lab-result"), "aria-busy", "true");
  }

  /** @param {Row} job how far the values of changed components are */
  computing(job) {
    this.counted = true;
    const names = job.components.map((/** @type {string} */ name) => plain(name)).join(", ");
    const all = count(job.total || this.rollouts, language);
    setText($("lab-status"), t("lab.computing", { names, done: count(job.done, language), all }));
    setAttr($("lab-progress"), "max", job.total || null);
    setAttr($("lab-progress"), "value", job.total ? job.done : null);
  }

  /** @param {Row} reply */
  scored(reply) {
    $("lab-error").hidden = true;
    $("lab-result").hidden = false;
    setText($("lab-verdict"), plain(reply.verdict.sentence));
    setAttr($("lab-verdict"), "data-kind", reply.verdict.kind);
    const ms = reply.took_ms;
    const took = {
      n: count(reply.summary.rollouts, language),
      t: ms < 1000 ? t("lab.ms", { n: Math.round(ms) }) : duration(ms / 1000, t),
    };
    const names = (reply.rescored ?? []).map((/** @type {string} */ name) => plain(name)).join(", ");
    this.idle(names ? t("lab.rescored", { ...took, names }) : t("lab.scored", took));
    const now = score(reply.summary.reward.mean);
    const before = reply.against ? score(reply.against.reward.mean) : now;
    setText($("lab-brief"), `${t("reward")} ${before === now ? "" : `${before} → `}${now}`);
  }

  /**
   * @param {string} sentence
   * @param {string} more
   */
  failed(sentence, more) {
    this.idle("");
    $("lab-error").hidden = false;
    setText($("lab-error-title"), sentence);
    setText($("lab-error-detail"), more);
  }

  /**
   * Nothing is asked now.
   * @param {string} sentence
   * @returns {null}
   */
  idle(sentence) {
    this.counted = false;
    $("lab-progress").hidden = true;
    setAttr($("lab-progress"), "value", null);
    setAttr($("lab-result"), "aria-busy", null);
    setText($("lab-status"), sentence);
    return null;
  }
}
