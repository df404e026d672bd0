/** The page: takes a scan, shows what was understood, has it rebuilt by the worker. A failure or a stop changes nothing. */
import { proxy, wrap } from "comlink";
import { fromEvent } from "file-selector";
import { reason, refuse } from "../errors.js";
import { compare, preview, show, withdraw } from "./result.js";
import { own, thread } from "./threads.js";
import { duration, plain } from "./words.js";

/** @type {(selector: string) => any} */
const $ = (selector) => document.querySelector(selector);
const fields = $("#scan").elements;
const MOST_THREADS = 4; // each takes 0.2 GB
const OWN = "own"; // guide, not of the same files
const NOTHING = "The slices are at the target already: there is nothing to rebuild. Correct the thickness or the target, or give a scan of thick slices.";
const GIVEN = ["slice_thickness", "target_thickness", "slice_axis", "noise"];

/** @typedef {{worker: Worker, tasks: any, names: string[], number: number, scan: any, others: any[]}} Read files, read by a worker of their own; the scan that was chosen among them, and the others */

/** @type {File[]} what was chosen last and could be read */
let files = [];
/** @type {File[]} */
let guide = [];
/** @type {Promise<Read> | undefined} who read the files; nobody after Stop */
let reading;
let isAtWork = false;
let checkedWith = ""; // what the latest test depends on
let [attempts, scans] = [0, 0];

/** @type {(given: File[], k: number) => Promise<Read>} */
async function read(given, k) {
  const worker = thread("worker.js");
  const tasks = /** @type {any} */ (wrap(worker));
  const failed = new Promise((_, reject) => (worker.onerror = () => reject(new Error("the page's own files were not loaded: is its server there?"))));
  try {
    const names = /** @type {string[]} */ (await Promise.race([failed, tasks.read(located(given))]));
    return { worker, tasks, names, number: k, scan: await tasks.take(k), others: await tasks.beside() };
  } catch (error) {
    worker.terminate();
    throw error;
  }
}

/** The scan and its worker; read again after Stop. */
const current = () => (reading ??= read(files, Number(fields.series.value)));

/** Ends the work at once; scan and result stay. The worker answers no more. */
function stop() {
  attempts++;
  reading?.then(({ worker }) => worker.terminate());
  reading = undefined;
  withdraw();
  $("#mistake").hidden = true;
  work("");
}

/** Shows the work that is done, nothing if empty, and its share where it takes long. @type {(status: string, share?: number) => void} */
function work(status, share) {
  isAtWork = share !== undefined;
  $("#status").ariaLive = share ? "off" : "polite"; // a screen reader would say each percent
  $("#status").textContent = status;
  $("progress").hidden = $("#stop").hidden = !isAtWork;
  for (const name of ["#which", "#correct", "#guide", "#flow", "[type=submit]", "#check", ...["files", "folder"].map((name) => `[data-opens=${name}]`)]) {
    $(name).disabled = isAtWork;
  }
  $("progress").value = share ?? 0;
}

/** Does something that may fail, and says why; `isLatest` says whether nothing was begun since.
 * @type {(status: string, share: number | undefined, what: (isLatest: () => boolean) => Promise<void>) => Promise<void>} */
async function attempt(status, share, what) {
  const own = ++attempts;
  const isLatest = () => own === attempts;
  work(status, share);
  $("#mistake").hidden = true;
  try {
    await what(isLatest);
    if (isLatest()) $("#mistake").hidden = true; // made while it was at work
  } catch (error) {
    if (isLatest()) complain(error);
  }
  if (isLatest()) work("");
}

/** @type {(error: unknown) => void} */
function complain(error) {
  const isMistake = error instanceof Error && error.name === "InputError";
  $("#mistake").textContent = isMistake ? plain(error.message) : `This did not work (${reason(error)}). Please report it.`;
  $("#mistake").hidden = false;
  $("#mistake").scrollIntoView({ block: "nearest" });
}

/** The guides to choose among: scans of the same files, of which the best is chosen, none, and files that were given for it.
 * @type {(others: (import("../inputs/examination.js").Role & {name: string, number: number})[]) => void} */
