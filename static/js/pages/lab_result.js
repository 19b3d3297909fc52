// @ts-check
/** The effect of a spec on the whole set: tiles, components, and the distribution of rewards; alarms next to them. */
import { $, h, keyed, s, setAttr, setText, t } from "../lib/dom.js";
import { figure, percent, plain, score } from "../lib/format.js";
import { bars, count, moved, outline, shares } from "../lib/lab-figures.js";
import { BARE, MARGIN, axisLook, ground, styles } from "../lib/plot.js";
import { Alarms } from "./lab_alarms.js";
import { showTurns } from "./lab_turns.js";

/** @typedef {Record<string, any>} Row */
const SPARK = { width: 88, height: 20 };
const language = document.documentElement.lang;

export class Result {
  /** @param {{plotly: any, read: (id: string) => void, focus: (name: string) => void}} options */
  constructor(options) {
    this.options = options;
    this.alarms = new Alarms(options);
    document.addEventListener("tiltyard:theme", () => this.redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  /**
   * @param {Row} reply
   * @param {string} otherName of the spec that it is compared with; "" for none
   */
  show(reply, otherName) {
    this.names = reply.components.map((/** @type {Row} */ row) => row.name);
    this.alarms.show(reply);
    this.tiles(reply, otherName);
    this.table(reply);
    showTurns(reply.turns);
    const outcome = reply.summary.outcome;
    const named = reply.components.find((/** @type {Row} */ row) => row.name === outcome)?.title ?? outcome;
    setText($("lab-outcome"), outcome ? t("lab.outcome_is", { name: plain(String(named)) }) : t("lab.no_outcome"));
  }

  /**
   * @param {Row} reply
   * @param {string} otherName
   */
  tiles(reply, otherName) {
    const { summary, against } = reply;
    const share = (/** @type {Row} */ of) => (of.groups && summary.groups ? of.share : null);
    const groups = (/** @type {number} */ n) =>
      t("lab.groups_of", { n: count(n, language), all: count(summary.groups, language) });
    const excluded = (/** @type {Row | null} */ of) =>
      of && of.rollouts ? of.excluded / of.rollouts : of ? 0 : undefined;
    const agreement = reply.agreement;
    const tiles = [
      {
        key: "reward",
        label: t("metric.reward"),
        now: summary.reward.mean,
        before: against?.reward.mean,
        shown: score,
        low: `± ${score(summary.reward.std)} · ${score(summary.reward.min)} – ${score(summary.reward.max)}`,
      },
      {
        key: "zero",
        label: t("metric.groups/zero_variance_share"),
        now: share(summary.zero_variance) ?? summary.zero_variance.share,
        before: against?.zero_variance.share,
        shown: percent,
        low: groups(summary.zero_variance.groups),
      },
      {
        key: "phantom",
        label: t("lab.phantom_groups"),
        now: summary.phantom.share,
        before: against?.phantom.share,
        shown: percent,
        low: groups(summary.phantom.groups),
        help: t("lab.phantom_help"),
      },
      {
        key: "excluded",
        label: t("metric.rollouts/excluded_share"),
        now: excluded(summary),
        before: excluded(against),
        shown: percent,
        low: t("lab.rollouts_of", { n: count(summary.excluded, language), all: count(summary.rollouts, language) }),
      },
      {
        key: "agreement",
        label: t("lab.agreement"),
        now: agreement,
        before: undefined,
        shown: figure,
        low: !otherName ? t("lab.nothing_compared") : t("lab.rank_correlation", { name: otherName }),
      },
    ];
    keyed(
      $("lab-tiles"),
      tiles,
      (tile) => tile.key,
      (tile) =>
        h(
          "div",
          { class: "tile", "data-tile": tile.key, title: tile.help },
          h("span", { class: "tile-label" }, tile.label),
          h("span", { class: "lab-tile-row" }, h("span", { class: "tile-before" }), h("span", { class: "tile-value" })),
          h("span", { class: "tile-low small muted" }),
        ),
      (node, tile) => {
        const [before, value] = node.children[1].children;
        const changed = moved(tile.before, tile.now);
        setText(before, changed ? `${tile.shown(tile.before)} →` : "");
        setAttr(before, "aria-label", changed ? t("lab.before", { value: tile.shown(tile.before) }) : null);
        setText(value, tile.shown(tile.now));
        setText(node.children[2], tile.low);
      },
    );
  }

  /** @param {Row} reply */
  table(reply) {
    setText($("components-count"), String(reply.components.length));
    const body = $("lab-table");
    keyed(
      body,
      reply.components,
      (/** @type {Row} */ row) => row.name,
      () => h("tr"),
      (node, row) => {
        const place = this.names.indexOf(row.name);
        const sign = JSON.stringify([place, row]);
        if (node.dataset.sign !== sign) node.replaceChildren(...this.cells(row, place));
        node.dataset.sign = sign;
      },
    );
    const lines = (reply.missing ?? []).map((/** @type {Row} */ item) =>
      h(
        "li",
        {},
        t("lab.missing_of", {
          name: plain(String(item.component)),
          n: count(item.rollouts, language),
          reason: plain(String(item.reason)),
        }),
      ),
    );
    $("lab-missing").replaceChildren(...lines);
  }

  /**
   * @param {Row} row
   * @param {number} place
   */
  cells(row, place) {
    const cell = (/** @type {string} */ label, /** @type {any} */ child, /** @type {Row} */ more = {}) =>
      h("td", { class: "num", "data-label": t(label), ...more }, child);
    const name = h(
      "button",
      { type: "button", class: "lab-name", "data-curve": place % 8, onclick: () => this.options.focus(row.name) },
      h("span", { class: "lab-key" }),
      plain(row.title),
    );
    const used = row.min === null ? "–" : `${score(row.min)} – ${score(row.max)}`;
    const share = row.share_of_spread;
    const bar =
      share === null || share === undefined
        ? h("span", { class: "muted" }, "–")
        : h(
            "span",
            { class: "lab-share", "data-curve": place % 8 },
            meter(share),
            h("span", { class: "num" }, signed(percent(Math.round(share * 1000) / 1000))),
          );
    return [
      h("td", { class: "cell-main" }, name),
      h(
        "td",
        { "data-label": t("lab.values"), "data-curve": place % 8 },
        row.histogram.counts.length ? small(row.histogram) : "–",
      ),
      cell("lab.mean", figure(row.mean)),
      cell(
        "lab.std",
        row.constant ? t("lab.constant") : figure(row.std),
        row.constant ? { class: "num lab-constant" } : {},
      ),
      cell("lab.range", used, {
        title: t("lab.used", {
          low: figure(row.min),
          high: figure(row.max),
          from: figure(row.low),
          to: figure(row.high),
        }),
      }),
      cell("lab.r_outcome", correlation(row.r_outcome)),
      cell("lab.r_length", correlation(row.r_length)),
      h("td", { "data-label": t("lab.share") }, bar),
      cell("lab.missing", row.missing ? count(row.missing, language) : h("span", { class: "muted" }, "0")),
    ];
  }

  /**
   * @param {Row} histogram
   * @param {Row | null} other histogram of the other spec
   * @param {Row} words name, now, before
   */
  plot(histogram, other, words) {
    this.plotted = [histogram, other, words];
    $("chart-against").hidden = !other;
    setText($("chart-against-name"), words.name);
    setText($("chart-now"), `⌀ ${score(words.now)}`);
    setText($("chart-before"), other ? `⌀ ${score(words.before)}` : "");
    $("lab-chart").hidden = !histogram.counts.length; // no rollout has a reward
    if (!histogram.counts.length) return;
    const colour = styles();
    const own = shares(/** @type {any} */ (histogram));
    const width = own.widths[0] || 1;
    const line = other?.counts.length && outline(/** @type {any} */ (other), width);
    const traces = [
      {
        type: "bar",
        x: own.x,
        y: own.y,
        width: own.widths,
        marker: { color: colour("--curve-0"), opacity: 0.75 },
        hovertemplate: "%{x:.3f}: %{y:.1%}<extra></extra>",
      },
      ...(line
        ? [
            {
              type: "scatter",
              mode: "lines",
              x: line.x,
              y: line.y,
              line: { color: colour("--curve-2"), width: 2 },
              hoverinfo: "skip",
            },
          ]
        : []),
    ];
    const axis = { ...axisLook(colour), fixedrange: true };
    const layout = {
      ...ground(colour),
      margin: { ...MARGIN, l: 40 },
      height: 170,
      bargap: 0.04,
      dragmode: false,
      xaxis: { ...axis, showgrid: false, showline: true, nticks: 8 },
      yaxis: { ...axis, nticks: 4, rangemode: "tozero", tickformat: ".0%" },
    };
    this.options.plotly.react($("lab-plot"), traces, layout, BARE);
  }

  redraw() {
    if (this.plotted)
      this.plot(/** @type {any} */ (this.plotted[0]), this.plotted[1], /** @type {any} */ (this.plotted[2]));
  }
}

/** A minus as wide as the figures have it. @param {string} text */
const signed = (text) => text.replace("-", "−");

/** @param {number} share */
function meter(share) {
  return s(
    "svg",
    { class: "lab-meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { width: 100, height: 4, class: "lab-meter-ground" }),
    s("rect", { width: Math.max(0, Math.min(1, share)) * 100, height: 4 }),
  );
}

/** @param {any} histogram */
function small(histogram) {
  const all = histogram.counts.reduce((/** @type {number} */ sum, /** @type {number} */ n) => sum + n, 0);
  const label = t("lab.histogram", {
    n: count(all, language),
    low: figure(histogram.edges[0]),
    high: figure(histogram.edges[histogram.edges.length - 1]),
  });
  const rects = bars(histogram, SPARK.width, SPARK.height).map((bar) => s("rect", bar));
  return s(
    "svg",
    { class: "lab-spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, role: "img", "aria-label": label },
    ...rects,
  );
}

/** @param {number | null | undefined} value */
function correlation(value) {
  if (value === null || value === undefined) return h("span", { class: "muted" }, "–");
  return h(
    "span",
    { "data-strength": Math.abs(value) > 0.7 ? "strong" : Math.abs(value) > 0.3 ? "some" : "weak" },
    `${value > 0 ? "+" : ""}${score(value)}`,
  );
}
