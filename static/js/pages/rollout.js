// @ts-check
/** One rollout: the words that earned its reward next to the turns, copying, and keys to the rollouts next to it. */
import { copy, toast } from "../app.js";
import { ask, sentenceOf } from "../lib/ask.js";
import { $, all, data, h, maybe, setAttr, t } from "../lib/dom.js";
import { figure, plain } from "../lib/format.js";
import { BUSY, actionOf } from "../lib/keys.js";
import { isWhole, notesOf } from "../lib/lab-text.js";
import { mark } from "../lib/marked.js";
import { drawReasons } from "./rollout_reasons.js";

/** @typedef {Record<string, any>} Row */

const page = data("rollout-data");
const COPIED_TURNS = 2000;
const PAGE = 200;
/** @type {Row[]} */
let parts = [];
let chosen = "";

/** @param {string} name */
const partOf = (name) => parts.find((part) => part.name === name);

/** Put notes and marks on the messages that have none yet. @param {ParentNode} root */
function annotate(root) {
  const spans = parts.flatMap((part) => part.spans.map((/** @type {Row} */ span) => ({ ...span, name: part.name })));
  for (const node of all(root, "[data-message]:not([data-annotated])")) {
    const own = spans.filter((span) => String(span.message) === node.dataset.message);
    setAttr(node, "data-annotated", "");
    if (!own.length) continue;
    const box = /** @type {HTMLElement | null} */ (node.querySelector("[data-said]"));
    const inText = own.filter((span) => !isWhole(span));
    if (box && inText.length) mark(box, inText, props);
    node.append(...notesBeside(own));
  }
  colour();
}

/**
 * @param {string[]} names
 * @param {string[]} notes
 */
const props = (names, notes) => ({ "data-names": names.join(" "), title: notes.map(plain).join(" · ") || null });

/** @param {Row[]} spans of one message */
function notesBeside(spans) {
  const names = [...new Set(spans.map((span) => span.name))];
  return names.map((name) => {
    const part = /** @type {Row} */ (partOf(name));
    const notes = [...new Set(spans.filter((span) => span.name === name).map((span) => span.note))];
    const said = notes.map((note) => plain(note || t("words.whole"))).join(" · ");
    const value = part.counted === null ? "" : ` ${figure(part.counted)}`;
    return h(
      "p",
      { class: "word-note", "data-names": name, "data-curve": part.curve },
      h("b", {}, `${plain(part.title)}${value}`),
      ` · ${said}`,
    );
  });
}

/** Show the marks of the chosen component, or of all, each in its component's colour. */
function colour() {
  for (const node of all($("transcript"), "[data-names]")) {
    const names = (node.dataset.names ?? "").split(" ");
    const shown = chosen ? names.includes(chosen) : true;
    const name = chosen && shown ? chosen : names[0];
    setAttr(node, "data-curve", shown ? partOf(name)?.curve : null);
    if (node.matches(".word-note")) node.hidden = !shown;
    else node.classList.toggle("earned", shown);
  }
}

/** @param {string} name */
function choose(name) {
  chosen = chosen === name ? "" : name;
  for (const row of all($("reward"), "tr[data-part]")) {
    row.toggleAttribute("data-chosen", row.dataset.part === chosen);
    setAttr(row.querySelector("button"), "aria-pressed", String(row.dataset.part === chosen));
  }
  colour();
  explain();
}

/** Beneath the parts: the notes on the chosen one, and their places. */
function explain() {
  const box = $("words");
  box.hidden = false;
  const part = partOf(chosen);
  if (!part) return box.replaceChildren(h("p", { class: "muted small" }, t("words.hint")));
  if (part.reason) return box.replaceChildren(h("p", { class: "small soft" }, plain(part.reason)));
  if (!part.spans.length) return box.replaceChildren(h("p", { class: "muted small" }, t("words.none")));
  const turns = new Map(part.spans.map((/** @type {Row} */ span) => [span.message, span.turn]));
  const items = notesOf(part.spans).map(({ note, messages }) =>
    h(
      "li",
      {},
      `${plain(note || t("words.whole"))} `,
      ...messages.map((at) => h("a", { href: place(turns.get(at)) }, `${t("words.message", { n: at + 1 })} `)),
    ),
  );
  box.replaceChildren(h("ul", { class: "small" }, ...items));
}

/** @param {number | null | undefined} turn */
function place(turn) {
  return maybe(`turn-${turn}`) ? `#turn-${turn}` : `?first=${turn}#turn-${turn}`;
}

async function words() {
  const rows = all($("reward"), "tr[data-part]");
  if (!rows.length) return;
  const box = $("words");
  box.hidden = false;
  box.replaceChildren(h("p", { class: "muted small" }, t("words.looking")));
  try {
    parts = (await ask(`${page.api}/words`)).parts;
  } catch {
    return box.replaceChildren(h("p", { class: "muted small" }, t("words.failed")));
  }
  for (const row of rows) {
    const cell = /** @type {HTMLElement} */ (row.firstElementChild);
    const button = h("button", { type: "button", class: "link-button", "aria-pressed": "false" });
    button.append(...cell.childNodes);
    button.addEventListener("click", () => choose(row.dataset.part ?? ""));
    cell.append(button);
  }
  explain();
  drawReasons($("reward"), parts);
  annotate($("transcript"));
}

/** The rollout with its turns, page after page, up to a limit. */
async function whole() {
  const found = await ask(page.api);
  let next = found.after;
  while (next !== null && found.transcript.length < COPIED_TURNS) {
    const more = await ask(`${page.api}/turns?first=${next}&limit=${PAGE}`);
    found.transcript.push(...more.items);
    next = more.after;
  }
  delete found.after;
  if (next !== null) toast(t("copy.long", { n: found.transcript.length }), "info");
  return JSON.stringify(found, null, 2);
}

/** @param {() => Promise<string>} make */
const copier = (make) => () => make().then(copy, (problem) => toast(sentenceOf(problem), "error"));

function keys() {
  document.addEventListener("keydown", (event) => {
    const busy = /** @type {Element} */ (event.target).closest?.(BUSY);
    const action = actionOf(event, Boolean(busy));
    if (!action) return;
    const dialog = maybe("keys");
    if (action === "keys") /** @type {HTMLDialogElement | null} */ (dialog)?.showModal();
    else if (action === "raw") other("[data-views] a:not([aria-current])");
    else other(`[data-key="${action}"]`);
  });
}

/** @param {string} selector */
function other(selector) {
  /** @type {HTMLElement | null} */ (document.querySelector(selector))?.click();
}

for (const node of all(document, "[data-needs-script]")) node.hidden = false;
maybe("copy-json")?.addEventListener("click", copier(whole));
maybe("copy-prompt")?.addEventListener(
  "click",
  copier(async () =>
    JSON.stringify((await ask(`${page.api}/turns?first=0&limit=1`)).items[0]?.messages ?? [], null, 2),
  ),
);
document.addEventListener("htmx:afterSettle", () => {
  const transcript = maybe("transcript"); // none where tokens are shown
  if (transcript) annotate(transcript);
});
keys();
if (page.words) words();