function offer(others) {
  const guides = others.filter(({ rank }) => rank.length);
  fields.guided_by.replaceChildren(new Option("none", ""), ...guides.map(({ name, number }) => new Option(name, String(number))));
  fields.guided_by.selectedIndex = Math.min(guides.length, 1);
  if (guide.length) fields.guided_by.add(new Option(guide.length > 1 ? folderOf(guide) : guide[0].name, OWN, true, true));
  const said = others.map(({ name, why, rank }) => `${name} ${rank.length ? "can guide" : "is no guide"}: ${why}.`);
  $("#beside").replaceChildren(...said.map((line) => element("li", line)));
}

/** Files, and where they lie in what was dropped or chosen, which a worker could not ask them. @type {(given: any[]) => {file: File, path: string}[]} */
const located = (given) => given.map((file) => ({ file, path: (file.path || file.webkitRelativePath || file.name).replace(/^[./]+/, "") }));

/** The folder that files lie in, where it is known. @type {(given: File[]) => string} */
function folderOf(given) {
  const folder = located(given)[0].path.split("/").slice(0, -1)[0];
  return folder ? `the folder ${folder}` : `${given[0].name} and ${given.length - 1} more`;
}

/** The chosen guide: a number among the files' scans, files of its own, or nothing. @type {() => {file: File, path: string}[] | number | undefined} */
const chosenGuide = () => (fields.guided_by.value === OWN ? located(guide) : fields.guided_by.value === "" ? undefined : Number(fields.guided_by.value));

/** Takes files in the place of those that are open, if there is a scan in them. @type {(given: File[]) => Promise<void>} */
async function open(given) {
  if (!given.length) return;
  await attempt("Reading ...", undefined, async (isLatest) => {
    const fresh = await read(given, 0);
    const { worker, names, tasks } = fresh;
    const settled = await tasks.settle({}).catch((/** @type {unknown} */ error) => [worker.terminate(), Promise.reject(error)][1]);
    if (!isLatest()) return worker.terminate();
    reading?.then((former) => former.worker.terminate());
    [files, reading] = [given, Promise.resolve(fresh)];
    fields.series.replaceChildren(...names.map((name, k) => new Option(name, String(k))));
    $("#which").hidden = names.length === 1;
    guide = [];
    present(fresh, settled);
  });
}

/** Another scan of the same files, once those that were chosen before are read; a broken one leaves the former. */
function choose() {
  return attempt("Reading ...", undefined, async (isLatest) => {
    const [number, former] = [Number(fields.series.value), current()];
    const chosen = former.then(async (own) => {
      try {
        own.scan = await own.tasks.take(number);
      } catch (error) {
        if (isLatest()) fields.series.value = String(own.number);
        throw error;
      }
      [own.number, own.others] = [number, await own.tasks.beside()];
      present(own, await own.tasks.settle({}));
    });
    reading = chosen.then(() => former, () => former);
    await chosen;
  });
}

/** @type {(own: Read, settled: any) => void} */
function present({ scan, others }, settled) {
  scans++;
  offer(scan.guided ? others : []);
  for (const name of GIVEN) fields[name].value = "";
  fields.sharp.checked = false;
  $("h2").textContent = `${scan.name}, ${scan.shape.join(" x ")} voxels`;
  [$("#guide").hidden, $("#flow").hidden] = [!scan.guided, !scan.canDraw];
  tell(scan, settled);
  $("#scan").hidden = false;
}

/** The acquisition as the worker settles it, with what was corrected. */
async function settle() {
  const { tasks, scan } = await current();
  const given = GIVEN.filter((name) => fields[name].value !== "");
  return tell(scan, await tasks.settle(Object.fromEntries(given.map((name) => [name, Number(fields[name].value)]))));
}

/** Shows what was taken for the acquisition, and whether the result was made with it. @type {(scan: any, settled: any) => import("./result.js").Made} */
function tell(scan, { facts, warnings, isIdle }) {
  const row = (/** @type {any} */ [name, said]) => element("tr", ...[name, ...said].map((text) => element("td", plain(text))));
  $("tbody").replaceChildren(...Object.entries(facts).map(row));
  const said = [...(isIdle ? [NOTHING] : []), ...warnings];
  $("#warnings").replaceChildren(...said.map((/** @type {string} */ warning) => element("li", plain(warning))));
  $("[type=submit]").hidden = $("#check").hidden = isIdle;
  const settings = Object.fromEntries(Object.entries(facts).map(([name, [value]]) => [name, value]));
  const chosen = { noise: fields.noise.value || "as found", guide: fields.guided_by.selectedOptions[0].text, ...(scan.canDraw && { detail: fields.sharp.checked ? "drawn" : "estimated" }) };
  const made = { scan: scans, name: scan.name, settings: { ...settings, ...chosen } };
  compare(made);
  $("#checked").hidden = testedBy(made) !== checkedWith;
  return made;
}

