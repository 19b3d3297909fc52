// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { gridOf, slowest } from "../../static/js/lib/flight.js";
import { nextPlace } from "../../static/js/lib/roving.js";

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
  const cells = gridOf([row(0, 0), row(0, 9), row(7, 1)], 8, 8);
  assert.deepEqual(
    cells.map((group) => [group[0].group, group.length]),
    [
      [0, 10],
      [7, 8],
    ],
  );
  assert.equal(gridOf([row(2, 1)], null, null).flat().length, 2);
});

test("the slowest is the one that began first and is still played", () => {
  const rows = [
    row(0, 0, { started_at: "2026-01-01T00:00:00Z", status: "completed" }),
    row(0, 1, { started_at: "2026-01-01T00:00:05Z" }),
    row(0, 2, { started_at: "2026-01-01T00:00:02Z" }),
  ];
  assert.equal(slowest(rows)?.id, "0.2");
  assert.equal(slowest(rows.slice(0, 1)), null);
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
