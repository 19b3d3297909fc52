// @ts-check
/** The form of one tool, made from its schema. */
import { h, setAttr, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { exampleOf, fieldsOf, readField, shown, toolOf } from "../lib/schema.js";

/** @typedef {import("../lib/schema.js").Field} Field */

let made = 0;

/**
 * Say what is wrong with a field, or that nothing is.
 * @param {Element} node
 * @param {Element} control
 * @param {HTMLElement} error
 * @param {string} sentence
 */
function mark(node, control, error, sentence) {
  error.hidden = !sentence;
  error.textContent = sentence;
  setAttr(node, "data-invalid", sentence ? "true" : null);
  setAttr(control, "aria-invalid", sentence ? "true" : null);
}

export class ToolForm {
  /** @param {Record<string, any>} schema */
  constructor(schema) {
    const tool = toolOf(schema);
    this.name = tool.name;
    this.rows = fieldsOf(tool.parameters).map((field) => this.row(field));
    this.node = h(
      "div",
      { class: "stack" },
      tool.description && h("p", { class: "soft small prewrap" }, plain(tool.description)),
      this.rows.length
        ? h("div", { class: "play-fields" }, ...this.rows.map((row) => row.node))
        : h("p", { class: "muted small" }, t("play.no_parameters")),
    );
  }

  /** @param {Field} field */
  row(field) {
    const id = `argument-${(made += 1)}`;
    const control = this.control(field, id);
    const error = h("p", { class: "field-error", id: `${id}-error`, role: "alert", hidden: true });
    const example = exampleOf(field.schema);
    const help = [
      plain(field.help),
      field.schema.default !== undefined && t("play.default", { value: plain(shown(field.schema.default)) }),
      example && t("play.example", { value: plain(example) }),
    ].filter(Boolean);
    const node = h(
      "div",
      { class: "field", "data-kind": field.kind },
      h(
        "label",
        { class: "field-label", for: id },
        h("span", { class: "mono" }, plain(field.name)),
        h("span", { class: "optional" }, field.required ? field.kind : `${field.kind} · ${t("play.optional")}`),
      ),
      control,
      help.length ? h("p", { class: "field-help", id: `${id}-help` }, help.join(" ")) : null,
      error,
    );
    control.addEventListener("input", () => mark(node, control, error, ""));
    control.setAttribute("aria-describedby", `${help.length ? `${id}-help ` : ""}${id}-error`);
    return { field, node, control, error };
  }

  /**
   * @param {Field} field
   * @param {string} id
   * @returns {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement}
   */
  control(field, id) {
    const common = { id, class: "input", "data-argument": field.name, "aria-required": field.required ? "true" : null };
    /** @type {any} */
    let control;
    if (field.kind === "enum" || field.kind === "boolean") {
      const choices = field.kind === "boolean" ? ["true", "false"] : field.choices.map((_item, at) => String(at));
      const label = (/** @type {string} */ value) =>
        field.kind === "boolean" ? t(`play.${value}`) : plain(shown(field.choices[Number(value)]));
      control = h("select", common, h("option", { value: "" }, t("play.unset")));
      for (const value of choices) control.append(h("option", { value }, label(value)));
    } else if (field.kind === "number" || field.kind === "integer") {
      const inputmode = field.kind === "integer" ? "numeric" : "decimal";
      control = h("input", { ...common, type: "text", inputmode, autocomplete: "off" });
    } else {
      const json = field.kind !== "string";
      const style = json ? "input mono play-json" : "input play-line";
      control = h("textarea", {
        ...common,
        class: style,
        rows: json ? 2 : 1,
        spellcheck: "false",
        autocomplete: "off",
      });
    }
    return control;
  }

  /** The arguments that were typed, or `null` when something is wrong, which is then shown next to it. */
  read() {
    /** @type {Record<string, any>} */
    const found = {};
    let wrong = null;
    for (const { field, node, control, error } of this.rows) {
      const { value, error: problem } = readField(field, control.value);
      mark(node, control, error, problem ? t(problem) : "");
      if (problem) wrong ??= control;
      else if (value !== undefined) found[field.name] = value;
    }
    wrong?.focus();
    return wrong ? null : found;
  }

  clear() {
    for (const { control } of this.rows) control.value = "";
  }

  focus() {
    this.rows[0]?.control.focus();
  }
}
