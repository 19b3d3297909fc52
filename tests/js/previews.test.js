// @ts-check
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { previews } from "../../static/js/lib/preview.js";
import { page, parsed, press, send } from "./page.js";

const FIRST = "/p/joust/runs/0f8fad5b-d9cb-469f-a165-70867728950e/";
const OTHER = "/p/joust/runs/1f8fad5b-d9cb-469f-a165-70867728950e/";
const MARKUP = `<main id="list"><a id="first" href="/1" data-run="${FIRST}" aria-describedby="help">first</a>
<a id="other" href="/2" data-run="${OTHER}">other</a><a id="plain" href="/3">plain</a></main><aside id="side"></aside>`;

/** @type {any} */
let shown;
/** @type {string[]} */
let asked;
/** @type {Record<string, any>} */
let answer;
beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout"] });
  shown = page(MARKUP);
  asked = [];
  answer = { ok: true, redirected: false };
  const parseFromString = (/** @type {string} */ text) => ({ body: { childNodes: parsed(text) } });
  Object.assign(globalThis, {
    location: { pathname: "/p/joust/" },
    DOMParser: class {
      parseFromString = parseFromString;
    },
    fetch: async (/** @type {string} */ address) => {
      asked.push(address);
      return { ...answer, text: async () => `<p>${address}</p>` };
    },
  });
  previews();
});
afterEach(() => mock.timers.reset());

/** @type {(id: string) => any} */
const at = (id) => shown.getElementById(id);
const over = (/** @type {any} */ node, pointerType = "mouse") => send(node, "pointerover", { pointerType });
const wait = async (/** @type {number} */ ms) => {
  mock.timers.tick(ms);
  await new Promise(setImmediate);
};
const isShown = () => at("preview") !== null && !at("preview").hidden;

test("a card comes when the pointer has rested on a link, and describes it", async () => {
  over(at("first"));
  await wait(299);
  assert.deepEqual(asked, []);
  await wait(1);
  assert.deepEqual(asked, [`${FIRST}preview/`]);
  assert.equal(isShown(), true);
  assert.equal(at("preview").textContent, `${FIRST}preview/`);
  assert.equal(at("first").getAttribute("aria-describedby"), "help preview");
});

test("a finger, another link, and a link that is left too soon bring none", async () => {
  over(at("first"), "touch");
  await wait(900);
  over(at("plain"));
  await wait(900);
  over(at("first"));
  await wait(200);
  over(at("side"));
  await wait(900);
  assert.deepEqual([asked, isShown()], [[], false]);
});

test("the keyboard's focus waits for longer, and leaving puts the card away at once", async () => {
  at("first").focus();
  await wait(599);
  assert.deepEqual(asked, []);
  await wait(1);
  assert.equal(isShown(), true);
  send(at("first"), "focusout");
  assert.equal(isShown(), false);
  assert.equal(at("first").getAttribute("aria-describedby"), "help");
});

test("the pointer may go from the link to its card, and elsewhere ends it", async () => {
  over(at("first"));
  await wait(300);
  over(at("side"));
  await wait(149);
  over(at("preview"));
  await wait(900);
  assert.equal(isShown(), true);
  over(at("side"));
  await wait(149);
  over(at("first"));
  await wait(900);
  assert.equal(isShown(), true, "it came back to the link");
  over(at("side"));
  await wait(150);
  assert.equal(isShown(), false);
});

test("another link has its own card", async () => {
  over(at("first"));
  await wait(300);
  over(at("other"));
  assert.equal(isShown(), false);
  await wait(300);
  assert.equal(at("preview").textContent, `${OTHER}preview/`);
  assert.equal(at("first").getAttribute("aria-describedby"), "help");
});

test("escape puts it away until the pointer comes again", async () => {
  over(at("first"));
  await wait(300);
  press(at("first"), "a");
  assert.equal(isShown(), true);
  press(at("first"), "Escape");
  over(at("first"));
  await wait(900);
  assert.equal(isShown(), false);
  over(at("side"));
  over(at("first"));
  await wait(300);
  assert.equal(isShown(), true);
});

test("an answer that is an error or the login page, or comes too late, is no card", async () => {
  for (const wrong of [{ ok: false }, { redirected: true }]) {
    answer = { ok: true, redirected: false, ...wrong };
    over(at("first"));
    await wait(300);
    assert.equal(isShown(), false);
    over(at("side"));
  }
  answer = { ok: true, redirected: false };
  over(at("first"));
  mock.timers.tick(300);
  send(at("side"), "pointerdown");
  await wait(0);
  assert.deepEqual([asked.length, isShown()], [3, false]);
});

test("a list that came again gives the card to the new link, or none where it is gone", async () => {
  over(at("first"));
  await wait(300);
  const [same] = parsed(`<a id="first" href="/1" data-run="${FIRST}">first</a>`);
  at("list").replaceChildren(same);
  send(shown.body, "htmx:afterSettle");
  assert.equal(isShown(), true);
  assert.equal(same.getAttribute("aria-describedby"), "preview");
  at("list").replaceChildren();
  send(shown.body, "htmx:afterSettle");
  assert.equal(isShown(), false);
});

test("only what scrolls with the link puts its card away", async () => {
  over(at("first"));
  await wait(300);
  send(at("side"), "scroll");
  assert.equal(isShown(), true);
  send(at("list"), "scroll");
  assert.equal(isShown(), false);
});
