// @ts-check
/** The effect of credit to turns on the set: a row for each number of turn, or why there is none. */
import { $, h, keyed, setText, t } from "../lib/dom.js";
import { figure, percent } from "../lib/format.js";
import { count } from "../lib/lab-figures.js";

/** @typedef {Record<string, any>} Row */
const language = document.documentElement.lang;

/** @param {Row | null} found */
export function showTurns(found) {
  const why = reason(found);
  $("lab-turns").hidden = why !== "";
  $("lab-turns-why").hidden = why === "";
  setText($("lab-turns-why"), why);
  setText($("lab-turns-known"), found ? known(found) : "");
  const notes = found && why === "" ? note(found) : "";
  $("lab-turns-note").hidden = notes === "";
  setText($("lab-turns-note"), notes);
  keyed(
    $("lab-turns-rows"),
    found?.rows ?? [],
    (/** @type {Row} */ row) => String(row.turn),
    () => h("tr"),
    (node, row) => node.replaceChildren(...cells(row)),
  );
}

/** @param {Row} row */
function cells(row) {
  const labels = ["turn", "rollouts", "gain", "spread", "turned_1", "turned_0"];
  const shown = [
    String(row.turn),
    count(row.rollouts, language),
    figure(row.gain),
    figure(row.spread),
    percent(row.turned_1),
    percent(row.turned_0),
  ];
  return shown.map((text, place) => h("td", { class: "num", "data-label": t(`lab.turns.${labels[place]}`) }, text));
}

/**
 * Why there are no rows; "" where there are.
 * @param {Row | null} found
 */
function reason(found) {
  if (!found) return t("lab.turns.aggregation");
  if (!found.pays) return t("lab.turns.pays");
  if (!found.recorded) return t("lab.turns.not_recorded");
  if (found.rows.length) return "";
  return found.several ? t("lab.turns.at_the_end") : t("lab.turns.one_turn");
}

/** @param {Row} found */
function known(found) {
  return t("lab.turns.known", { n: count(found.recorded, language), all: count(found.rollouts, language) });
}

/** @param {Row} found */
function note(found) {
  const silent = found.silent ? t("lab.turns.silent", { n: count(found.silent, language) }) : "";
  const hidden = found.hidden ? t("lab.turns.hidden", { n: count(found.hidden, language) }) : "";
  return [t("lab.turns.reached"), silent, hidden].filter(Boolean).join(" ");
}
