// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { ask, askOrNull, Problem } from "../../static/js/lib/ask.js";

/** @param {any} fetch @returns {Promise<any>} the problem */
const problem = (fetch) => ask("/x", { limitMs: 20, fetch }).then(assert.fail, (found) => found);

test("the reasons for no answer are distinguished: refused, too late, dropped, offline, logged out", async () => {
  const refused = await problem(async () =>
    Response.json({ message: "no" }, { status: 422, headers: { "X-Request-Id": "r1" } }),
  );
  assert.ok(refused instanceof Problem);
  assert.deepEqual([refused.kind, refused.status, refused.body.message, refused.id], ["refused", 422, "no", "r1"]);
  const broken = await problem(async () => new Response("<h1>", { status: 500 }));
  assert.deepEqual([broken.kind, broken.status, broken.body, broken.id], ["refused", 500, {}, "–"]);
  const offline = await problem(async () => Promise.reject(new TypeError("net")));
  assert.deepEqual([offline.kind, offline.status], ["offline", 0]);
  const login = { type: "opaqueredirect", ok: false, status: 0, json: async () => JSON.parse("") };
  assert.equal((await problem(async () => login)).kind, "login");
  const never = (/** @type {any} */ _address, /** @type {any} */ given) =>
    new Promise((_resolve, reject) => given.signal.addEventListener("abort", () => reject(new Error("aborted"))));
  const late = await problem(never);
  assert.deepEqual([late.kind, late.limitMs], ["late", 20]);
  const stop = new AbortController();
  const dropped = ask("/x", { fetch: never, signal: stop.signal }).then(assert.fail, (found) => found);
  stop.abort();
  assert.equal((await dropped).kind, "dropped");
});

test("an address is read without a body, and a body is posted with the page's token", async () => {
  /** @type {any[]} */
  const seen = [];
  const fetch = /** @type {any} */ (
    async (/** @type {any} */ address, /** @type {any} */ given) => {
      seen.push([address, given.method, given.headers["X-CSRFToken"], given.body, given.redirect]);
      return Response.json({ n: seen.length });
    }
  );
  const whole = /** @type {any} */ (globalThis);
  whole.document = { body: { getAttribute: () => '{"X-CSRFToken": "secret"}' } };
  assert.deepEqual(await ask("/a", { fetch }), { n: 1 });
  assert.deepEqual(await ask("/b", { fetch, body: { m: 1 } }), { n: 2 });
  delete whole.document;
  assert.deepEqual(seen, [
    ["/a", undefined, undefined, undefined, "manual"],
    ["/b", "POST", "secret", '{"m":1}', "manual"],
  ]);
});

test("a post whose answer was lost has the same key when it is sent again, and a new one after an answer", async () => {
  const whole = /** @type {any} */ (globalThis);
  whole.document = { body: { getAttribute: () => "{}" } };
  /** @type {string[]} */
  const seen = [];
  /** @type {any} */
  let answer;
  const fetch = /** @type {any} */ (
    async (/** @type {any} */ _address, /** @type {any} */ given) => {
      seen.push(given.headers["Idempotency-Key"]);
      return answer();
    }
  );
  const post = async (/** @type {() => any} */ next, body = { text: "hi" }, once = "2 parts", address = "/x") => {
    answer = next;
    await ask(address, { body, once, fetch }).catch(() => null);
    return seen.at(-1);
  };
  const lost = () => Promise.reject(new TypeError("net"));
  const status = (/** @type {number} */ code) => () => Response.json({}, { status: code });
  const key = await post(lost);
  assert.match(String(key), /^[0-9a-f-]{4,64}$/);
  for (const unsure of [lost, status(500), status(504), status(409)]) assert.equal(await post(unsure), key);
  const others = [await post(lost, { text: "other" }), await post(lost, undefined, "3 parts")];
  assert.equal(new Set([key, ...others, await post(lost, undefined, undefined, "/y")]).size, 4);
  assert.equal(await post(status(422)), key);
  const second = await post(status(499));
  assert.notEqual(second, key);
  assert.notEqual(await post(status(200)), second);
  await ask("/x", { body: {}, fetch });
  assert.equal(seen.at(-1), undefined);
  delete whole.document;
});

test("no answer is null where the reason does not matter", async () => {
  const before = globalThis.fetch;
  globalThis.fetch = async () => new Response("{}", { status: 503 });
  assert.equal(await askOrNull("/x"), null);
  globalThis.fetch = async () => Response.json({ n: 1 });
  assert.deepEqual(await askOrNull("/x"), { n: 1 });
  globalThis.fetch = before;
});
