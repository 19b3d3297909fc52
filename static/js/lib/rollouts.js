// @ts-check
/** Figures of the rollouts of one step. Pure. */

/** @typedef {Record<string, any>} Row */
/** @typedef {{low: number, high: number}} Span */

/**
 * Lowest and highest reward of the step; 0 and 1 are always inside, so that one scale serves most rewards.
 * @param {Row[]} rollouts
 * @returns {Span}
 */
export function rewardSpan(rollouts) {
  const rewards = rollouts.map((row) => row.reward).filter((value) => value !== null && Number.isFinite(value));
  return { low: Math.min(0, ...rewards), high: Math.max(1, ...rewards) };
}

/**
 * How many of these turns the model made.
 * @param {Row[]} turns
 */
export function modelTurns(turns) {
  return turns.filter((turn) => turn.messages?.[0]?.role === "assistant").length;
}
