/** The number of Euler steps of a scan, see scripts/method/schedule.py and DriftInferer.steps_for. */
import constants from "../model/constants.js";
import { f, refuse } from "../errors.js";

/** Python rounds halves to even numbers. @type {(x: number, digits: number) => number} */
const rounded = (x, digits) => Number(f(x, digits));

/** The share of through-plane bandwidth that a thick slice loses (Eq. 13). @type {(a: {sliceThickness: number, targetSpacing: number}) => number} */
export const pad = ({ sliceThickness, targetSpacing }) => 1 - targetSpacing / sliceThickness;

/** Euler steps of AIS (Eq. 14). @type {(a: {sliceThickness: number, targetSpacing: number}, most: number) => number} */
export const aisSteps = (a, most) => rounded(rounded(most * pad(a), 9), 0);

/** Most steps of AIS; with `sharp` those to the end of the flow. @type {(sharp: boolean) => number} */
export function mostSteps(sharp) {
  const { n_max, sharp_n_max } = /** @type {{n_max: number, sharp_n_max: number | null}} */ (constants.card);
  refuse(
    sharp && sharp_n_max === null,
    "sharp is true, and the card of these weights has no sharp_n_max: they are not made for sharp results. " +
      "Leave out --sharp, or set --ckpt_path to weights whose card has it.",
  );
  return sharp ? /** @type {number} */ (sharp_n_max) : n_max;
}

/** Steps, and where their number comes from. @type {(a: Acquisition, flow: Flow) => [number, string]} */
export function stepsFor(a, { sharp = false, steps }) {
  if (steps !== undefined) return [steps, "the option inferer::steps"];
  const most = mostSteps(sharp);
  if (most === 1) return [1, "N_max = 1"];
  return [aisSteps(a, most), `AIS, PAD = ${f(pad(a), 3)}${sharp ? ", the option sharp" : ""}`];
}