/** @type {(name: string, ...content: (string | Node)[]) => HTMLElement} */
function element(name, ...content) {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}

/** @returns {number} */
const threads = () => Math.min(navigator.hardwareConcurrency, MOST_THREADS);

/** Shows how far networks are, and how long it will take, for as long as nothing else is begun. @type {(isLatest: () => boolean) => (share: number) => void} */
function progressOf(isLatest) {
  /** @type {[number, number] | undefined} when the first part was done, and how much: before it, networks were loaded */
  let begun;
  return proxy((/** @type {number} */ share) => {
    if (!share) return isLatest() && work("Registering the guide ...", 0);
    begun ??= [performance.now(), share];
    const seconds = ((performance.now() - begun[0]) / 1000) * ((1 - share) / (share - begun[1]));
    const left = share > begun[1] ? `, done in about ${duration(seconds)}` : "";
    if (isLatest()) work(share < 1 ? `${Math.floor(100 * share)} %${left}` : "Almost done ...", share);
  });
}

/** Tests DRIFT on the scan's own slices, and says what it gains. A result stays as it is. */
function check() {
  return attempt("Loading the networks ...", 0, async (isLatest) => {
    const [made, { tasks }] = [await settle(), await current()];
    const { said, isWorth } = await tasks.check(fields.gpu.checked, threads(), fields.sharp.checked, progressOf(isLatest));
    if (!isLatest()) return;
    [checkedWith, $("#checked").textContent, $("#checked").className] = [testedBy(made), said, isWorth ? "" : "doubtful"];
    $("#checked").hidden = false;
  });
}

/** All that the test depends on; a guide takes no part in it. @type {(made: import("./result.js").Made) => string} */
const testedBy = ({ scan, settings }) => JSON.stringify({ scan, ...settings, guide: "" });

/** Rebuilds the scan. The former result stays until this one is there. */
function rebuild() {
  return attempt("Loading the networks ...", 0, async (isLatest) => {
    const [made, { tasks, scan }] = [await settle(), await current()];
    const early = async (/** @type {any} */ volumes) => isLatest() && preview(made, { ...volumes, measured: scan.measured }, scan);
    try {
      const volumes = await tasks.rebuild(fields.gpu.checked, threads(), fields.sharp.checked, chosenGuide(), progressOf(isLatest), proxy(early));
      if (isLatest()) await show(made, { ...volumes, measured: scan.measured }, scan);
    } finally {
      if (isLatest()) withdraw();
    }
  });
}

/** @type {(given: any, isGuide: boolean) => Promise<void>} */
async function take(given, isGuide) {
  const chosen = /** @type {File[]} */ (await fromEvent(given));
  try {
    refuse(isAtWork, "a scan is being rebuilt: wait for it, or stop it first. Nothing was taken.");
  } catch (error) {
    return complain(error);
  }
  if (!isGuide) return open(chosen);
  if (!chosen.length) return;
  guide = chosen;
  return attempt("", undefined, async () => {
    offer((await current()).others);
    await settle();
  });
}

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
  return take(event, /** @type {Element} */ (event.target).closest("#guide") !== null);
}
$("#sample")?.addEventListener("click", () =>
  attempt("Loading the sample ...", undefined, async (isLatest) => {
    const files = await Promise.all(["sample.nii.gz", "sample.json"].map(async (name) => new File([/** @type {any} */ (await own(`model/${name}`))], name)));
    if (isLatest()) await open(files);
  }),
);
$("#which").addEventListener("change", choose);
for (const name of ["#correct", "#guide label", "#flow"]) $(name).addEventListener("change", () => attempt("", undefined, async () => void (await settle())));
$("#scan").addEventListener("submit", (/** @type {Event} */ event) => [event.preventDefault(), isAtWork || rebuild()]);
$("#check").addEventListener("click", check);
$("#stop").addEventListener("click", stop);
$("#gpu").hidden = !("gpu" in navigator);
if ("serviceWorker" in navigator) {
  await navigator.serviceWorker.register("service_worker.js");
  await navigator.serviceWorker.ready;
}
document.documentElement.dataset.ready = "true";
