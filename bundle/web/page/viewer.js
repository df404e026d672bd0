/** Measured slices, cubic spline and result: side by side, or one in the place of the other; hands as in the report's page. */
import { DRAG_MODE, Niivue, SLICE_TYPE } from "@niivue/niivue";

const VOLUMES = ["measured", "cubic", "rebuilt"];
const CROSS = 0.3;
const [GAP, HIGHEST] = [12, 0.8]; // px between planes; of the screen, of one volume in the place of all
const { AXIAL, CORONAL, SAGITTAL } = SLICE_TYPE;
/** @type {Record<number, number[]>} */
const ACROSS = { [AXIAL]: [0, 1], [CORONAL]: [0, 2], [SAGITTAL]: [1, 2] }; // axes of the planes, to the right and upwards
const SIDES = ["RL", "AP", "SI"]; // where they begin and end, as films hang
/** @type {Record<string, [number, number, number]>} */
const STEPS = {
  ...{ ArrowLeft: [1, 0, 0], ArrowRight: [-1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0] }, // seen from the feet
  ...{ PageUp: [0, 0, 1], PageDown: [0, 0, -1] },
};
const narrow = matchMedia("(max-width: 50rem)");
const HANDS = {
  mouseEventConfig: {
    leftButton: { primary: DRAG_MODE.crosshair, withShift: DRAG_MODE.pan, withCtrl: DRAG_MODE.none },
    ...{ rightButton: DRAG_MODE.none, centerButton: DRAG_MODE.pan },
  },
  touchEventConfig: { singleTouch: DRAG_MODE.crosshair, doubleTouch: DRAG_MODE.pan },
};

/** @type {(selector: string) => any} */
const $ = (selector) => document.querySelector(selector);
/** @type {Niivue[]} */
let views = [];
let [range, shown] = [{ low: 0, high: 1 }, { low: 0, high: 1 }]; // intensities that were black and white at first, and are now

let hung = 1; // px per mm, before it is enlarged

/** @type {[string, number[]][]} the sides on which the guide's field of view ends, and a place on each border, RAS+ in mm */
let borders = [];

/** @type {Promise<void>} of the volumes that were given last */
let shows = Promise.resolve();

/** Shows three volumes, NIfTI files, at one window, and the borders of their guide, once the former are shown.
 * @type {(volumes: Record<string, Uint8Array>, window: {low: number, high: number}, ends: Record<string, number[]>) => Promise<void>} */
export const view = (volumes, window, ends) => (shows = shows.catch(() => {}).then(() => put(volumes, window, ends)));

/** @type {typeof view} */
async function put(volumes, window, ends) {
  const isOfAnother = range !== window;
  borders = Object.entries(ends);
  range = window;
  if (!views.length) await begin();
  for (const [k, name] of VOLUMES.entries()) {
    views[k].volumes.slice().forEach((old) => views[k].removeVolume(old));
    await views[k].loadFromArrayBuffer(volumes[name].slice().buffer, `${name}.nii.gz`);
    views[k].setInterpolation(k === 0);
  }
  if (isOfAnother) windowed();
  else windowed(shown.low, shown.high); // as it was left
  lay();
}

async function begin() {
  const look = { isColorbar: false, multiplanarShowRender: 0, crosshairWidth: CROSS, backColor: [0, 0, 0, 1] };
  const options = { ...look, ...HANDS, dragMode: DRAG_MODE.none, dragAndDropEnabled: false, isRadiologicalConvention: true, sagittalNoseLeft: true, isOrientationTextVisible: false };
  const attached = VOLUMES.map((name) => new Niivue(options).attachToCanvas($(`#${name}`)));
  views = await Promise.all(attached);
  views.forEach((one) => {
    const draw = one.drawScene.bind(one);
    one.drawScene = () => {
      draw();
      line(one);
    };
    one.setMouseEventConfig(HANDS.mouseEventConfig);
    one.setTouchEventConfig(HANDS.touchEventConfig);
    one.broadcastTo(views.filter((other) => other !== one), { "2d": true, "3d": false });
  });
  lay();
}

/** One window for all. @type {(low?: number, high?: number) => void} */
function windowed(low = range.low, high = range.high) {
  shown = { low, high };
  for (const one of views) {
    [one.volumes[0].cal_min, one.volumes[0].cal_max] = [low, high];
    one.updateGLVolume();
  }
  const short = (/** @type {number} */ x) => String(Number(x.toPrecision(3)));
  $("#window").textContent = `level ${short((low + high) / 2)}, window ${short(high - low)}`;
}

