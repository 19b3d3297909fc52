// @ts-check
/** One component of a spec as fields: its weight with a slider, its parameters, and what happens around its value. */
import { h, setAttr, setText, t } from "../lib/dom.js";
import { figure, plain } from "../lib/format.js";
import { canonical, readParam, readShape, registered, shapeFields, sliderRange } from "../lib/lab-spec.js";

/** @typedef {Record<string, any>} Row */
/** @typedef {import("../lib/lab-spec.js").Component} Component */
/** @typedef {import("./lab_editor.js").Editor} Editor */

const PLACE = "__id__";
const NUMBERS = /^(clip|scale)_|_above$|_(begin|end|first|last)$/;

/** One component's fields. */
export class Fields {
  /**
   * @param {Component} part
   * @param {Editor} editor
   */
  constructor(part, editor) {
    this.editor = editor;
    this.start = part;
    this.name = part.name;
    this.known = editor.facts.functions[registered(part)];
    const base = this.known?.title ?? registered(part);
    this.title = part.function && part.function !== part.name ? `${base} (${part.name})` : base;
    this.node = copyOf(document.getElementById("component-template"), (editor.made += 1));
    this.node.dataset.component = part.name;
    this.node.id = `component-${part.name}`;
    this.range = this.one("[data-range]");
    this.weight = this.one("[data-weight]");
    this.fill(part);
    this.node.addEventListener("input", (/** @type {any} */ event) => this.typed(event.target));
    this.weight.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.nudge(event));
    // After the click has passed: htmx looks for the form of a button that was clicked.
    this.one("[data-remove]").addEventListener("click", () => setTimeout(() => editor.remove(this)));
  }

  /** @param {string} selector */
  one(selector) {
    return /** @type {any} */ (this.node.querySelector(selector));
  }

  /** @param {Component} part */
  fill(part) {
    setText(this.one("[data-title]"), plain(this.title));
    const help = this.known
      ? [this.known.help, this.known.warning, this.known.outside && t("lab.outside")].filter(Boolean).join(" ")
      : t("lab.unknown");
    setText(this.one("[data-help]"), help);
    for (const input of [this.weight, this.range])
      setAttr(input, "aria-label", t("lab.weight_of", { title: plain(this.title) }));
    setAttr(this.one("[data-remove]"), "aria-label", t("lab.remove", { title: plain(this.title) }));
    this.weight.value = String(part.weight);
    this.slide(part.weight);
    const template = document.querySelector(`template[data-editor="${CSS.escape(registered(part))}"]`);
    if (template) this.one("[data-params]").append(...copyOf(template, this.editor.made, true).childNodes);
    this.params = [...this.one("[data-params]").querySelectorAll("[data-param]")];
    this.defaults = Object.fromEntries(
      this.params.map((/** @type {any} */ box) => [box.dataset.param, valueOf(box).value]),
    );
    for (const box of this.params)
      if (box.dataset.param in (part.params ?? {})) put(box, part.params?.[box.dataset.param]);
    this.shape = Object.fromEntries(
      [...this.one(".shape").querySelectorAll("[name]")].map((input) => [
        input.name.slice(input.name.lastIndexOf("-") + 1),
        input,
      ]),
    );
    for (const [key, value] of Object.entries(shapeFields(part))) {
      if (key === "gate_component") this.shape[key].append(h("option", { value }, String(value)));
      if (this.shape[key]) this.shape[key].value = String(value);
    }
  }

  /** @param {number} weight */
  slide(weight) {
    const { low, high, step } = sliderRange(weight);
    for (const [key, value] of Object.entries({ min: low, max: high, step })) setAttr(this.range, key, value);
    this.range.value = String(weight);
  }

  /** The arrows move a weight as far as its slider does; with Shift ten times as far. @param {KeyboardEvent} event */
  nudge(event) {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (by === undefined || !Number.isFinite(this.weight.valueAsNumber)) return;
    event.preventDefault();
    const step = Number(this.range.step) * (event.shiftKey ? 10 : 1);
    this.weight.value = String(Number((this.weight.valueAsNumber + by * step).toFixed(4)));
    this.typed(this.weight);
  }

  /** @param {any} target */
  typed(target) {
    if (target === this.range) this.weight.value = String(Number(Number(this.range.value).toFixed(4)));
    else if (target === this.weight && Number.isFinite(this.weight.valueAsNumber))
      this.slide(this.weight.valueAsNumber);
    this.editor.typed();
  }

  /** The names of the other components can stand in a gate. @param {Fields[]} all */
  offer(all) {
    const select = this.shape.gate_component;
    const chosen = select.value;
    const others = all
      .filter((item) => item !== this)
      .map((item) => h("option", { value: item.name }, plain(item.title)));
    const gone = chosen && !all.some((item) => item.name === chosen) ? [h("option", { value: chosen }, chosen)] : [];
    select.replaceChildren(select.options[0], ...others, ...gone);
    select.value = chosen;
  }

  /** The component as its fields say; `null` where one of them is wrong, which is then shown there. @returns {Component | null} */
  read() {
    let wrong = this.tell(this.weight, Number.isFinite(this.weight.valueAsNumber) ? "" : "lab.not_number");
    const params = { ...this.start.params };
    for (const box of this.params ?? []) {
      const { value, error } = valueOf(box);
      wrong = this.tell(inputOf(box), error ?? "") || wrong;
      params[box.dataset.param] = value;
    }
    /** @type {Row} */
    const given = {};
    for (const [key, input] of Object.entries(this.shape)) {
      const kind = key === "categories" ? "lines" : NUMBERS.test(key) ? "number" : "text";
      const { value, error } = readParam(kind, input.value, true);
      wrong = this.tell(input, error ?? "") || wrong;
      given[key] = value;
    }
    const { shape, errors } = readShape(given);
    for (const [key, error] of Object.entries(errors)) wrong = this.tell(this.shape[key], error) || wrong;
    const part = { ...this.start, ...shape, weight: this.weight.valueAsNumber, params };
    this.one("[data-schedule]").hidden = !given.schedule_kind;
    this.one("[data-shaped]").hidden = !["clip", "scale", "gate", "schedule", "categories"].some(
      (key) => key in canonical(/** @type {any} */ (part)),
    );
    return wrong ? null : canonical(/** @type {any} */ (part), this.defaults);
  }

  /**
   * @param {any} input
   * @param {string} error key of a sentence, "" where nothing is wrong
   */
  tell(input, error) {
    setAttr(input, "aria-invalid", error ? "true" : null);
    input.setCustomValidity?.(error ? t(error) : "");
    setAttr(input, "title", error ? t(error) : null);
    const fold = input.closest("details");
    if (error && fold) fold.open = true;
    if (error) this.problem(t(error));
    return Boolean(error);
  }

  /** @param {string} sentence "" takes it away */
  problem(sentence) {
    const node = this.one("[data-problem]");
    node.hidden = !sentence;
    setText(node, sentence);
  }

  /**
   * Show the last answer's figures of this component.
   * @param {Row | undefined} row
   * @param {number} place
   * @param {string} severity of its gravest alarm
   */
  show(row, place, severity) {
    setAttr(this.node, "data-curve", place % 8);
    const badge = this.one("[data-alarm]");
    badge.hidden = !severity;
    setAttr(badge, "data-state", severity === "stop" ? "bad" : severity === "warn" ? "warning" : "draft");
    setText(badge, severity ? t(`lab.${severity}`) : "");
    const share = row?.share_of_spread;
    const figures = row
      ? [`⌀ ${figure(row.mean)}`, share === null || share === undefined ? "" : `${Math.round(share * 100)}%`]
      : [];
    setText(this.one("[data-figures]"), figures.filter(Boolean).join(" · "));
    if (row && row.missing > 0) this.one("[data-figures]").append(` · ${t("missing")} ${row.missing}`);
  }
}

/**
 * A copy of a template with a number of its own in all names.
 * @param {any} template
 * @param {number} number
 * @param {boolean} [whole] the fragment, not its first element
 * @returns {any}
 */
function copyOf(template, number, whole = false) {
  const copy = document.importNode(template.content, true);
  for (const node of copy.querySelectorAll("*"))
    for (const { name, value } of [...node.attributes])
      if (value.includes(PLACE)) node.setAttribute(name, value.replaceAll(PLACE, `c${number}`));
  return whole ? copy : copy.firstElementChild;
}

/** @param {any} box */
const inputOf = (box) => box.querySelector("input, select, textarea");

/** @param {any} box of one parameter */
function valueOf(box) {
  const input = inputOf(box);
  return readParam(
    box.dataset.kind,
    input.type === "checkbox" ? input.checked : input.value,
    "optional" in box.dataset,
  );
}

/**
 * @param {any} box
 * @param {any} value
 */
function put(box, value) {
  const input = inputOf(box);
  if (input.type === "checkbox") input.checked = Boolean(value);
  else
    input.value = Array.isArray(value) ? value.join("\n") : value === null || value === undefined ? "" : String(value);
}
