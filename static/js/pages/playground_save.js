// @ts-check
/** Keeping an episode: as a row of a dataset, or as a test case of rewards. */
import { $, h, one, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";

export class SavePanel {
  /** @param {{send: (frame: Record<string, any>) => boolean}} options */
  constructor(options) {
    this.options = options;
    $("save-row").addEventListener("submit", (/** @type {Event} */ event) => this.saveRow(event));
    $("save-case").addEventListener("submit", (/** @type {Event} */ event) => this.saveCase(event));
    $("range-add").addEventListener("click", () => this.addRange());
  }

  /** @param {Record<string, any>} state */
  show(state) {
    for (const id of ["save-row-button", "save-case-button"]) $(id, HTMLButtonElement).disabled = !state.turns;
  }

  /** @param {Event} event */
  saveRow(event) {
    event.preventDefault();
    this.tell("row", "");
    this.options.send({ type: "save_row", dataset: $("save-dataset", HTMLInputElement).value.trim() });
  }

  addRange() {
    const copy = /** @type {DocumentFragment} */ ($("range-template", HTMLTemplateElement).content.cloneNode(true));
    const line = one(copy, "*", HTMLElement);
    one(line, "button", HTMLButtonElement).addEventListener("click", () => line.remove());
    $("ranges").append(line);
    one(line, "select", HTMLSelectElement).focus();
  }

  /** @param {Event} event */
  saveCase(event) {
    event.preventDefault();
    const ranges = [...$("ranges").children].map((line) => [
      one(line, "select", HTMLSelectElement).value,
      ...this.range(line),
    ]);
    const total = this.range($("range-total"));
    const asked = total.some((text) => text !== "");
    const pairs = [...ranges.map(([, ...pair]) => pair), ...(asked ? [total] : [])];
    if (pairs.some(([low, high]) => low === "" || high === "" || !(Number(low) <= Number(high))))
      return this.tell("case", t("play.range_bad"), "error");
    const expected = Object.fromEntries(ranges.map(([name, low, high]) => [name, [Number(low), Number(high)]]));
    this.tell("case", "");
    this.options.send({
      type: "save_case",
      name: $("save-case-name", HTMLInputElement).value.trim(),
      expected,
      total: asked ? total.map(Number) : null,
    });
  }

  /** @param {Element} line */
  range(line) {
    return [...line.querySelectorAll("input")].map((input) => input.value.trim());
  }

  /** @param {Record<string, any>} frame */
  saved(frame) {
    const text = t(frame.kind === "row" ? "play.saved_row" : "play.saved_case", { name: plain(frame.label) });
    $(`save-${frame.kind}-note`).replaceChildren(h("a", { href: frame.url }, text));
    $(`save-${frame.kind}-note`).dataset.kind = "success";
    $(`save-${frame.kind}-note`).hidden = false;
  }

  /**
   * @param {"row" | "case"} kind
   * @param {string} sentence
   * @param {string} [tone]
   */
  tell(kind, sentence, tone = "info") {
    const note = $(`save-${kind}-note`);
    note.hidden = !sentence;
    note.dataset.kind = tone;
    setText(note, sentence);
  }
}
