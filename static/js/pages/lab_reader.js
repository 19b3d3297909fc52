// @ts-check
/** One rollout with the text that earned its reward. Everything in it was written by others: it is only ever text. */
import { $, all, h, has, setAttr, setText, t } from "../lib/dom.js";
import { figure, plain, pretty, score, visible } from "../lib/format.js";
import { isWhole, notesOf, segments } from "../lib/lab-text.js";
import { folded } from "../lib/transcript.js";

/** @typedef {Record<string, any>} Row */
const ROLES = ["system", "user", "assistant", "tool"];
const MAX_NOTES = 12;

export class Reader {
  /** @param {{view: import("../lib/lab-view.js").LabView, recorded: string | null, chosen: () => void}} options */
  constructor(options) {
    this.options = options;
    /** @type {Row | null} */
    this.row = null;
    /** @type {string[]} */
    this.names = [];
    this.pointed = "";
  }

  /** @param {string} sentence */
  say(sentence) {
    this.row = null;
    $("reader-parts").replaceChildren();
    $("transcript").replaceChildren(h("p", { class: "muted transcript-none" }, sentence));
  }

  /**
   * @param {Row} row
   * @param {string[]} names of the components in the order of the spec
   */
  show(row, names) {
    const same = this.row?.id === row.id;
    const at = $("transcript").scrollTop;
    this.row = row;
    this.names = names;
    const place = [row.step, row.group, row.index].filter((part) => part !== null && part !== undefined).join(".");
    setText(
      $("reader-title"),
      `${plain([place, row.policy].filter(Boolean).join(" · "))} · ${t("reward")} ${score(row.reward)}`,
    );
    const link = $("reader-page");
    link.hidden = !this.options.recorded;
    setAttr(link, "href", this.options.recorded ? `${this.options.recorded}${encodeURIComponent(row.id)}/` : null);
    this.parts();
    this.messages();
    $("transcript").scrollTop = same ? at : 0;
    if (!same && this.chosen()) this.reveal();
  }

  /** The component whose spans are shown: the one pointed at, else the chosen one. */
  chosen() {
    const name = this.pointed || this.options.view.component;
    return this.row?.parts[name] ? name : "";
  }

  parts() {
    const row = /** @type {Row} */ (this.row);
    const chips = Object.entries(row.parts).map(([name, part]) => this.chip(name, part));
    const total = h(
      "p",
      { class: "earned-total" },
      h("span", { class: "soft" }, `${t("reward")} `),
      h("b", {}, score(row.reward)),
      h("span", { class: "soft" }, ` · ${t("advantage")} `),
      h("b", {}, score(row.advantage)),
    );
    $("reader-parts").replaceChildren(
      h("div", { class: "earned-parts" }, ...chips),
      total,
      h("div", { class: "earned-notes", id: "reader-notes" }),
    );
    this.notes();
  }

  /**
   * @param {string} name
   * @param {Row} part
   */
  chip(name, part) {
    const missing = part.value === null || part.value === undefined;
    const chip = h(
      "button",
      {
        type: "button",
        class: "earned-part",
        "data-part": name,
        "data-curve": Math.max(0, this.names.indexOf(name)) % 8,
        "aria-pressed": String(this.options.view.component === name),
        "data-missing": missing,
      },
      h("span", { class: "lab-key" }),
      h("span", { class: "truncate" }, plain(part.title)),
      missing ? h("span", { class: "muted" }, t("lab.not_computed")) : h("b", { class: "num" }, figure(part.value)),
      !missing &&
        part.term !== null &&
        part.term !== undefined &&
        h("span", { class: "muted num" }, `→ ${score(part.term)}`),
    );
    chip.addEventListener("click", () => this.choose(this.options.view.component === name ? "" : name));
    chip.addEventListener("mouseenter", () => this.point(name));
    chip.addEventListener("mouseleave", () => this.point(""));
    return chip;
  }

  /** @param {string} name */
  choose(name) {
    this.options.view.component = name;
    this.pointed = "";
    for (const chip of all($("reader-parts"), "[data-part]"))
      setAttr(chip, "aria-pressed", String(chip.dataset.part === name));
    this.messages();
    this.notes();
    this.options.chosen();
    if (name) this.reveal();
  }

  /** @param {string} name */
  point(name) {
    this.pointed = name;
    for (const mark of all($("transcript"), "[data-names]")) {
      mark.toggleAttribute("data-on", this.covers(mark));
      this.colour(mark, (mark.dataset.names ?? "").split(" "));
    }
    this.notes();
  }

  /** @param {any} mark */
  covers(mark) {
    const name = this.chosen();
    return Boolean(name) && (mark.dataset.names ?? "").split(" ").includes(name);
  }