/** With the right button, or with Ctrl: sideways the window, upwards the level. Niivue would change one of the volumes. @param {MouseEvent} event */
function dragged(event) {
  if (!(event.buttons & 2) && !(event.buttons & 1 && event.ctrlKey)) return;
  event.stopPropagation();
  const unit = (range.high - range.low) / 300;
  const level = (shown.low + shown.high) / 2 - event.movementY * unit;
  const width = Math.max(shown.high - shown.low + event.movementX * unit, unit);
  windowed(level - width / 2, level + width / 2);
}

/** The volumes side by side, or the chosen one in the place of all. */
function lay() {
  const chosen = $("[name=shown]:checked").value;
  $("#views").dataset.shown = chosen;
  for (const name of VOLUMES) $(`#${name}`).closest("figure").toggleAttribute("data-behind", !["all", name].includes(chosen));
  const wide = chosen === "all" ? [[AXIAL], [CORONAL], [SAGITTAL]] : [[AXIAL, CORONAL, SAGITTAL]];
  if (views.every((one) => one.volumes.length)) hang(narrow.matches ? [[CORONAL, SAGITTAL], [AXIAL]] : wide);
  scale();
}

/** Rows of planes, at one scale of px per mm, which fill the width of their field or the height of the screen. @type {(rows: number[][]) => void} */
function hang(rows) {
  const all = views.map(({ volumes: [{ dimsRAS, pixDimsRAS }] }) => [1, 2, 3].map((k) => (dimsRAS?.[k] ?? 1) * (pixDimsRAS?.[k] ?? 1)));
  const mm = [0, 1, 2].map((k) => Math.max(...all.map((edges) => edges[k])));
  const [wide, high] = [0, 1].map((k) => (/** @type {number} */ plane) => mm[ACROSS[plane][k]]);
  const sum = (/** @type {number[]} */ some) => some.reduce((a, b) => a + b, 0);
  const [lengths, heights] = [rows.map((row) => sum(row.map(wide))), rows.map((row) => Math.max(...row.map(high)))];
  const width = $("figure:not([data-behind])").clientWidth;
  const fitting = rows.map((row, k) => (width - GAP * (row.length - 1)) / lengths[k]);
  const [gaps, isAlone] = [GAP * (rows.length - 1), rows.length === 1];
  const perMm = Math.min(...fitting, isAlone ? (HIGHEST * innerHeight) / heights[0] : Infinity);
  const height = perMm * sum(heights) + gaps;
  hung = perMm;
  const layout = rows.flatMap((row, r) => {
    const top = perMm * sum(heights.slice(0, r)) + GAP * r;
    const begin = (width - perMm * lengths[r] - GAP * (row.length - 1)) / 2;
    return row.map((plane, c) => {
      const left = begin + perMm * sum(row.slice(0, c).map(wide)) + GAP * c;
      const [w, h] = [perMm * wide(plane), perMm * high(plane)];
      const box = [left / width, (top + (perMm * heights[r] - h) / 2) / height, w / width, h / height];
      return { sliceType: plane, position: /** @type {[number, number, number, number]} */ (box) };
    });
  });
  $("#views").style.setProperty("--height", `${Math.round(height)}px`);
  for (const one of views) {
    one.setCustomLayout(layout);
    letter(/** @type {HTMLElement} */ (one.canvas?.closest("figure")), layout);
  }
}

/** The patient's sides at the edges of each plane. Niivue's letters are thin, and its cross runs through them.
 * @type {(figure: HTMLElement, layout: {sliceType: number, position: number[]}[]) => void} */
function letter(figure, layout) {
  figure.querySelectorAll(".side").forEach((old) => old.remove());
  for (const { sliceType, position: [x, y, w, h] } of layout) {
    const [[left, right], [top, bottom]] = ACROSS[sliceType].map((axis) => SIDES[axis]);
    const places = { left: [left, x, y + h / 2], right: [right, x + w, y + h / 2], top: [top, x + w / 2, y], bottom: [bottom, x + w / 2, y + h] };
    for (const [edge, [text, across, down]] of Object.entries(places)) {
      const span = Object.assign(document.createElement("span"), { className: `side ${edge}`, textContent: text, ariaHidden: "true" });
      [span.style.left, span.style.top] = [across, down].map((share) => `${100 * Number(share)}%`);
      figure.append(span);
    }
  }
}

