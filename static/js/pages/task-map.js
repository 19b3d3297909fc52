// @ts-check
/** The task map: one tab stop for all of its cells, arrow keys from one to the next. */
import { Roving } from "../lib/roving.js";

for (const box of document.querySelectorAll("[data-grid]"))
  if (box instanceof HTMLElement) new Roving(box, "td > a").settle();
