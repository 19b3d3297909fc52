// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { idOf, mostOf, partsOf, shadeOf, spellingOf, valueOf } from "../../static/js/lib/tokens.js";

const columns = {
  prompt: [900, 901],
  ids: [10, 11, 12, 13],
  sampled: [1, 1, 0, 1],
  learned: [1, 1, 0, 0],
  logprob: [-0.01, -6, null, -0.3],
  entropy: [0.1, 4, null, null],
  ratio: [1, 0.5, null, null],
  advantage: -1.5,
  spelling: { 900: ["天", true], 901: ["e5a4", false], 10: [" It", true] },
};

test("the parts follow who wrote them", () => {
  assert.deepEqual(partsOf(columns), [
    { who: "prompt", from: 0, to: 2 },
    { who: "model", from: 2, to: 4 },
    { who: "environment", from: 4, to: 5 },
    { who: "model", from: 5, to: 6 },
  ]);
  assert.deepEqual(partsOf({ prompt: [], sampled: [] }), []);
});

test("a token spells its text, its bytes or its number", () => {
  assert.equal(idOf(columns, 1), 901);
  assert.equal(idOf(columns, 2), 10);
  assert.equal(spellingOf(columns, 0), "天");
  assert.equal(spellingOf(columns, 1), "‹e5a4›");
  assert.equal(spellingOf(columns, 2), " It");
  assert.equal(spellingOf(columns, 3), "#11");
});

test("a value is there only where the model sampled the token", () => {
  assert.equal(valueOf(columns, 0, "logprob"), null);
  assert.equal(valueOf(columns, 4, "advantage"), null);
  assert.equal(valueOf(columns, 2, "advantage"), -1.5);
  assert.equal(valueOf(columns, 5, "advantage"), null); // sampled, and not learned from
  assert.equal(valueOf(columns, 5, "mask"), 0);
  assert.equal(valueOf(columns, 5, "entropy"), null);
  assert.equal(valueOf({ ...columns, advantage: [0.25, 0, 0, 0] }, 2, "advantage"), 0.25);
  assert.equal(valueOf({ ...columns, advantage: null }, 2, "advantage"), null);
});

test("shades rise with surprise and lean with what an advantage says", () => {
  assert.equal(shadeOf(null, "logprob", 1), null);
  assert.deepEqual(
    [-0, -0.04, -0.2, -1, -10].map((value) => shadeOf(value, "logprob", 1)),
    [0, 0, 2, 3, 6],
  );
  assert.deepEqual(
    [1, 1.05, 2.5, 0.9, 0.4].map((value) => shadeOf(value, "ratio", 1)),
    [0, 1, 4, -2, -4],
  );
  assert.deepEqual(
    [1.5, -1.5, 0.4, 0].map((value) => shadeOf(value, "advantage", 1.5)),
    [4, -4, 1, 0],
  );
  assert.equal(shadeOf(0, "advantage", 0), 0);
  assert.equal(mostOf(columns), 1.5);
  assert.equal(mostOf({ advantage: [0.5, -2] }), 2);
  assert.equal(mostOf({ advantage: null }), 0);
});
