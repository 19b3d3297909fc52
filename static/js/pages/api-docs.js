// @ts-check
/** The reference of the API: searching it, and opening the operation that an address names. */

import { t } from "../lib/dom.js";
import { fits } from "../lib/find.js";

const field = /** @type {HTMLInputElement} */ (document.getElementById("api-search"));
const counter = /** @type {HTMLElement} */ (document.getElementById("api-found"));
const none = /** @type {HTMLElement} */ (document.getElementById("api-none"));

function search() {
  const typed = field.value.trim();
  let found = 0;
  for (const subject of document.querySelectorAll(".api-subject")) {
    let here = 0;
    for (const item of /** @type {NodeListOf<HTMLElement>} */ (subject.querySelectorAll(".api-op"))) {
      item.hidden = !fits(item.dataset.words || "", typed);
      if (!item.hidden) here += 1;
    }
    /** @type {HTMLElement} */ (subject).hidden = here === 0;
    const link = document.querySelector(`.api-subjects a[href="#${subject.id}"]`);
    link?.parentElement?.toggleAttribute("hidden", here === 0);
    found += here;
  }
  counter.hidden = typed === "";
  counter.textContent = t("api.found", { n: found, all: counter.dataset.all || "" });
  none.hidden = found > 0;
}

function open() {
  const item = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(item instanceof HTMLDetailsElement)) return;
  item.open = true;
  item.scrollIntoView();
}

// What is open has an address that can be sent to a colleague.
document.addEventListener(
  "toggle",
  ({ target }) => {
    const opened = target instanceof HTMLDetailsElement && target.open && target.classList.contains("api-op");
    if (opened) history.replaceState(null, "", `#${target.id}`);
  },
  true,
);
field.addEventListener("input", search);
addEventListener("hashchange", open);
if (field.value) search(); // kept by the browser
open();
