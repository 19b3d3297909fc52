// @ts-check
/** Figures, times and hostile text, as text. Pure: the strings come in as a function so that tests need no page. */

export const NOTHING = "–";

/** @typedef {(key: string, values?: Record<string, string | number>) => string} Translate */

/**
 * A number with few significant digits; the same rules as the server's `figure` filter.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 * @returns {string}
 */
export function figure(value, digits = 3) {
  if (value === null || value === undefined) return NOTHING;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text;
  if (size === 0 || (size >= 1e-3 && size < 1e5)) {
    const decimals = size === 0 ? digits - 1 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    text = size.toFixed(Math.min(decimals, 6));
  } else text = size.toExponential(digits - 1).replace("e+", "e");
  return value < 0 ? `−${text}` : text;
}

/**
 * A reward with two decimals, so that a page of them can be compared at a glance.
 * @param {number | null | undefined} value
 */
export function score(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return figure(value);
  if (Math.abs(value) >= 1000) return figure(value);
  const text = Math.abs(value).toFixed(2);
  return value < 0 && text !== "0.00" ? `−${text}` : text;
}

/**
 * A share from 0 to 1 as a percentage.
 * @param {number | null | undefined} value
 */
export function percent(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  return `${Number((value * 100).toPrecision(3))}%`;
}

/**
 * Seconds as the two largest units that matter.
 * @param {number | null | undefined} seconds
 * @param {Translate} t
 * @returns {string}
 */
export function duration(seconds, t) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds) || seconds < 0) return NOTHING;
  if (seconds < 9.95) return t("seconds", { n: Number(seconds.toPrecision(2)) });
  const whole = Math.round(seconds);
  if (whole < 60) return t("seconds", { n: whole });
  if (whole < 600) return t("minutes_seconds", { m: Math.floor(whole / 60), s: whole % 60 });
  if (whole < 3600) return t("minutes", { n: Math.floor(whole / 60) });
  if (whole < 86400) return t("hours_minutes", { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) });
  return t("days_hours", { d: Math.floor(whole / 86400), h: Math.floor((whole % 86400) / 3600) });
}

/**
 * Seconds without a part that ticks: whole minutes below an hour.
 * @param {number} seconds
 * @param {Translate} t
 */
export function coarse(seconds, t) {
  return seconds >= 60 && seconds < 3600 ? t("minutes", { n: Math.floor(seconds / 60) }) : duration(seconds, t);
}

/**
 * How long ago, coarse.
 * @param {number} seconds
 * @param {Translate} t
 */
export function ago(seconds, t) {
  if (seconds < 45) return t("just_now");
  const rounded = seconds < 3600 ? Math.round(seconds / 60) * 60 : seconds;
  const text = rounded < 3600 ? t("minutes", { n: rounded / 60 }) : duration(rounded, t);
  return t("ago", { t: text });
}

/**
 * Clock time of day in the reader's zone.
 * @param {string} iso
 */
export function clock(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return "";
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** Bidirectional marks, zero-width and other invisible characters, and controls other than tab and line feed. */
// eslint-disable-next-line no-control-regex, no-misleading-character-class
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\u{e0100}-\u{e01ef}]|[\ud800-\udfff]/gu;

/**
 * Text split into plain parts and hidden characters, which the page shows as marks such as [U+202E].
 * @param {string} text
 * @returns {{text: string, hidden: boolean}[]}
 */
export function visible(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    const at = match.index ?? 0;
    if (at > from) parts.push({ text: text.slice(from, at), hidden: false });
    const code = /** @type {number} */ (match[0].codePointAt(0));
    parts.push({ text: `U+${code.toString(16).toUpperCase().padStart(4, "0")}`, hidden: true });
    from = at + match[0].length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), hidden: false });
  return parts;
}

/**
 * The same as one string, where only text fits.
 * @param {string} text
 */
export function plain(text) {
  return visible(text)
    .map((part) => (part.hidden ? `[${part.text}]` : part.text))
    .join("");
}

/**
 * A tool call's arguments, pretty; strings that are no JSON stay as they are.
 * @param {unknown} value
 * @returns {string}
 */
export function pretty(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

/**
 * Which of `count` steps of a scale a value falls on.
 * @param {number} value
 * @param {number} low
 * @param {number} high
 * @param {number} [count]
 */
export function scaleStep(value, low, high, count = 6) {
  if (!(high > low)) return value > low ? count - 1 : value < low ? 0 : Math.floor(count / 2);
  return Math.max(0, Math.min(count - 1, Math.floor(((value - low) / (high - low)) * count)));
}

/**
 * Class step of an advantage: -2, -1, 0, 1, 2.
 * @param {number | null} value
 */
export function advantageStep(value) {
  if (value === null || !Number.isFinite(value) || Math.abs(value) < 0.05) return 0;
  const size = Math.abs(value) > 0.75 ? 2 : 1;
  return value < 0 ? -size : size;
}

/**
 * A size with its unit.
 * @param {number} count
 */
export function bytes(count) {
  let size = count;
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (size < 1024) return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TB`;
}
