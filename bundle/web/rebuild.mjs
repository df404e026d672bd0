#!/usr/bin/env node
/** Rebuilds a scan in a terminal, by the modules of the page: node rebuild.mjs SCAN OUT [--slice_thickness MM] */
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { expose, wrap } from "comlink";
import endpoint from "comlink/dist/esm/node-adapter.mjs";
import { InputError } from "./errors.js";
import { writeNifti } from "./inputs/nifti.js";
import { readScan } from "./inputs/readers.js";
import { describe, facts } from "./outputs/record.js";
import { place } from "./rebuild/guide.js";
import { rebuild } from "./rebuild/inferer.js";
import { loadNetworks } from "./rebuild/networks.js";
import { length, settle } from "./stack/acquisition.js";

const USAGE = "node rebuild.mjs SCAN OUT [--slice_thickness MM] [--target_thickness MM] [--slice_axis 0|1|2] [--guide SCAN] [--threads N]";
const value = /** @type {const} */ ({ type: "string" });

/** The files of a path, with the sidecar of a NIfTI file. @type {(path: string) => Promise<NamedBytes[]>} */
async function filesOf(path) {
  const found = await stat(path).catch(() => {
    throw new InputError(`${path} does not exist. Set the input to a scan or a folder.`);
  });
  const sidecar = path.replace(/\.nii(\.gz)?$/i, ".json");
  const beside = sidecar !== path && (await stat(sidecar).catch(() => undefined)) ? [sidecar] : [];
  const paths = found.isDirectory() ? (await readdir(path)).map((name) => join(path, name)) : [path, ...beside];
  return Promise.all(paths.map(async (one) => ({ name: basename(one), bytes: new Uint8Array(await readFile(one)) })));
}

/** A number of threads. @type {(text: string) => number} */
function threads(text) {
  if (!/^[1-9]\d*$/.test(text)) throw new InputError(`threads is ${text}: expected 1 or more. Set it as in --threads 2.`);
  return Number(text);
}

async function main() {
  const options = { slice_thickness: value, target_thickness: value, slice_axis: value, guide: value, threads: value };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (positionals.length !== 2) throw new InputError(`${positionals.length} paths are given: expected two. ${USAGE}`);
  const [source, out] = positionals;
  const given = /** @type {Options} */ ({});
  for (const name of /** @type {const} */ (["slice_thickness", "target_thickness"])) {
    const [text, number] = [values[name], Number(values[name])];
    if (text !== undefined) given[name] = length(name, Number.isNaN(number) ? text : number, `Set it as in --${name} 5.`);
  }
  if (values.slice_axis !== undefined) given.slice_axis = Number(values.slice_axis);
  const scan = await readScan(await filesOf(source));
  const acquisition = settle(scan, given);
  for (const [name, [fact, from]] of Object.entries(facts(acquisition, scan.affine))) console.error(`${name}: ${fact} (${from})`);
  for (const warning of acquisition.warnings) console.error(`warning: ${scan.name}: ${warning}`);
  const workers = Array.from({ length: threads(values.threads ?? "1") }, () => new Worker(new URL(import.meta.url)));
  const networks = workers.map((one) => /** @type {any} */ (wrap(endpoint(one))));
  try {
    const guide = values.guide === undefined ? undefined : await place(await readScan(await filesOf(values.guide)), scan, acquisition, networks);
    const result = await rebuild(scan, acquisition, networks, undefined, guide);
    const record = describe(scan, acquisition, result, `Node ${process.version}, onnxruntime-web`, guide);
    await mkdir(dirname(out), { recursive: true });
    await writeFile(out, await writeNifti(result.volume, result.affine, scan.header));
    await writeFile(out.replace(/\.nii(\.gz)?$/i, "") + ".json", `${JSON.stringify(record, null, 1)}\n`);
  } finally {
    await Promise.all(workers.map((one) => one.terminate()));
  }
}

const own = async (/** @type {string} */ name) => new Uint8Array(await readFile(new URL(`model/${name}`, import.meta.url)));
if (isMainThread) {
  await main().catch((error) => {
    const mistake = error instanceof InputError || (error?.code ?? "").startsWith("ERR_PARSE_ARGS");
    console.error(mistake ? `error: ${error.message}` : error);
    process.exitCode = 1;
  });
} else expose(loadNetworks(import("onnxruntime-web"), own), endpoint(/** @type {import("node:worker_threads").MessagePort} */ (parentPort)));
