// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { readView, writeView } from "../../static/js/lib/view.js";

const TABS = ["curves", "config", "log"];

test("the view survives its address, and nonsense in it is dropped", () => {
  const view = {
    tab: "config",
    smooth: 0.6,
    log: true,
    still: true,
    stack: false,
    behind: false,
    x: "tokens",
    others: [{ id: "0b2f6f62-0000-4000-8000-0123456789ab", number: 3 }],
    add: ["env/latency_p95", "a b"],
  };
  assert.deepEqual(readView(writeView(view), TABS), view);
  const bad = readView("?tab=x&smooth=7&x=loss&with=0b2f.1&with=0b2f6f62-0000-4000-8000-0123456789ab.8", TABS);
  assert.deepEqual(bad, {
    tab: "curves",
    smooth: 0,
    log: false,
    still: false,
    stack: true,
    behind: true,
    x: "step",
    others: [],
    add: [],
  });
  assert.equal(writeView(bad), "");
});

test("a tab that the page lacks is the one that the server showed", () => {
  const tabs = ["curves", "log"]; // of a run without rollouts: the script hid all that the server showed
  assert.equal(readView("?tab=rollouts", tabs, "curves").tab, "curves");
  assert.equal(readView("?tab=log", tabs, "curves").tab, "log");
  assert.equal(readView("", tabs, "log").tab, "log");
});

test("two runs of one colour are not distinguished, so the second is left out", () => {
  const id = (/** @type {number} */ last) => `0b2f6f62-0000-4000-8000-00000000000${last}`;
  const { others } = readView(`?with=${id(1)}.2&with=${id(2)}.2&with=${id(1)}.3&with=${id(3)}.3`, TABS);
  assert.deepEqual(others, [
    { id: id(1), number: 2 },
    { id: id(3), number: 3 },
  ]);
});
