// @ts-check
/** The task picker: a row of a dataset, a pasted task, or only a seed. */
import { ask, sentenceOf } from "../lib/ask.js";
import { $, all, h, setText, t } from "../lib/dom.js";
import { plain } from "../lib/format.js";
import { isObject } from "../lib/schema.js";
import { folded } from "../lib/transcript.js";

const chosenDataset = () => /** @type {HTMLInputElement | HTMLSelectElement} */ ($("task-dataset")).value;

export class TaskPicker {
  /** @param {{rowUrl: string, send: (frame: Record<string, any>) => boolean}} options */
  constructor(options) {
    this.options = options;
    this.asked = 0;
    $("task-form").addEventListener("submit", (/** @type {Event} */ event) => this.submitted(event));
    $("task-form").addEventListener("change", () => this.changed());
    $("task-row-back")?.addEventListener("click", () => this.go(-1));
    $("task-row-next")?.addEventListener("click", () => this.go(1));
    this.changed();
  }

  /** Which of the three. */
  kind() {
    return new FormData($("task-form", HTMLFormElement)).get("kind") || "empty";
  }

  changed() {
    const kind = this.kind();
    for (const node of all(document, "[data-task]")) node.hidden = node.getAttribute("data-task") !== kind;
    this.complain("");
    if (kind === "row") this.preview();
  }

  /** @param {number} by */
  go(by) {
    const input = $("task-row", HTMLInputElement);
    input.value = String(Math.max(1, (Number(input.value) || 1) + by));
    this.preview();
  }

  async preview() {
    const dataset = chosenDataset();
    const asked = (this.asked += 1);
    if (!dataset) return $("task-preview").replaceChildren();
    const query = new URLSearchParams({ dataset, row: $("task-row", HTMLInputElement).value || "1" });
    let answer;
    try {
      answer = await ask(`${this.options.rowUrl}?${query}`);
    } catch (problem) {
      answer = { ok: false, message: sentenceOf(problem) };
    }
    if (asked !== this.asked) return; // a later choice was made meanwhile
    if (!answer.ok)
      return $("task-preview").replaceChildren(h("p", { class: "field-error", role: "alert" }, answer.message));
    const lines = answer.messages.map((/** @type {any} */ message) =>
      h(
        "div",
        { class: "play-preview-line" },
        h("span", { class: "eyebrow" }, t(`role.${plain(String(message.role))}`)),
        folded(message.content || "", "said"),
      ),
    );
    $("task-preview").replaceChildren(...lines);
  }

  /** The task to play, or `null` when something is wrong, which is then shown. */
  source() {
    const kind = this.kind();
    if (kind === "empty") return { kind };
    if (kind === "row") {
      if (!chosenDataset()) return this.complain(t("play.no_dataset"));
      return {
        kind,
        dataset: chosenDataset(),
        row: Math.max(1, Math.trunc(Number($("task-row", HTMLInputElement).value)) || 1),
      };
    }
    let task;
    try {
      task = JSON.parse($("task-json", HTMLTextAreaElement).value);
    } catch {
      task = null;
    }
    return isObject(task) ? { kind, task } : this.complain(t("play.task_not_json"));
  }

  /** @param {Event} event */
  submitted(event) {
    event.preventDefault();
    if ($("task-start", HTMLButtonElement).disabled) return;
    const seed = Number($("task-seed", HTMLInputElement).value || "0");
    if (!Number.isInteger(seed) || seed < 0 || seed > 2147483647) return this.complain(t("play.seed_bad"));
    const source = this.source();
    if (!source) return;
    this.complain("");
    this.options.send({ type: "reset", seed, source });
  }

  /** @param {string} sentence */
  complain(sentence) {
    $("task-problem").hidden = !sentence;
    setText($("task-problem"), sentence);
    return null;
  }
}
