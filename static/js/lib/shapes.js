// @ts-check
/** What a chart shows besides its lines: simple policies to compare with, the stages of the run, and advisories. */

/** @typedef {{name: string, y: number}} Baseline */
/** @typedef {{name: string, began: number}} Stage */
/**
 * An advisory of the doctor. ``names`` are the metrics that show it; an open one has no end yet.
 * @typedef {{first: number, last: number, open: boolean, severity: string, title: string, names: string[]}} Mark
 */

const FONT = 10;

/**
 * A dashed line across the chart for each simple policy, with its name; Plotly scales the axis by them too.
 * @param {Baseline[]} baselines
 * @param {string} ink
 * @param {boolean} log
 */
export function baselineShapes(baselines, ink, log) {
  const usable = baselines.filter((item) => !log || item.y > 0);
  const at = (/** @type {number} */ y) => (log ? Math.log10(y) : y);
  return {
    shapes: usable.map((item) => ({
      type: "line",
      xref: "paper",
      x0: 0,
      x1: 1,
      y0: item.y,
      y1: item.y,
      line: { color: ink, width: 1, dash: "dash" },
    })),
    annotations: usable.map((item) => ({
      text: item.name,
      xref: "paper",
      x: 1,
      xanchor: "right",
      y: at(item.y),
      yanchor: "bottom",
      showarrow: false,
      font: { size: FONT, color: ink },
    })),
  };
}

/**
 * A name as long as fits into so many pixels; nothing where not even two letters do.
 * @param {string} name
 * @param {number} room
 */
function shortened(name, room) {
  let left = room - FONT;
  const letters = Array.from(name);
  const fits = letters.findIndex((letter) => (left -= letter > "\u2e80" ? FONT : FONT * 0.55) < 0);
  return fits < 0 ? name : fits < 2 ? "" : `${letters.slice(0, fits).join("")}…`;
}

/**
 * A text that Plotly, which reads tags, shows as it is.
 * @param {string} text
 */
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

/**
 * A run's stages as bands behind the lines, every other one shaded, each with its name at its beginning.
 * @param {Stage[]} stages
 * @param {[number, number] | null} span the steps that are shown
 * @param {string} ink
 * @param {number} width pixels that the steps have
 */
export function stageShapes(stages, span, ink, width) {
  const parts = span
    ? stages.map((stage, at) => ({
        name: stage.name,
        shaded: at % 2 === 1,
        x0: at ? Math.max(stage.began + 0.5, span[0]) : span[0],
        x1: at + 1 < stages.length ? Math.min(stages[at + 1].began + 0.5, span[1]) : span[1],
      }))
    : [];
  const seen = parts.filter((part) => part.x1 > part.x0);
  const room = (/** @type {{x0: number, x1: number}} */ part) =>
    span ? ((part.x1 - part.x0) / (span[1] - span[0])) * width : 0;
  return {
    shapes: seen
      .filter((part) => part.shaded)
      .map(({ x0, x1 }) => ({
        type: "rect",
        layer: "below",
        yref: "paper",
        x0,
        x1,
        y0: 0,
        y1: 1,
        line: { width: 0 },
        fillcolor: ink,
        opacity: 0.1,
      })),
    annotations: seen.map((part) => ({
      text: plain(shortened(part.name, room(part))),
      x: part.x0,
      xanchor: "left",
      yref: "paper",
      y: 1,
      yanchor: "top",
      showarrow: false,
      font: { size: FONT, color: ink },
    })),
  };
}

const LABEL_PX = 12;
const MARKS_NAMED = 3;

/**
 * Advisories as bands from the step at which each began, with their titles along the top of the chart.
 * @param {Mark[]} marks those of this chart
 * @param {[number, number] | null} span the steps that are shown
 * @param {(severity: string) => string} tone
 * @param {number} width pixels that the steps have
 * @param {number} [lines] of other titles along the top
 */
export function markShapes(marks, span, tone, width, lines = 0) {
  if (!span) return { shapes: [], annotations: [] };
  const parts = marks.map((mark) => ({ ...mark, ink: tone(mark.severity), end: mark.open ? span[1] : mark.last }));
  const seen = parts.filter((part) => part.end >= span[0] && part.first <= span[1]);
  const px = width / Math.max(span[1] - span[0], 1);
  return {
    shapes: seen.flatMap((part) => [
      {
        type: "rect",
        layer: "below",
        yref: "paper",
        x0: Math.max(part.first, span[0]),
        x1: Math.min(part.end, span[1]),
        y0: 0,
        y1: 1,
        line: { width: 0 },
        fillcolor: part.ink,
        opacity: 0.12,
      },
      {
        type: "line",
        yref: "paper",
        x0: part.first,
        x1: part.first,
        y0: 0,
        y1: 1,
        line: { color: part.ink, width: part.first < span[0] ? 0 : 1, dash: "dot" },
      },
    ]),
    annotations: seen.slice(0, MARKS_NAMED).map((part, place) => {
      const from = Math.max(part.first, span[0]);
      const right = from > (span[0] + span[1]) / 2; // where there is more room to its left
      return {
        text: plain(shortened(part.title, (right ? from - span[0] : span[1] - from) * px)),
        x: from,
        xanchor: right ? "right" : "left",
        yref: "paper",
        y: 1,
        yanchor: "top",
        yshift: -(lines + place) * LABEL_PX,
        showarrow: false,
        font: { size: FONT, color: part.ink },
      };
    }),
  };
}
