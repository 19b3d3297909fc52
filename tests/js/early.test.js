// @ts-check
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { openEarly, openSocket } from "../../static/js/lib/early.js";
import { Live } from "../../static/js/lib/live.js";

/** @type {any[]} */
let opened = [];

class FakeSocket {
  /** @param {string} url */
  constructor(url) {
    Object.assign(this, { url, readyState: 1, onmessage: null });
    opened.push(this);
  }
  close() {
    Object.assign(this, { readyState: 3 });
  }
}

beforeEach(() => {
  opened = [];
  /** @type {any} */ (globalThis).WebSocket = FakeSocket;
});

const URL = "ws://x/ws/runs/1/?least=2";
const said = (/** @type {string} */ type) => /** @type {any} */ ({ data: JSON.stringify({ type, seq: 2 }) });

test("what an early socket heard is passed to the one who takes it, in its order, and what comes later too", async () => {
  openEarly(URL);
  opened[0].onmessage(said("snapshot"));
  opened[0].onmessage(said("changes"));
  /** @type {string[]} */
  const frames = [];
  const live = new Live({
    url: "ws://x/ws/runs/1/",
    least: 2,
    seq: () => 0,
    onFrame: (frame) => frames.push(frame.type),
    onStatus: () => {},
    open: openSocket,
  });
  live.connect();
  assert.deepEqual(frames, []); // the page's script is still at work
  await Promise.resolve();
  opened[0].onmessage(said("beat"));
  assert.deepEqual(frames, ["snapshot", "changes", "beat"]);
  assert.equal(opened.length, 1);
  live.connect();
  assert.equal(opened.length, 2); // it is taken once
  assert.equal(opened[0].readyState, 3);
});

test("an early socket of another address, or one that was closed, is not taken", () => {
  openEarly(URL);
  const other = /** @type {any} */ (openSocket("ws://x/ws/runs/1/?least=3"));
  assert.deepEqual([other.url, opened[0].readyState], ["ws://x/ws/runs/1/?least=3", 3]);
  openEarly(URL);
  opened[2].close();
  assert.equal(openSocket(URL), opened[3]);
});
