/** The page: takes a scan, shows what was understood, has it rebuilt by the worker, shows and saves the result. */
import { proxy, wrap } from "comlink";
import { fromEvent } from "file-selector";
import { Niivue } from "@niivue/niivue";
import { reason } from "../errors.js";
import { thread } from "./threads.js";

/** @type {(selector: string) => any} */
const $ = (selector) => document.querySelector(selector);
const fields = $("#scan").elements;
const MOST_THREADS = 4; // each takes 0.2 GB
const [PANELS, STACKED, GRID] = [["measured", "cubic", "rebuilt"], 1, 2];
const LENGTHS = ["slice_thickness", "target_thickness", "slice_axis"];
/** @type {Record<string, [number, number, number]>} */
const KEYS = {
  ...{ ArrowLeft: [1, 0, 0], ArrowRight: [-1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0] }, // seen from the feet
  ...{ PageUp: [0, 0, 1], PageDown: [0, 0, -1] },
};

/** @type {Worker | undefined} */
let worker;
/** @type {any} the worker's tasks, once it has read the scan */
let tasks;
/** @type {Record<"scan" | "guide", File[]>} */
const files = { scan: [], guide: [] };
/** @type {Promise<any> | undefined} what the worker will say of the scan */
let reading;
/** @type {any} what it said */
let scan;
/** @type {any} and of its result */
let result;
/** @type {Niivue[]} */
let views = [];
let attempts = 0;

/** The chosen scan, read by a new worker. */
function read() {
  const started = thread("worker.js");
  [worker, tasks] = [started, wrap(started)];
  return new Promise((resolve, reject) => {
    started.onerror = reject;
    chosen().then(resolve, reject);
  });
}

/** @returns {Promise<any>} */
async function chosen() {
  const names = await tasks.read(files.scan);
  if (!fields.series.length) fields.series.append(...names.map((/** @type {string} */ name, /** @type {number} */ k) => new Option(name, String(k))));
  $("#which").hidden = names.length === 1;
  return tasks.take(Number(fields.series.value));
}

/** Ends the worker at once; the scan stays. What the worker was asked never ends. */
function stop() {
  worker?.terminate();
  worker = reading = undefined;
  work("");
}

/** What is being done, nothing if empty; its share, where it takes long. @type {(status: string, share?: number) => void} */
function work(status, share) {
  $("#status").ariaLive = share ? "off" : "polite"; // a screen reader would say each percent
  $("#status").textContent = status;
  $("progress").hidden = $("#stop").hidden = share === undefined;
  for (const name of ["#which", "#correct", "#guide", "[type=submit]"]) $(name).disabled = share !== undefined;
  $("progress").value = share ?? 0;
}

/** Does something that may fail, and says why. What was begun later has the word. @type {(status: string, share: number | undefined, what: () => Promise<void>) => Promise<void>} */
async function attempt(status, share, what) {
  const own = ++attempts;
  work(status, share);
  $("#mistake").hidden = true;
  try {
    await what();
  } catch (error) {
    if (own !== attempts) return;
    const isMistake = error instanceof Error && error.name === "InputError";
    $("#mistake").textContent = isMistake ? error.message : `This did not work (${reason(error)}). Please report it.`;
    $("#mistake").hidden = false;
  }
  if (own === attempts) work("");
}

/** @type {(given: File[]) => void} */
function takeGuide(given) {
  files.guide = given;
  $("#guide output").textContent = given.length > 1 ? `${given.length} files` : (given[0]?.name ?? "none");
  $("#unguided").hidden = !given.length;
}

/** @type {(given: File[]) => Promise<void>} */
async function open(given) {
  if (!given.length) return;
  stop();
  takeGuide([]);
  $("#scan").hidden = true;
  files.scan = given;
  fields.series.replaceChildren();
  await show();
}

/** Shows the chosen scan, and what is taken for its acquisition. */
function show() {
  $("#result").hidden = true;
  for (const name of LENGTHS) fields[name].value = "";
  return attempt("Reading ...", undefined, async () => {
    await settle();
    $("h2").textContent = `${scan.name}, ${scan.shape.join(" x ")} voxels`;
    $("#guide").hidden = !scan.guided;
    $("#scan").hidden = false;
  });
}

/** The acquisition as the worker settles it, with what was corrected. */
async function settle() {
  scan = await (reading ??= read());
  const given = LENGTHS.filter((name) => fields[name].value !== "");
  const { facts, warnings } = await tasks.settle(Object.fromEntries(given.map((name) => [name, Number(fields[name].value)])));
  const row = (/** @type {any} */ [name, said]) => element("tr", ...[name, ...said].map((text) => element("td", text)));
  $("tbody").replaceChildren(...Object.entries(facts).map(row));
  $("#warnings").replaceChildren(...warnings.map((/** @type {string} */ warning) => element("li", warning)));
}

