// @ts-check
/** Groups of rollouts under the spec: one card each with its reward, its parts, its advantage and its place. */
import { $, all, h, keyed, setAttr, setText, t } from "../lib/dom.js";
import { advantageStep, plain, scaleStep, score } from "../lib/format.js";
import { count, longestStack, stack } from "../lib/lab-figures.js";
import { outcomeWords } from "../lib/outcome.js";
import { rewardSpan } from "../lib/rollouts.js";
import { Roving } from "../lib/roving.js";

/** @typedef {Record<string, any>} Row */
const language = document.documentElement.lang;
export const PAGE = 20;

export class Groups {
  /** @param {{view: import("../lib/lab-view.js").LabView, ask: () => void, read: (id: string) => void}} options */
  constructor(options) {
    this.options = options;
    /** @type {Row[]} */
    this.rows = [];
    const { view } = options;
    for (const name of /** @type {const} */ (["sort", "only"])) {
      $(`lab-${name}`, HTMLSelectElement).value = view[name];
      $(`lab-${name}`).addEventListener("change", () => {
        view[name] = $(`lab-${name}`, HTMLSelectElement).value;
        view.offset = 0;
        options.ask();
      });
    }
    this.stops = new Roving($("lab-groups"), ".rollout");
    $("lab-back").addEventListener("click", () => this.turn(-PAGE));
    $("lab-next").addEventListener("click", () => this.turn(PAGE));
    $("lab-groups").addEventListener("click", (/** @type {any} */ event) => {
      const card = event.target.closest("[data-rollout]");
      if (card) options.read(card.dataset.rollout);
    });
  }

  /** @param {number} by */
  turn(by) {
    const { view } = this.options;
    view.offset = Math.max(0, view.offset + by);
    this.options.ask();
    $("lab-groups-part").scrollIntoView({ block: "start" });
  }

  /**
   * @param {Row} reply
   * @param {string | null} selected
   * @param {string} other name of the spec that ranks are compared with; "" for the recorded rewards
   */
  show(reply, selected, other) {
    const { view } = this.options;
    const all = reply.total_groups;
    if (!reply.groups.length && view.offset && all) {
      view.offset = Math.max(0, Math.floor((all - 1) / PAGE) * PAGE);
      return this.options.ask();
    }
    this.rows = reply.groups.flatMap((/** @type {Row} */ group) =>
      group.rollouts.map((/** @type {Row} */ row) => ({ ...row, step: group.step, group: group.group })),
    );
    this.names = reply.components.map((/** @type {Row} */ row) => row.name);
    const last = view.offset + reply.groups.length;
    setText(
      $("lab-shown"),
      all
        ? t("lab.shown", {
            from: count(view.offset + 1, language),
            to: count(last, language),
            all: count(all, language),
          })
        : "",
    );
    setText($("lab-ranks"), other ? t("lab.ranks_against", { name: other }) : t("lab.ranks_recorded"));
    $("lab-back", HTMLButtonElement).disabled = view.offset === 0;
    $("lab-next", HTMLButtonElement).disabled = last >= all;
    const none = reply.groups.length ? [] : [{ key: "none" }];
    const span = rewardSpan(this.rows);
    const longest = longestStack(reply.groups);
    keyed(
      $("lab-groups"),
      [...reply.groups, ...none],
      (group) => String(group.key),
      (group) => (group.rollouts ? makeGroup() : h("p", { class: "muted" }, t("lab.no_groups"))),
      (node, group) => group.rollouts && this.group(node, group, span, longest),
    );
    this.select(selected);
    this.stops.settle();
  }

  /** @param {string | null} id */
  select(id) {
    for (const card of all($("lab-groups"), "[data-rollout]"))
      setAttr(card, "aria-pressed", String(card.dataset.rollout === id));
  }

  /**
   * The rollout next to one in the order of the page.
   * @param {string | null} id
   * @param {number} by
   */
  neighbour(id, by) {
    return this.rows[this.rows.findIndex((row) => row.id === id) + by]?.id;
  }

  /**
   * @param {HTMLElement} node
   * @param {Row} group
   * @param {{low: number, high: number}} span
   * @param {number} longest
   */
  group(node, group, span, longest) {
    const title =
      group.step === null || group.step === undefined
        ? t("group", { n: group.group })
        : t("lab.group", { step: group.step, group: group.group });
    setText(node.querySelector("h2"), title);
    const task = plain(String(group.task ?? ""));
    setText(node.querySelector(".group-task"), task.slice(0, 160));
    setAttr(node.querySelector(".group-task"), "title", task.slice(0, 500));
    const known = group.mean !== null && group.mean !== undefined;
    setText(
      node.querySelector(".group-figures"),
      known ? t("group_mean", { mean: score(group.mean), std: score(group.std) }) : "",
    );
    /** @type {any} */ (node.querySelector("[data-flag=zero]")).hidden = !group.zero_variance;
    /** @type {any} */ (node.querySelector("[data-flag=phantom]")).hidden = !group.phantom;
    keyed(
      /** @type {Element} */ (node.querySelector(".group-cards")),
      group.rollouts,
      (/** @type {Row} */ row) => row.id,
      makeCard,
      (card, row) => this.card(card, { ...row, step: group.step, group: group.group }, span, longest),
    );
  }

