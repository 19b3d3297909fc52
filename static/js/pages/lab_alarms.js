// @ts-check
/** The alarms of a spec, gravest first, each with its figures and the rollouts that are its evidence. */
import { $, h, keyed, setAttr, setText, t } from "../lib/dom.js";
import { figure, plain } from "../lib/format.js";
import { count } from "../lib/lab-figures.js";

/** @typedef {Record<string, any>} Row */
const BADGE = { stop: "bad", warn: "warning", note: "draft" };
const language = document.documentElement.lang;

export class Alarms {
  /** @param {{read: (id: string) => void, focus: (name: string) => void}} options */
  constructor(options) {
    this.options = options;
  }

  /** @param {Row} reply of the server, with its alarms, the gravest first */
  show(reply) {
    const alarms = /** @type {any[]} */ (reply.alarms);
    setText($("alarms-count"), String(alarms.length));
    const box = $("lab-alarms");
    const items = alarms.length ? alarms : [{ code: "", severity: "none" }];
    keyed(
      box,
      items,
      (alarm) => `${alarm.code}:${alarm.component ?? ""}`,
      (alarm) => (alarm.code ? this.make() : h("li", { class: "alarm muted" }, t("lab.no_alarms"))),
      (node, alarm) => alarm.code && this.update(node, alarm),
    );
  }

  make() {
    return h(
      "li",
      { class: "alarm" },
      h("span", { class: "badge" }),
      h(
        "div",
        { class: "alarm-words" },
        h("strong"),
        h("p", { class: "soft" }),
        h("div", { class: "alarm-facts small" }),
      ),
    );
  }

  /**
   * @param {HTMLElement} node
   * @param {Row} alarm
   */
  update(node, alarm) {
    const sign = JSON.stringify(alarm);
    if (node.dataset.sign === sign) return;
    node.dataset.sign = sign;
    setAttr(node, "data-severity", alarm.severity);
    setAttr(node, "data-code", alarm.code);
    setAttr(node.children[0], "data-state", /** @type {any} */ (BADGE)[alarm.severity] ?? "draft");
    setText(node.children[0], t(`lab.${alarm.severity}`));
    const [title, sentence, facts] = node.children[1].children;
    setText(title, plain(alarm.title));
    setText(sentence, plain(alarm.sentence));
    const figures = Object.entries(alarm.figures ?? {}).map(([label, value]) =>
      h(
        "span",
        {},
        h("span", { class: "muted" }, `${plain(label)} `),
        h("b", { class: "num" }, Number.isInteger(value) ? count(value, language) : figure(value)),
      ),
    );
    const look = (alarm.rollouts ?? []).map((/** @type {string} */ id, /** @type {number} */ at) =>
      h(
        "button",
        {
          type: "button",
          class: "button button-small",
          "data-evidence": id,
          "aria-label": t("lab.evidence_label", { n: at + 1, title: plain(alarm.title) }),
          onclick: () => this.options.read(id),
        },
        String(at + 1),
      ),
    );
    const component =
      alarm.component &&
      h(
        "button",
        { type: "button", class: "link-button mono", onclick: () => this.options.focus(alarm.component) },
        plain(alarm.component),
      );
    facts.replaceChildren(
      ...[
        component,
        ...figures,
        look.length &&
          h("span", { class: "row alarm-look" }, h("span", { class: "muted" }, t("lab.evidence")), ...look),
      ].filter(Boolean),
    );
  }
}
