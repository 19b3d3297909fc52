import assert from "node:assert/strict";
import test from "node:test";
import { answersOf } from "../../static/js/lib/rewound.js";

const say = (/** @type {string} */ role, content = "") => ({ role, content });

test("each turn of the policy has what was answered to it", () => {
  const messages = [
    say("assistant", "a"),
    say("tool", "1"),
    say("tool", "2"),
    say("assistant", "b"),
    say("assistant", "c"),
    say("user", "3"),
  ];
  assert.deepEqual(
    answersOf(messages).map(({ turn, said, messages: answered }) => [
      turn,
      said.content,
      answered.map((each) => each.content),
    ]),
    [
      [1, "a", ["1", "2"]],
      [2, "b", []],
      [3, "c", ["3"]],
    ],
  );
});

test("nothing was said", () => {
  assert.deepEqual(answersOf([]), []);
});
