// @ts-check
/** Keeping a conversation: as a row of a dataset, or as a reward test case. */
import { $, h, maybe, setAttr, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";

/** @typedef {Record<string, any>} Row */

export class KeepPanel {
  /** @param {(body: Row) => Promise<Row | null>} save `refused` in its answer is a sentence */
  constructor(save) {
    this.save = save;
    $("keep").addEventListener("submit", (/** @type {Event} */ event) => this.submit(event));
    $("keep-kind").addEventListener("change", () => {
      $("keep-total").hidden = this.kind !== "case";
      $("keep-name", HTMLInputElement).value = this.kind === "row" ? "demonstrations" : "";
    });
  }

  get kind() {
    return $("keep-kind", HTMLSelectElement).value;
  }

  /** @param {boolean} may whether there is something to keep */
  show(may) {
    $("keep-button", HTMLButtonElement).disabled = !may;
  }

  /** @param {Event} event */
  async submit(event) {
    event.preventDefault();
    const place = maybe("keep-contestant");
    const body = {
      kind: this.kind,
      name: $("keep-name", HTMLInputElement).value.trim(),
      contestant: place instanceof HTMLSelectElement ? Number(place.value) : 0,
      total: null,
    };
    if (this.kind === "case") {
      const texts = ["keep-low", "keep-high"].map((id) => $(id, HTMLInputElement).value.trim());
      const [low, high] = texts.map(Number);
      if (texts.includes("") || !(low <= high)) return this.tell(t("chat.range"), "error");
      Object.assign(body, { total: [low, high] });
    }
    const saved = await this.save(body);
    if (!saved) return this.tell(t("offline"), "error");
    if (saved.refused) return this.tell(saved.refused, "error");
    const words = t(saved.kind === "row" ? "chat.saved_row" : "chat.saved_case", { name: plain(saved.label) });
    this.tell(words, "success", saved.url);
  }

  /**
   * @param {string} sentence
   * @param {string} kind
   * @param {string} [url]
   */
  tell(sentence, kind, url) {
    const note = $("keep-note");
    note.hidden = false;
    setAttr(note, "data-kind", kind);
    note.replaceChildren(url ? h("a", { href: url }, sentence) : sentence);
  }
}
