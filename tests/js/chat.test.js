import assert from "node:assert/strict";
import { test } from "node:test";
import { cardsOf, ChatState, waitWords } from "../../static/js/lib/chat.js";

/** @typedef {Record<string, any>} Row */

/** @type {(id: string, number: number, more?: Row) => Row} */
const turn = (id, number, more = {}) => ({ id, number, text: id, replaced: false, ...more });
/** @type {(id: string, of: string, more?: Row) => Row} */
const answer = (id, of, more = {}) => ({
  id,
  turn: of,
  contestant: 0,
  number: 0,
  state: "done",
  messages: [],
  partial: "",
  ...more,
});
/** @type {(type: string, seq: number, turns: Row[], answers: Row[], more?: Row[]) => Row} */
const frame = (type, seq, turns, answers, more = []) => ({ type, seq, turns, answers, more, title: `at ${seq}` });

test("a chat is what its frames make it", () => {
  const state = new ChatState();
  state.apply(
    frame("chat", 3, [turn("b", 1), turn("a", 0)], [answer("x", "b", { state: "answering", partial: "Hel" })]),
  );
  assert.deepEqual(
    state.current().map((one) => one.id),
    ["a", "b"],
  );
  assert.equal(state.busy, true);
  state.apply(frame("changes", 4, [], [], [{ id: "x", text: "lo" }]));
  assert.equal(state.answers.get("x")?.partial, "Hello");
  state.apply(frame("changes", 5, [], [answer("x", "b", { messages: [{ role: "assistant", content: "Hello" }] })]));
  assert.deepEqual([state.busy, state.said, state.seq, state.chat.title], [false, true, 5, "at 5"]);
  state.apply(frame("changes", 6, [turn("b", 1, { replaced: true }), turn("c", 1)], []));
  assert.deepEqual(
    state.earlier(state.current()[1]).map((one) => one.id),
    ["b"],
  );
  state.apply(frame("chat", 7, [turn("c", 1)], []));
  assert.equal(state.answers.size, 0, "a whole frame begins again");
  assert.equal(state.apply({ type: "beat" }), false);
});

test("what was posted is found in the chat: a turn with its text, or another draw", () => {
  const state = new ChatState();
  state.apply(
    frame("chat", 1, [turn("a", 0, { text: "hi" })], [answer("x", "a"), answer("y", "a", { contestant: 1 })]),
  );
  const before = state.ids;
  assert.deepEqual([...before], ["a", "x", "y"]);
  assert.equal(state.hasArrived({ text: "hi" }, before), false, "the earlier turn with the same text");
  assert.equal(state.hasArrived({ answer: "x" }, before), false);
  state.apply(frame("changes", 2, [turn("b", 1, { text: "hi" })], [answer("z", "a", { number: 1 }), answer("w", "b")]));
  assert.equal(state.hasArrived({ text: " hi\n" }, before), true);
  assert.equal(state.hasArrived({ text: "ho" }, before), false);
  assert.equal(state.hasArrived({ answer: "x" }, before), true);
  assert.equal(state.hasArrived({ answer: "y" }, before), false, "of the other contestant");
  assert.equal(state.hasArrived({ kind: "row", name: "talks" }, before), false);
});

test("reasoning and a refusal are cards of their own kind", () => {
  const messages = [{ role: "assistant", content: "Hm.", reasoning: "2 and 3", refusal: "No.", finish: "length" }];
  assert.deepEqual(cardsOf(answer("x", "a", { messages })), [
    { kind: "reasoning", text: "2 and 3" },
    { kind: "text", text: "Hm." },
    { kind: "refusal", text: "No." },
  ]);
  const refused = [{ role: "assistant", content: "", refusal: "No." }];
  assert.deepEqual(cardsOf(answer("x", "a", { messages: refused })), [{ kind: "refusal", text: "No." }]);
});

test("answers to an edited turn keep no one waiting", () => {
  const state = new ChatState();
  state.apply(
    frame("chat", 1, [turn("a", 0, { replaced: true }), turn("b", 0)], [answer("x", "a", { state: "waiting" })]),
  );
  assert.equal(state.busy, false);
});

test("tries are in the order in which they were drawn", () => {
  const state = new ChatState();
  const tries = [answer("second", "a", { number: 1 }), answer("first", "a"), answer("other", "a", { contestant: 1 })];
  state.apply(frame("chat", 1, [turn("a", 0)], tries));
  assert.deepEqual(
    state.answersTo(turn("a", 0), 0).map((one) => one.id),
    ["first", "second"],
  );
});

test("calls are shown with what answered them, and unanswered ones stay open", () => {
  const calls = [
    { id: "1", name: "add", arguments: { a: 1 } },
    { id: "2", name: "gone", arguments: {} },
  ];
  const messages = [
    { role: "assistant", content: "Let me see.", tool_calls: calls },
    { role: "tool", content: "2", tool_call_id: "1" },
    { role: "tool", content: "stray", tool_call_id: "9" },
    { role: "user", content: "Go on." },
  ];
  const cards = cardsOf(answer("x", "a", { messages, partial: "It is", state: "answering" }));
  assert.deepEqual(
    cards.map((card) => [card.kind, card.result ?? card.text ?? null]),
    [
      ["text", "Let me see."],
      ["call", "2"],
      ["call", null],
      ["environment", "stray"],
      ["environment", "Go on."],
      ["text", "It is"],
    ],
  );
  assert.equal(cards.at(-1)?.growing, true);
});

test("what an answer waits for is shown with the seconds that passed since the frame", () => {
  const time = (/** @type {number} */ seconds) => `${seconds} s`;
  const wait = { seconds: 4.2, before: 2, why: "busy", at: 1000 };
  assert.deepEqual(waitWords(wait, time, 3500), { key: "chat.wait.busy", values: { t: "6 s", n: 2 } });
  const run = { ...wait, why: "run", run: "first", left: 61.5 };
  assert.equal(waitWords(run, time, 1000).key, "chat.wait.run_left");
  assert.equal(waitWords(run, time, 1000).values.left, "62 s");
  assert.equal(waitWords({ ...run, left: null }, time, 1000).key, "chat.wait.run");
  assert.equal(waitWords({ ...run, run: "", left: null }, time, 1000).key, "chat.wait.other_run");
});
