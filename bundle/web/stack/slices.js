/** Measured slices with the facts that they show, see scripts/stack/slices.py. */
import { canonical, voxelSpacing } from "./grid.js";
import { intensityRange, tissueOf, toUnit } from "./intensity.js";
import { noiseOf } from "./noise.js";
import { headMask } from "./tissue.js";
import { map, reorder } from "./volume.js";

/** A volume in RAS+ order, which is not constant: storage changes nothing. @type {(volume: Volume, affine: Affine, a: Acquisition) => Slices} */
export function turned(volume, affine, a) {
  const { axes, flipped } = canonical(affine);
  const edges = axes.map((axis) => voxelSpacing(affine)[axis]);
  return slicesOf(reorder(volume, axes, flipped), { ...a, sliceAxis: axes.indexOf(a.sliceAxis) }, edges, intensityRange(volume));
}

/** The noise of slices as they are stored. @type {(volume: Volume, affine: Affine, a: Acquisition) => Noise} */
export function noiseIn(volume, affine, a) {
  const [first, second] = canonical(affine).axes.filter((axis) => axis !== a.sliceAxis);
  const { noise } = turned(volume, affine, a);
  return { ...noise, widths: first > second ? noise.widths.toReversed() : noise.widths };
}

/** @type {(volume: Volume, a: Acquisition, edges: number[], tissueRange: IntensityRange) => Slices} */
function slicesOf(volume, a, edges, tissueRange) {
  const head = headMask(volume, tissueRange);
  const noise = noiseOf(map(tissueOf(volume, tissueRange), (x) => x - tissueRange.low), a.sliceAxis, head);
  const given = a.noise === undefined ? noise : { ...noise, deviation: a.noise * (tissueRange.high - tissueRange.low) };
  return { volume, a, edges, tissueRange, head, noise: given };
}

/** The tissue of slices, whose head and noise may be others; the slices themselves where all is tissue. @type {(slices: Slices) => Slices} */
export function withoutRest(slices) {
  const { volume, a, edges, tissueRange } = slices;
  const tissue = tissueOf(volume, tissueRange);
  return tissue.data.every((x, k) => x === volume.data[k]) ? slices : slicesOf(tissue, a, edges, tissueRange);
}

/** Slices without the rest, with their tissue in [-1, 1], as networks see them; the noise is that of the whole.
 * @type {(tissue: Slices, whole: Slices) => Slices} */
export function unitOf(tissue, { tissueRange: { low, high, ceiling }, noise }) {
  const gain = 2 / (high - low);
  const tissueRange = { low: -1, high: 1, ceiling: (ceiling - low) * gain - 1 };
  return { ...tissue, volume: toUnit(tissue.volume, tissue.tissueRange), tissueRange, noise: { ...noise, deviation: noise.deviation * gain } };
}

/** Standard deviation of the noise, as a share of the range of tissue. @type {(slices: Slices) => number} */
export function noiseShare({ noise, tissueRange }) {
  return noise.deviation / (tissueRange.high - tissueRange.low);
}
