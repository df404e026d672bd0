/** The noise of slices as scanners make it, and how large it is, see scripts/stack/noise.py. */
import constants from "../model/constants.js";
import { percentile } from "./intensity.js";
import { clamp, extremes, otherAxes, reorder } from "./volume.js";

const { TAPER, WIDEST, PATCH, FLATTEST, LOWEST, FALL, FAINT, ROUNDING, MANY, NOISY, HELD, rician } = constants.noise;
const WIDTHS = Array.from({ length: Math.ceil((WIDEST + 0.21 - 1) / 0.05) }, (_, k) => (100 + 5 * k) / 100);

/** @type {(values: number[]) => number} */
const sum = (values) => values.reduce((all, x) => all + x, 0);

/** @type {(values: number[]) => number} */
const mean = (values) => sum(values) / values.length;

/** The share of a frequency, per pixel, that a scanner keeps. @type {(frequency: number, width: number) => number} */
function band(frequency, width) {
  if (width <= 1) return 1;
  const place = 2 * width * frequency; // 1 at the end of the band
  return place < 1 ? Math.cos((Math.PI / 2) * clamp((place - TAPER) / (1 - TAPER), 0, 1)) : 0;
}

/** The frequencies of the cosine transform of `n` pixels, per pixel. @type {(n: number) => number[]} */
export const cosineFrequencies = (n) => Array.from({ length: n }, (_, k) => k / (2 * n));

/** Its power at in-plane frequencies, per pixel, over that of white noise, row after row. @type {(noise: Noise, first: number[], second: number[]) => number[]} */
export function powerOf({ widths }, first, second) {
  const [rows, columns] = [first, second].map((frequencies, k) => {
    const powers = frequencies.map((frequency) => band(frequency, widths[k]) ** 2);
    return powers.map((power) => power / mean(powers));
  });
  return rows.flatMap((row) => columns.map((column) => row * column));
}

/** The mean of a magnitude with Rician noise: the table of Python's function at deviation 1, a Chebyshev series.
 * @type {(signal: number, deviation: number) => number} */
export function magnitude(signal, deviation) {
  if (!deviation) return signal;
  const { scale, series } = rician;
  const ratio = signal / deviation;
  const place = (ratio - scale) / (ratio + scale);
  let [one, two] = [0, 0];
  for (let k = series.length - 1; k > 0; k--) [one, two] = [2 * place * one - two + series[k], one];
  return signal + (deviation * (place * one - two + series[0])) / (ratio + scale);
}

/** The noise that slices show: deviation in their units, width of an acquired pixel along either in-plane axis.
 * @type {(volume: Volume, axis: number, head: Volume) => Noise} */
export function noiseOf(volume, axis, head) {
  const none = { deviation: 0, widths: [1, 1] };
  const power = spectrum(volume, axis, head);
  const n = power.length;
  if (n <= LOWEST * PATCH) return none;
  const frequencies = power.map((_, k) => k / (2 * (n - 1)));
  const all = frequencies.flatMap((f, k) => frequencies.map((g, l) => ({ k, l, distance: Math.hypot(f, g), found: power[k][l] })));
  const fine = all.filter(({ distance }) => distance > LOWEST);
  const low = fine.filter(({ distance }) => distance < 2 * LOWEST).map(({ found }) => found);
  const faint = FAINT * percentile(low.sort((a, b) => a - b), 50);
  if (faint <= ROUNDING ** 2 * all.reduce((most, { found }) => Math.max(most, found), 0)) return none; // rounding
  const cells = fine.map((cell) => ({ ...cell, found: Math.max(cell.found, ROUNDING * faint), texture: (cell.distance / LOWEST) ** -FALL }));
  const logs = cells.map(({ found }) => Math.log(found + faint));
  const seen = WIDTHS.map((width) => seenBand(frequencies, width));
  const shares = WIDTHS.map((width) => mean(cosineFrequencies(MANY).map((frequency) => band(frequency, width) ** 2)));
  let [best, noise] = [Infinity, none];
  for (let i = 0; i < WIDTHS.length; i++) {
    for (let j = 0; j < WIDTHS.length; j++) {
      const kept = cells.map(({ k, l }) => seen[i][k] * seen[j][l]);
      const inside = [...kept.keys()].filter((c) => kept[c] > HELD);
      if (!inside.length) continue;
      let [plateau, slope] = twoLevels(inside.map((c) => kept[c] / cells[c].found), inside.map((c) => cells[c].texture));
      plateau = Math.max(plateau, NOISY * Math.min(...inside.map((c) => cells[c].found / kept[c])));
      const off = sum(cells.map(({ texture }, c) => (Math.log((plateau + slope * texture) * kept[c] + faint) - logs[c]) ** 2));
      if (off < best) [best, noise] = [off, { deviation: Math.sqrt(plateau * shares[i] * shares[j]), widths: [WIDTHS[i], WIDTHS[j]] }];
    }
  }
  return noise;
}

