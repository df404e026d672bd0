/** Measured slices, cubic spline and result: side by side, or one in the place of the other; hands as in the report's page. */
import { DRAG_MODE, MULTIPLANAR_TYPE, Niivue } from "@niivue/niivue";

const VOLUMES = ["measured", "cubic", "rebuilt"];
const CROSS = 0.3;
/** @type {Record<string, [number, number, number]>} */
const STEPS = {
  ...{ ArrowLeft: [1, 0, 0], ArrowRight: [-1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0] }, // seen from the feet
  ...{ PageUp: [0, 0, 1], PageDown: [0, 0, -1] },
};
const narrow = matchMedia("(max-width: 50rem)");
const HANDS = {
  mouseEventConfig: {
    leftButton: { primary: DRAG_MODE.crosshair, withShift: DRAG_MODE.pan, withCtrl: DRAG_MODE.windowing },
    ...{ rightButton: DRAG_MODE.windowing, centerButton: DRAG_MODE.pan },
  },
  touchEventConfig: { singleTouch: DRAG_MODE.crosshair, doubleTouch: DRAG_MODE.pan },
};

/** @type {(selector: string) => any} */
const $ = (selector) => document.querySelector(selector);
/** @type {Niivue[]} */
let views = [];
let range = { low: 0, high: 1 };

/** Shows three volumes, NIfTI files, at one window. @type {(volumes: Record<string, Uint8Array>, window: {low: number, high: number}) => Promise<void>} */
export async function view(volumes, window) {
  range = window;
  if (!views.length) await begin();
  for (const [k, name] of VOLUMES.entries()) {
    views[k].volumes.slice().forEach((old) => views[k].removeVolume(old));
    await views[k].loadFromArrayBuffer(volumes[name].slice().buffer, `${name}.nii.gz`);
    views[k].setInterpolation(k === 0);
  }
  windowed();
}

async function begin() {
  const shown = { isColorbar: false, multiplanarShowRender: 0, crosshairWidth: CROSS, isRuler: true, rulerWidth: 1 };
  const colours = { backColor: [0, 0, 0, 1], rulerColor: [1, 1, 1, 0.7] };
  const options = { ...shown, ...colours, ...HANDS, dragAndDropEnabled: false, isRadiologicalConvention: true };
  const attached = VOLUMES.map((name) => new Niivue(options).attachToCanvas($(`#${name}`)));
  views = await Promise.all(attached);
  views.forEach((one) => {
    one.setMouseEventConfig(HANDS.mouseEventConfig);
    one.setTouchEventConfig(HANDS.touchEventConfig);
    one.broadcastTo(views.filter((other) => other !== one), { "2d": true, "3d": false });
    one.onIntensityChange = ({ cal_min = 0, cal_max = 1 }) => windowed(cal_min, cal_max, one);
  });
  lay();
}

/** One window for all, of which the one under the hand has it already. @type {(low?: number, high?: number, own?: Niivue) => void} */
function windowed(low = range.low, high = range.high, own) {
  for (const one of views.filter((one) => one !== own && one.volumes.length)) {
    [one.volumes[0].cal_min, one.volumes[0].cal_max] = [low, high];
    one.updateGLVolume();
  }
  const short = (/** @type {number} */ x) => String(Number(x.toPrecision(3)));
  $("#window").textContent = `level ${short((low + high) / 2)}, window ${short(high - low)}`;
}

/** The volumes side by side, or the chosen one in the place of all. */
function lay() {
  const chosen = $("[name=shown]:checked").value;
  $("#views").dataset.shown = chosen;
  for (const name of VOLUMES) $(`#${name}`).closest("figure").toggleAttribute("data-behind", !["all", name].includes(chosen));
  const wide = chosen === "all" ? MULTIPLANAR_TYPE.COLUMN : MULTIPLANAR_TYPE.ROW;
  for (const one of views) one.setMultiplanarLayout(narrow.matches ? MULTIPLANAR_TYPE.GRID : wide);
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
}

function crosshair() {
  for (const one of views) one.setCrosshairWidth($("[name=cross]").checked ? CROSS : 0);
}

function reset() {
  for (const one of views) one.setPan2Dxyzmm(/** @type {any} */ ([0, 0, 0, 1]));
  windowed();
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { key } = event;
  if (key in STEPS) views[2].moveCrosshairInVox(...STEPS[key]);
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
document.querySelectorAll("[name=shown]").forEach((one) => one.addEventListener("change", lay));
$("[name=cross]").addEventListener("change", crosshair);
$("#reset").addEventListener("click", reset);
narrow.addEventListener("change", lay);
