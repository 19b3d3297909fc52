// @ts-check
/** A page as far as our scripts need one: markup becomes its elements. */
import { Element, Text, send } from "./elements.js";

export { send };

const EMPTY = new Set(["input", "br", "img", "use", "hr"]);

/** @type {(html: string) => any[]} the elements and texts of some markup */
export function parsed(html) {
  const root = new Element("template");
  let at = /** @type {any} */ (root);
  for (const [, close, tag, attributes, text] of html.matchAll(/<(\/?)([\w-]+)((?:\s[^>]*)?)>|([^<]+)/g)) {
    if (text !== undefined) at.append(text);
    else if (close) at = at.parentElement;
    else {
      const node = new Element(tag);
      for (const [, name, , value] of attributes.matchAll(/([\w:.-]+)(=["']([^"']*)["'])?/g))
        node.setAttribute(name, value ?? "");
      at.append(node);
      if (!EMPTY.has(tag)) at = node;
    }
  }
  return [...root.childNodes];
}

/** The classes of elements of one tag, as scripts ask for them. */
function kinds() {
  const tags = { HTMLInputElement: "input", HTMLDialogElement: "dialog", HTMLAnchorElement: "a", HTMLButtonElement: "button", HTMLSelectElement: "select", HTMLTextAreaElement: "textarea", HTMLDetailsElement: "details", HTMLFormElement: "form", HTMLTemplateElement: "template" }; // prettier-ignore
  const kind = (/** @type {string} */ tag) => ({ [Symbol.hasInstance]: (/** @type {any} */ node) => node?.localName === tag }); // prettier-ignore
  const classOf = (/** @type {string} */ tag) => Object.defineProperties(class {}, Object.getOwnPropertyDescriptors(kind(tag))); // prettier-ignore
  return Object.fromEntries(Object.entries(tags).map(([name, tag]) => [name, classOf(tag)]));
}

/**
 * Make this the page that scripts find.
 * @param {string} html what is in its body
 * @param {Record<string, string>} [texts] its catalogue; without it a text is its key
 * @returns {any} the document
 */
export function page(html, texts = {}) {
  const [whole, body] = [new Element("html"), new Element("body")];
  whole.append(body);
  body.append(...parsed(html));
  const strings = new Element("script");
  for (const [name, value] of Object.entries({ type: "application/json", id: "strings-test" }))
    strings.setAttribute(name, value);
  strings.append(JSON.stringify(texts));
  body.append(strings);
  const document = Object.assign(new EventTarget(), {
    documentElement: whole,
    body,
    activeElement: body,
    getElementById: (/** @type {string} */ id) => whole.querySelector(`#${id}`),
    querySelector: (/** @type {string} */ selector) => whole.querySelector(selector),
    querySelectorAll: (/** @type {string} */ selector) => whole.querySelectorAll(selector),
    createElement: (/** @type {string} */ tag) => new Element(tag),
    createElementNS: (/** @type {string} */ _space, /** @type {string} */ tag) => new Element(tag),
    createTextNode: (/** @type {string} */ text) => new Text(text),
    importNode: (/** @type {any} */ node) => node.cloneNode(),
    visibilityState: "visible",
  });
  Object.assign(globalThis, { document, Element, Node: Element, HTMLElement: Element, ...kinds() });
  return document;
}

/** @type {(node: any, key: string, facts?: Record<string, any>) => boolean} */
export const press = (node, key, facts = {}) => send(node, "keydown", { key, ...facts });
