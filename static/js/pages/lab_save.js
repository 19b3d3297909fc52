// @ts-check
/** Saving the spec as its next version, and the way to a new run with it. */
import { $, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { toast } from "../app.js";

/** @typedef {Record<string, any>} Row */

export class Saving {
  /**
   * @param {{facts: Row, components: () => any[] | null, changed: () => boolean, choice: () => Row,
   *   post: (address: string, body: Row) => Promise<Row>, complaint: (problem: any) => string,
   *   saved: (reply: Row, stay: boolean) => void}} options
   */
  constructor(options) {
    this.options = options;
    this.launching = false;
    if (!$("lab-save")) return; // a viewer
    $("lab-save").addEventListener("click", () => (this.launching = false));
    $("lab-launch").addEventListener("click", () => this.launch());
    $("save-form").addEventListener("submit", (/** @type {Event} */ event) => this.submit(event));
    $("save-dialog").addEventListener("close", () => this.tell(""));
  }

  /** A spec that is saved without changes goes straight to the form of a new run; another one is saved first. */
  launch() {
    const { reference } = this.options.choice();
    if (reference && !this.options.changed() && this.options.components()) return this.go(reference);
    this.launching = true;
    $("save-dialog", HTMLDialogElement).showModal();
  }

  /** @param {string} reference */
  go(reference) {
    const address = new URL(this.options.facts.urls.launch, location.href);
    address.searchParams.set("reward", reference);
    location.assign(address);
  }

  /** @param {string} sentence */
  tell(sentence) {
    $("save-problem").hidden = !sentence;
    setText($("save-problem"), sentence);
  }

  /** @param {Event} event */
  async submit(event) {
    event.preventDefault();
    const components = this.options.components();
    if (!components) return this.tell(t("lab.fix_first"));
    const button = $("save-button", HTMLButtonElement);
    const label = button.textContent;
    button.disabled = true;
    setText(button, t("lab.saving"));
    try {
      const reply = await this.options.post(this.options.facts.urls.save, {
        name: $("save-name", HTMLInputElement).value,
        components,
      });
      toast(t("lab.saved", { name: plain(reply.label) }), "success");
      this.options.saved(reply, !this.launching);
      if (this.launching) this.go(reply.reference);
      else $("save-dialog", HTMLDialogElement).close();
    } catch (problem) {
      this.tell(this.options.complaint(problem));
    } finally {
      button.disabled = false;
      setText(button, label);
    }
  }
}
