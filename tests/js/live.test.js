// @ts-check
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { DEAD_MS, Live, PAUSE_MAX_MS, pauseMs, STALE_MS } from "../../static/js/lib/live.js";

/** A live line on sockets and a clock that the test moves. */
function setUp(seq = 0) {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  /** @type {any} */
  const seen = { sockets: [], frames: [], status: "", now: 0, seq, lines: 0 };
  const live = new Live({
    url: "ws://x/ws/runs/1/",
    least: 2,
    language: "zh-hans",
    seq: () => seen.seq,
    onFrame: (frame) => seen.frames.push(frame),
    onStatus: (status) => (seen.status = status),
    onLine: () => (seen.lines += 1),
    now: () => seen.now,
    random: () => 0.5,
    open: (url) => {
      const socket = {
        url,
        readyState: 1,
        sent: /** @type {string[]} */ ([]),
        close() {
          this.readyState = 3;
        },
        send(/** @type {string} */ text) {
          this.sent.push(text);
        },
      };
      seen.sockets.push(socket);
      return socket;
    },
  });
  const pass = (/** @type {number} */ ms) => {
    for (let left = ms; left > 0; left -= 1000) {
      seen.now += Math.min(1000, left);
      mock.timers.tick(Math.min(1000, left));
    }
  };
  live.start();
  return { live, seen, pass, last: () => seen.sockets[seen.sockets.length - 1] };
}

test.afterEach(() => mock.timers.reset());

test("frames arrive and the badge says live", () => {
  const { live, seen, last } = setUp();
  assert.equal(last().url, "ws://x/ws/runs/1/?least=2&language=zh-hans");
  last().onmessage({ data: '{"type":"snapshot","seq":3}' });
  assert.equal(seen.frames.length, 1);
  assert.equal(seen.status, "live");
  live.stop();
});

test("a lost line comes back after a pause, from the newest seq", () => {
  const { live, seen, pass, last } = setUp();
  last().onmessage({ data: '{"type":"changes","seq":7}' });
  seen.seq = 7;
  last().onclose({ code: 1006 });
  assert.equal(seen.status, "reconnecting");
  pass(2000);
  assert.equal(seen.sockets.length, 2);
  assert.equal(last().url, "ws://x/ws/runs/1/?after=7&language=zh-hans");
  live.stop();
});

test("a line that works forgets how often it was lost before", () => {
  const { live, seen, pass, last } = setUp();
  for (let lost = 1; lost <= 8; lost += 1) {
    last().onmessage({ data: '{"type":"beat"}' });
    last().onclose({ code: 1006 });
    pass(1000); // the first pause is at most half a second
    assert.equal(seen.sockets.length, lost + 1);
  }
  live.stop();
});

test("silence is shown as stale, and a dead line is opened again", () => {
  const { live, seen, pass, last } = setUp();
  last().onmessage({ data: '{"type":"beat"}' });
  pass(STALE_MS + 1000);
  assert.equal(seen.status, "stale");
  pass(DEAD_MS);
  assert.ok(seen.sockets.length >= 2);
  last().onmessage({ data: '{"type":"beat"}' });
  assert.equal(seen.status, "live");
  live.stop();
});

test("a refusal is final: no more tries", () => {
  for (const [code, status] of [
    [4401, "login"],
    [4403, "forbidden"],
    [4404, "gone"],
  ]) {
    const { seen, pass, last } = setUp();
    last().onclose({ code });
    assert.equal(seen.status, status);
    pass(60_000);
    assert.equal(seen.sockets.length, 1);
    mock.timers.reset();
  }
});

test("too many sockets is tried again, slowly", () => {
  const { live, seen, pass, last } = setUp();
  last().onclose({ code: 4429 });
  pass(3000);
  assert.equal(seen.sockets.length, 1);
  pass(PAUSE_MAX_MS);
  assert.equal(seen.sockets.length, 2);
  live.stop();
});

test("waking up does not wait for the pause to end", () => {
  const { live, seen, last } = setUp();
  last().onclose({ code: 1006 });
  live.wake();
  assert.equal(seen.sockets.length, 2);
  live.stop();
});

test("a paused server is not called live", () => {
  const { live, seen, last } = setUp();
  last().onmessage({ data: '{"type":"beat","paused":true}' });
  assert.equal(seen.status, "paused");
  live.stop();
});

test("a frame of an abandoned socket is not heard", () => {
  const { live, seen, last } = setUp();
  const old = last();
  const hear = old.onmessage;
  live.connect();
  hear({ data: '{"type":"beat"}' });
  assert.equal(seen.frames.length, 0);
  live.stop();
});

test("pauses grow, are spread, and have a cap", () => {
  assert.ok(pauseMs(0, 0) < pauseMs(3, 0));
  assert.ok(pauseMs(2, 0) < pauseMs(2, 1));
  assert.equal(pauseMs(50, 1), PAUSE_MAX_MS);
});

test("every new line is announced, also one that takes the place of a line that died in silence", () => {
  const { live, seen, pass, last } = setUp();
  assert.equal(seen.lines, 1);
  last().onmessage({ data: '{"type":"snapshot","seq":3}' });
  pass(DEAD_MS + PAUSE_MAX_MS); // the status is "stale" all along, never "reconnecting"
  assert.equal(seen.sockets.length, 2);
  assert.equal(seen.lines, 2);
  live.stop();
});
