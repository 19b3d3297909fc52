// @ts-check
/** Elements as far as our scripts need them: they can be asked, changed, and clicked. */
import { matchesPath } from "./selectors.js";

const FLAGS = ["hidden", "disabled", "checked", "open", "inert"];
const NAMES = ["id", "href", "type", "name", "min", "max", "step", "title"];

/** @param {string} name */
const attributeOf = (name) => `data-${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** Attributes by name, which are listed as a browser lists them. */
class Attributes extends Map {
  /** @returns {any} */
  *[Symbol.iterator]() {
    for (const [name, value] of this.entries()) yield { name, value };
  }
}

/** Text is a node too. */
export class Text {
  nodeType = 3;
  /** @type {any} */
  parentElement = null;
  /** @param {string} text */
  constructor(text) {
    this.textContent = text;
  }
  remove() {
    this.parentElement?.take(this);
  }
  cloneNode() {
    return new Text(this.textContent);
  }
}

export class Element extends EventTarget {
  nodeType = 1;
  /** @type {any[]} */
  childNodes = [];
  /** @type {any} */
  parentElement = null;
  /** @type {Map<string, string>} */
  attributes = new Attributes();
  scrollTop = 0;
  scrollHeight = 0;
  clientHeight = 0;
  style = { setProperty: (/** @type {string} */ name, /** @type {string} */ value) => void Object.assign(this.style, { [name]: value }) }; // prettier-ignore
  dataset = new Proxy(/** @type {Record<string, any>} */ ({}), {
    get: (_, name) => this.attributes.get(attributeOf(String(name))),
    set: (_, name, value) => this.setAttribute(attributeOf(String(name)), value) ?? true,
    has: (_, name) => this.attributes.has(attributeOf(String(name))),
    deleteProperty: (_, name) => this.attributes.delete(attributeOf(String(name))) || true,
  });
  /** @param {string} tag */
  constructor(tag) {
    super();
    this.localName = tag;
    this.tagName = tag.toUpperCase();
    this.written = /** @type {string | null} */ (null);
  }

  getAttribute(/** @type {string} */ name) {
    return this.attributes.get(name) ?? null;
  }
  setAttribute(/** @type {string} */ name, /** @type {unknown} */ value) {
    this.attributes.set(name, String(value));
  }
  hasAttribute(/** @type {string} */ name) {
    return this.attributes.has(name);
  }
  removeAttribute(/** @type {string} */ name) {
    this.attributes.delete(name);
  }
  toggleAttribute(/** @type {string} */ name, on = !this.hasAttribute(name)) {
    if (on) this.setAttribute(name, "");
    else this.removeAttribute(name);
    return on;
  }

  get children() {
    return this.childNodes.filter((node) => node.nodeType === 1);
  }
  get firstElementChild() {
    return this.children[0] ?? null;
  }
  get lastElementChild() {
    return this.children.at(-1) ?? null;
  }
  get nextElementSibling() {
    const all = this.parentElement?.children ?? [];
    return all[all.indexOf(this) + 1] ?? null;
  }
  get isConnected() {
    return this.closest("html") !== null;
  }
  get textContent() {
    return this.childNodes.map((node) => node.textContent).join("");
  }
  set textContent(text) {
    this.replaceChildren(...(text === "" ? [] : [text]));
  }
  get className() {
    return this.getAttribute("class") ?? "";
  }
  set className(text) {
    this.setAttribute("class", text);
  }
  get classList() {
    const names = () => this.className.split(" ").filter(Boolean);
    const toggle = (/** @type {string} */ name, on = !names().includes(name)) => {
      this.className = [...names().filter((other) => other !== name), ...(on ? [name] : [])].join(" ");
    };
    return { contains: (/** @type {string} */ name) => names().includes(name), toggle };
  }
  get value() {
    if (this.localName === "textarea") return this.written ?? this.textContent;
    const chosen = this.localName === "select" && (this.querySelector("option[selected]") ?? this.firstElementChild);
    return this.written ?? (chosen ? chosen.value : this.getAttribute("value")) ?? "";
  }
  set value(text) {
    this.written = String(text);
  }
  get valueAsNumber() {
    return this.value === "" ? NaN : Number(this.value);
  }
  get options() {
    return this.querySelectorAll("option");
  }
  get content() {
    return this;
  }
  get protocol() {
    return /^[a-z]+:/.exec(String(this.getAttribute("href")))?.[0] ?? "http:";
  }
  get elements() {
    return { namedItem: (/** @type {string} */ name) => this.querySelector(`[name="${name}"]`) };
  }

  /** @param {any} node */
  take(node) {
    this.childNodes.splice(this.childNodes.indexOf(node), 1);
    node.parentElement = null;
  }
  insertBefore(/** @type {any} */ node, /** @type {any} */ place) {
    const made = typeof node === "object" ? node : new Text(String(node));
    made.parentElement?.take(made);
    this.childNodes.splice(place ? this.childNodes.indexOf(place) : this.childNodes.length, 0, made);
    made.parentElement = this;
    return made;
  }
  append(/** @type {any[]} */ ...nodes) {
    for (const node of nodes) this.insertBefore(node, null);
  }
  appendChild(/** @type {any} */ node) {
    return this.insertBefore(node, null);
  }
  prepend(/** @type {any[]} */ ...nodes) {
    const [first] = this.childNodes;
    for (const node of nodes) this.insertBefore(node, first);
  }
  replaceChildren(/** @type {any[]} */ ...nodes) {
    for (const node of this.childNodes) node.parentElement = null;
    this.childNodes = [];
    this.append(...nodes);
  }
  remove() {
    this.parentElement?.take(this);
  }
  before(/** @type {any[]} */ ...nodes) {
    for (const node of nodes) this.parentElement.insertBefore(node, this);
  }
  after(/** @type {any[]} */ ...nodes) {
    const all = this.parentElement.childNodes;
    const next = all[all.indexOf(this) + 1];
    for (const node of nodes) this.parentElement.insertBefore(node, next);
  }
  contains(/** @type {any} */ node) {
    for (let at = node; at; at = at.parentElement) if (at === this) return true;
    return false;
  }

  /** @returns {Element[]} all inside, in the order of the page */
  inside() {
    return this.children.flatMap((child) => [child, ...child.inside()]);
  }
  matches(/** @type {string} */ selector) {
    return selector.split(/,(?![^(]*\))/).some((one) => matchesPath(this, one.trim()));
  }
  closest(/** @type {string} */ selector) {
    for (let at = /** @type {any} */ (this); at; at = at.parentElement) if (at.matches(selector)) return at;
    return null;
  }
  querySelectorAll(/** @type {string} */ selector) {
    return this.inside().filter((node) => node.matches(selector));
  }
  /** @returns {any} */
  querySelector(/** @type {string} */ selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  /** An event goes up to the page, as far as nothing stops it. */
  dispatchEvent(/** @type {any} */ event) {
    if (!event.from) Object.defineProperties(event, { from: { value: this }, target: { value: this } });
    const above = this.parentElement ?? (this.localName === "html" ? globalThis.document : null);
    super.dispatchEvent(event);
    if (event.bubbles && !event.cancelBubble && above) above.dispatchEvent(event);
    return !event.defaultPrevented;
  }
  cloneNode() {
    const copy = new Element(this.localName);
    for (const { name, value } of /** @type {any} */ (this.attributes)) copy.setAttribute(name, value);
    copy.append(...this.childNodes.map((node) => node.cloneNode()));
    return copy;
  }
  click() {
    send(this, "click");
  }
  focus() {
    /** @type {any} */ (globalThis.document).activeElement = this;
    send(this, "focusin");
  }
  requestSubmit() {
    send(this, "submit");
  }
  select() {}
  scrollIntoView() {}
  setPointerCapture() {}
  getBoundingClientRect() {
    return { top: 0, left: 0, bottom: 0, right: 0, width: 0, height: 0 };
  }
  showModal() {
    this.setAttribute("open", "");
  }
  close() {
    this.removeAttribute("open");
  }
}
for (const name of FLAGS)
  Object.defineProperty(Element.prototype, name, {
    get() {
      return this.hasAttribute(name);
    },
    set(on) {
      this.toggleAttribute(name, Boolean(on));
    },
  });
for (const name of NAMES)
  Object.defineProperty(Element.prototype, name, {
    get() {
      return this.getAttribute(name) ?? "";
    },
    set(text) {
      this.setAttribute(name, text);
    },
  });

/**
 * Let an event happen; whether nothing prevented what the browser does then.
 * @param {any} node
 * @param {string} kind
 * @param {Record<string, any>} [facts]
 * @returns {boolean}
 */
export function send(node, kind, facts = {}) {
  const event = new Event(kind, { bubbles: true, cancelable: true });
  for (const [name, value] of Object.entries(facts)) Object.defineProperty(event, name, { value });
  return node.dispatchEvent(event);
}
