/** Labels that programs change within a stack: images that are one whatever these say, and pixels that show one contrast, see scripts/inputs/dicom/{stacks,pixels}.py. */
import constants from "../model/constants.js";
import { refuse } from "../errors.js";
import { blockMeans, isAlike } from "../stack/interleaving.js";

/** @typedef {import("dicom-parser").DataSet} DataSet */

const { BLOCKS } = constants.interleaving;
const { SAME_VALUE } = constants.stacks;
const { MIN_SLICES } = constants.grid;
const { EVEN, SPACING_TOLERANCE } = constants.planes;
/** @type {Record<string, string>} */
const LABELS = constants.headers.LABELS;
const PLACED = ["x00200032", "x00200037"]; // position and orientation
// study, description, number, matrix, pixels, echo, inversion, flip angle
const ONE = "x0020000d x0008103e x00200011 x00280010 x00280011 x00280030 x00180081 x00180082 x00181314".split(" ");

/** @type {(header: DataSet, tag: string, count: number) => number[]} */
const numbers = (header, tag, count) => Array.from({ length: count }, (_, k) => header.floatString(tag, k) ?? NaN);

/** @typedef {{image: NamedBytes, header: DataSet}} Image */

/** Groups of images of one series by its number, description and contrast, which make one even stack. @type {(images: Image[]) => Image[][]} */
export function stacksOf(images) {
  const single = images.filter(({ header }) => PLACED.every((tag) => header.elements[tag]) && !header.elements.x52009230);
  const key = (/** @type {Image} */ { header }) => [...ONE.map((tag) => header.string(tag) ?? ""), numbers(header, PLACED[1], 6).map((x) => Math.round(1000 * x))].join();
  /** @type {Map<string, Image[]>} */
  const groups = new Map();
  for (const one of single) groups.set(key(one), [...(groups.get(key(one)) ?? []), one]);
  return [...groups.values()].filter((stack) => {
    const [a, b, c, d, e, f] = numbers(stack[0].header, PLACED[1], 6);
    const normal = [b * f - c * e, c * d - a * f, a * e - b * d];
    const along = stack.map(({ header }) => numbers(header, PLACED[0], 3).reduce((sum, x, k) => sum + x * normal[k], 0)).sort((x, y) => x - y);
    const gaps = along.slice(1).map((x, k) => x - along[k]);
    const pitch = gaps.toSorted((x, y) => x - y)[gaps.length >> 1];
    return stack.length >= MIN_SLICES && gaps.every((gap) => Math.abs(gap - pitch) <= Math.max(SPACING_TOLERANCE * pitch, EVEN));
  });
}

/** What is said of labels that differ within a stack; empty for none. A stack whose pixels are of several contrasts is refused.
 * @type {(volume: Volume, places: number[], headers: DataSet[], said: (header: DataSet, key: string) => string) => string} */
export function alikeAcross(volume, places, headers, said) {
  const differ = Object.keys(LABELS).flatMap((key) => {
    const labels = places.map((_, k) => said(headers[places.indexOf(k)], key));
    const values = key === "RepetitionTime" ? several(labels) : [...new Set(labels)].filter(Boolean);
    return values.length > 1 ? [{ labels, text: `${values.length} ${LABELS[key]}` }] : [];
  });
  const text = `slices have ${differ.map((one) => one.text).join(" and ")}`;
  const blocks = differ.length ? blockMeans(volume, 2, BLOCKS).means : [];
  const isOne = differ.every(({ labels }) => isAlike(blocks, labels));
  refuse(!isOne, `${text}, and their pixels are of several contrasts. Export the series again.`);
  return differ.length ? `${text}: they are joined, since their pixels are of one contrast.` : "";
}

/** Values that are different contrasts: times that hardly differ are one. @type {(labels: string[]) => number[]} */
function several(labels) {
  const values = [...new Set(labels.filter(Boolean).map(Number))].sort((a, b) => a - b);
  return values.filter((one, k) => k === 0 || one > SAME_VALUE * values[k - 1]);
}
