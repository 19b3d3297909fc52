// @ts-check
/** Text cut where spans begin and end. Pure. */

/** @typedef {{start: number, end: number, name: string, note: string}} Span */
/** @typedef {{text: string, names: string[], notes: string[]}} Segment */

/**
 * Positions in code points, as the server counts, to positions in a JavaScript string.
 * @param {string} text
 * @param {number[]} points
 * @returns {Map<number, number>}
 */
function offsets(text, points) {
  const wanted = [...new Set(points)].sort((a, b) => a - b);
  const found = new Map();
  let at = 0;
  let point = 0;
  for (const target of wanted) {
    while (point < target && at < text.length) {
      const code = /** @type {number} */ (text.codePointAt(at));
      at += code > 0xffff ? 2 : 1;
      point += 1;
    }
    found.set(target, at);
  }
  return found;
}

/**
 * The text in order, each piece with the spans that cover it. Spans may overlap; those outside the text are cut.
 * @param {string} text
 * @param {Span[]} spans by code points
 * @returns {Segment[]}
 */
export function segments(text, spans) {
  const usable = spans.filter((span) => span.end > span.start && span.start >= 0);
  const place = offsets(text, usable.flatMap((span) => [span.start, span.end])); // prettier-ignore
  const cut = usable.map((span) => ({ ...span, from: place.get(span.start) ?? 0, to: place.get(span.end) ?? 0 }));
  const edges = [...new Set([0, text.length, ...cut.flatMap((span) => [span.from, span.to])])].sort((a, b) => a - b);
  const found = [];
  for (let at = 0; at + 1 < edges.length; at += 1) {
    const over = cut.filter((span) => span.from <= edges[at] && span.to >= edges[at + 1]);
    found.push({
      text: text.slice(edges[at], edges[at + 1]),
      names: [...new Set(over.map((span) => span.name))],
      notes: [...new Set(over.map((span) => span.note).filter(Boolean))],
    });
  }
  return found;
}

/** Whether a span means a whole message. @param {{start: number, end: number}} span */
export const isWhole = (span) => span.start === 0 && span.end === 0;

/**
 * The sentences on spans, each once with the messages that it is about.
 * @param {{message: number, note: string}[]} spans
 * @returns {{note: string, messages: number[]}[]}
 */
export function notesOf(spans) {
  /** @type {Map<string, Set<number>>} */
  const found = new Map();
  for (const span of spans) found.set(span.note, (found.get(span.note) ?? new Set()).add(span.message));
  return [...found].map(([note, messages]) => ({ note, messages: [...messages].sort((a, b) => a - b) }));
}