  notes() {
    const box = document.getElementById("reader-notes");
    const name = this.chosen();
    const part = this.row?.parts[name];
    if (!box) return;
    if (!part) return box.replaceChildren(h("p", { class: "muted small" }, t("lab.hint")));
    if (part.reason)
      return box.replaceChildren(
        h("p", { class: "small earned-reason" }, `${t("lab.not_computed")}: ${plain(part.reason)}`),
      );
    const spans = part.spans ?? [];
    if (!spans.length) return box.replaceChildren(h("p", { class: "muted small" }, t("lab.nothing_marked")));
    const items = notesOf(spans)
      .slice(0, MAX_NOTES)
      .map(({ note, messages }) => {
        const links = messages.map((at) =>
          h("button", { type: "button", class: "link-button small", onclick: () => this.reveal(at) }, String(at + 1)),
        );
        return h(
          "li",
          {},
          h("span", {}, plain(note || t("lab.whole_message"))),
          h("span", { class: "muted" }, ` · ${t("lab.messages")} `),
          h("span", { class: "earned-links" }, ...links),
        );
      });
    box.replaceChildren(h("ul", { class: "small" }, ...items));
  }

  /** Bring the text that earned it into sight. @param {number} [message] */
  reveal(message) {
    const box = $("transcript");
    const node = message === undefined ? box.querySelector("[data-on]") : box.querySelectorAll(".message")[message];
    if (!node) return;
    const inside = node.getBoundingClientRect().top - box.getBoundingClientRect().top;
    if (box.scrollHeight > box.clientHeight) box.scrollTop += inside - 24;
    else node.scrollIntoView({ block: "nearest" });
  }

  messages() {
    const row = /** @type {Row} */ (this.row);
    const spans = Object.entries(row.parts).flatMap(([name, part]) =>
      (part.spans ?? []).map((/** @type {Row} */ span) => ({ ...span, name })),
    );
    const at = $("transcript").scrollTop;
    const nodes = row.messages.map((/** @type {Row} */ message, /** @type {number} */ number) =>
      this.message(
        message,
        number,
        spans.filter((span) => span.message === number),
      ),
    );
    $("transcript").replaceChildren(...nodes);
    $("transcript").scrollTop = at;
  }

  /**
   * @param {Row} message
   * @param {number} number
   * @param {any[]} spans of this message
   */
  message(message, number, spans) {
    const role = String(message.role);
    const content = typeof message.content === "string" ? message.content : pretty(message.content);
    const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
    const whole = spans.filter(isWhole);
    const inText = spans.filter((span) => !isWhole(span));
    const of = number < (this.row?.prompt_length ?? 0) ? t("lab.task_prompt") : "";
    const node = h(
      "article",
      { class: "message", "data-role": ROLES.includes(role) ? role : "other" },
      h(
        "header",
        { class: "message-head" },
        h(
          "span",
          { class: "message-role" },
          has(`role.${role}`) ? t(`role.${role}`) : plain(role),
          role === "tool" && message.name ? ` · ${plain(String(message.name))}` : "",
        ),
        h("span", { class: "muted" }, of),
      ),
      content && (inText.length ? this.marked(content, inText) : folded(content)),
      ...calls.map(callNode),
      !content && !calls.length && h("div", { class: "muted small" }, t("empty_message")),
    );
    if (whole.length) {
      setAttr(node, "data-names", [...new Set(whole.map((span) => span.name))].join(" "));
      node.toggleAttribute("data-on", this.covers(node));
      this.colour(
        node,
        whole.map((span) => span.name),
      );
    }
    return node;
  }

  /**
   * @param {string} text
   * @param {any[]} spans
   */
  marked(text, spans) {
    const box = h("div", { class: "said", dir: "auto" });
    for (const piece of segments(text, spans)) {
      const target = piece.names.length
        ? h("mark", {
            class: "earned-span",
            "data-names": piece.names.join(" "),
            title: piece.notes.map(plain).join(" · ") || null,
          })
        : box;
      for (const part of visible(piece.text))
        target.append(
          part.hidden
            ? h("span", { class: "hidden-char", title: t("hidden_char", { code: part.text }) }, part.text)
            : part.text,
        );
      if (target === box) continue;
      target.toggleAttribute("data-on", this.covers(target));
      this.colour(target, piece.names);
      box.append(target);
    }
    return box;
  }

  /**
   * The colour of the chosen component where it is one of these, else of the first.
   * @param {HTMLElement} node
   * @param {string[]} names
   */
  colour(node, names) {
    const chosen = this.chosen();
    setAttr(node, "data-curve", Math.max(0, this.names.indexOf(names.includes(chosen) ? chosen : names[0])) % 8);
  }
}

/** @param {Row} call */
function callNode(call) {
  const inner = call.function ?? call;
  const given = pretty(inner.arguments);
  return h(
    "div",
    { class: "call" },
    h("div", { class: "call-name" }, h("span", { class: "muted" }, `${t("call")} `), plain(String(inner.name ?? "?"))),
    given === "" || given === "{}"
      ? h("div", { class: "muted small" }, t("no_arguments"))
      : folded(given, "said call-arguments"),
  );
}
