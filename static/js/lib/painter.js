// @ts-check
/**
 * Traces and a layout, in the form that Plotly takes, as SVG: pages that only look at curves need no megabyte of it.
 * Pictures of charts are Plotly's.
 */
import { s } from "./dom.js";
import { MARGIN } from "./plot.js";
import { linearTicks, logTicks, placeTexts, valueTexts } from "./ticks.js";

/** @typedef {[number, number]} Range */
/**
 * @typedef {object} Frame places of values on the node, in pixels
 * @property {number} width of the plot within its margins
 * @property {number} height
 * @property {(value: number) => number} x
 * @property {Record<string, (value: number) => number>} y by axis
 * @property {boolean} log
 */

/** @type {Record<string, string>} */
const DASHES = { dash: "6 4", dot: "2 3", dashdot: "6 3 2 3" };
const [X_TICKS, X_ROOM, Y_ROOM] = [7, 70, 36]; // at most, and pixels for each
const CAP = 3; // of an interval, on either side
/** @type {Record<string, (r: number) => string>} outlines of marks around 0 */
const SYMBOLS = {
  circle: (r) => `M${-r},0a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`,
  diamond: (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0Z`,
  "x-thin-open": (r) => `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}`,
  star: (r) =>
    `M${Array.from({ length: 10 }, (_none, at) => {
      const [far, angle] = [at % 2 ? 0.53 * r : 1.4 * r, (Math.PI * at) / 5 - Math.PI / 2];
      return `${(far * Math.cos(angle)).toFixed(2)},${(far * Math.sin(angle)).toFixed(2)}`;
    }).join("L")}Z`,
};

/**
 * @param {any} layout
 * @param {number} across of the whole node, in pixels
 * @param {number} down
 * @returns {Frame}
 */
export function frame(layout, across, down) {
  const [width, height] = [Math.max(across - MARGIN.l - MARGIN.r, 1), Math.max(down - MARGIN.t - MARGIN.b, 1)];
  const [from, to] = layout.xaxis.range ?? [0, 1];
  const axis = (/** @type {any} */ of) => {
    const [low, high] = of?.range ?? [0, 1];
    const log = of?.type === "log";
    return (/** @type {number} */ value) =>
      MARGIN.t + height * (1 - ((log ? Math.log10(value) : value) - low) / (high - low || 1));
  };
  return {
    width,
    height,
    x: (value) => MARGIN.l + (width * (value - from)) / (to - from || 1),
    y: { y: axis(layout.yaxis), y2: axis(layout.yaxis2), y3: axis(layout.yaxis3) },
    log: layout.yaxis.type === "log",
  };
}

/**
 * The path of a line; what is missing leaves a gap.
 * @param {number[]} x in pixels
 * @param {(number | null)[]} y
 */
export function pathOf(x, y) {
  let text = "";
  let pen = "M";
  y.forEach((value, at) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return void (pen = "M");
    text += `${pen}${x[at].toFixed(1)},${value.toFixed(1)}`;
    pen = "L";
  });
  return text;
}

/**
 * Draw a chart again. The node keeps what was drawn, as Plotly's does: `data` and `layout`.
 * @param {HTMLElement} node
 * @param {any[]} traces
 * @param {any} layout
 */
export function paint(node, traces, layout) {
  const [across, down] = [node.clientWidth || 320, node.clientHeight || layout.height];
  const at = frame(layout, across, down);
  const plain = { width: across, height: down, viewBox: `0 0 ${across} ${down}`, "aria-hidden": "true" };
  const seen = s("svg", { x: MARGIN.l, y: MARGIN.t, width: at.width, height: at.height }); // cuts what lies outside
  const inside = s("g", { transform: `translate(${-MARGIN.l},${-MARGIN.t})` });
  seen.append(inside);
  const above = s("g");
  inside.append(...layout.shapes.filter(isBand).map((/** @type {any} */ shape) => shapeOf(shape, at)));
  traced(traces, at, inside, above);
  inside.append(
    ...layout.shapes
      .filter((/** @type {any} */ shape) => !isBand(shape))
      .map((/** @type {any} */ shape) => shapeOf(shape, at)),
  );
  const labels = layout.annotations.map((/** @type {any} */ label) => labelOf(label, at));
  node.replaceChildren(s("svg", plain, ...axesOf(layout, at), seen, above, ...labels));
  Object.assign(node, { data: traces, layout });
}

/** @param {any} shape */
const isBand = (shape) => shape.type === "rect";

/**
 * @param {any[]} traces
 * @param {Frame} at
 * @param {SVGElement} inside
 * @param {SVGElement} above marks, which may reach over the edge
 */
function traced(traces, at, inside, above) {
  /** @type {Map<string, number[]>} the upper edge of each stack */
  const stacks = new Map();
  /** @type {number[][] | null} */
  let before = null;
  for (const trace of traces) {
    const y = at.y[trace.yaxis ?? "y"];
    const place = (/** @type {number | null} */ value) => (value === null || value === undefined ? null : y(value));
    const x = trace.x.map(at.x);
    let values = trace.y;
    const group = s("g", { class: "trace", opacity: trace.opacity });
    if (trace.stackgroup) {
      const below = stacks.get(trace.stackgroup) ?? values.map(() => 0);
      values = values.map((/** @type {number} */ value, /** @type {number} */ point) => value + below[point]);
      stacks.set(trace.stackgroup, values);
      group.append(areaOf(x, values.map(y), below.map(y), trace.fillcolor));
    } else if (trace.fill === "tonexty" && before) {
      group.append(areaOf(x, values.map(y), before[1].map(y), trace.fillcolor, before[0]));
    }
    const line = { class: "line", fill: "none", stroke: trace.line?.color, "stroke-width": trace.line?.width };
    if (trace.mode.includes("lines") && trace.line.width) {
      const dash = DASHES[trace.line.dash] ?? null;
      group.append(s("path", { ...line, d: pathOf(x, values.map(place)), "stroke-dasharray": dash }));
    }
    inside.append(group);
    if (trace.mode.includes("markers")) above.append(marksOf(trace, x, values.map(place), y, at));
    before = [x, values];
  }
}

/**
 * @param {number[]} x
 * @param {number[]} top
 * @param {number[]} bottom
 * @param {string} fill
 * @param {number[]} [under] the x of the bottom, if it has its own
 */
function areaOf(x, top, bottom, fill, under = x) {
  const back = pathOf([...under].reverse(), [...bottom].reverse()).replace(/^M/, "L");
  return s("path", { d: `${pathOf(x, top)}${back}Z`, fill });
}

/**
 * @param {any} trace
 * @param {number[]} x
 * @param {(number | null)[]} y
 * @param {(value: number) => number} scale
 * @param {Frame} at
 */
function marksOf(trace, x, y, scale, at) {
  const { color, size, symbol } = { symbol: "circle", ...trace.marker };
  const outline = SYMBOLS[symbol](size / 2);
  const open = symbol.endsWith("open");
  const group = s("g", { class: "trace", fill: open ? "none" : color, stroke: open ? color : "none" });
  x.forEach((across, point) => {
    const down = y[point];
    if (down === null || across < MARGIN.l - 0.5 || across > MARGIN.l + at.width + 0.5) return;
    const move = `translate(${across.toFixed(1)},${down.toFixed(1)})`;
    if (trace.error_y) group.append(intervalOf(trace, point, across, scale));
    group.append(s("path", { d: outline, transform: move }));
  });
  return group;
}

/**
 * @param {any} trace
 * @param {number} point
 * @param {number} x
 * @param {(value: number) => number} scale
 */
function intervalOf(trace, point, x, scale) {
  const { array, arrayminus, color, thickness } = trace.error_y;
  const [high, low] = [trace.y[point] + array[point], trace.y[point] - arrayminus[point]].map(scale);
  const cap = (/** @type {number} */ y) => `M${x - CAP},${y.toFixed(1)}h${2 * CAP}`;
  const d = high === low ? "" : `M${x},${high.toFixed(1)}V${low.toFixed(1)}${cap(high)}${cap(low)}`;
  return s("path", { class: "interval", d, fill: "none", stroke: color, "stroke-width": thickness });
}

/**
 * @param {any} shape
 * @param {Frame} at
 */
function shapeOf(shape, at) {
  const [left, right] = [shape.x0, shape.x1].map((x) => (shape.xref === "paper" ? MARGIN.l + x * at.width : at.x(x)));
  const [one, two] = [shape.y0, shape.y1].map((y) =>
    shape.yref === "paper" ? MARGIN.t + (1 - y) * at.height : at.y.y(y),
  );
  if (isBand(shape)) {
    const box = { x: left, y: Math.min(one, two), width: Math.max(right - left, 0), height: Math.abs(two - one) };
    return s("rect", { ...box, fill: shape.fillcolor, opacity: shape.opacity });
  }
  const dash = DASHES[shape.line.dash] ?? null;
  const ends = { x1: left, x2: right, y1: one, y2: two };
  return s("line", { ...ends, stroke: shape.line.color, "stroke-width": shape.line.width, "stroke-dasharray": dash });
}

/**
 * @param {any} label
 * @param {Frame} at
 */
function labelOf(label, at) {
  const x = label.xref === "paper" ? MARGIN.l + label.x * at.width : at.x(label.x);
  const value = at.log ? 10 ** label.y : label.y; // of a logarithmic axis labels are in powers of ten
  const level = label.yref === "paper" ? MARGIN.t + (1 - label.y) * at.height : at.y.y(value);
  const y = level - (label.yshift ?? 0) + (label.yanchor === "top" ? label.font.size : -2);
  const right = label.xanchor === "right";
  const text = label.text.replace(/&lt;/g, "<").replace(/&amp;/g, "&"); // as Plotly reads it
  const place = { x: x + (right ? -3 : 3), y, "text-anchor": right ? "end" : "start" };
  return s("text", { ...place, "font-size": label.font.size, fill: label.font.color }, text);
}

/**
 * @param {any} layout
 * @param {Frame} at
 */
function axesOf(layout, at) {
  const { xaxis, yaxis } = layout;
  const look = { "font-size": 10, fill: yaxis.color };
  const bottom = MARGIN.t + at.height;
  const right = MARGIN.l + at.width;
  const levels = yaxis.type === "log" ? logTicks : linearTicks;
  const high = levels(yaxis.range ?? [0, 1], Math.max(3, Math.round(at.height / Y_ROOM)));
  const count = Math.max(2, Math.min(X_TICKS, Math.floor(at.width / X_ROOM)));
  const wide = linearTicks(xaxis.range ?? [0, 1], count, xaxis.whole ? 1 : 0);
  const names = yaxis.type === "log" ? high.map((tick) => valueTexts([tick])[0]) : valueTexts(high, yaxis.shares);
  const places = placeTexts(wide, xaxis.kind);
  return [
    ...high.flatMap((tick, n) => [
      s("line", { x1: MARGIN.l, x2: right, y1: at.y.y(tick), y2: at.y.y(tick), stroke: yaxis.gridcolor }),
      s("text", { ...look, x: MARGIN.l - 6, y: at.y.y(tick) + 3.5, "text-anchor": "end" }, names[n]),
    ]),
    s("line", { x1: MARGIN.l, x2: right, y1: bottom, y2: bottom, stroke: xaxis.linecolor }),
    ...wide.map((tick, n) => {
      const last = at.x(tick) > right - 12 && places[n].length > 3;
      return s("text", { ...look, x: at.x(tick), y: bottom + 14, "text-anchor": last ? "end" : "middle" }, places[n]);
    }),
  ];
}
