// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { READ_MS, Saying, saidOf } from "../../static/js/lib/saying.js";

/** A page with a clock of its own. */
function page({ empty = false } = {}) {
  const known = { now: 0, asked: 0, busy: false, empty };
  /** @type {{at: number, work: () => void}[]} */
  let timers = [];
  const saying = new Saying({
    ask: () => (known.asked += 1),
    empty: () => known.empty,
    busy: () => known.busy,
    now: () => known.now,
    later: (work, ms) => timers.push({ at: known.now + ms, work }),
  });
  const pass = (/** @type {number} */ ms) => {
    known.now += ms;
    const due = timers.filter((timer) => timer.at <= known.now);
    timers = timers.filter((timer) => timer.at > known.now);
    for (const timer of due) timer.work();
  };
  return { known, saying, pass };
}

test("the text that came with the page stays for as long as reading it takes", () => {
  const { known, saying, pass } = page();
  saying.heard("3: 1");
  pass(1000);
  saying.heard("3: 2");
  saying.heard("3: 3");
  pass(READ_MS - 1001);
  assert.equal(known.asked, 0);
  pass(1);
  assert.equal(known.asked, 1);
  saying.heard("3: 3");
  pass(10 * READ_MS);
  assert.equal(known.asked, 1, "nothing new, nothing asked");
});

test("where no text is shown the first one comes at once", () => {
  const { known, saying, pass } = page({ empty: true });
  saying.heard("");
  pass(0);
  assert.equal(known.asked, 0);
  saying.heard("1: 1");
  pass(0);
  assert.equal(known.asked, 1);
});

test("nothing moves under a person who points at it, nor in a page that is hidden", () => {
  const { known, saying, pass } = page();
  saying.heard("1: 1");
  saying.heard("1: 2");
  known.busy = true;
  pass(READ_MS);
  pass(5000);
  assert.equal(known.asked, 0);
  known.busy = false;
  pass(1000);
  assert.equal(known.asked, 1);
});

test("a new step without an ended rollout changes nothing", () => {
  const { known, saying, pass } = page();
  saying.heard("1: 8");
  saying.heard("");
  pass(READ_MS);
  assert.equal(known.asked, 0);
});

test("what has been said is counted in rollouts that ended, else in turns", () => {
  const row = (/** @type {string} */ status, turns = 0) => ({ status, turns });
  assert.equal(saidOf([row("completed"), row("truncated"), row("excluded"), row("running", 2)], 7), "7: 2");
  assert.equal(saidOf([row("running"), row("running", 1)], 7), "7: in flight");
  assert.equal(saidOf([row("running")], 7), "");
  assert.equal(saidOf([], null), "");
});
