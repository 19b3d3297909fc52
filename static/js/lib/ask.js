// @ts-check
/** Asking our own API. */

/**
 * @param {string} url
 * @returns {Promise<any>} null where there is no answer
 */
export async function ask(url) {
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
