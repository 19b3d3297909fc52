// @ts-check
/** Figures of the lab: changes, shares, bars. Pure. */

/** @typedef {{edges: number[], counts: number[]}} Histogram */

const SAME = 5e-4;

/**
 * Whether two figures would be shown as different.
 * @param {number | null | undefined} before
 * @param {number | null | undefined} after
 */
export function moved(before, after) {
  if (before === undefined) return false;
  if (before === null || after === null || after === undefined) return before !== after;
  return Math.abs(before - after) > SAME * Math.max(1, Math.abs(before), Math.abs(after));
}

/**
 * Bars of a small histogram in a box: x, y, width, height of each.
 * @param {Histogram} histogram
 * @param {number} width
 * @param {number} height
 */
export function bars(histogram, width, height) {
  const { edges, counts } = histogram;
  if (counts.length === 1) return [{ x: width / 2 - 2, y: 0, width: 4, height }]; // all of them are the same
  const most = Math.max(...counts, 1);
  const low = edges[0];
  const span = edges[edges.length - 1] - low || 1;
  return counts.map((count, at) => {
    const tall = count ? Math.max(1, (count / most) * height) : 0;
    const x = ((edges[at] - low) / span) * width;
    return {
      x,
      y: height - tall,
      width: Math.max(0.5, ((edges[at + 1] - edges[at]) / span) * width - 0.5),
      height: tall,
    };
  });
}

/**
 * A histogram as shares of the rollouts in bins as wide as `width`, so that two with other edges can be laid over
 * each other.
 * @param {Histogram} histogram
 * @param {number} [width] of the bins to compare with; its own when left out
 * @returns {{x: number[], y: number[], widths: number[]}}
 */
export function shares(histogram, width) {
  const { edges, counts } = histogram;
  const all = counts.reduce((sum, count) => sum + count, 0) || 1;
  const widths = counts.map((_count, at) => edges[at + 1] - edges[at]);
  return {
    x: counts.map((_count, at) => (edges[at] + edges[at + 1]) / 2),
    y: counts.map((count, at) => (count / all) * (width && widths[at] ? width / widths[at] : 1)),
    widths,
  };
}

/**
 * The outline of a histogram as the points of a line, from the ground and back to it.
 * @param {Histogram} histogram
 * @param {number} width
 */
export function outline(histogram, width) {
  const { edges } = histogram;
  const { y } = shares(histogram, width);
  const points = { x: [edges[0]], y: [0] };
  y.forEach((value, at) => {
    points.x.push(edges[at], edges[at + 1]);
    points.y.push(value, value);
  });
  points.x.push(edges[edges.length - 1]);
  points.y.push(0);
  return points;
}

/**
 * Parts of a rollout's reward as shares of the longest bar of the page; what is taken off is marked.
 * @param {Record<string, number>} terms weighted, by component
 * @param {string[]} names in the order of the spec
 * @param {number} longest sum of sizes
 * @returns {{name: string, at: number, share: number, negative: boolean}[]}
 */
export function stack(terms, names, longest) {
  return names
    .map((name, at) => ({
      name,
      at,
      share: longest > 0 ? Math.abs(terms[name] ?? 0) / longest : 0,
      negative: (terms[name] ?? 0) < 0,
    }))
    .filter((part) => part.share > 0);
}

/**
 * The largest sum of sizes of parts on a page.
 * @param {{rollouts: {terms: Record<string, number>}[]}[]} groups
 */
export function longestStack(groups) {
  const sums = groups.flatMap((group) =>
    group.rollouts.map((item) => Object.values(item.terms ?? {}).reduce((sum, value) => sum + Math.abs(value ?? 0), 0)),
  );
  return Math.max(0, ...sums);
}

/**
 * A number of things, grouped as the reader's language does.
 * @param {number} value
 * @param {string} [language]
 */
export function count(value, language = "en") {
  return new Intl.NumberFormat(language).format(value);
}
