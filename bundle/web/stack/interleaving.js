/** Slices that were acquired by turns: in another order than their places', or of another brightness, see scripts/stack/interleaving.py. */
import constants from "../model/constants.js";
import { filled } from "../errors.js";
import { correlation, intensityRange, signalOf } from "./intensity.js";
import { gainBetween, slicesOf } from "./missing.js";
import { indexAlong, map, otherAxes } from "./volume.js";

const { ALIKE, BACKWARDS, BLOCKS, CROSS_TALK, DIMMED, DISORDER, FEWEST, LEAST, MIRROR, MIRRORED, MUCH, NARROW, NEARER, NO_ORDER, ORDERS, RELATED, STRANGERS, TISSUE, UNEVEN } =
  constants.interleaving;

/** @typedef {{said: string, value: number, limit: number}} Clue evidence that slices lie elsewhere; told below its limit */

/** Why slices do not lie where the file says, for people; empty where they stand rightly. @type {(volume: Volume, axis: number) => string} */
export const disorder = (volume, axis) => clues(volume, axis).find(({ value, limit }) => value < limit)?.said ?? "";

/** The nearest clue of each kind, the most telling first; none of too few slices, or of strips. @type {(volume: Volume, axis: number) => Clue[]} */
function clues(volume, axis) {
  const { slices, width, extent } = blocks(volume, axis);
  const areas = slices.map((slice) => slice.reduce((count, x) => count + +(x > TISSUE * extent), 0));
  const every = [...slices.keys()];
  const shown = every.filter((k) => areas[k] > MUCH * Math.max(...areas));
  const edges = otherAxes(axis).map((k) => volume.shape[k]);
  if (shown.length < FEWEST || Math.min(...edges) < NARROW * Math.max(...edges)) return [];
  const unlike = slices.map((one) => slices.map((other) => 1 - correlation(one, other)));
  const far = (/** @type {Iterable<string>} */ pairs) => [...pairs].map((pair) => pair.split(" ").map(Number)).map(([a, b]) => unlike[a][b]);
  const sum = (/** @type {number[]} */ values) => values.reduce((all, value) => all + value, 0);
  const stand = neighbours(shown);
  const clue = (/** @type {string} */ said, /** @type {number} */ value, limit = NEARER) => ({ said: filled(DISORDER, [said]), value, limit });
  const nearestOf = (/** @type {[string, number[]][]} */ orders, fewest = 1) => {
    const found = orders.map(([said, order]) => {
      const made = neighbours(every.map((k) => order.indexOf(k)).filter((k) => shown.includes(k)));
      const [news, olds] = [[made, stand], [stand, made]].map(([one, other]) => far([...one].filter((pair) => !other.has(pair))));
      const [more, less] = [sum(news), sum(olds)];
      return { said, value: less > 0 && news.length >= fewest ? more / less : Infinity, gained: Math.round(1e6 * (more - less)) };
    });
    const { said, value } = found.reduce((a, b) => (b.gained < a.gained ? b : a));
    return clue(said, value);
  };
  const turns = (/** @type {number} */ count) => Array.from({ length: count }, (_, rest) => every.filter((k) => k % count === rest));
  const orders = [turns(2).flat(), turns(2).toReversed().flat(), turns(3).flat(), every.map((k) => String(k + 1)).sort().map((k) => Number(k) - 1)];
  const halves = shown.slice(LEAST, 1 - LEAST).flatMap((first, k) => {
    const begin = shown[LEAST + k - 1] + 1; // in between lie slices of no tissue
    return /** @type {[string, number[]][]} */ ([
      [filled(BACKWARDS[0], [begin + 1]), [...every.slice(0, begin), ...every.slice(begin).toReversed()]],
      [filled(BACKWARDS[1], [first + 1]), [...every.slice(0, first).toReversed(), ...every.slice(first)]],
    ]);
  });
  const mean = (/** @type {number[]} */ values) => sum(values) / values.length;
  const apart = mean(shown.flatMap((a, k) => shown.slice(k + 1).map((b) => unlike[a][b])));
  const beside = mean(far(stand));
  const nearest = mean(shown.map((a) => Math.min(...shown.filter((b) => b !== a).map((b) => unlike[a][b]))));
  const strangers = clue(NO_ORDER, beside > 0 && nearest < RELATED * apart ? apart / beside : Infinity, STRANGERS);
  return [nearestOf(orders.map((order, k) => [ORDERS[k], order]), LEAST), strangers, nearestOf(halves), ...mirrored(shown, slices, width)];
}

