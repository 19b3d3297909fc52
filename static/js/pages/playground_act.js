// @ts-check
/** The act panel: one tab for each tool and one for text, a queue for several calls in one turn, and clickables. */
import { $, h, keyed, setAttr, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { clickablesOf, clickStep, toolOf } from "../lib/schema.js";
import { ToolForm } from "./playground_form.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {{name: string, arguments: Row, key: string}} Queued */

const TEXT = "\u0000text"; // no tool can be called so
const MANY_TOOLS = 8;

const tabs = () => /** @type {HTMLButtonElement[]} */ ([...$("act-tabs").children]);

export class ActPanel {
  /** @param {{send: (frame: Row) => boolean, maxCalls: () => number}} options `send` returns whether the frame went out */
  constructor(options) {
    this.options = options;
    /** @type {Row[]} */
    this.tools = [];
    /** @type {Map<string, ToolForm>} */
    this.forms = new Map();
    /** @type {Queued[]} */
    this.queue = [];
    this.count = 0;
    this.chosen = "";
    this.known = "";
    $("act-form").addEventListener("submit", (/** @type {Event} */ event) => this.submitted(event));
    $("act-queue").addEventListener("click", () => this.enqueue());
    $("act-filter").addEventListener("input", () => this.filter());
    $("act-form").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.onKey(event));
    $("act-tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.onTabKey(event));
  }

  /** @param {Row} state what the server says of the episode */
  show(state) {
    const tools = state.tools || [];
    const known = JSON.stringify(tools);
    if (known !== this.known) this.setTools(tools, known);
    const clickables = state.open ? clickablesOf(state.info || {}) : [];
    $("act-clickables").hidden = !clickables.length;
    keyed(
      $("act-clickable-list"),
      clickables.map((value, at) => ({ value, at })),
      (item) => `${item.at}:${item.value}`,
      (item) =>
        h(
          "button",
          { type: "button", class: "button button-small play-click", onclick: () => this.click(item.value) },
          plain(item.value),
        ),
      () => {},
    );
  }

  /**
   * @param {Row[]} tools
   * @param {string} known
   */
  setTools(tools, known) {
    const before = this.tools.length ? this.chosen : ""; // text is no choice where there was nothing else
    this.tools = tools;
    this.known = known;
    this.forms = new Map(tools.map((tool) => [toolOf(tool).name, new ToolForm(tool)]));
    this.queue = this.queue.filter((call) => this.forms.has(call.name));
    const names = [...this.forms.keys(), TEXT];
    $("act-filter").hidden = names.length <= MANY_TOOLS;
    $("act-filter", HTMLInputElement).value = "";
    $("act-none").hidden = tools.length > 0;
    const tab = (/** @type {string} */ name) =>
      h("button", { type: "button", class: "play-tab", role: "tab", "aria-controls": "act-panel", onclick: () => this.choose(name) },
        name === TEXT ? t("play.text_tab") : plain(name)); // prettier-ignore
    $("act-tabs").replaceChildren(...names.map((name) => Object.assign(tab(name), { name })));
    for (const node of tabs()) node.dataset.tool = node.name === TEXT ? "" : node.name;
    this.choose(names.includes(before) ? before : names[0], false);
    this.drawQueue();
  }

  /**
   * @param {string} name
   * @param {boolean} [focus]
   */
  choose(name, focus = true) {
    this.chosen = name;
    for (const node of tabs()) {
      const on = node.name === name;
      setAttr(node, "aria-selected", String(on));
      setAttr(node, "tabindex", on ? 0 : -1);
    }
    const form = this.forms.get(name);
    $("act-fields").replaceChildren(...(form ? [form.node] : []));
    $("act-text-help").hidden = Boolean(form);
    setText($("act-message-label"), t(form ? "play.message_beside" : "play.message"));
    setAttr($("act-message"), "rows", form ? 1 : 3);
    $("act-queue").hidden = !form;
    this.drawQueue();
    if (!focus) return;
    if (form?.rows.length) form.focus();
    else if (!form) $("act-message").focus();
  }

  filter() {
    const words = $("act-filter", HTMLInputElement).value.trim().toLowerCase();
    for (const node of tabs())
      node.hidden = Boolean(words) && node.name !== TEXT && !node.name.toLowerCase().includes(words);
  }

  /** @param {KeyboardEvent} event Ctrl+Enter sends from everywhere; Enter sends from a line */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const line = target.classList.contains("play-line") && !event.shiftKey && !event.isComposing;
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey || line)) return;
    event.preventDefault();
    $("act-form", HTMLFormElement).requestSubmit($("act-send"));
  }

  /** @param {KeyboardEvent} event */
  onTabKey(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const shown = tabs().filter((node) => !node.hidden);
    if (by === undefined || !shown.length) return;
    event.preventDefault();
    const at = shown.findIndex((node) => node.name === this.chosen);
    const next = shown[(at + by + shown.length) % shown.length];
    this.choose(next.name, false);
    next.focus();
  }

  /** The call in the open form, or `null` when it is not complete. */
  current() {
    const form = this.forms.get(this.chosen);
    const found = form?.read();
    return form && found ? { name: form.name, arguments: found } : null;
  }

  enqueue() {
    if (this.queue.length >= this.options.maxCalls())
      return this.complain(t("play.too_many_calls", { n: this.options.maxCalls() }));
    const call = this.current();
    if (!call) return;
    this.queue.push({ ...call, key: String((this.count += 1)) });
    this.forms.get(this.chosen)?.clear();
    this.drawQueue();
  }

  /** @param {Event} event */
  submitted(event) {
    event.preventDefault();
    const message = $("act-message", HTMLTextAreaElement).value;
    let calls = this.queue.map(({ name, arguments: given }) => ({ name, arguments: given }));
    if (!calls.length && this.chosen !== TEXT) {
      const call = this.current();
      if (!call) return;
      calls = [call];
    }
    this.send({ message, tool_calls: calls });
  }

  /** @param {string} value */
  click(value) {
    this.send(clickStep(this.tools, value));
  }

  /** @param {Row} step */
  send(step) {
    this.complain("");
    this.options.send({ type: "step", ...step });
  }

  /** The turn was taken: what was typed has been sent. */
  taken() {
    this.queue = [];
    this.forms.get(this.chosen)?.clear();
    $("act-message", HTMLTextAreaElement).value = "";
    this.drawQueue();
  }

  /** @param {string} sentence */
  complain(sentence) {
    $("act-problem").hidden = !sentence;
    setText($("act-problem"), sentence);
  }

  drawQueue() {
    $("act-queued").hidden = !this.queue.length;
    const line = (/** @type {Queued} */ call) =>
      h(
        "li",
        {},
        h("code", {}, `${plain(call.name)}(${plain(JSON.stringify(call.arguments))})`),
        h(
          "button",
          { type: "button", class: "link-button small", onclick: () => this.drop(call.key) },
          t("play.unqueue"),
        ),
      );
    keyed(
      $("act-queued"),
      this.queue,
      (call) => call.key,
      line,
      () => {},
    );
    const text = this.chosen === TEXT ? t("play.send_text") : t("play.send_call");
    setText($("act-send"), this.queue.length ? t("play.send_queued", { n: this.queue.length }) : text);
  }

  /** @param {string} key */
  drop(key) {
    this.queue = this.queue.filter((call) => call.key !== key);
    this.drawQueue();
  }
}
