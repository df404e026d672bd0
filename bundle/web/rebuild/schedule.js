/** The number of Euler steps of a scan, see scripts/method/schedule.py and DriftInferer.steps_for. */
import constants from "../model/constants.js";
import { f, refuse } from "../errors.js";

/** Python rounds halves to even numbers. @type {(x: number, digits: number) => number} */
const rounded = (x, digits) => Number(f(x, digits));

/** The share of through-plane bandwidth that a thick slice loses (Eq. 13). @type {(a: {sliceThickness: number, targetSpacing: number}) => number} */
export const pad = ({ sliceThickness, targetSpacing }) => 1 - targetSpacing / sliceThickness;

/** Euler steps of AIS (Eq. 14). @type {(a: {sliceThickness: number, targetSpacing: number}, most: number) => number} */
export const aisSteps = (a, most) => rounded(rounded(most * pad(a), 9), 0);

/** The factors on the velocity of the flow, and on the detail of its start. @type {(sharp: boolean) => {velocity: number, detail: number}} */
export function sharpnessOf(sharp) {
  const { sharp_velocity, sharp_detail } = /** @type {{sharp_velocity: number | null, sharp_detail: number}} */ (constants.card);
  refuse(
    sharp && sharp_velocity === null,
    "sharp is true, and the card of these weights has no sharp_velocity: they are not made for sharp results. " +
      "Leave out --sharp, or set --ckpt_path to weights whose card has it.",
  );
  return sharp ? { velocity: /** @type {number} */ (sharp_velocity), detail: sharp_detail } : { velocity: 1, detail: 1 };
}

/** Steps, and where their number comes from. @type {(a: Acquisition) => [number, string]} */
export function stepsFor(a) {
  const { n_max } = constants.card;
  return n_max === 1 ? [1, "N_max = 1"] : [aisSteps(a, n_max), `AIS, PAD = ${f(pad(a), 3)}`];
}
