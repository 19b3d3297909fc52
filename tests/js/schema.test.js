// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";
import { clickablesOf, clickStep, exampleOf, fieldsOf, kindOf, readField, toolOf } from "../../static/js/lib/schema.js";

/** @param {Record<string, any>} schema @param {boolean} [required] */
const field = (schema, required = false) => fieldsOf({ properties: { a: schema }, required: required ? ["a"] : [] })[0];

test("a tool is read with and without OpenAI's wrapping, and with MCP's name for its schema", () => {
  const parameters = { type: "object", properties: {} };
  assert.deepEqual(toolOf({ type: "function", function: { name: "a", description: "b", parameters } }), {
    name: "a",
    description: "b",
    parameters,
  });
  assert.equal(toolOf({ name: "c", inputSchema: parameters }).parameters, parameters);
  assert.deepEqual(toolOf({}), { name: "", description: "", parameters: {} });
});

test("required fields come first, each with its kind", () => {
  const fields = fieldsOf({ properties: { a: { type: "number" }, b: { enum: ["x", 2] }, c: {} }, required: ["b"] });
  assert.deepEqual(fields.map((item) => [item.name, item.kind, item.required]), [["b", "enum", true], ["a", "number", false], ["c", "any", false]]); // prettier-ignore
  assert.deepEqual(fieldsOf({ properties: null, required: 7 }), []);
});

test("a schema that may be null is what it is otherwise", () => {
  assert.equal(field({ type: ["null", "integer"] }).kind, "integer");
  assert.equal(field({ anyOf: [{ type: "null" }, { type: "array" }], description: "d" }).kind, "array");
  assert.equal(field({ anyOf: [{ type: "null" }, { type: "array" }], description: "d" }).help, "d");
  assert.equal(kindOf({ properties: {} }), "object");
});

test("what is typed becomes a value of the schema's type", () => {
  assert.deepEqual(readField(field({ type: "string" }), " a\nb "), { value: " a\nb " });
  assert.deepEqual(readField(field({ type: "number" }), "-1.5e2"), { value: -150 });
  assert.deepEqual(readField(field({ type: "integer" }), "7"), { value: 7 });
  assert.deepEqual(readField(field({ type: "boolean" }), "false"), { value: false });
  assert.deepEqual(readField(field({ enum: ["x", 2] }), "1"), { value: 2 });
  assert.deepEqual(readField(field({ type: "array" }), "[1]"), { value: [1] });
  assert.deepEqual(readField(field({ type: "object" }), '{"b": null}'), { value: { b: null } });
  assert.deepEqual(readField(field({}), "word"), { value: "word" });
  assert.deepEqual(readField(field({}), "3"), { value: 3 });
});

test("nothing typed is nothing sent, unless it is required", () => {
  assert.deepEqual(readField(field({ type: "string" }), ""), { value: undefined });
  assert.deepEqual(readField(field({ type: "string" }, true), ""), { error: "play.required" });
});

test("what cannot be the type is a sentence", () => {
  for (const text of ["abc", "0x10", "1e999", "NaN", "1,5"])
    assert.deepEqual(readField(field({ type: "number" }), text), { error: "play.not_number" });
  for (const text of ["1.5", "9007199254740993"])
    assert.deepEqual(readField(field({ type: "integer" }), text), { error: "play.not_integer" });
  assert.deepEqual(readField(field({ type: "array" }), "{}"), { error: "play.not_list" });
  assert.deepEqual(readField(field({ type: "object" }), "[]"), { error: "play.not_object" });
  assert.deepEqual(readField(field({ type: "object" }), "{"), { error: "play.not_json" });
});

test("examples, clickables and clicks", () => {
  assert.equal(exampleOf({ examples: [{ a: 1 }] }), '{"a":1}');
  assert.equal(exampleOf({}), "");
  assert.deepEqual(clickablesOf({ available_actions: { clickables: ["a", 1] } }), ["a"]);
  assert.deepEqual(clickablesOf({ available_actions: ["b"] }), ["b"]);
  assert.deepEqual(clickablesOf({}), []);
  const click = { function: { name: "click", parameters: { properties: { value: { type: "string" } } } } };
  assert.deepEqual(clickStep([click], "a"), {
    message: "",
    tool_calls: [{ name: "click", arguments: { value: "a" } }],
  });
  assert.deepEqual(clickStep([], "a"), { message: "click[a]", tool_calls: [] });
});
