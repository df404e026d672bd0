/** Files: their names, their content packed and unpacked, and its hash, see scripts/files.py. */
import { unzipSync } from "fflate";
import { InputError, reason, refuse } from "./errors.js";

export const NIFTI = /\.nii(\.gz)?$/i;

/** A name without the ending of NIfTI. @type {(name: string) => string} */
export const stem = (name) => name.replace(NIFTI, "");

/** The folder that a file lies in; empty where it is not known. @type {(file: NamedBytes) => string} */
export const folderOf = ({ path = "" }) => path.split("/").slice(0, -1).join("/");

/** Bytes that a packed file may unpack to: more would fill the memory of a tab. */
const MOST_UNPACKED = 2 ** 30;

/** Bytes through streams such as the browser's own (de)compressors. @type {(bytes: Uint8Array, ...by: any[]) => Promise<Uint8Array>} */
export async function through(bytes, ...by) {
  const stream = by.reduce((one, next) => one.pipeThrough(next), new Blob([/** @type {any} */ (bytes)]).stream());
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** What is compressed in a file. Browsers blame a network that nobody asked. @type {(bytes: Uint8Array) => Promise<Uint8Array>} */
export async function unpacked(bytes) {
  let size = 0;
  const bound = new TransformStream({
    transform(part, control) {
      if ((size += part.length) > MOST_UNPACKED) throw new Error();
      control.enqueue(part);
    },
  });
  try {
    return await through(bytes, new DecompressionStream("gzip"), bound);
  } catch {
    throw new Error(size > MOST_UNPACKED ? `it unpacks to more than ${MOST_UNPACKED >> 20} MB` : "its compressed content is cut or broken");
  }
}

/** The files of an archive; their paths lead through its own. @type {(file: NamedBytes) => NamedBytes[]} */
export function unzip({ name, path: whole = name, bytes }) {
  try {
    let size = 0;
    const filter = (/** @type {{originalSize: number}} */ { originalSize }) => {
      refuse((size += originalSize) > MOST_UNPACKED, `${name} unpacks to more than ${MOST_UNPACKED >> 20} MB. Give a part of it.`);
      return true;
    };
    return Object.entries(unzipSync(bytes, { filter })).map(([path, inside]) => ({ name: path.split("/").at(-1) ?? "", path: `${whole}/${path}`, bytes: inside }));
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError(`${name} cannot be unpacked (${reason(error)}). Pack it again.`);
  }
}

/** Hash of the content of files, one after the other. @type {(files: NamedBytes[]) => Promise<string | null>} */
export async function sha256(files) {
  if (!globalThis.crypto?.subtle) return null; // of pages that come by https alone
  const all = await new Blob(files.map(({ bytes }) => /** @type {any} */ (bytes))).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", all));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
