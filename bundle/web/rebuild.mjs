#!/usr/bin/env node
/** Rebuilds a scan in a terminal, by the modules of the page: node rebuild.mjs SCAN OUT [--slice_thickness MM] */
import { access, constants, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { expose, wrap } from "comlink";
import endpoint from "comlink/dist/esm/node-adapter.mjs";
import { InputError, reason, refuse } from "./errors.js";
import { sha256 } from "./files.js";
import { findScans, guideOf, taken, thickOf } from "./inputs/readers.js";
import { writeDicom } from "./outputs/dicom.js";
import { writeNifti } from "./outputs/nifti.js";
import { describe, facts, keyOf } from "./outputs/record.js";
import { place } from "./rebuild/guide.js";
import { rebuild } from "./rebuild/inferer.js";
import { loadNetworks } from "./rebuild/networks.js";
import { checked } from "./rebuild/reduced_resolution.js";
import { sharpnessOf } from "./rebuild/schedule.js";
import { settle } from "./stack/acquisition.js";

const USAGE = "node rebuild.mjs SCAN OUT.nii.gz|OUT.zip [--slice_thickness MM] [--target_thickness MM] [--slice_axis 0|1|2] [--noise auto|PERCENT] [--sharp] [--guide SCAN] [--check] [--threads N]";
const ENDING = /\.(nii\.gz|zip)$/i;
const value = /** @type {const} */ ({ type: "string" });
const flag = /** @type {const} */ ({ type: "boolean" });

/** The files of a path, with the sidecar of a NIfTI file; their paths lead from the folder of the result. @type {(path: string, out: string) => Promise<NamedBytes[]>} */
async function filesOf(path, out) {
  const found = await stat(path).catch(() => {
    throw new InputError(`${path} does not exist. Set the input to a scan or a folder.`);
  });
  const sidecar = path.replace(/\.nii(\.gz)?$/i, ".json");
  const beside = sidecar !== path && (await stat(sidecar).catch(() => undefined)) ? [sidecar] : [];
  const within = found.isDirectory() ? await readdir(path, { recursive: true, withFileTypes: true }) : [];
  const inside = within.filter((one) => one.isFile()).map((one) => join(one.parentPath, one.name));
  const paths = found.isDirectory() ? inside : [path, ...beside];
  return Promise.all(paths.map(async (one) => ({ name: basename(one), path: relative(dirname(out), one), bytes: new Uint8Array(await readFile(one)) })));
}

/** The scans of a path. @type {(path: string, out: string) => Promise<import("./inputs/readers.js").Found[]>} */
const read = async (path, out) => findScans(await filesOf(path, out));

/** Refuses a place that cannot be written. @type {(out: string, act: () => Promise<unknown>) => Promise<unknown>} */
const writing = (out, act) =>
  act().catch((error) => {
    throw new InputError(`${out} cannot be written (${reason(error)}). Choose another place.`);
  });

/** Writes files whole, or none of them. @type {(files: Record<string, string | Uint8Array>) => Promise<void>} */
async function writeWhole(files) {
  const partial = (/** @type {string} */ path) => join(dirname(path), `.${basename(path)}.partial`);
  try {
    for (const [path, content] of Object.entries(files)) await writeFile(partial(path), content);
    for (const path of Object.keys(files)) await rename(partial(path), path);
  } finally {
    for (const path of Object.keys(files)) await rm(partial(path), { force: true });
  }
}

/** A number of threads. @type {(text: string) => number} */
function threads(text) {
  refuse(!/^[1-9]\d*$/.test(text), `threads is ${text}: expected 1 or more. Set it as in --threads 2.`);
  return Number(text);
}

/** The only one of the scans that were found. @type {(found: import("./inputs/readers.js").Found[]) => import("./inputs/readers.js").Found} */
function only(found) {
  const names = found.map(({ scan }) => scan.name).join(", ");
  refuse(found.length > 1, `${found.length} scans were found: ${names}: expected one. Give it alone.`);
  return found[0];
}

async function main() {
  const options = { slice_thickness: value, target_thickness: value, slice_axis: value, noise: value, sharp: flag, guide: value, check: flag, threads: value };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  refuse(positionals.length !== 2, `${positionals.length} paths are given: expected two. ${USAGE}`);
  const [source, out] = positionals;
  refuse(
    !ENDING.test(out) || resolve(out) === resolve(source),
    `the result is ${out}: expected a name that ends in .nii.gz, or in .zip for DICOM, and another one than the scan's. Set it as in ${USAGE}`,
  );
  const number = (/** @type {any} */ text) => (text === undefined || Number.isNaN(Number(text)) ? text : Number(text));
  const { slice_thickness, target_thickness, slice_axis, noise } = values;
  const given = { slice_thickness: number(slice_thickness), target_thickness: number(target_thickness), slice_axis: number(slice_axis), noise: noise === "auto" ? undefined : number(noise) };
  const found = only(thickOf(await read(source, out)));
  const scan = await taken(found);
  refuse(/zip$/i.test(out) && !found.part, `${scan.name} is no DICOM: expected a result that ends in .nii.gz.`);
  const [acquisition, sharp] = [settle(scan, given), values.sharp ?? false];
  sharpnessOf(sharp); // or it is refused
  for (const [name, [fact, from]] of Object.entries(facts(acquisition, scan.affine))) console.error(`${name}: ${fact} (${from})`);
  for (const warning of acquisition.warnings) console.error(`warning: ${scan.name}: ${warning}`);
  await writing(out, async () => {
    await mkdir(dirname(out), { recursive: true });
    await access(dirname(out), constants.W_OK);
  });
  const workers = Array.from({ length: threads(values.threads ?? "1") }, () => new Worker(new URL(import.meta.url)));
  const networks = workers.map((one) => /** @type {any} */ (wrap(endpoint(one))));
  try {
    if (values.check) console.error((await checked(scan, acquisition, networks, undefined, sharp)).said);
    const beside = values.guide === undefined ? undefined : guideOf(found, await read(values.guide, out));
    const guide = beside && (await place(await taken(beside), scan, acquisition, networks));
    const result = await rebuild(scan, acquisition, networks, undefined, guide, sharp);
    const record = describe(scan, acquisition, result, `Node ${process.version}, onnxruntime-web`, await sha256([...found.files, ...(beside?.files ?? [])]), guide);
    const made = await (/zip$/i.test(out) ? writeDicom(result, found.files, keyOf(record), found.part, record.Warnings, beside) : writeNifti(result.volume, result.affine, scan.header));
    await writing(out, () => writeWhole({ [out]: made, [out.replace(ENDING, ".json")]: `${JSON.stringify(record, null, 1)}\n` }));
  } finally {
    await Promise.all(workers.map((one) => one.terminate()));
  }
}

const own = async (/** @type {string} */ name) => new Uint8Array(await readFile(new URL(`model/${name}`, import.meta.url)));
if (isMainThread) {
  const failed = await main().catch((error) => {
    const mistake = error instanceof InputError || (error?.code ?? "").startsWith("ERR_PARSE_ARGS");
    console.error(mistake ? `error: ${error.message}` : error);
    return true;
  });
  process.exitCode = failed ? 1 : 0; // dcm2niix has set one of its own
} else expose(loadNetworks(import("onnxruntime-web"), own), endpoint(/** @type {import("node:worker_threads").MessagePort} */ (parentPort)));