/** Mean power of the head's flattest patches by frequency, from 0 to a half per pixel; empty where the slices hold no patch.
 * @type {(volume: Volume, axis: number, head: Volume) => number[][]} */
function spectrum(volume, axis, head) {
  const order = [axis, ...otherAxes(axis)];
  const [{ data, shape: [S, N, M] }, inside] = [reorder(volume, order), reorder(head, order).data];
  const shorter = Math.min(N, M);
  const size = 2 * Math.floor(clamp(Math.floor(shorter / 3), Math.floor(PATCH / 3), PATCH) / 2);
  if (size > shorter) return [];
  const [line, places] = [[...Array(size).keys()], /** @type {number[]} */ ([])];
  const [rows, columns] = [N, M].map((n) => starts(n, size));
  for (let s = 0; s < S; s++) for (const y of rows) for (const x of columns) places.push((s * N + y) * M + x);
  const pixels = line.flatMap((y) => line.map((x) => y * M + x));
  const counts = places.map((place) => pixels.reduce((count, pixel) => count + inside[place + pixel], 0));
  const most = counts.reduce((a, b) => Math.max(a, b));
  const hann = line.map((k) => 0.5 - 0.5 * Math.cos((2 * Math.PI * (k + 1)) / (size + 1)));
  const window = hann.flatMap((a) => hann.map((b) => a * b));
  const [whole, level] = [sum(window), Math.sqrt(mean(window.map((w) => w * w)))];
  const { least } = extremes(volume);
  const shown = places.filter((_, k) => counts[k] >= most).map((place) => ({ place, mean: pixels.reduce((all, pixel, k) => all + window[k] * data[place + pixel], 0) / whole }));
  const dark = percentile(shown.map((patch) => patch.mean - least).sort((a, b) => a - b), 50) / 2;
  const half = line.slice(0, size / 2 + 1);
  const waves = [Math.cos, Math.sin].map((wave) => half.map((f) => line.map((x) => wave((2 * Math.PI * ((f * x) % size)) / size))));
  const powers = shown.filter((patch) => patch.mean - least >= dark).map((patch) => {
    const own = pixels.map((pixel, k) => ((data[patch.place + pixel] - patch.mean) * window[k]) / level);
    const power = half.map(() => half.map(() => 0)); // of positive and negative frequencies the mean
    for (const one of waves) {
      const along = one.map((wave) => line.map((y) => product(wave, own, y * size)));
      for (const other of waves) for (const f of half) for (const g of half) power[f][g] += (product(other[f], along[g], 0) / size) ** 2;
    }
    const signs = (/** @type {number} */ f) => (f ? 2 : 1); // positive and negative ones
    const coarse = [0, 1, 2].flatMap((f) => [0, 1, 2].map((g) => signs(f) * signs(g) * power[f][g]));
    return { power, coarse: sum(coarse) };
  });
  const flattest = percentile(powers.map(({ coarse }) => coarse).sort((a, b) => a - b), 100 * FLATTEST);
  const flat = powers.filter(({ coarse }) => coarse <= flattest);
  return half.map((f) => half.map((g) => mean(flat.map(({ power }) => power[f][g]))));
}

/** The product of numbers with as many others, from `start` on. @type {(one: number[], other: number[], start: number) => number} */
function product(one, other, start) {
  let all = 0;
  for (let k = 0; k < one.length; k++) all += one[k] * other[start + k];
  return all;
}

/** Where patches begin that overlap by half, counted from either end of `n` pixels. @type {(n: number, size: number) => number[]} */
function starts(n, size) {
  const half = Array.from({ length: Math.floor(Math.floor((n - size) / 2) / (size / 2)) + 1 }, (_, k) => (k * size) / 2);
  return [...new Set([...half, ...half.map((start) => n - size - start)])];
}

/** The band's power as a Hann window shows it, which blurs by a frequency. @type {(frequencies: number[], width: number) => number[]} */
function seenBand(frequencies, width) {
  const power = frequencies.map((frequency) => band(frequency, width) ** 2);
  const at = (/** @type {number} */ k) => power[k < 0 ? -k : k < power.length ? k : 2 * power.length - 2 - k];
  return power.map((x, k) => at(k - 1) / 6 + (2 * x) / 3 + at(k + 1) / 6);
}

/** Plateau and slope, neither negative, whose sum is nearest to the spectrum, error by its own size: of two variables, least squares
 * lie where both count, or one alone. @type {(relative: number[], texture: number[]) => [number, number]} */
function twoLevels(relative, texture) {
  let [a, b, c, p, q] = [0, 0, 0, 0, 0];
  relative.forEach((x, k) => {
    const y = x * texture[k];
    [a, b, c, p, q] = [a + x * x, b + x * y, c + y * y, p + x, q + y];
  });
  const [plateau, slope, size] = [p * c - q * b, q * a - p * b, a * c - b * b];
  if (size > 0 && plateau >= 0 && slope >= 0) return [plateau / size, slope / size];
  return p ** 2 / a >= q ** 2 / c ? [p / a, 0] : [0, q / c];
}
