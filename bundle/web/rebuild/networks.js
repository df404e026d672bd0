/** The networks, and the physics as graphs, that bundle/web/export.py writes, as onnxruntime runs them. */
import constants from "../model/constants.js";

/**
 * Each is loaded when it is first used.
 * @param {Promise<typeof import("onnxruntime-web/wasm")>} runtime
 * @param {(name: string) => Promise<Uint8Array>} read the content of a file of `model/`.
 * @param {string} device "wasm" or "webgpu".
 * @returns {Networks}
 */
export function loadNetworks(runtime, read, device = "wasm") {
  /** @type {Record<string, Promise<import("onnxruntime-web").InferenceSession>>} */
  const sessions = {};
  const load = async (/** @type {string} */ name, /** @type {string} */ on) => {
    const { env, InferenceSession } = await runtime;
    env.wasm.numThreads = 1; // networks side by side take all
    const options = { executionProviders: [on], graphOptimizationLevel: /** @type {const} */ ("basic") }; // export.py has done the rest
    return InferenceSession.create(await read(on === "webgpu" ? `webgpu/${name}.onnx` : `${name}.onnx`), options);
  };
  const run = async (/** @type {string} */ name, /** @type {Record<string, Tensor>} */ inputs, on = "wasm") => {
    const [session, { Tensor }] = [await (sessions[name] ??= load(name, on)), await runtime];
    const made = Object.entries(inputs).map(([input, { data, shape }]) => [input, new Tensor("float32", data, shape)]);
    const { result } = await session.run(Object.fromEntries(made));
    return /** @type {Float32Array} */ (await result.getData());
  };
  const vector = (/** @type {number[]} */ data) => ({ data, shape: [data.length] });
  return {
    stage1: (given, lengths, rows) => {
      const names = ["image", "guide", "guide_slices", "guide_share"];
      const planes = given.map(({ data, shape: [n, h, w] }, k) => [names[k], { data, shape: [n, data.length / (n * h * w), h, w] }]);
      const told = { lengths: { data: lengths, shape: [1, lengths.length] }, rows: { data: rows, shape: [1, rows.length] } };
      return run(given.length > 1 ? "guided" : "stage1", { ...Object.fromEntries(planes), ...told }, device);
    },
    modulations: async (lengths, steps) => {
      const found = [];
      for (let n = 0; n < steps; n++) found.push(await run("modulation", { lengths: { data: lengths, shape: [1, lengths.length] }, time: vector([n / steps]) }));
      return found;
    },
    refine: (x, shape, data, step) =>
      run("velocity", { x: { data: x, shape }, modulation: { data, shape: [1, data.length] }, step: vector([step]) }, device),
    families: (first, second, spacing, sliceSpacing) =>
      run("families", { first, second, spacing: vector(spacing), slice_spacing: vector([sliceSpacing]) }),
    weighed: (seen, values, regularisation) =>
      run("weighed", { seen, values: vector(values), regularisation: { data: regularisation, shape: seen.shape.slice(1) } }),
  };
}

/** The largest difference between networks, of a plane in [-1, 1]. @type {(networks: [Networks, Networks]) => Promise<number>} */
export async function apart(networks) {
  const image = { data: Float32Array.from({ length: constants.inferer.planes * 640 }, (_, k) => Math.sin(k)), shape: [1, 10, 64] };
  const rows = Array.from({ length: 48 }, (_, k) => (k * 9) / 47);
  const lengths = [5, 1, 5, 1, 0.02];
  const whole = async (/** @type {Networks} */ one) =>
    one.refine(await one.stage1([image], lengths, rows), [1, 1, 48, 64], (await one.modulations(lengths, 1))[0], 1);
  const [a, b] = await Promise.all(networks.map(whole));
  return a.reduce((most, x, k) => Math.max(most, Math.abs(x - b[k]) || 0), 0) + +!b.every(Number.isFinite);
}
