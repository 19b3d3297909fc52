// @ts-check
/** The code box: Tab indents, line numbers next to it, links of a test lead to their line. The form works without. */

const INDENT = "    ";
const box = /** @type {HTMLTextAreaElement | null} */ (document.querySelector("[data-code]"));
const lines = /** @type {HTMLElement | null} */ (document.querySelector("[data-lines]"));

/** @param {HTMLTextAreaElement} area */
function number(area) {
  if (!lines) return;
  const count = area.value.split("\n").length;
  lines.textContent = Array.from({ length: count }, (_, index) => index + 1).join("\n");
  lines.style.height = `${area.offsetHeight}px`;
  lines.scrollTop = area.scrollTop;
}

/** Put text in the place of the selection, so that the browser's own undo knows of it.
 * @param {HTMLTextAreaElement} area @param {string} text */
function type(area, text) {
  if (!document.execCommand("insertText", false, text))
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  number(area);
}

/** @param {HTMLTextAreaElement} area @param {number} wanted */
function goTo(area, wanted) {
  const rows = area.value.split("\n");
  const start = rows.slice(0, wanted - 1).reduce((total, row) => total + row.length + 1, 0);
  area.focus();
  area.setSelectionRange(start, start + (rows[wanted - 1] || "").length);
  area.scrollTop = Math.max(0, (wanted - 4) * (area.scrollHeight / rows.length));
}

if (box) {
  const area = box;
  let leaving = false;
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leaving = true;
    else if (event.key === "Tab" && !event.shiftKey && !leaving) {
      event.preventDefault();
      type(area, INDENT);
    } else if (event.key === "Enter" && !event.isComposing) {
      const before = area.value.slice(0, area.selectionStart).split("\n").pop() || "";
      const deeper = /:\s*$/.test(before) ? INDENT : "";
      event.preventDefault();
      type(area, `\n${(before.match(/^\s*/) || [""])[0]}${deeper}`);
    } else if (event.key !== "Shift") leaving = false;
  });
  area.addEventListener("input", () => number(area));
  area.addEventListener("scroll", () => lines && (lines.scrollTop = area.scrollTop));
  new ResizeObserver(() => number(area)).observe(area);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("[data-line]") : null;
    if (!(link instanceof HTMLElement)) return;
    event.preventDefault();
    goTo(area, Number(link.dataset.line));
  });
  number(area);
}
