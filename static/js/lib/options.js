// @ts-check
/** Values of a job's options in the controls of a form. */

/**
 * Give a control the value of an option: a tick for true and false, text for all else.
 * @param {{ type: string, value: string, checked?: boolean }} control
 * @param {unknown} value
 */
export function setControl(control, value) {
  if (control.type === "checkbox") control.checked = value === true;
  else control.value = String(value);
}
