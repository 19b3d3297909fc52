// @ts-check
/** The log (the trainer's messages and output), the list of events, and the checkpoints. */
import { h, has, keyed, setText, t } from "./dom.js";
import { bytes, clock, plain } from "./format.js";

/** @typedef {Record<string, any>} Row */

export const LOG_SHOWN = 2000;

/**
 * A line of the log; the server's `log_line` says the same.
 * @param {Row} event
 */
const lineOf = ({ at, payload }) =>
  `${stamp(at)}  ${plain([payload?.level, payload?.message].filter(Boolean).join(" "))}`;

/** @param {Row} event */
function levelOf(event) {
  const level = event.payload?.level;
  return level === "warning" || level === "error" ? level : null;
}

/** @param {string} iso */
const stamp = (iso) => iso.slice(0, 19).replace("T", " ");

export class Log {
  /**
   * @param {HTMLElement} box
   * @param {HTMLInputElement} follow
   */
  constructor(box, follow) {
    this.box = box;
    this.follow = follow;
    this.last = Number(box.dataset.seq || 0);
    box.addEventListener("scroll", () => {
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
      if (!atEnd && this.follow.checked) this.follow.checked = false;
    });
    follow.addEventListener("change", () => this.scroll());
  }

  /** @param {Row[]} events */
  update(events) {
    const fresh = events.filter((event) => event.seq > this.last && event.kind === "log");
    if (!fresh.length) return;
    this.last = fresh[fresh.length - 1].seq;
    this.box.querySelector(".log-none")?.remove();
    this.box.append(
      ...fresh.map((event) => h("div", { class: "log-line", "data-level": levelOf(event) }, lineOf(event))),
    );
    while (this.box.children.length > LOG_SHOWN) this.box.firstElementChild?.remove();
    this.scroll();
  }

  scroll() {
    if (this.follow.checked) this.box.scrollTop = this.box.scrollHeight;
  }
}

/**
 * Put new events on top of the table: those that the frame has words for.
 * @param {HTMLElement} body
 * @param {Row[]} events
 */
export function drawEvents(body, events) {
  const last = Number(body.dataset.seq || 0);
  const fresh = events.filter((event) => event.seq > last && typeof event.words === "string");
  if (!fresh.length) return;
  body.dataset.seq = String(fresh[fresh.length - 1].seq);
  for (const event of fresh) {
    const kind = has(`kind.${event.kind}`) ? t(`kind.${event.kind}`) : event.kind;
    const time = h("time", { datetime: event.at, title: event.at });
    setText(time, clock(event.at));
    body.prepend(
      h(
        "tr",
        {},
        h("td", {}, time),
        h("td", {}, kind),
        h("td", { class: "num" }, event.attempt),
        h("td", { class: "event-words" }, plain(event.words)),
      ),
    );
  }
  while (body.children.length > 1000) body.lastElementChild?.remove();
}

/**
 * The table of checkpoints, the newest first.
 * @param {HTMLElement} body
 * @param {Row[]} checkpoints
 * @param {string | null} [branch] where a child of the run is made, if that is possible now
 */
export function drawCheckpoints(body, checkpoints, branch = null) {
  if (!checkpoints.length) return;
  const rows = [...checkpoints].reverse().slice(0, 100);
  keyed(
    body,
    rows,
    (row) => row.id,
    (row) =>
      h(
        "tr",
        {},
        h("td", {}, row.step, row.final && h("span", { class: "tag" }, t("final")), goneTag(row)),
        h("td", { class: "num" }, row.attempt),
        h("td", { class: "mono" }, plain(row.path)),
        h("td", { class: "num" }, bytes(row.bytes)),
        h("td", {}, h("time", { datetime: row.created_at, title: row.created_at }, clock(row.created_at))),
        h("td", { class: "num" }),
      ),
    (node, row) => {
      const offered = branch !== null && !row.final && (row.state ?? "whole") === "whole";
      const found = node.lastElementChild?.querySelector("a") ?? null;
      if (offered && !found) node.lastElementChild?.append(rollBack(`${branch}&checkpoint=${row.id}`));
      if (!offered) found?.remove();
      if (row.state && row.state !== "whole" && !node.querySelector("[data-gone]"))
        node.firstElementChild?.append(/** @type {Node} */ (goneTag(row)));
    },
  );
}

/** @param {string} href */
const rollBack = (href) => h("a", { class: "button button-small button-quiet", href }, t("roll_back"));

/**
 * Why a run cannot start from this checkpoint any more.
 * @param {Row} row
 */
function goneTag(row) {
  const gone = row.state && row.state !== "whole";
  return gone ? h("span", { class: "tag", "data-gone": row.state }, t(`checkpoint.${row.state}`)) : null;
}
