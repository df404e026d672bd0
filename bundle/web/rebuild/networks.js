/** The networks, and the physics as graphs, that bundle/web/export.py writes, as onnxruntime runs them. */

/**
 * Each is loaded when it is first used.
 * @param {typeof import("onnxruntime-web/wasm")} ort
 * @param {(name: string) => Promise<Uint8Array>} read the content of a file of `model/`.
 * @param {string} device "wasm" or "webgpu".
 * @returns {Networks}
 */
export function loadNetworks(ort, read, device = "wasm") {
  /** @type {Record<string, Promise<import("onnxruntime-web").InferenceSession>>} */
  const sessions = {};
  const load = async (/** @type {string} */ name, /** @type {string} */ on) =>
    ort.InferenceSession.create(await read(`${name}.onnx`), { executionProviders: [on] });
  const run = async (/** @type {string} */ name, /** @type {Record<string, Tensor>} */ inputs, on = "wasm") => {
    const session = await (sessions[name] ??= load(name, on));
    const made = Object.entries(inputs).map(([input, { data, shape }]) => [input, new ort.Tensor("float32", data, shape)]);
    const { result } = await session.run(Object.fromEntries(made));
    return /** @type {Float32Array} */ (await result.getData());
  };
  const vector = (/** @type {number[]} */ data) => ({ data, shape: [data.length] });
  return {
    stage1: (given, lengths, rows) => {
      const names = ["image", "guide", "guide_slices", "guide_share"];
      const planes = given.map(({ data, shape: [n, h, w] }, k) => [names[k], { data, shape: [n, 1, h, w] }]);
      const told = { lengths: { data: lengths, shape: [1, 4] }, rows: { data: rows, shape: [1, rows.length] } };
      return run(given.length > 1 ? "guided" : "stage1", { ...Object.fromEntries(planes), ...told }, device);
    },
    modulation: (thickness, target) => run("modulation", { thickness: { data: [thickness, target], shape: [1, 2] } }),
    velocity: (data, shape, given) => {
      const modulation = { data: given, shape: [1, given.length] };
      return run("velocity", { x: { data, shape }, modulation }, device);
    },
    families: async (first, second, spacing, sliceSpacing) => {
      const inputs = { first, second, spacing: vector(spacing), slice_spacing: vector([sliceSpacing]) };
      return { data: await run("families", inputs), shape: first.shape };
    },
  };
}
