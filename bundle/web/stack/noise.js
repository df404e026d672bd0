/** The noise of slices as scanners make it, and how large it is, see scripts/stack/noise.py. */
import { Matrix } from "ml-matrix";
import constants from "../model/constants.js";
import { percentile } from "./intensity.js";
import { normal } from "./random.js";
import { along, clamp, indexAlong, map, otherAxes, reorder } from "./volume.js";

const { TAPERS, PATCH, FLATTEST, ODD, LOWEST, FALL, MEDIAN, REAL_MEDIAN, FAINT, ROUNDING, MANY, NOISY, HELD, WITHIN, FEW, ROUGH, FINE, rician } = constants.noise;

/** @type {(values: number[]) => number} */
const sum = (values) => values.reduce((all, x) => all + x, 0);

/** @type {(values: number[]) => number} */
const mean = (values) => sum(values) / values.length;

/** The share of a pair of frequencies, per pixel, that a scanner keeps. @type {(noise: Noise, f: number, g: number) => number} */
function kept({ widths, round, taper }, f, g) {
  const fall = (/** @type {number} */ place) => (place < 1 ? Math.cos((Math.PI / 2) * clamp((place - taper) / (1 - taper), 0, 1)) : 0);
  const places = [2 * widths[0] * f, 2 * widths[1] * g]; // 1 at the end of the band
  if (round) return fall(Math.hypot(places[0], places[1]));
  return places.reduce((share, place, k) => (widths[k] > 1 ? share * fall(place) : share), 1);
}

/** The frequencies of the cosine transform of `n` pixels, per pixel. @type {(n: number) => number[]} */
export const cosineFrequencies = (n) => Array.from({ length: n }, (_, k) => k / (2 * n));

/** Its power at in-plane frequencies, per pixel, over that of white noise, row after row. @type {(noise: Noise, first: number[], second: number[]) => number[]} */
export function powerOf(noise, first, second) {
  const powers = first.flatMap((f) => second.map((g) => kept(noise, f, g) ** 2));
  const level = mean(powers);
  return powers.map((power) => power / level);
}

/** The orthonormal cosine transform of `n` numbers, as a matrix. @type {(n: number) => number[][]} */
export const cosines = (n) => cosineFrequencies(n).map((f) => Array.from({ length: n }, (_, k) => Math.sqrt((f ? 2 : 1) / n) * Math.cos(Math.PI * f * (2 * k + 1))));

/** Magnitude slices with Rician noise, drawn by a seed: their magnitude after complex noise was added, within its band along both axes.
 * A cosine transform leaves white noise white, so that it is drawn among frequencies.
 * @type {(slices: Volume, axes: number[], noise: Noise, seed: number) => Volume} */