/** @type {(name: string, ...content: (string | Node)[]) => HTMLElement} */
function element(name, ...content) {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}

function rebuild() {
  $("#result").hidden = true;
  return attempt("Loading the networks ...", 0, async () => {
    await settle();
    const [own, begun, threads] = [worker, performance.now(), Math.min(navigator.hardwareConcurrency, MOST_THREADS)];
    const progress = (/** @type {number} */ share) => {
      const seconds = ((performance.now() - begun) / 1000) * (1 / share - 1);
      const left = seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;
      if (worker === own) work(share < 1 ? `${Math.floor(100 * share)} %, ${left} left` : "Almost done ...", share);
    };
    const made = await tasks.rebuild(fields.gpu.checked, threads, files.guide, proxy(progress));
    if (worker !== own) return; // another scan was dropped meanwhile
    result = made;
    $("#result").hidden = false;
    await view();
  });
}

/** Measured, cubic and rebuilt in three planes, scrolled together. */
async function view() {
  const multiplanarLayout = matchMedia("(max-width: 50rem)").matches ? GRID : STACKED;
  if (!views.length) {
    const shown = { isColorbar: false, multiplanarLayout, multiplanarShowRender: 0, crosshairWidth: 0.3 };
    const options = { ...shown, dragAndDropEnabled: false, isRadiologicalConvention: true, backColor: [0, 0, 0, 1] };
    const attached = PANELS.map((name) => new Niivue(options).attachToCanvas($(`#${name}`)));
    views = await Promise.all(attached);
  }
  views.forEach((one) => one.broadcastTo(views.filter((other) => other !== one)));
  for (const [k, bytes] of [scan.measured, result.cubic, result.rebuilt].entries()) {
    views[k].volumes.slice().forEach((old) => views[k].removeVolume(old));
    await views[k].loadFromArrayBuffer(bytes.slice().buffer, `${PANELS[k]}.nii.gz`);
    [views[k].volumes[0].cal_min, views[k].volumes[0].cal_max] = [scan.low, scan.high];
    views[k].setInterpolation(k === 0);
    views[k].updateGLVolume();
  }
}

/** @type {(name: string, content: BlobPart, type: string) => void} */
function download(name, content, type) {
  const link = /** @type {HTMLAnchorElement} */ (element("a"));
  Object.assign(link, { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** @type {(given: any, isGuide: boolean) => Promise<void>} */
const take = async (given, isGuide) => (isGuide ? takeGuide : open)(/** @type {File[]} */ (await fromEvent(given)));

document.querySelectorAll("[data-opens]").forEach((/** @type {any} */ button) => {
  const input = $(`#${button.dataset.opens}`);
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", async (/** @type {Event} */ event) => {
    await take(event, button.closest("#guide") !== null);
    input.value = "";
  });
});
addEventListener("dragover", (event) => [event.preventDefault(), $("#drop").classList.add("over")], true);
addEventListener("dragleave", () => $("#drop").classList.remove("over"));
addEventListener("drop", dropped, true); // anywhere, on the views too
/** @param {DragEvent} event */
function dropped(event) {
  event.preventDefault();
  event.stopPropagation();
  $("#drop").classList.remove("over");
  const guide = /** @type {Element} */ (event.target).closest("#guide");
  if (!guide?.matches(":disabled")) return take(event, guide !== null);
}
$("#which").addEventListener("change", () => {
  reading = worker && tasks.take(Number(fields.series.value));
  return show();
});
$("#unguided").addEventListener("click", () => takeGuide([]));
$("#correct").addEventListener("change", () => attempt("", undefined, settle));
$("#scan").addEventListener("submit", (/** @type {Event} */ event) => [event.preventDefault(), rebuild()]);
$("#stop").addEventListener("click", stop);
$("#save").addEventListener("click", () => {
  const name = scan.name.replace(/\.nii(\.gz)?$/i, "");
  download(`${name}_sr.nii.gz`, result.rebuilt, "application/gzip");
  download(`${name}_sr.json`, `${JSON.stringify(result.record, null, 1)}\n`, "application/json");
});
$("#views").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key in KEYS) event.preventDefault(), views[2].moveCrosshairInVox(...KEYS[event.key]);
});
$("#gpu").hidden = !("gpu" in navigator);
if ("serviceWorker" in navigator) {
  await navigator.serviceWorker.register("service_worker.js");
  await navigator.serviceWorker.ready;
}
document.documentElement.dataset.ready = "true";
