/** Which part of a volume the networks see, and in which windows, see scripts/rebuild/windows.py. */
import constants from "../model/constants.js";
import { AXES, along, boxOf, clamp, crop, map, zeros } from "../stack/volume.js";

const { BLOCK, AIR, LEAST_AIR, LEAST_EDGE, MARGIN, PIXELS_PER_CALL } = constants.windows;
const { roi_size, overlap } = constants.inferer;

/** Rows that average blocks of voxels along an axis. @type {(n: number) => Float64Array[]} */
function blocks(n) {
  const edge = Math.min(BLOCK, n);
  return Array.from({ length: Math.ceil(n / edge) }, (_, k) => {
    const [first, end] = [k * edge, Math.min((k + 1) * edge, n)];
    return new Float64Array(n).fill(1 / (end - first), first, end);
  });
}

/** The smallest box with everything that shows signal, and air around it; undefined if nothing does. @type {(v: Volume) => Box | undefined} */
export function signalBox(volume) {
  const means = AXES.reduce((v, axis) => along(blocks(v.shape[axis]), v, axis), volume);
  const box = boxOf(map(means, (x) => +(x > AIR)));
  const around = (/** @type {number[]} */ [first, end], /** @type {number} */ n) => [first - 1, end + 1].map((block) => clamp(block * Math.min(BLOCK, n), 0, n));
  return box[0][1] ? volume.shape.map((n, axis) => around(box[axis], n)) : undefined;
}

/** How many pixels of air planes are given at either end of their in-plane axis. @type {(planes: Volume) => number} */
function airBeside({ data }) {
  const dark = data.reduce((count, x) => count + +(x < AIR), 0);
  return dark / data.length < LEAST_AIR ? MARGIN : 0;
}

/**
 * The planes `(P, ...)` of volumes, few at a time, so that they stay in a processor's cache. Each of the networks takes
 * the next ones when it is done with some; `work` gets it, the planes and the number of the first.
 * @type {(volumes: Volume[], pixels: number, networks: Networks[], work: (one: Networks, planes: Volume[], first: number) => Promise<void>) => Promise<void>}
 */
export async function inTurns(volumes, pixels, networks, work) {
  const [count, perCall] = [volumes[0].shape[0], Math.max(1, Math.floor(PIXELS_PER_CALL / pixels))];
  const firsts = Array.from({ length: Math.ceil(count / perCall) }, (_, k) => k * perCall).values();
  const some = (/** @type {Volume} */ { data, shape: [, h, w] }, /** @type {number} */ first) => {
    const own = data.slice(first * h * w, (first + perCall) * h * w);
    return { data: own, shape: [own.length / (h * w), h, w] };
  };
  const each = async (/** @type {Networks} */ one) => {
    for (const first of firsts) await work(one, volumes.map((volume) => some(volume, first)), first);
  };
  await Promise.all(networks.map(each));
}

/** Where windows begin along an axis, as MONAI lays them. @type {(length: number, roi: number) => number[]} */
function windowStarts(length, roi) {
  const step = Math.max(Math.floor(roi * (1 - overlap)), 1);
  return Array.from({ length: Math.ceil((length - roi) / step) + 1 }, (_, k) => Math.min(k * step, length - roi));
}

/** The Gaussian weights of a window of `h` x `w` pixels, as MONAI makes them. @type {(h: number, w: number) => Float32Array} */
function importance(h, w) {
  const gauss = (/** @type {number} */ k, /** @type {number} */ n) => Math.exp(-((k - (n - 1) / 2) ** 2) / (2 * (n / 8) ** 2));
  return Float32Array.from({ length: h * w }, (_, k) => Math.max(gauss(Math.floor(k / w), h) * gauss(k % w, w), 1e-3));
}

/**
 * Planes through an Euler step, whole or in windows; they are replaced by what it makes of them.
 * @type {(planes: Volume, modulation: Float32Array, step: number, networks: Networks[], progress: (planes: number) => void) => Promise<void>}
 */
export async function byWindows(planes, modulation, step, networks, progress) {
  const [[, R, C], margin] = [planes.shape, airBeside(planes)];
  const [H, W] = [R, C + 2 * margin].map((n) => Math.max(n, Math.min(roi_size, Math.max(LEAST_EDGE, Math.ceil(n / BLOCK) * BLOCK))));
  const [h, w, top, left] = [Math.min(H, roi_size), Math.min(W, roi_size), (H - R) >> 1, ((W - C) >> 1) - margin];
  const weights = importance(h, w);
  await inTurns([planes], h * w, networks, async (one, [{ data: source, shape: [n] }], first) => {
    const [wide, sum, total] = [zeros([n, H, W]), zeros([n, H, W]), zeros([n, H, W])];
    for (let k = 0; k < wide.data.length; k++) {
      const [plane, row, column] = [Math.floor(k / (H * W)), Math.floor(k / W) % H, k % W];
      const x = clamp(column - left, 0, C + 2 * margin - 1) - margin; // the border is repeated
      wide.data[k] = x < 0 || x >= C ? -1 : source[(plane * R + clamp(row - top, 0, R - 1)) * C + x];
    }
    for (const y of windowStarts(H, h)) {
      for (const x of windowStarts(W, w)) {
        const sharp = await one.refine(crop(wide, [[0, n], [y, y + h], [x, x + w]]).data, [n, 1, h, w], modulation, step);
        for (let row = 0, k = 0; row < n * h; row++) {
          for (let at = (Math.floor(row / h) * H + y + (row % h)) * W + x, end = at + w; at < end; at++, k++) {
            sum.data[at] += weights[k % (h * w)] * sharp[k];
            total.data[at] += weights[k % (h * w)];
          }
        }
      }
    }
    const own = [[0, n], [top, top + R], [left + margin, left + margin + C]];
    planes.data.set(crop(map(sum, (x, k) => x / total.data[k]), own).data, first * R * C);
    progress(n);
  });
}
