// @ts-check
/** The fields of a tool's JSON schema, and the values typed into them. Pure. */

/** @typedef {Record<string, any>} Schema */
/** @typedef {"string" | "number" | "integer" | "boolean" | "enum" | "array" | "object" | "any"} Kind */
/** @typedef {{name: string, kind: Kind, required: boolean, help: string, schema: Schema, choices: any[]}} Field */

const KINDS = ["string", "number", "integer", "boolean", "array", "object"];

/**
 * One tool of a list, wrapped as OpenAI does or not.
 * @param {Schema} tool
 */
export function toolOf(tool) {
  const inner = isObject(tool?.function) ? tool.function : tool || {};
  return {
    name: String(inner.name ?? ""),
    description: typeof inner.description === "string" ? inner.description : "",
    parameters: isObject(inner.parameters) ? inner.parameters : isObject(inner.inputSchema) ? inner.inputSchema : {},
  };
}

/**
 * The fields of a tool's form, required ones first in their own order.
 * @param {Schema} parameters
 * @returns {Field[]}
 */
export function fieldsOf(parameters) {
  const properties = isObject(parameters.properties) ? parameters.properties : {};
  const required = new Set(Array.isArray(parameters.required) ? parameters.required.map(String) : []);
  const fields = Object.entries(properties).map(([name, given]) => {
    const schema = plainSchema(isObject(given) ? given : {});
    return {
      name,
      kind: kindOf(schema),
      required: required.has(name),
      help: typeof schema.description === "string" ? schema.description : "",
      schema,
      choices: Array.isArray(schema.enum) ? schema.enum : [],
    };
  });
  return [...fields.filter((field) => field.required), ...fields.filter((field) => !field.required)];
}

/**
 * A schema that may be null, or is one of several, as the first of them that is something.
 * @param {Schema} schema
 * @returns {Schema}
 */
function plainSchema(schema) {
  const several = [schema.anyOf, schema.oneOf].find(Array.isArray);
  if (several) {
    const chosen = several.filter(isObject).find((item) => item.type !== "null");
    return { ...chosen, ...schema, type: schema.type ?? chosen?.type };
  }
  if (Array.isArray(schema.type))
    return { ...schema, type: schema.type.find((/** @type {any} */ item) => item !== "null") };
  return schema;
}

/**
 * @param {Schema} schema
 * @returns {Kind}
 */
export function kindOf(schema) {
  if (Array.isArray(schema.enum) && schema.enum.length) return "enum";
  if (KINDS.includes(schema.type)) return schema.type;
  return isObject(schema.properties) ? "object" : "any";
}

/**
 * The typed text as the value to send; `undefined` where nothing was. An error is the key of a sentence.
 * @param {Field} field
 * @param {string} text
 * @returns {{value?: any, error?: string}}
 */
export function readField(field, text) {
  if (text === "") return field.required ? { error: "play.required" } : { value: undefined };
  if (field.kind === "string") return { value: text };
  if (field.kind === "enum") return { value: field.choices[Number(text)] };
  if (field.kind === "boolean") return { value: text === "true" };
  if (field.kind === "number" || field.kind === "integer") return readNumber(field.kind, text.trim());
  try {
    const value = JSON.parse(text);
    if (field.kind === "array" && !Array.isArray(value)) return { error: "play.not_list" };
    if (field.kind === "object" && !isObject(value)) return { error: "play.not_object" };
    return { value };
  } catch {
    return field.kind === "any" ? { value: text } : { error: "play.not_json" };
  }
}

/**
 * @param {string} kind
 * @param {string} text
 */
function readNumber(kind, text) {
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) || !Number.isFinite(Number(text)))
    return { error: "play.not_number" };
  if (kind === "integer" && !Number.isSafeInteger(Number(text))) return { error: "play.not_integer" };
  return { value: Number(text) };
}

/**
 * An example that the schema gives, as text.
 * @param {Schema} schema
 */
export function exampleOf(schema) {
  const found = Array.isArray(schema.examples) ? schema.examples[0] : schema.example;
  return found === undefined ? "" : shown(found);
}

/** @param {any} value */
export function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * What can be clicked on the open page of an environment that reports it, such as WebShop.
 * @param {Schema} info
 * @returns {string[]}
 */
export function clickablesOf(info) {
  const actions = info?.available_actions;
  const list = Array.isArray(actions) ? actions : actions?.clickables;
  return Array.isArray(list) ? list.filter((item) => typeof item === "string").slice(0, 200) : [];
}

/**
 * A click as this environment takes it: a call of its tool `click`, else a text.
 * @param {Schema[]} tools
 * @param {string} value
 */
export function clickStep(tools, value) {
  const tool = tools.map(toolOf).find((item) => item.name === "click");
  const fields = tool ? fieldsOf(tool.parameters) : [];
  const target = fields.find((field) => field.kind === "string");
  if (target) return { message: "", tool_calls: [{ name: "click", arguments: { [target.name]: value } }] };
  return { message: `click[${value}]`, tool_calls: [] };
}

/** @param {any} value */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
