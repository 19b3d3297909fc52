// @ts-check
/** Waiting, and what the trainer reports about itself, in words; `webapp/runs/records/reports.py` says the same. */
import { duration, figure, percent } from "./format.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {import("./format.js").Translate} Translate */
/** @typedef {{ template: string, values: Record<string, string | number> }} Sentence */

export const REPORT_KINDS = [
  "stage_started",
  "held",
  "update_skipped",
  "sampler_checked",
  "resumed",
  "checkpoints_removed",
  "tasks_held_out",
  "held_out_evaluated",
  "rollout_order",
];

/**
 * The reason why the step waits, the time of the next try and of the pause.
 * @param {Row | null | undefined} held
 * @param {number} now milliseconds, by the server's clock
 * @param {Translate} t
 * @returns {string} empty when nothing is waited for
 */
export function heldText(held, now, t) {
  if (!held) return "";
  const next = secondsTo(held.next_try_at, now);
  const left = duration(secondsTo(held.until, now), t);
  const what = [held.part, held.error ? errorText(held.error, t) : ""].filter(Boolean).join(": ");
  return t(next > 0 ? "held" : "held_now", { step: held.step, what, next: duration(next, t), left });
}

/**
 * An error in the words of its code; one of another version speaks for itself.
 * @param {Row} error
 * @param {Translate} t
 * @returns {string}
 */
function errorText(error, t) {
  const known = t(`error.${error.code}`);
  return known === `error.${error.code}` ? error.message : known;
}

/**
 * @param {string} iso
 * @param {number} now
 */
const secondsTo = (iso, now) => Math.max(0, Math.round((Date.parse(iso) - now) / 1000));

/**
 * [name, sentence] of what a person should know. A sampler check that passed is an event and no notice.
 * @param {Row} run
 * @param {Translate} t
 * @returns {[string, string][]}
 */
export function reportLines(run, t) {
  /** @type {[string, string][]} */
  const lines = [];
  const health = run.health;
  const ended = run.error ? null : health?.ended; // the notice of the error says it already
  if (ended) lines.push(["ended", t("report.ended", { attempt: ended.attempt, why: errorText(ended, t) })]);
  if (health?.resumed) lines.push(["resumed", resumeText(health.resumed, t)]);
  const skipped = health?.skipped;
  if (skipped) lines.push(["skipped", t(`report.skipped_${skipped.what}`, { n: skipped.count, step: skipped.step })]);
  if (health?.time?.of) lines.push(["time", timeText(health.time, t)]);
  return lines;
}

/**
 * How much of the time budget is used and left, or that the run ended because of it.
 * @param {Row} found
 * @param {Translate} t
 */
function timeText(found, t) {
  const [used, of] = [found.hours, found.of].map((hours) => duration(hours * 3600, t));
  if ("over" in found) return t("report.time_over", { of, used, step: found.over });
  return t("report.time", { of, used, left: duration(Math.max(0, found.of - found.hours) * 3600, t) });
}

/**
 * @param {Row} found
 * @param {Translate} t
 */
function resumeText(found, t) {
  const attempt = found.attempt ?? "";
  const parts = found.source
    ? [t("report.resumed", { attempt, source: found.source, step: found.step })]
    : [t("report.began", { attempt })];
  if (found.lost_steps) parts.push(t("report.lost", { n: found.lost_steps }));
  if (found.set_aside?.length) parts.push(t("report.aside", { names: found.set_aside.join(t("report.comma")) }));
  const verified = (found.verified ?? []).map((/** @type {string | Sentence} */ each) => inWords(each, t));
  if (verified.length) parts.push(t("report.verified", { what: verified.join(t("report.comma")) }));
  return parts.join(" ");
}

/**
 * A sentence that a record holds; those of older versions hold its English text.
 * @param {string | Sentence} found
 * @param {Translate} t
 */
export const inWords = (found, t) => (typeof found === "string" ? found : t(`told.${found.template}`, found.values));

/**
 * @param {Row} found
 * @param {Translate} t
 */
function samplerText(found, t) {
  const [gap, mean, limit] = [found.max_gap, found.mean_gap, found.tolerance].map((value) => figure(Number(value), 2));
  return t("report.sampler", { step: found.step, tokens: found.tokens, gap, mean, limit });
}

/**
 * @param {Row} payload
 * @param {Translate} t
 */
function heldOutText(payload, t) {
  const parts = [t(`event.tasks_held_out_${payload.source}`, { n: payload.tasks, groups: payload.groups })];
  if (payload.leaked) parts.push(t("event.leaked", { n: payload.leaked }));
  parts.push(t(payload.alike ? "event.alike" : "event.alike_none", { n: payload.alike, rows: payload.looked_at }));
  return parts.join(" ");
}

/**
 * @param {Row} payload
 * @param {Translate} t
 */
function evaluatedText(payload, t) {
  const found = payload.report.figures.success ?? {};
  const [value, low, high] = [found.value, found.low, found.high].map((each) => percent(each ?? null));
  const places = { step: payload.step, tasks: found.tasks ?? 0, value, low, high };
  return t(payload.best ? "event.evaluated_best" : "event.evaluated", places);
}

/**
 * One event of `REPORT_KINDS` in words.
 * @param {Row} event
 * @param {Translate} t
 * @returns {string}
 */
export function eventText(event, t) {
  const payload = event.payload || {};
  if (event.kind === "resumed") return resumeText({ ...payload, attempt: event.attempt }, t);
  if (event.kind === "stage_started")
    return t(`event.stage_${payload.why}`, {
      stage: payload.stage,
      of: payload.of,
      name: payload.name,
      step: payload.step,
    });
  if (event.kind === "sampler_checked") return samplerText(payload, t);
  if (event.kind === "update_skipped")
    return t(`event.skipped_${payload.what}`, { step: payload.step, n: payload.in_a_row });
  if (event.kind === "checkpoints_removed")
    return t(payload.why === "torn" ? "event.torn" : "event.old", { names: payload.paths.join(", ") });
  if (event.kind === "tasks_held_out") return heldOutText(payload, t);
  if (event.kind === "held_out_evaluated") return evaluatedText(payload, t);
  if (event.kind === "rollout_order")
    return t(`event.order_${payload.act}`, {
      by: payload.by,
      step: payload.step,
      group: payload.group,
      index: payload.index,
    });
  if (!payload.error) return t("event.held_over", { step: payload.step });
  const next = duration(Number(payload.next_try_s), t);
  return t("event.held", { step: payload.step, tries: payload.tries, message: payload.error.message, next });
}