  /**
   * @param {HTMLElement} node
   * @param {Row} row
   * @param {{low: number, high: number}} span
   * @param {number} longest
   */
  card(node, row, span, longest) {
    const sign = JSON.stringify([row, span, longest, this.names]);
    if (node.dataset.sign === sign) return;
    node.dataset.sign = sign;
    const status = row.excluded ? "excluded" : row.status;
    setAttr(node, "data-status", status);
    setText(node.querySelector(".rollout-index"), plain(row.policy ? `${row.index} ${row.policy}` : String(row.index)));
    setText(node.querySelector(".rollout-reward"), score(row.reward));
    const fill = /** @type {HTMLElement} */ (node.querySelector(".card-bar-fill"));
    const share = row.reward === null ? 0 : (row.reward - span.low) / (span.high - span.low || 1);
    fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
    setAttr(fill, "data-reward", row.reward === null ? null : scaleStep(row.reward, span.low, span.high));
    const parts = stack(row.terms ?? {}, this.names ?? [], longest).map((part) => {
      const piece = h("i", { "data-curve": part.at % 8, "data-negative": part.negative });
      piece.style.width = `${part.share * 100}%`;
      return piece;
    });
    node.querySelector(".card-terms")?.replaceChildren(...parts);
    const up = (row.rank_before ?? row.rank) - row.rank;
    const changed = row.rank !== null && row.rank !== undefined && up !== 0;
    setText(
      node.querySelector(".rollout-note"),
      row.excluded ? t("outcome.excluded") : changed ? `${up > 0 ? "↑" : "↓"}${Math.abs(up)}` : outcomeWords(row),
    );
    setAttr(
      node.querySelector(".rollout-note"),
      "data-rank",
      changed && !row.excluded ? (up > 0 ? "up" : "down") : null,
    );
    const advantage = node.querySelector(".rollout-advantage");
    setText(
      advantage,
      row.advantage === null || row.advantage === undefined
        ? ""
        : (row.advantage > 0 ? "+" : "") + score(row.advantage),
    );
    setAttr(
      advantage,
      "data-advantage",
      row.advantage === null || row.advantage === undefined ? null : advantageStep(row.advantage),
    );
    const move = changed ? t(up > 0 ? "lab.rank_up" : "lab.rank_down", { n: Math.abs(up) }) : "";
    const before =
      row.reward_before === null || row.reward_before === undefined
        ? ""
        : t("lab.recorded", { value: score(row.reward_before) });
    setAttr(
      node,
      "title",
      [row.excluded && plain(row.excluded), before, move, t("lab.length", { n: count(row.length ?? 0, language) })]
        .filter(Boolean)
        .join(" · "),
    );
    const words = {
      step: row.step ?? "–",
      group: row.group,
      index: row.index,
      status: outcomeWords(row),
      reward: score(row.reward),
      advantage: score(row.advantage),
    };
    setText(node.querySelector(".rollout-said"), [t("lab.card", words), move].filter(Boolean).join(", "));
  }
}

function makeGroup() {
  return h(
    "section",
    { class: "group" },
    h(
      "header",
      { class: "group-head" },
      h("h2"),
      h("span", { class: "group-task truncate soft" }),
      h("span", { class: "group-figures muted" }),
      h(
        "span",
        { class: "badge group-flag", "data-state": "warning", "data-flag": "zero", hidden: true },
        t("zero_variance"),
      ),
      h(
        "span",
        {
          class: "badge group-flag",
          "data-state": "warning",
          "data-flag": "phantom",
          title: t("lab.phantom_help"),
          hidden: true,
        },
        t("lab.phantom"),
      ),
    ),
    h("div", { class: "group-cards" }),
  );
}

/** @param {Row} row */
function makeCard(row) {
  return h(
    "button",
    { class: "rollout", type: "button", "data-rollout": row.id },
    h("span", { class: "visually-hidden rollout-said" }),
    h(
      "span",
      { class: "rollout-top", "aria-hidden": "true" },
      h("span", { class: "rollout-index muted truncate" }),
      h("span", { class: "rollout-reward" }),
    ),
    h("span", { class: "card-bar" }, h("span", { class: "card-bar-fill" })),
    h("span", { class: "card-terms" }),
    h(
      "span",
      { class: "rollout-low", "aria-hidden": "true" },
      h("span", { class: "rollout-note truncate" }),
      h("span", { class: "rollout-advantage" }),
    ),
  );
}
