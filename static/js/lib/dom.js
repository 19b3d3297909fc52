// @ts-check
/** Small DOM helpers. Data reaches the page only as text: nothing here takes markup. */

/** @type {Record<string, string> | null} */
let catalogue = null;

/**
 * The translated string of a key, with {name} places filled.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  if (catalogue === null) {
    catalogue = {};
    for (const node of document.querySelectorAll('script[type="application/json"][id^="strings-"]')) {
      Object.assign(catalogue, JSON.parse(node.textContent || "{}"));
    }
  }
  const text = catalogue[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/**
 * The element with this id, which the page's template has; `type` is its kind where its own properties are used.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @param {new () => T} [type]
 * @returns {T}
 */
export function $(id, type) {
  const node = document.getElementById(id);
  if (node && type && !(node instanceof type)) throw new TypeError(`#${id} is a ${node.tagName}, not a ${type.name}`);
  return /** @type {T} */ (node);
}

/**
 * The first match of a selector inside `parent`, whose markup has one.
 * @template {Element} T
 * @param {ParentNode} parent
 * @param {string} selector
 * @param {new () => T} type
 * @returns {T}
 */
export function one(parent, selector, type) {
  const node = parent.querySelector(selector);
  if (!(node instanceof type)) throw new TypeError(`no ${type.name} matches ${selector}`);
  return node;
}

/**
 * All matches of a selector inside `parent`.
 * @param {ParentNode} parent
 * @param {string} selector
 * @returns {HTMLElement[]}
 */
export function all(parent, selector) {
  return /** @type {HTMLElement[]} */ ([...parent.querySelectorAll(selector)]);
}

/**
 * The element with this id, on pages that may lack it.
 * @param {string} id
 * @returns {HTMLElement | null}
 */
export function maybe(id) {
  return document.getElementById(id);
}

/**
 * Whether the page's catalogue has this key.
 * @param {string} key
 */
export function has(key) {
  return t(key) !== key;
}

/**
 * Make an element: h("a", {class: "x", href: "…", onclick: fn, "data-id": 1}, "text", child).
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    node.append(typeof child === "object" ? child : String(child));
  }
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an SVG element; attributes without a value are left out.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function s(tag, props = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props))
    if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/**
 * A decorative icon of icons.svg. The page says where that file is: its name holds a hash, which no script knows.
 * @param {string} name
 */
export function icon(name) {
  const file = document.documentElement.dataset.icons ?? "";
  return s("svg", { class: "icon", "aria-hidden": "true" }, s("use", { href: `${file}#${name}` }));
}

/**
 * Set an element's text only when it changes, so that nothing repaints for nothing.
 * @param {Element | null | undefined} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

/**
 * Set or remove an attribute only when it changes.
 * @param {Element | null | undefined} node
 * @param {string} name
 * @param {string | number | null | undefined | false} value
 */
export function setAttr(node, name, value) {
  if (!node) return;
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/**
 * Make `parent` hold one node for each item, in order, keeping the nodes of items that stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => HTMLElement} make
 * @param {(node: HTMLElement, item: T) => void} update
 */
export function keyed(parent, items, keyOf, make, update) {
  const old = new Map();
  for (const node of Array.from(parent.children)) old.set(/** @type {HTMLElement} */ (node).dataset.key, node);
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = old.get(key);
    if (node) old.delete(key);
    else {
      node = make(item);
      node.dataset.key = key;
    }
    update(node, item);
    if (place && node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
}

/**
 * Call `work` once in the next animation frame, however often it is asked for; at most every `gapMs`.
 * @param {() => void} work
 * @param {number} [gapMs]
 * @returns {() => void}
 */
export function batched(work, gapMs = 0) {
  let waiting = false;
  let last = -Infinity;
  const go = () => {
    waiting = false;
    last = performance.now();
    work();
  };
  return () => {
    if (waiting) return;
    waiting = true;
    const wait = Math.max(0, gapMs - (performance.now() - last));
    if (wait > 0) setTimeout(() => requestAnimationFrame(go), wait);
    else requestAnimationFrame(go);
  };
}

/**
 * The parsed content of a json_script element.
 * @param {string} id
 * @returns {any}
 */
export function data(id) {
  const node = document.getElementById(id);
  return node ? JSON.parse(node.textContent || "null") : null;
}