export function withNoise(slices, axes, noise, seed) {
  if (!noise.deviation) return slices;
  const isWhite = Math.max(...noise.widths) <= 1 && !noise.round;
  const [next, [row, column]] = [normal(seed), axes.map((axis) => indexAlong(slices.shape, axis))];
  const [first, second] = axes.map((axis) => cosineFrequencies(slices.shape[axis]));
  const shares = first.map((f) => second.map((g) => kept(noise, f, g)));
  const level = noise.deviation / Math.sqrt(mean(shares.flat().map((share) => share * share)));
  const back = axes.map((axis) => new Matrix(cosines(slices.shape[axis])).transpose().to2DArray());
  const [real, imaginary] = [0, 1].map(() => {
    const drawn = map(slices, (_, k) => level * shares[row(k)][column(k)] * next());
    return isWhite ? drawn : axes.reduce((volume, axis, k) => along(back[k], volume, axis), drawn);
  });
  return map(slices, (x, k) => Math.hypot(x + real.data[k], imaginary.data[k]));
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

/** The noise that slices show, from their floor up: deviation in their units, and what the scanner measured of k-space. They are looked
 * at twice: as they are, and with patches that hold as many acquired pixels as those of slices that nobody interpolated.
 * @type {(volume: Volume, axis: number, head: Volume) => Noise} */
export function noiseOf(volume, axis, head) {
  const rough = fitted(volume, axis, head, [1, 1], ROUGH, HELD[0]);
  return fitted(volume, axis, head, rough.widths.map((width) => Math.max(1, WITHIN * width)), FINE, HELD[1]);
}

/** The noise whose spectrum fits best, of both shapes and all tapers; `pixels` of the image make an acquired one at least, and widths
 * count in these. Where a band lets through a share of `least` or less of the power, it says nothing of levels.
 * @type {(volume: Volume, axis: number, head: Volume, pixels: number[], widths: number[], least: number) => Noise} */
function fitted(volume, axis, head, pixels, widths, least) {
  const none = { deviation: 0, widths: [1, 1], round: false, taper: 0.75 };
  const power = spectrum(volume, axis, head, pixels);
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
  let [best, level, noise] = [Infinity, 0, none];
  for (const tried of bands(widths, n > FEW)) {
    const shown = seenBand(tried, frequencies);
    const passed = cells.map(({ k, l }) => shown[k][l]);
    const inside = [...passed.keys()].filter((c) => passed[c] > least);
    if (!inside.length) continue;
    let [plateau, slope] = twoLevels(inside.map((c) => passed[c] / cells[c].found), inside.map((c) => cells[c].texture));
    plateau = Math.max(plateau, NOISY * Math.min(...inside.map((c) => cells[c].found / passed[c])));
    let off = 0;
    for (let c = 0; c < cells.length; c++) off += (Math.log((plateau + slope * cells[c].texture) * passed[c] + faint) - logs[c]) ** 2;
    if (off < best) [best, level, noise] = [off, plateau, tried];
  }
  noise = { ...noise, widths: noise.widths.map((width, k) => width * pixels[k]) };
  const common = cosineFrequencies(MANY);
  return { ...noise, deviation: Math.sqrt(level * mean(common.flatMap((f) => common.map((g) => kept(noise, f, g) ** 2)))) };
}

/** All bands that are tried, of all shapes or of one. @type {(widths: number[], shapes: boolean) => Noise[]} */
function bands(widths, shapes) {
  const [rounds, tapers] = shapes ? [[false, true], TAPERS] : [[false], TAPERS.slice(-1)];
  const all = widths.flatMap((first) => widths.flatMap((second) => rounds.flatMap((round) => tapers.map((/** @type {number} */ taper) => ({ deviation: 1, widths: [first, second], round, taper })))));
  return all.filter(({ widths, round, taper }) => taper === TAPERS[TAPERS.length - 1] || round || Math.max(...widths) > 1); // else nothing falls
}

/** Mean power of the head's flattest patches by frequency, from 0 to a half per `pixels`; empty where the slices hold no patch.
 * @type {(volume: Volume, axis: number, head: Volume, pixels: number[]) => number[][]} */
function spectrum(volume, axis, head, pixels) {
  const order = [axis, ...otherAxes(axis)];
  const [{ data, shape: [S, N, M] }, inside] = [reorder(volume, order), reorder(head, order).data];
  const shorter = Math.floor(Math.min(N / pixels[0], M / pixels[1]));
  const size = 2 * Math.floor(clamp(Math.floor(shorter / 3), Math.floor(PATCH / 3), PATCH) / 2);
  if (size > shorter) return [];
  const [high, wide] = pixels.map((pixel) => 2 * Math.floor((size * pixel) / 2));
  const [down, line, places] = [[...Array(high).keys()], [...Array(wide).keys()], /** @type {number[]} */ ([])];
  const [rows, columns] = [starts(N, high), starts(M, wide)];
  for (let s = 0; s < S; s++) for (const y of rows) for (const x of columns) places.push((s * N + y) * M + x);
  const patch = down.flatMap((y) => line.map((x) => y * M + x));
  const counts = places.map((place) => patch.reduce((count, pixel) => count + inside[place + pixel], 0));
  const most = counts.reduce((a, b) => Math.max(a, b));
  const hann = (/** @type {number[]} */ one) => one.map((k) => 0.5 - 0.5 * Math.cos((2 * Math.PI * (k + 1)) / (one.length + 1)));
  const [above, beside] = [hann(down), hann(line)];
  const window = above.flatMap((a) => beside.map((b) => a * b));
  const [whole, level] = [sum(window), Math.sqrt(mean(window.map((w) => w * w)))];
  const shown = places.filter((_, k) => counts[k] >= most).map((place) => ({ place, mean: patch.reduce((all, pixel, k) => all + window[k] * data[place + pixel], 0) / whole }));
  const dark = percentile(shown.map((patch) => patch.mean).sort((a, b) => a - b), 50) / 2;
  const slopes = [down.flatMap((y) => line.map(() => y - (high - 1) / 2)), down.flatMap(() => line.map((x) => x - (wide - 1) / 2))];
  const half = down.slice(0, size / 2 + 1);
  const waves = (/** @type {number[]} */ one) => [Math.cos, Math.sin].map((wave) => half.map((f) => one.map((x) => wave((2 * Math.PI * ((f * x) % one.length)) / one.length))));
  const [ofRows, ofColumns] = [waves(down), waves(line)];
  const powers = shown.filter((one) => one.mean >= dark).map((one) => {
    const own = patch.map((pixel) => data[one.place + pixel] - one.mean);
    for (const place of slopes) {
      const slope = own.reduce((all, x, k) => all + window[k] * place[k] * x, 0) / place.reduce((all, x, k) => all + window[k] * x * x, 0);
      own.forEach((_, k) => (own[k] -= slope * place[k])); // which would leak into all frequencies
    }
    own.forEach((_, k) => (own[k] *= window[k] / level));
    const along = ofColumns.map((across) => across.map((wave) => down.map((y) => product(wave, own, y * wide))));
    const parts = half.map((f) => half.map((g) => ofRows.map((other) => along.map((waves) => product(other[f], waves[g], 0)))));
    const both = [1, -1].map((sign) => // positive and negative frequencies of the columns
      parts.map((row) => row.map(([[cc, cs], [sc, ss]]) => ((cc - sign * ss) ** 2 + (sc + sign * cs) ** 2) / (high * wide))));
    const power = half.map((f) => half.map((g) => (both[0][f][g] + both[1][f][g]) / 2));
    const signs = (/** @type {number} */ f) => (f % (size / 2) ? 2 : 1); // positive and negative ones
    const coarse = [0, 1, 2].flatMap((f) => [0, 1, 2].map((g) => signs(f) * signs(g) * power[f][g]));
    const fine = half.flatMap((f) => half.map((g) => (Math.max(f, g) > 2 ? signs(f) * signs(g) * power[f][g] : 0)));
    return { slice: Math.floor(one.place / (N * M)), both, coarse: sum(coarse), fine: sum(fine) };
  });
  const flattest = (/** @type {typeof powers} */ some) => {
    const most = percentile(some.map(({ coarse }) => coarse).sort((a, b) => a - b), 100 * FLATTEST);
    return some.filter(({ coarse }) => coarse <= most);
  };
  const ofSlices = [...Array(S).keys()].map((s) => powers.filter(({ slice }) => slice === s)).filter((own) => own.length);
  const levels = ofSlices.map((own) => mean(flattest(own).map(({ fine }) => fine)));
  const middle = percentile([...levels].sort((a, b) => a - b), 50);
  const usual = flattest(ofSlices.filter((_, k) => levels[k] * ODD >= middle && levels[k] <= ODD * middle).flat());
  const real = [high, wide].map((one) => half.map((f) => (2 * f) % one === 0)); // a frequency of one part, else of two
  return half.map((f) => half.map((g) => percentile(usual.flatMap(({ both }) => [both[0][f][g], both[1][f][g]]).sort((a, b) => a - b), 50) / (real[0][f] && real[1][g] ? REAL_MEDIAN : MEDIAN)));
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

/** A band's power as Hann windows show it, which blur it by a frequency along either axis. @type {(band: Noise, frequencies: number[]) => number[][]} */
function seenBand(band, frequencies) {
  const n = frequencies.length;
  const blurred = (/** @type {number[]} */ line) => line.map((x, k) => (line[k ? k - 1 : 1] + line[k < n - 1 ? k + 1 : n - 2]) / 6 + (2 * x) / 3);
  const rows = frequencies.map((f) => blurred(frequencies.map((g) => kept(band, f, g) ** 2)));
  const columns = frequencies.map((_, l) => blurred(rows.map((row) => row[l])));
  return frequencies.map((_, k) => columns.map((column) => column[k]));
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
