// @ts-check
/** The components of a spec, as one form: added, removed, changed, with the problems of each. */
import { $, setAttr, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { canonical, changedNames, freshName, ownerOf, standing } from "../lib/lab-spec.js";
import { Fields } from "./lab_component.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {import("../lib/lab-spec.js").Component} Component */

export class Editor {
  /** @param {{facts: Row, changed: () => void}} options */
  constructor(options) {
    this.options = options;
    this.facts = options.facts;
    this.made = 0;
    /** @type {Fields[]} */
    this.fields = [];
    $("lab-add", HTMLSelectElement).addEventListener("change", () => this.add($("lab-add", HTMLSelectElement).value));
    $("lab-reset").addEventListener("click", () => this.restore(this.saved, true));
  }

  /**
   * Start from a saved spec, with what was changed before the page was loaded again.
   * @param {Component[]} saved
   * @param {Component[] | null} changed
   */
  open(saved, changed) {
    this.saved = saved;
    this.restore(saved, false);
    this.base = this.components() ?? saved.map((part) => canonical(part));
    this.restore(changed ?? saved, false);
  }

  /**
   * @param {Component[] | undefined} parts
   * @param {boolean} tell
   */
  restore(parts, tell) {
    this.fields = (parts ?? []).map((part) => new Fields(part, this));
    this.draw();
    if (tell) this.typed();
  }

  draw() {
    $("lab-components").replaceChildren(...this.fields.map((item) => item.node));
    for (const item of this.fields) item.offer(this.fields);
    this.summary();
  }

  /** @param {string} name of a registered function */
  add(name) {
    $("lab-add", HTMLSelectElement).value = "";
    const known = this.facts.functions[name];
    if (!known) return;
    const own = freshName(name, this.fields.map((item) => item.name)); // prettier-ignore
    const part = { name: own, weight: known.weight, params: {}, ...(own !== name && { function: name }) };
    this.fields.push(new Fields(part, this));
    this.draw();
    this.typed();
    this.fields[this.fields.length - 1].weight.focus();
  }

  /** @param {Fields} gone */
  remove(gone) {
    const at = this.fields.indexOf(gone);
    this.fields = this.fields.filter((item) => item !== gone);
    this.draw();
    this.typed();
    (this.fields[Math.min(at, this.fields.length - 1)]?.weight ?? $("lab-add")).focus();
  }

  typed() {
    this.summary();
    this.options.changed();
  }

  /** The spec as the fields say; `null` while one of them is wrong. @returns {Component[] | null} */
  components() {
    for (const item of this.fields) item.problem("");
    const parts = this.fields.map((item) => item.read());
    return parts.length && parts.every(Boolean) ? /** @type {Component[]} */ (parts) : null;
  }

  /** @returns {string[]} names of the components that differ from the saved spec */
  changes() {
    const parts = this.components();
    return parts && this.base ? changedNames(this.base, parts) : [];
  }

  summary() {
    for (const item of this.fields) item.problem("");
    const read = this.fields.map((item) => ({ name: item.name, part: item.read() }));
    const { changed, wrong, sum } = standing(this.base ?? [], read);
    const words = changed.length ? t("lab.count_changed", { n: changed.length }) : t("lab.unchanged");
    setText($("lab-changed"), wrong ? t("lab.count_wrong", { n: wrong }) : this.base ? words : "");
    $("lab-reset").hidden = !this.base || !changed.length;
    setText($("lab-sum"), sum === null ? t("lab.no_sum") : t("lab.sum", { sum }));
    for (const item of this.fields) setAttr(item.node, "data-changed", changed.includes(item.name) ? "" : null);
  }

  /**
   * Put the server's sentences next to the components they belong to; returns those that belong to none.
   * @param {Row} detail sentences by place (components.0.weight), by the component's name, or about all components
   * @returns {string[]}
   */
  complain(detail) {
    const rest = [];
    for (const [key, sentences] of Object.entries(detail)) {
      for (const sentence of (Array.isArray(sentences) ? sentences : [sentences]).map((item) => plain(String(item)))) {
        const name = ownerOf(key, sentence, this.fields.map((item) => item.name)); // prettier-ignore
        const found = this.fields.find((item) => item.name === name);
        if (found) found.problem(sentence);
        else rest.push(sentence);
      }
    }
    return rest;
  }

  /** @param {Row} reply */
  show(reply) {
    const rows = new Map(reply.components.map((/** @type {Row} */ row) => [row.name, row]));
    const severity = (/** @type {string} */ name) =>
      ["stop", "warn", "note"].find((kind) =>
        reply.alarms.some((/** @type {Row} */ alarm) => alarm.component === name && alarm.severity === kind),
      ) ?? "";
    this.fields.forEach((item, place) => item.show(rows.get(item.name), place, severity(item.name)));
  }

  /** Go to a component's fields. @param {string} name */
  focus(name) {
    const found = this.fields.find((item) => item.name === name);
    found?.node.scrollIntoView({ block: "nearest" });
    found?.weight.focus();
  }
}
