/** Slices that were acquired by turns: in another order than their places', or of another brightness, see scripts/stack/interleaving.py. */
import constants from "../model/constants.js";
import { filled } from "../errors.js";
import { correlation, intensityRange, signalOf } from "./intensity.js";
import { gainBetween, slicesOf } from "./missing.js";
import { indexAlong, map, otherAxes } from "./volume.js";

const { CROSS_TALK, DIMMED, DISORDER, FEWEST, MUCH, NEARER, ORDERS, PIXELS, TISSUE } = constants.interleaving;

/** The order in which slices stand that is not the one of their places, for people; empty where they stand rightly.
 * @type {(volume: Volume, axis: number) => string} */
export function disorder(volume, axis) {
  const [slices, extent] = sampled(volume, axis);
  if (slices.length < FEWEST) return "";
  const areas = slices.map((slice) => slice.reduce((count, x) => count + +(x > TISSUE * extent), 0));
  const most = Math.max(...areas);
  const every = [...slices.keys()];
  const apart = (/** @type {number[]} */ order) => {
    const pairs = order.slice(1).map((k, before) => [order[before], k]).filter((pair) => pair.every((k) => areas[k] > MUCH * most));
    return pairs.length ? pairs.reduce((sum, [a, b]) => sum + 1 - correlation(slices[a], slices[b]), 0) / pairs.length : Infinity;
  };
  const turns = (/** @type {number} */ count) => Array.from({ length: count }, (_, rest) => every.filter((k) => k % count === rest));
  const orders = [turns(2).flat(), turns(2).toReversed().flat(), turns(3).flat(), every.map((k) => String(k + 1)).sort().map((k) => Number(k) - 1)];
  const found = orders.map((stands, k) => ({ said: ORDERS[k], far: apart(every.map((place) => stands.indexOf(place))) }));
  const best = found.reduce((a, b) => (b.far < a.far ? b : a));
  return best.far < NEARER * apart(every) ? filled(DISORDER, [best.said]) : "";
}

/** Which of every two slices are dimmer, 0 or 1, and how many times as bright as the others. @type {(volume: Volume, axis: number) => [number, number]} */
function dimmed(volume, axis) {
  const [slices, extent] = sampled(volume, axis);
  const isShown = (/** @type {number} */ n, /** @type {number} */ k) => slices[n][k] > TISSUE * extent;
  const areas = slices.map((slice, n) => slice.reduce((count, _, k) => count + +isShown(n, k), 0));
  const turns = [];
  for (let n = 1; n + 1 < slices.length; n++) {
    const places = [...slices[n].keys()].filter((k) => isShown(n - 1, k) && isShown(n + 1, k));
    if (places.length <= MUCH * Math.max(...areas)) continue;
    const [before, here, after] = [n - 1, n, n + 1].map((one) => Float32Array.from(places, (k) => slices[one][k]));
    turns.push(Math.log(Math.max(gainBetween(before, here, after, extent), 1e-6)) * (1 - 2 * (n % 2)));
  }
  if (turns.length < FEWEST - 2) return [0, 1];
  turns.sort((a, b) => a - b);
  const even = (turns[(turns.length - 1) >> 1] + turns[turns.length >> 1]) / 2;
  return [+(even > 0), Math.exp(-Math.abs(even))];
}

/** @type {WeakMap<Volume, [Volume, string][]>} by axis: each correction of the acquisition asks again */
const known = new WeakMap();

/** The volume with the dimmer of every two slices as bright as the others, and the words on it; else itself, and none.
 * @type {(volume: Volume, axis: number) => [Volume, string]} */
export function evened(volume, axis) {
  const found = known.get(volume) ?? [];
  known.set(volume, found);
  return (found[axis] ??= even(volume, axis));
}

/** @type {(volume: Volume, axis: number) => [Volume, string]} */
function even(volume, axis) {
  const [which, factor] = dimmed(volume, axis);
  if (factor > DIMMED) return [volume, ""];
  const [{ low }, index] = [intensityRange(volume), indexAlong(volume.shape, axis)];
  const brighter = map(volume, (x, k) => (index(k) % 2 === which && x > low ? low + (x - low) / factor : x));
  return [brighter, filled(CROSS_TALK, [which + 1, factor])];
}

/** The signal of slices at some of their pixels, and the extent of their tissue. @type {(volume: Volume, axis: number) => [Float32Array[], number]} */
function sampled(volume, axis) {
  const range = intensityRange(volume);
  const [rows, columns] = otherAxes(axis).map((k) => volume.shape[k]);
  const [down, along] = [rows, columns].map((count) => Math.max(1, Math.floor(count / PIXELS)));
  const isTaken = (/** @type {number} */ k) => Math.floor(k / columns) % down === 0 && (k % columns) % along === 0;
  return [slicesOf(signalOf(volume, range), axis).map((slice) => slice.filter((_, k) => isTaken(k))), range.high - range.low];
}
