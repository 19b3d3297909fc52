// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { placeOf, rolloutOf, runOf } from "../../static/js/lib/preview.js";

const RUN = "/p/joust/runs/0f8fad5b-d9cb-469f-a165-70867728950e/";

/**
 * @param {string} pathname
 * @param {Record<string, any>} [more]
 * @returns {any}
 */
const link = (pathname, more = {}) => ({ dataset: {}, pathname, search: "", hash: "", matches: () => false, ...more });

test("a link to the page of a run names the run", () => {
  assert.equal(runOf(link(RUN), "/p/joust/runs/"), RUN);
  assert.equal(runOf(link("/notifications/7/open/", { dataset: { run: RUN } }), "/notifications/"), RUN);
});

test("links to its parts, buttons, and links of its own pages name none", () => {
  for (const other of [`${RUN}log/`, "/p/joust/runs/", "/p/joust/runs/new/", "/s/x/"]) {
    assert.equal(runOf(link(other), "/"), null, other);
  }
  assert.equal(runOf(link(RUN, { search: "?tab=rollouts" }), "/"), null);
  assert.equal(runOf(link(RUN, { hash: "#log" }), "/"), null);
  assert.equal(runOf(link(RUN, { matches: () => true }), "/"), null);
  assert.equal(runOf(link(RUN), RUN), null);
  assert.equal(runOf(link(RUN), `${RUN}tasks/`), null);
});

const ID = "0f8fad5b-d9cb-469f-a165-70867728950e";
const ROLLOUT = `/p/joust/rollouts/${ID}/`;
const OTHER = "/p/joust/runs/";

test("a link to a rollout names it by its address, by its id, or by its place in a run's list", () => {
  assert.equal(rolloutOf(link(ROLLOUT), OTHER), ROLLOUT);
  assert.equal(rolloutOf(link(ROLLOUT, { search: "?found=q%3Dx", hash: "#turn-2" }), OTHER), ROLLOUT);
  assert.equal(rolloutOf(link("/x/", { dataset: { rollout: ID } }), OTHER), ROLLOUT);
  assert.equal(rolloutOf(link(RUN, { search: `?tab=rollouts&step=2&rollout=${ID}` }), RUN), ROLLOUT);
});

test("other links, buttons, the page of the rollout, and the one that is read now name none", () => {
  for (const other of [RUN, `${ROLLOUT}branches/`, "/p/joust/rollouts/", "/"])
    assert.equal(rolloutOf(link(other), OTHER), null, other);
  assert.equal(rolloutOf(link(RUN, { search: "?tab=rollouts&step=2" }), RUN), null);
  assert.equal(rolloutOf(link(RUN, { search: `?rollout=${ID}` }), RUN), null);
  assert.equal(
    rolloutOf(link(ROLLOUT, { matches: (/** @type {string} */ one) => one.includes(".button") }), OTHER),
    null,
  );
  assert.equal(rolloutOf(link(ROLLOUT), ROLLOUT), null);
  assert.equal(rolloutOf(link(ROLLOUT), `${ROLLOUT}branches/`), null);
  const read = { dataset: { rollout: ID }, matches: (/** @type {string} */ one) => one === "[aria-current]" };
  assert.equal(rolloutOf(link("/x/", read), OTHER), null);
  assert.equal(rolloutOf(link("/x/", { dataset: { rollout: ID } }), "/notifications/"), null);
});

const view = { width: 800, height: 600 };
const card = { width: 320, height: 150 };

test("a card is below its link, above where there is too little room, and never over it", () => {
  assert.deepEqual(placeOf({ left: 100, top: 100, bottom: 120 }, card, view), { left: 100, top: 126, height: 150 });
  assert.deepEqual(placeOf({ left: 100, top: 418, bottom: 438 }, card, view), { left: 100, top: 444, height: 150 });
  assert.deepEqual(placeOf({ left: 100, top: 419, bottom: 439 }, card, view), { left: 100, top: 263, height: 150 });
});

test("a card that fits on neither side is cut in the larger one", () => {
  const low = { width: 800, height: 200 };
  assert.deepEqual(placeOf({ left: 0, top: 90, bottom: 110 }, card, low), { left: 6, top: 116, height: 78 });
  assert.deepEqual(placeOf({ left: 0, top: 100, bottom: 120 }, card, low), { left: 6, top: 6, height: 88 });
});

test("a card stays within the sides", () => {
  assert.equal(placeOf({ left: 700, top: 0, bottom: 20 }, card, view).left, 474);
  assert.equal(placeOf({ left: -50, top: 0, bottom: 20 }, card, view).left, 6);
  assert.equal(placeOf({ left: 50, top: 0, bottom: 20 }, card, { width: 300, height: 600 }).left, 6);
});
