// @ts-check
/** Plotly is a megabyte, so pages fetch it when a chart is looked at. */

/** @type {Promise<any> | null} */
let coming = null;

/**
 * Plotly, fetched once; a fetch that failed may be tried again.
 * @param {string} url
 * @returns {Promise<any>}
 */
export function loadPlotly(url) {
  const here = /** @type {any} */ (window).Plotly;
  if (here) return Promise.resolve(here);
  coming ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(/** @type {any} */ (window).Plotly);
    script.onerror = () => {
      coming = null;
      script.remove();
      reject(new Error("Plotly could not be fetched"));
    };
    document.head.append(script);
  });
  return coming;
}
