// @ts-check
/** The error of a chat's answer in the reader's words, as `failure` of `webapp/common/words.py`: its frames have none. */
import { has, t } from "./dom.js";
import { plain } from "./format.js";

/**
 * @param {Record<string, any>} error as it was reported
 * @returns {{code: string, boundary: string, title: string, hint: string, detail: string}}
 */
export function failureWords(error) {
  const [code, message, advice] = ["code", "message", "hint"].map((part) => plain(String(error[part] ?? "")));
  const where = String(error.boundary ?? "");
  const boundary = has(`boundary.${where}`) ? t(`boundary.${where}`) : "";
  if (!has(`error.${code}`)) return { code, boundary, title: message, hint: advice, detail: "" };
  const [title, hint] = [t(`error.${code}`), t(`error.${code}.hint`)];
  const detail = [message, advice].filter((part) => part && part !== title && part !== hint).join(" ");
  return { code, boundary, title, hint, detail };
}
