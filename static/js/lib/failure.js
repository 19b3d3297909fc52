// @ts-check
/** A stored error in the reader's words; the server's `webapp/common/words.py` has the table and says the same. */
import { has, t } from "./dom.js";
import { plain } from "./format.js";

/**
 * @param {Record<string, any>} error as it was reported
 * @returns {{code: string, title: string, hint: string, detail: string}}
 */
export function failureWords(error) {
  const [code, message, advice] = ["code", "message", "hint"].map((part) => plain(String(error[part] ?? "")));
  if (!has(`error.${code}`)) return { code, title: message, hint: advice, detail: "" };
  const [title, hint] = [t(`error.${code}`), t(`error.${code}.hint`)];
  const detail = [message, advice].filter((part) => part && part !== title && part !== hint).join(" ");
  return { code, title, hint, detail };
}
