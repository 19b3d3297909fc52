// @ts-check
/** The reader's view, kept in the address so that it can be sent to someone. Pure. */

/** @typedef {{tab: string, smooth: number, log: boolean, still: boolean, stack: boolean, behind: boolean, x: string, others: {id: string, number: number}[], add: string[]}} View */

import { AXES } from "./axis.js";

const OTHER_RUN = /^([0-9a-f-]{36})\.([1-7])$/i; // a run and the number of its colour, which stays its own

/**
 * @param {string} search
 * @param {string[]} tabs of this page
 * @param {string} [tab] the one that the server showed
 * @returns {View}
 */
export function readView(search, tabs, tab = "curves") {
  const query = new URLSearchParams(search);
  const smooth = Number(query.get("smooth"));
  const asked = query.get("tab") || "";
  const axis = query.get("x") || "step";
  /** @type {{id: string, number: number}[]} */
  const others = [];
  for (const text of query.getAll("with")) {
    const [, id, number] = text.match(OTHER_RUN) ?? [];
    const taken = others.some((other) => other.id === id || other.number === Number(number));
    if (id && !taken) others.push({ id, number: Number(number) });
  }
  return {
    tab: tabs.includes(asked) ? asked : tab,
    smooth: smooth > 0 && smooth < 1 ? smooth : 0,
    log: query.get("log") === "1",
    still: query.get("still") === "1",
    stack: query.get("lines") !== "1",
    behind: query.get("behind") !== "0",
    x: AXES.includes(axis) ? axis : "step",
    others,
    add: query
      .getAll("add")
      .filter((name) => name.length <= 120)
      .slice(0, 30),
  };
}

/**
 * @param {View} view
 * @returns {string}
 */
export function writeView(view) {
  const query = new URLSearchParams();
  if (view.tab !== "curves") query.set("tab", view.tab);
  if (view.smooth) query.set("smooth", String(view.smooth));
  if (view.log) query.set("log", "1");
  if (!view.stack) query.set("lines", "1");
  if (!view.behind) query.set("behind", "0");
  if (view.still) query.set("still", "1");
  if (view.x !== "step") query.set("x", view.x);
  for (const { id, number } of view.others) query.append("with", `${id}.${number}`);
  for (const name of view.add) query.append("add", name);
  const text = query.toString();
  return text ? `?${text}` : "";
}
