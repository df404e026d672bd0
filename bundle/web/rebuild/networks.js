/** The networks that bundle/web/export.py writes, as onnxruntime runs them. */

/**
 * Loads them.
 * @param {typeof import("onnxruntime-web/wasm")} ort
 * @param {(name: string) => Promise<Uint8Array>} read the content of a file of `model/`.
 * @param {string} device "wasm" or "webgpu".
 * @returns {Promise<Networks>}
 */
export async function loadNetworks(ort, read, device = "wasm") {
  const load = async (/** @type {string} */ name, /** @type {string} */ on) => {
    const session = await ort.InferenceSession.create(await read(`${name}.onnx`), { executionProviders: [on] });
    return async (/** @type {Record<string, [Float32Array | number[], number[]]>} */ inputs) => {
      const made = Object.entries(inputs).map(([input, [data, dims]]) => [input, new ort.Tensor("float32", data, dims)]);
      const { result } = await session.run(Object.fromEntries(made));
      return /** @type {Float32Array} */ (await result.getData());
    };
  };
  const [stage1, velocity] = [await load("stage1", device), await load("velocity", device)];
  const [modulation, families] = [await load("modulation", "wasm"), await load("families", "wasm")];
  /** @type {typeof stage1 | undefined} larger, and seldom used */
  let guided;
  return {
    stage1: async (given, lengths, rows) => {
      const names = ["image", "guide", "guide_slices"];
      const planes = given.map(({ data, shape: [n, h, w] }, k) => [names[k], [data, [n, 1, h, w]]]);
      const run = given.length > 1 ? (guided ??= await load("guided", device)) : stage1;
      return run({ ...Object.fromEntries(planes), lengths: [lengths, [1, 4]], rows: [rows, [1, rows.length]] });
    },
    modulation: (thickness, target) => modulation({ thickness: [[thickness, target], [1, 2]] }),
    velocity: (x, dims, given) => velocity({ x: [x, dims], modulation: [given, [1, given.length]] }),
    families: async ({ data, shape: [p, n, m] }, first, second, share) => {
      const inputs = { planes: [data, [p, n, m]], first: [first, [n, n]], second: [second, [m, m]], share: [share, [n, m]] };
      return { data: await families(/** @type {any} */ (inputs)), shape: [p, n, m] };
    },
  };
}
