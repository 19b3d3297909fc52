// @ts-check
/** The token view of a rollout: every token in the colour of one of its values; the values of the token under the pointer are listed. */
import { ask } from "../lib/ask.js";
import { $, data, h, setAttr, setText, t } from "../lib/dom.js";
import { figure, plain } from "../lib/format.js";
import { idOf, mostOf, partsOf, shadeOf, spellingOf, valueOf } from "../lib/tokens.js";

/** @typedef {import("../lib/tokens.js").By} By */

const BLOCK = 400; // tokens that the browser lays out, or leaves out, together
const FIRST = 6; // blocks, more than a screen holds; the others follow while the page rests
const LEANING = ["advantage", "ratio"];
const page = data("rollout-data");
const box = $("tokens");
const by = /** @type {HTMLSelectElement} */ ($("tokens-by"));
/** @type {import("../lib/tokens.js").Columns} */
let columns = { prompt: [], ids: [], sampled: [], learned: [], spelling: {} };
/** @type {HTMLElement[]} */
let nodes = [];
/** @type {{box: HTMLElement, from: number, to: number}[]} */
let blocks = []; // those that are still empty
let at = -1;
let most = 0;

/** @param {number} place */
function token(place) {
  const node = document.createElement("span");
  node.className = "token";
  node.textContent = plain(spellingOf(columns, place)).replaceAll("\n", "↵\n");
  node.dataset.at = String(place);
  shade(node, place);
  nodes[place] = node;
  return node;
}

/** @param {import("../lib/tokens.js").Part} part */
function section(part) {
  const head = h("h3", { class: "token-who" }, t(`tokens.${part.who}`), " ");
  head.append(h("span", { class: "muted" }, t("tokens.count", { n: part.to - part.from })));
  const made = h("section", { class: "token-part", "data-who": part.who }, head);
  for (let from = part.from; from < part.to; from += BLOCK) {
    const block = h("div", { class: "token-block" });
    blocks.push({ box: block, from, to: Math.min(part.to, from + BLOCK) });
    made.append(block);
  }
  return made;
}

/** @param {number} count of blocks, from the beginning */
function fill(count) {
  for (const block of blocks.splice(0, count)) {
    for (let place = block.from; place < block.to; place += 1) block.box.append(token(place));
  }
}

function fillRest() {
  fill(FIRST);
  if (blocks.length) setTimeout(fillRest);
}

/**
 * @param {HTMLElement} node
 * @param {number} place
 */
function shade(node, place) {
  const chosen = /** @type {By} */ (by.value);
  setAttr(node, "data-shade", shadeOf(valueOf(columns, place, chosen), chosen, most));
}

function paint() {
  const chosen = /** @type {By} */ (by.value);
  setAttr(box, "data-by", LEANING.includes(chosen) ? "leaning" : "rising");
  nodes.forEach(shade);
  const steps = LEANING.includes(chosen) ? [-4, -3, -2, -1, 0, 1, 2, 3, 4] : [0, 1, 2, 3, 4, 5, 6];
  const ends = {
    advantage: ["−", "+"],
    ratio: ["< 1", "> 1"],
    logprob: ["0", "−5"],
    entropy: ["0", "3.5"],
    mask: ["0", "1"],
  };
  const [low, high] = ends[chosen];
  const shown = chosen === "mask" ? [0, 3] : steps;
  const cells = shown.map((step) => h("i", { class: "token", "data-shade": step }));
  $("tokens-scale").replaceChildren(low, " ", ...cells, " ", high);
  setAttr($("tokens-scale"), "data-by", box.dataset.by ?? null);
}

/** @param {number} place */
function tell(place) {
  nodes[at]?.removeAttribute("data-chosen");
  at = place;
  const node = nodes[place];
  if (!node) return;
  node.setAttribute("data-chosen", "");
  const words = [t("tokens.token", { n: place + 1, id: idOf(columns, place) })];
  const known = place - columns.prompt.length;
  if (!columns.sampled[known]) words.push(t("tokens.of_environment"));
  else {
    const nats = (/** @type {number | null} */ value) =>
      value === null ? "–" : t("tokens.nats", { n: figure(value) });
    words.push(`${t("tokens.logprob")} ${nats(valueOf(columns, place, "logprob"))}`);
    words.push(`${t("tokens.entropy")} ${nats(valueOf(columns, place, "entropy"))}`);
    words.push(`${t("tokens.ratio")} ${figure(valueOf(columns, place, "ratio"))}`);
    words.push(`${t("tokens.advantage")} ${figure(valueOf(columns, place, "advantage"))}`);
    words.push(t(columns.learned[known] ? "tokens.learned" : "tokens.not_learned"));
  }
  setText($("tokens-one"), `“${plain(spellingOf(columns, place))}” · ${words.join(" · ")}`);
}

/** @param {Event} event */
function pointed(event) {
  const node = /** @type {Element} */ (event.target).closest?.(".token[data-at]");
  if (node) tell(Number(/** @type {HTMLElement} */ (node).dataset.at));
}

/** @param {KeyboardEvent} event */
function moved(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey || event.altKey || !nodes.length) return;
  event.preventDefault();
  event.stopPropagation(); // the page's own arrows go to the next rollout
  fill(blocks.length);
  tell(Math.max(0, Math.min(nodes.length - 1, at + step)));
  nodes[at].scrollIntoView({ block: "nearest" });
}

async function start() {
  const said = $("tokens-said");
  try {
    columns = await ask(`${page.api}/tokens`);
  } catch {
    return setText(said, t("tokens.failed"));
  }
  if (columns.why) return setText(said, columns.why);
  most = mostOf(columns);
  box.replaceChildren(...partsOf(columns).map(section));
  fill(FIRST);
  paint();
  requestAnimationFrame(() => setTimeout(fillRest)); // not before these are painted
  setText($("tokens-one"), t("tokens.none"));
  by.addEventListener("change", paint);
  for (const kind of ["pointerover", "click"]) box.addEventListener(kind, pointed);
  box.addEventListener("keydown", moved);
}

start();
