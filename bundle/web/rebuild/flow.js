/** The noise at the start of the flow, see scripts/method/flow.py. */
import { zeros } from "../stack/volume.js";

/** A hash of 32-bit numbers that is one to one. @type {(value: number) => number} */
function mixed(value) {
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

/** White noise of mean 0 and standard deviation 1 on a box of a grid: a voxel's value is a hash of its place. @type {(box: Box) => Volume} */
export function gridNoise(box) {
  const noise = zeros(box.map(([first, end]) => end - first));
  const [[x0, x1], [y0, y1], [z0, z1]] = box;
  let k = 0;
  for (let x = x0; x < x1; x++) {
    const across = mixed(x + 1);
    for (let y = y0; y < y1; y++) {
      const row = mixed(across + y);
      for (let z = z0; z < z1; z++) {
        const first = mixed(row + z);
        const second = mixed(first + 1);
        const sum = (first >>> 16) + (first & 0xffff) + (second >>> 16) + (second & 0xffff);
        noise.data[k++] = (sum - 2 * 65535) * (Math.sqrt(3) / 65536);
      }
    }
  }
  return noise;
}
