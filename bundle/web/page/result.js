/** The latest result. It stays, with what it was made with, until another one is there: whatever fails or is stopped meanwhile. */
import { view } from "./viewer.js";
import { plain } from "./words.js";

/** @type {(selector: string) => any} */
const $ = (selector) => document.querySelector(selector);

/** @typedef {{scan: number, name: string, settings: Record<string, string>}} Made the number of a scan, its name, and what was taken for it */

/** @type {(Made & {record: any, rebuilt: Uint8Array, dicom: Uint8Array | undefined, isSaved: boolean}) | undefined} */
let result;

/** Puts a result in the place of the former. @type {(made: Made, volumes: any, window: {low: number, high: number}) => Promise<void>} */
export async function show(made, volumes, window) {
  result = { ...made, ...volumes, isSaved: false };
  const ends = Object.keys(volumes.record.Guide?.Borders ?? {}).length ? ["A dashed line marks where the guide's field of view ends."] : [];
  $("#noted").replaceChildren(...[...volumes.record.Warnings.map(plain), ...ends].map(item));
  await present(made, volumes, window);
}

/** Shows what is known early, where there is no result. It cannot be saved. @type {(made: Made, volumes: any, window: {low: number, high: number}) => Promise<void>} */
export async function preview(made, volumes, window) {
  if (result) return;
  $("#noted").replaceChildren();
  await present(made, volumes, window);
}

/** Takes a preview away that no result has followed. */
export const withdraw = () => void ($("#result").hidden = !result);

/** @type {(made: Made, volumes: any, window: {low: number, high: number}) => Promise<void>} */
async function present(made, volumes, window) {
  $("#made").textContent = `${result ? "Result" : "Preview"} of ${made.name}`;
  $("#made_with").textContent = Object.entries(made.settings).map((one) => one.join(" ")).join(", ");
  $("#latest").textContent = result ? "Rebuilt" : "Preview";
  $("#early").hidden = Boolean(result);
  $("#save").hidden = !result;
  $("#save_dicom").hidden = !result?.dicom;
  const { Sharp } = volumes.record ?? {};
  [$("#drawn").hidden, $("#drawn").textContent] = [!Sharp, Sharp ? `Sharp: ${Sharp}` : ""];
  $("#result").hidden = false;
  compare(made);
  await view(volumes, window, volumes.record?.Guide?.Borders ?? {});
}

/** @type {(text: string) => HTMLElement} */
function item(text) {
  return Object.assign(document.createElement("li"), { textContent: text });
}

/** Says by what the result differs from one that would be made now. @type {(now: Made) => void} */
export function compare(now) {
  if (!result) return;
  const { settings, name, scan } = result;
  const changed = Object.entries(now.settings).filter(([fact, value]) => settings[fact] !== value).map((one) => one.join(" "));
  const other = now.scan !== scan;
  $("#changed").hidden = !other && !changed.length;
  $("#changed").textContent = other ? `This is the result of ${name}. Rebuild for that of ${now.name}.` : `Changed: ${changed.join(", ")}. Rebuild for a new result.`;
}

/** @type {(name: string, content: BlobPart, type: string) => void} */
function download(name, content, type) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** Saves the result in a format, and its record. @type {(ending: string, content: Uint8Array, type: string) => void} */
function save(ending, content, type) {
  if (!result) return;
  const name = result.name.replace(/\.nii(\.gz)?$/i, "");
  download(`${name}_sr${ending}`, /** @type {any} */ (content), type);
  download(`${name}_sr.json`, `${JSON.stringify(result.record, null, 1)}\n`, "application/json");
  result.isSaved = true;
}

$("#save").addEventListener("click", () => result && save(".nii.gz", result.rebuilt, "application/gzip"));
$("#save_dicom").addEventListener("click", () => result?.dicom && save(".zip", result.dicom, "application/zip"));
addEventListener("beforeunload", (event) => {
  if (result && !result.isSaved) event.preventDefault(); // the browser asks
});
