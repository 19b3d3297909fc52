// @ts-check
/** Round places along an axis, and their texts. Pure. */
import { figure } from "./format.js";

/** @typedef {[number, number]} Range */

const STEPS = [1, 2, 5, 10];
const LARGE = 1e5; // from here on, and below its inverse, as powers of ten

/**
 * At most about `count` places at 1, 2 or 5 times a power of ten.
 * @param {Range} range
 * @param {number} count
 * @param {number} [least] distance of two places
 */
export function linearTicks([low, high], count, least = 0) {
  if (!(high > low)) return [];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, power * (STEPS.find((each) => each * power >= rough * (1 - 1e-9)) ?? 10));
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) {
    ticks.push(Number((at * step).toPrecision(12)) || 0); // no −0
  }
  return ticks;
}

/**
 * Powers of ten; where fewer than two are seen, also twice and five times each.
 * @param {Range} range in powers of ten
 * @param {number} count
 */
export function logTicks([low, high], count) {
  const powers = Array.from({ length: Math.floor(high) - Math.floor(low) + 1 }, (_none, at) => Math.floor(low) + at);
  const every = Math.ceil(powers.length / count);
  const seen = (/** @type {number[]} */ values) =>
    values.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
  const tens = seen(powers.filter((power) => power % every === 0).map((power) => 10 ** power));
  return tens.length > 1 ? tens : seen(powers.flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power)));
}

/**
 * The texts of places on an axis of values, all with the same number of decimals.
 * @param {number[]} ticks
 * @param {boolean} [shares] which are shown in percent
 */
export function valueTexts(ticks, shares = false) {
  const shown = shares ? ticks.map((tick) => tick * 100) : ticks;
  const most = Math.max(...shown.map(Math.abs), 0);
  const step = shown.length > 1 ? Math.abs(shown[1] - shown[0]) : most;
  const decimals = Math.min(6, Math.max(0, -Math.floor(Math.log10(step || 1) + 1e-9)));
  const plain = most < LARGE && (step === 0 || step >= 1 / LARGE);
  return shown.map((tick) => {
    const text = plain || tick === 0 ? Math.abs(tick).toFixed(plain ? decimals : 0) : figure(Math.abs(tick), 2);
    return `${tick < 0 ? "−" : ""}${text}${shares ? "%" : ""}`;
  });
}

/**
 * The texts of places on the horizontal axis.
 * @param {number[]} ticks
 * @param {string} axis
 */
export function placeTexts(ticks, axis) {
  if (axis === "step") return ticks.map((tick) => tick.toLocaleString("en-US"));
  if (axis === "time") return ticks.map(String);
  return ticks.map((tick) => {
    const unit = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([size]) => tick >= Number(size)); // prettier-ignore
    return unit ? `${Number((tick / Number(unit[0])).toPrecision(3))}${unit[1]}` : String(tick);
  });
}
