// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, gridOf, markOf, ordersOf, sizeOf, slowest, stateOf, turnOf, waitsFor } from "../../static/js/lib/flight.js"; // prettier-ignore
import { nextPlace } from "../../static/js/lib/roving.js";

Object.assign(globalThis, { document: { querySelectorAll: () => [] } }); // no catalogue: a text is its key

/** @param {number} group @param {number} index @param {Record<string, any>} [over] */
const row = (group, index, over = {}) => ({ id: `${group}.${index}`, group, index, status: "running", ...over });

test("the grid has a cell for every rollout of the step before any has begun", () => {
  for (const [all, size] of [
    [8, 8],
    [64, 8],
    [512, 16],
  ]) {
    const empty = gridOf([], all, size);
    assert.deepEqual([empty.length, empty.flat().length], [all / size, all]);
    const begun = gridOf([row(0, 3), row(1 % (all / size), 0)], all, size);
    assert.equal(begun.flat().length, all, "its shape does not change with what begins");
  }
});

test("rollouts that were not expected have a place too", () => {
  const cells = gridOf([row(0, 0), row(0, 9), row(7, 1)], 8, 8); // a group beyond the first is a refill's
  assert.deepEqual(
    cells.map((group) => [group[0].group, group.length]),
    [
      [0, 10],
      [7, 8],
    ],
  );
  assert.equal(gridOf([row(2, 1)], null, null).flat().length, 2);
});

test("the slowest are the three that began first and are still played, by their place where they began together", () => {
  const at = (/** @type {number} */ second) => ({ started_at: `2026-01-01T00:00:0${second}Z` });
  const rows = [
    row(0, 0, { ...at(0), status: "completed" }),
    row(0, 1, at(5)),
    row(0, 2, at(2)),
    row(1, 0, at(5)),
    row(1, 1, at(6)),
  ];
  assert.deepEqual(
    slowest(rows, 3).map((each) => each.id),
    ["0.2", "0.1", "1.0"],
  );
  assert.deepEqual(slowest(rows.slice(0, 1), 3), []);
});

const said = (/** @type {string} */ role, /** @type {Record<string, any>} */ over = {}) => ({
  messages: [{ role, content: "", ...over }],
});

test("an answer is waited for within the turn that asked", () => {
  const call = said("assistant", { tool_calls: [{ name: "look\u200b" }, { name: "go\u200b" }] });
  const playing = row(0, 0, { turns: 4 });
  assert.equal(turnOf(playing, []), 5, "its turns are not known here: the server counted four");
  assert.equal(turnOf(playing, [said("user")]), 1);
  assert.equal(turnOf(playing, [said("user"), call]), 1);
  assert.equal(turnOf(playing, [said("user"), call, said("tool")]), 2);
  assert.equal(waitsFor([], "generating"), "flight.begins");
  assert.equal(waitsFor([said("user")], "generating"), "flight.writes");
  assert.equal(waitsFor([said("user"), call], "generating"), "flight.tool");
  assert.equal(waitsFor([said("user"), said("assistant")], "generating"), "flight.answer");
  assert.equal(waitsFor([said("user"), call], "scoring"), "flight.scoring");
});

test("what is in flight when all are played is being scored; what has ended says what came of it", () => {
  const states = [null, row(0, 0), row(0, 1, { status: "completed" })].map((each) => [
    stateOf(each, "generating"),
    stateOf(each, "scoring"),
  ]);
  assert.deepEqual(states, [
    ["waiting", "waiting"],
    ["running", "scoring"],
    ["completed", "completed"],
  ]);
  const marks = { solved: "✓", failed: "✗" };
  const ended = (/** @type {string} */ outcome) =>
    markOf(row(0, 0, { status: "completed", outcome }), [], "completed", marks);
  assert.deepEqual(["solved", "failed", "no_verdict"].map(ended), ["✓", "✗", ""]);
  assert.equal(markOf(row(0, 0, { turns: 0 }), [said("user")], "running", marks), "1");
  assert.equal(markOf(row(0, 0, { turns: 1 }), [], "scoring", marks), "");
  assert.equal(addressOf(row(0, 0, { step: 7 })), "?tab=rollouts&step=7&rollout=0.0");
});

test("dots are smaller where there are more", () => {
  const of = (/** @type {number} */ count) => sizeOf(count, { small: 192, middle: 64 });
  assert.deepEqual([64, 65, 192, 193].map(of), ["large", "middle", "middle", "small"]);
});

test("orders are found by the rollout that they name", () => {
  const events = [
    { kind: "log", payload: { message: "x" } },
    { kind: "rollout_order", payload: { rollout: "a", act: "end", by: "bob" } },
  ];
  assert.deepEqual([...ordersOf(events)], [["a", "bob"]]);
});

test("arrow keys stay inside", () => {
  assert.deepEqual(
    [nextPlace("ArrowLeft", 0, 8), nextPlace("ArrowRight", 7, 8), nextPlace("End", 0, 8), nextPlace("x", 3, 8)],
    [0, 7, 7, 3],
  );
});

test("up and down lead to the nearest of the next row, and stay at the edge", () => {
  // Two rows of three and a last one of one, as cards that wrap.
  const places = [0, 1, 2, 3, 4, 5, 6].map((n) => ({ top: 50 * Math.floor(n / 3), left: 90 * (n % 3) }));
  const to = (/** @type {string} */ key, /** @type {number} */ at) => nextPlace(key, at, 7, () => places);
  assert.deepEqual([to("ArrowDown", 1), to("ArrowDown", 5), to("ArrowDown", 6)], [4, 6, 6]);
  assert.deepEqual([to("ArrowUp", 6), to("ArrowUp", 4), to("ArrowUp", 2)], [3, 1, 2]);
  assert.deepEqual([to("ArrowRight", 2), to("ArrowLeft", 0)], [3, 0]);
});
