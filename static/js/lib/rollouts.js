// @ts-check
/** The rollouts of one step: groups of cards. A card is a button; its bar is the reward, its figure the advantage. */
import { h, keyed, setAttr, setText, t } from "./dom.js";
import { advantageStep, figure, plain, scaleStep, score } from "./format.js";
import { endWords, outcomeWords } from "./outcome.js";

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
 * @param {Row[]} rollouts sorted by group and index
 * @returns {{group: number, rows: Row[]}[]}
 */
export function grouped(rollouts) {
  /** @type {{group: number, rows: Row[]}[]} */
  const groups = [];
  for (const row of rollouts) {
    const open = groups[groups.length - 1];
    if (open && open.group === row.group) open.rows.push(row);
    else groups.push({ group: row.group, rows: [row] });
  }
  return groups;
}

/** @param {Row} row */
function makeCard(row) {
  const bar = h("span", { class: "card-bar" }, h("span", { class: "card-bar-fill" }));
  return h(
    "button",
    { class: "rollout", type: "button", "data-rollout": row.id },
    h("span", { class: "visually-hidden rollout-said" }),
    h(
      "span",
      { class: "rollout-top", "aria-hidden": "true" },
      h("span", { class: "rollout-index muted" }),
      h("span", { class: "rollout-reward" }),
    ),
    bar,
    h(
      "span",
      { class: "rollout-low", "aria-hidden": "true" },
      h("span", { class: "rollout-note truncate" }),
      h("span", { class: "rollout-advantage" }),
    ),
  );
}

/** @param {Row} row */
function noteOf(row) {
  if (row.error || row.status === "running") return endWords(row);
  return `${outcomeWords(row)} · ${t(row.turns === 1 ? "one_turn" : "turns", { n: row.turns })}`;
}

/**
 * @param {HTMLElement} node
 * @param {Row} row
 * @param {Span} span
 * @param {string | null} selected
 */
function updateCard(node, row, span, selected) {
  setAttr(node, "aria-pressed", row.id === selected ? "true" : "false");
  const sign = `${row.seq}:${span.low}:${span.high}`;
  if (node.dataset.sign === sign) return;
  node.dataset.sign = sign;
  setAttr(node, "data-status", row.status);
  setText(node.querySelector(".rollout-index"), row.policy ? plain(row.policy) : String(row.index));
  const running = row.status === "running";
  setText(node.querySelector(".rollout-reward"), running ? "…" : score(row.reward));
  setText(node.querySelector(".rollout-note"), noteOf(row));
  setAttr(node, "title", row.error ? noteOf(row) : null); // a card is narrow
  const advantage = node.querySelector(".rollout-advantage");
  setText(advantage, row.advantage === null ? "" : (row.advantage > 0 ? "+" : "") + score(row.advantage));
  setAttr(advantage, "data-advantage", row.advantage === null ? null : advantageStep(row.advantage));
  const fill = /** @type {HTMLElement} */ (node.querySelector(".card-bar-fill"));
  const share = row.reward === null ? 0 : (row.reward - span.low) / (span.high - span.low || 1);
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  setAttr(fill, "data-reward", row.reward === null ? null : scaleStep(row.reward, span.low, span.high));
  setText(
    node.querySelector(".rollout-said"),
    t("rollout_label", {
      step: row.step,
      group: row.group,
      index: row.policy ? plain(row.policy) : row.index,
      status: outcomeWords(row),
      reward: score(row.reward),
      advantage: score(row.advantage),
    }),
  );
}

function makeGroup() {
  return h(
    "section",
    { class: "group" },
    h(
      "header",
      { class: "group-head" },
      h("h2", {}, h("a")),
      h("span", { class: "group-task truncate soft" }),
      h("span", { class: "group-figures muted" }),
      h("span", { class: "badge group-flag", "data-state": "warning", hidden: true }),
    ),
    h("div", { class: "group-cards" }),
  );
}

/**
 * Whether the rewards of a whole group differ although all of it was solved, or all of it failed. Groups that came
 * partly through may have done so by different shares, which the page of the group knows and this does not.
 * @param {Row[]} rows
 * @param {number} same rewards that differ by no more are equal, for the trainer too
 */
export function isPhantom(rows, same) {
  const paid = rows.filter((row) => row.outcome !== "excluded");
  const rewards = paid.map((row) => row.reward).filter((value) => value !== null && Number.isFinite(value));
  const [first] = paid;
  return (
    paid.length > 1 &&
    rewards.length === paid.length &&
    (first.outcome === "solved" || first.outcome === "failed") &&
    paid.every((row) => row.outcome === first.outcome) &&
    Math.max(...rewards) - Math.min(...rewards) > same
  );
}

/**
 * Draw all groups of a step.
 * @param {HTMLElement} box its data-groups is where the pages of groups are
 * @param {Row[]} rollouts
 * @param {Map<string, Row>} groups by "step/group"
 * @param {string | null} selected
 * @param {number} same rewards that differ by no more are equal
 */
export function drawGroups(box, rollouts, groups, selected, same) {
  const span = rewardSpan(rollouts);
  keyed(
    box,
    grouped(rollouts),
    (item) => String(item.group),
    makeGroup,
    (node, item) => {
      const first = item.rows[0];
      const known = groups.get(`${first.step}/${item.group}`);
      const head = node.querySelector("h2 a");
      setText(head, t("group", { n: item.group }));
      setAttr(head, "href", box.dataset.groups ? `${box.dataset.groups}${first.step}/${item.group}/` : null);
      const task = node.querySelector(".group-task");
      setText(task, plain(first.task || (first.row === null ? "" : t("task_row", { n: first.row }))));
      setAttr(task, "title", plain(first.task || "").slice(0, 500));
      const figures =
        known && known.reward_mean !== null
          ? t("group_mean", { mean: score(known.reward_mean), std: score(known.reward_std) })
          : "";
      setText(node.querySelector(".group-figures"), figures);
      const flag = /** @type {HTMLElement} */ (node.querySelector(".group-flag"));
      const phantom = Boolean(known) && !known?.zero_variance && isPhantom(item.rows, same);
      flag.hidden = !known?.zero_variance && !phantom;
      setText(flag, t(phantom ? "phantom" : "zero_variance"));
      const cards = /** @type {HTMLElement} */ (node.querySelector(".group-cards"));
      keyed(
        cards,
        item.rows,
        (row) => row.id,
        makeCard,
        (card, row) => updateCard(card, row, span, selected),
      );
    },
  );
}

/**
 * The state of a step: the rollouts by outcome, then those that were cut off, each number with the key of its word.
 * @param {Row[]} rollouts
 * @param {string[]} outcomes in the order of the line
 * @returns {[string, number][]}
 */
export function stepCounts(rollouts, outcomes) {
  const of = (/** @type {string} */ outcome) => rollouts.filter((row) => row.outcome === outcome).length;
  /** @type {[string, number][]} */
  const found = outcomes.map((outcome) => [`outcome.${outcome}`, of(outcome)]);
  found.push(["truncated", rollouts.filter((row) => row.status === "truncated").length]);
  return found.filter(([, count]) => count);
}

/**
 * How many of these turns the model made.
 * @param {Row[]} turns
 */
export function modelTurns(turns) {
  return turns.filter((turn) => turn.messages?.[0]?.role === "assistant").length;
}
