// @ts-check
/** Which elements of a test's page a selector means: as much of CSS as our scripts use. */

const PIECE =
  /^(?:(\*|[\w-]+)|#([\w-]+)|\.([\w-]+)|\[([\w-]+)(?:([$^*]?=)["']?([^"'\]]*)["']?)?\]|:(not|is)\(([^)]*)\)|:([\w-]+))/;

/** @type {(node: any, path: string) => boolean} whether an element is at the end of a path such as `ul > li a` */
export function matchesPath(node, path) {
  const parts = path.replace(/\s*>\s*/g, " >").split(/\s+(?![^[]*\])(?![^(]*\))/);
  const last = String(parts.pop());
  if (!matchesOne(node, last.replace(/^>/, ""))) return false;
  if (!parts.length) return true;
  const rest = parts.join(" ");
  for (let at = node.parentElement; at; at = last.startsWith(">") ? null : at.parentElement)
    if (matchesPath(at, rest)) return true;
  return false;
}

/** @type {(node: any, selector: string) => boolean} */
function matchesOne(node, selector) {
  for (let left = selector; left; ) {
    const found = PIECE.exec(left);
    if (!found) throw new Error(`a selector that this page cannot read: ${selector}`);
    const [whole, tag, id, name, attribute, how, wanted, of, those, state] = found;
    left = left.slice(whole.length);
    const value = attribute && node.getAttribute(attribute);
    const holds =
      (tag && (tag === "*" || node.localName === tag)) ||
      (id && node.id === id) ||
      (name && node.className.split(" ").includes(name)) ||
      (attribute && value !== null && isLike(value, how, wanted)) ||
      (of && node.matches(those) === (of === "is")) ||
      (state === "checked" && node.checked) ||
      (state === "focus-visible" && globalThis.document.activeElement === node);
    if (!holds) return false;
  }
  return true;
}

/** @type {(value: string, how: string | undefined, wanted: string) => boolean} */
function isLike(value, how, wanted) {
  if (how === "^=") return value.startsWith(wanted);
  if (how === "$=") return value.endsWith(wanted);
  return how === "*=" ? value.includes(wanted) : !how || value === wanted;
}