/** Pairs of neighbours in an order, the lesser of two first. @type {(order: number[]) => Set<string>} */
const neighbours = (order) => new Set(order.slice(1).map((k, before) => `${Math.min(k, order[before])} ${Math.max(k, order[before])}`));

/** Clues to slices from which on all are mirrored along rows, columns or both. @type {(shown: number[], slices: Float32Array[], width: number) => Clue[]} */
function mirrored(shown, slices, width) {
  const [last, column] = [slices[0].length - 1, (/** @type {number} */ k) => k % width];
  const images = [(/** @type {number} */ k) => last - k - (width - 1) + 2 * column(k), (/** @type {number} */ k) => k + width - 1 - 2 * column(k), (/** @type {number} */ k) => last - k];
  const found = images.flatMap((image) => {
    const uneven = shown.map((n) => slices[n].map((x, k) => x - slices[n][image(k)]));
    const alike = uneven.slice(1).map((one, before) => correlation(uneven[before], one));
    const first = alike.indexOf(Math.min(...alike)) + 1;
    const usual = middle(alike);
    const told = usual > UNEVEN && LEAST <= first && first <= shown.length - LEAST;
    return told ? [{ said: filled(MIRROR, [shown[first] + 1]), value: alike[first - 1] / usual, limit: MIRRORED }] : [];
  });
  return found.sort((a, b) => a.value - b.value);
}

/** The median. @type {(values: number[]) => number} */
function middle(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

/** Which of every two slices are dimmer, 0 or 1, and how many times as bright as the others. @type {(volume: Volume, axis: number) => [number, number]} */
function dimmed(volume, axis) {
  const { slices, extent } = blocks(volume, axis);
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
  const even = middle(turns);
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

/** Means of the signal of slices in blocks, in how many columns, and the extent of their tissue.
 * @type {(volume: Volume, axis: number) => {slices: Float32Array[], width: number, extent: number}} */
function blocks(volume, axis) {
  const range = intensityRange(volume);
  const { means, width } = blockMeans(signalOf(volume, range), axis, BLOCKS);
  return { slices: means, width, extent: range.high - range.low };
}

/** Whether slices on both sides of a change of labels differ no more than others do. @type {(blocks: Float32Array[], labels: string[]) => boolean} */
export function isAlike(blocks, labels) {
  const apart = (/** @type {number} */ i, /** @type {number} */ j) => {
    let [difference, sum] = [0, 0];
    blocks[i].forEach((x, k) => {
      difference += Math.abs(x - blocks[j][k]);
      sum += Math.abs(x) + Math.abs(blocks[j][k]);
    });
    return difference / Math.max(sum, 1e-9);
  };
  const across = [...labels.keys()].slice(1).filter((k) => labels[k - 1] !== labels[k]).map((k) => k - 1);
  const near = [...labels.keys()].slice(1, -1).filter((k) => [k - 2, k - 1, k, k + 1].some((one) => across.includes(one)));
  const own = near.filter((k) => labels[k - 1] === labels[k + 1]);
  const mean = (/** @type {number[]} */ all) => all.reduce((sum, x) => sum + x, 0) / all.length;
  const others = (own.length ? own : near).map((k) => apart(k - 1, k + 1));
  return mean(across.map((k) => apart(k, k + 1))) <= ALIKE * mean(others);
}

/** Means of slices in blocks, at most so many along each edge, as torch's `adaptive_avg_pool2d` bounds them; and in how many columns.
 * @type {(volume: Volume, axis: number, most: number) => {means: Float32Array[], width: number}} */
export function blockMeans(volume, axis, most) {
  const [rows, columns] = otherAxes(axis).map((k) => volume.shape[k]);
  const [down, along] = [rows, columns].map((count) => {
    const parts = Math.min(most, count);
    return Array.from({ length: parts }, (_, k) => [Math.floor((k * count) / parts), Math.ceil(((k + 1) * count) / parts)]);
  });
  const mean = (/** @type {Float32Array} */ slice, /** @type {number[]} */ [top, bottom], /** @type {number[]} */ [left, right]) => {
    let sum = 0;
    for (let row = top; row < bottom; row++) for (let column = left; column < right; column++) sum += slice[row * columns + column];
    return sum / ((bottom - top) * (right - left));
  };
  const means = slicesOf(volume, axis).map((slice) => Float32Array.from(down.flatMap((high) => along.map((wide) => mean(slice, high, wide)))));
  return { means, width: along.length };
}
