// @ts-check
/** Which options of a long form are shown: a recipe of the few that people touch, those that were changed, or all. */

/**
 * @typedef {object} Option
 * @property {string} path
 * @property {string} words its label, path and explanation
 * @property {boolean} basic whether it belongs to the recipe
 * @property {string} value
 * @property {string} fallback its default, as its control would show it
 */

/** Whether two texts of a control mean the same value. @param {string} one @param {string} other */
export function equalValues(one, other) {
  if (one.trim() === other.trim()) return true;
  return one.trim() !== "" && other.trim() !== "" && Number(one) === Number(other);
}

/** @param {Option} option */
export const isChanged = (option) => !equalValues(option.value, option.fallback);

/** Whether each word of a query is in the words of an option. @param {Option} option @param {string} query */
export function matches(option, query) {
  const words = option.words.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => words.includes(word));
}

/**
 * The options that are shown: a query takes the place of the view.
 * @param {Option[]} options
 * @param {string} view recipe, changed or all
 * @param {string} query
 */
export function shownOptions(options, view, query) {
  const wanted = query.trim();
  if (wanted) return options.filter((option) => matches(option, wanted));
  if (view === "changed") return options.filter(isChanged);
  return view === "recipe" ? options.filter((option) => option.basic) : options;
}