/** A dashed line on each plane where the guide's field of view ends. @type {(one: Niivue) => void} */
function line(one) {
  const canvas = /** @type {HTMLCanvasElement} */ (one.canvas);
  const [figure, px] = [canvas.closest("figure"), canvas.width / canvas.clientWidth];
  figure?.querySelectorAll(".border").forEach((old) => old.remove());
  for (const { axCorSag, leftTopWidthHeight, leftTopMM, fovMM } of borders.length ? one.screenSlices : []) {
    const [left, top, width, height] = leftTopWidthHeight;
    for (const [end, at] of borders) {
      const [world, place] = [SIDES.findIndex((sides) => sides.includes(end)), one.frac2mm(one.mm2frac(/** @type {any} */ (at), 0, true))];
      const side = ACROSS[axCorSag]?.indexOf(world) ?? -1; // 0 across, 1 upwards
      const share = (place[world] - leftTopMM[side]) / fovMM[side];
      if (!(share > 0 && share < 1)) continue;
      const box = side === 0 ? [left + share * width, top, 0, height] : [Math.min(left, left + width), top + (1 - share) * height, Math.abs(width), 0];
      const span = Object.assign(document.createElement("span"), { className: "border", ariaHidden: "true" });
      [span.style.left, span.style.top, span.style.width, span.style.height] = box.map((x) => `${x / px}px`);
      figure?.append(span);
    }
  }
}

/** A bar of some cm beside each volume, as long as they are drawn. Niivue's own is not drawn in radiological views. */
function scale() {
  for (const one of views) {
    const canvas = /** @type {HTMLCanvasElement} */ (one.canvas);
    const perMm = hung * one.scene.pan2Dxyzmm[3];
    const length = [100, 50, 20, 10].find((mm) => mm * perMm < 0.4 * canvas.clientWidth) ?? 5; // mm
    const bar = canvas.closest("figure")?.querySelector(".scale");
    if (bar instanceof HTMLElement) [bar.style.width, bar.textContent] = [`${length * perMm}px`, `${length / 10} cm`];
  }
}

/** @type {(name: string) => void} */
function choose(name) {
  $(`[name=shown][value=${name}]`).checked = true;
  lay();
}

/** Enlarges all about the cross. @type {(factor: number) => void} */
function zoom(factor) {
  for (const one of views) {
    const [x, y, z, scale] = one.scene.pan2Dxyzmm;
    const [own, cross] = [Math.min(Math.max(scale * factor, 1), 20), one.frac2mm(one.scene.crosshairPos)];
    const moved = own === 1 ? [0, 0, 0] : [x, y, z].map((at, k) => at + (scale - own) * cross[k]);
    one.setPan2Dxyzmm(/** @type {any} */ ([...moved, own]));
  }
  scale();
}

function crosshair() {
  for (const one of views) one.setCrosshairWidth($("[name=cross]").checked ? CROSS : 0);
}

function reset() {
  for (const one of views) one.setPan2Dxyzmm(/** @type {any} */ ([0, 0, 0, 1]));
  scale();
  windowed();
}

/** Moves the cross by voxels of the result. Niivue brings it to the others where its canvas has the focus alone. @type {(by: [number, number, number]) => void} */
function step(by) {
  const [measured, cubic, rebuilt] = views;
  rebuilt.moveCrosshairInVox(...by);
  for (const other of [measured, cubic]) {
    rebuilt.doSync2d(other);
    other.drawScene();
  }
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event;
  if (key in STEPS) step(STEPS[key]);
  else if (key === " ") choose($("#views").dataset.shown === "rebuilt" ? "measured" : "rebuilt");
  else if (/^[1-4]$/.test(key)) choose([...VOLUMES, "all"][Number(key) - 1]);
  else if (/^[+=-]$/.test(key)) zoom(key === "-" ? 0.8 : 1.25);
  else if (key === "c") $("[name=cross]").click();
  else if (key === "0") reset();
  else return;
  event.preventDefault();
  event.stopPropagation(); // niivue has keys of its own
}

/** Ctrl and wheel, as two fingers on a touchpad say it too. @param {WheelEvent} event */
function turned(event) {
  if (!event.ctrlKey) return;
  event.preventDefault();
  event.stopPropagation();
  zoom(Math.exp(-event.deltaY / 300));
}

$("#views").addEventListener("keydown", pressed, true);
$("#views").addEventListener("wheel", turned, { capture: true, passive: false });
$("#views").addEventListener("mousemove", dragged, true);
$("#views").addEventListener("contextmenu", (/** @type {Event} */ event) => event.preventDefault());
document.querySelectorAll("[name=shown]").forEach((one) => one.addEventListener("change", lay));
$("[name=cross]").addEventListener("change", crosshair);
$("#reset").addEventListener("click", reset);
narrow.addEventListener("change", lay);
let width = 0;
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width === width) return;
  width = contentRect.width;
  requestAnimationFrame(lay);
}).observe($("#views"));
