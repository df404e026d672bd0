// The volumes of the page, to scroll through. What `viewer.pack` packed is drawn on canvases; nothing is fetched.
'use strict';
(async () => {
  const root = document.getElementById('viewer');
  const get = name => root.querySelector(`[name=${name}]`);
  const status = root.querySelector('.status');
  if (typeof DecompressionStream === 'undefined') {
    status.textContent = 'This browser cannot unpack the volumes: it has no DecompressionStream. Open the page in '
      + 'Chrome, Edge, Firefox or Safari of 2023 or later. The middle planes are below.';
    return;
  }
  const facts = JSON.parse(document.getElementById('facts').textContent);
  const {shape, edges, affine, axis, nearest, low, high} = facts;
  const MARK = 8;  // mm around a marked place
  const clamp = (x, least, most) => Math.min(Math.max(x, least), most);
  const PLANES = {axial: [2, 0, 1], coronal: [1, 0, 2], sagittal: [0, 1, 2]};  // normal, across, upwards
  const VOLUMES = ['measured', 'cubic', 'rebuilt', 'difference', ...facts.error ? ['certain', 'error'] : []];

  async function unpack() {
    const packed = Uint8Array.from(atob(document.getElementById('volumes').textContent), c => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const count = shape[0] * shape[1] * shape[2], plane = count / shape[axis], begin = bytes.length - (2 + facts.error) * count;
    const measured = bytes.subarray(0, begin), cubic = bytes.subarray(begin, begin + count);
    const rebuilt = bytes.subarray(begin + count, begin + 2 * count), error = bytes.subarray(begin + 2 * count);
    facts.weights.forEach((weights, k) => {
      const sum = new Int32Array(plane).fill(2048), slice = cubic.subarray(k * plane, (k + 1) * plane);
      weights.forEach((weight, j) => {
        for (let i = 0, from = j * plane; weight && i < plane; i++) sum[i] += weight * measured[from + i];
      });
      for (let i = 0; i < plane; i++) slice[i] += clamp(sum[i] >> 12, 0, 255);  // modulo 256, and so below
    });
    for (let i = 0; i < count; i++) rebuilt[i] += cubic[i];
    const [slow, fast] = [0, 1, 2].filter(a => a !== axis);
    const strides = {[axis]: plane, [slow]: shape[fast], [fast]: 1};
    const fine = shape.map((n, a) => Int32Array.from({length: n}, (_, i) => i * strides[a]));
    const thick = fine.map((offsets, a) => a === axis ? offsets.map((_, i) => nearest[i] * plane) : offsets);
    return {measured: [measured, thick], cubic: [cubic, fine], rebuilt: [rebuilt, fine], error: [error, fine]};
  }

  let volumes;
  try {
    volumes = await unpack();
  } catch (error) {
    status.textContent = `The volumes of this page are broken (${error}): write it again. The middle planes are below.`;
    return;
  }

  // --- what is shown: one place, one window and one zoom for all panels ---
  const unit = (high - low) / 255;  // one grey in the scan's units
  const extent = shape.map((n, a) => n * edges[a]);  // mm
  const start = {at: shape.map(n => n >> 1), centre: shape.map((n, a) => (n - 1) / 2 * edges[a]), zoom: 1};
  let {at, centre, zoom} = structuredClone(start);
  let panels = [];
  const grey = level => 0xff000000 | level << 16 | level << 8 | level;
  const chosen = name => root.querySelector(`[name=${name}]:checked`).value;
  const value = (name, [i, j, k]) => {
    const [data, offsets] = volumes[name];
    return low + unit * data[offsets[0][i] + offsets[1][j] + offsets[2][k]];
  };
  const place = () => affine.map(row => row[3] + at.reduce((sum, i, a) => sum + row[a] * i, 0));  // mm, RAS
  const short = number => String(+number.toPrecision(3));
  const side = (mm, a) => `${['LR', 'PA', 'IS'][a][+(mm >= 0)]} ${Math.abs(mm).toFixed(1)}`;

  function tables() {
    const width = +get('width').value, bottom = +get('level').value - width / 2;
    const plain = Uint32Array.from({length: 256}, (_, q) =>
      grey(clamp(Math.round((low + unit * q - bottom) / width * 255), 0, 255)));
    const signed = Uint32Array.from({length: 511}, (_, q) => {  // orange for more, blue for less
      const d = clamp((q - 255) * unit / (width / 4), -1, 1), most = Math.round(255 * Math.abs(d));
      const [red, blue] = d > 0 ? [most, most >> 3] : [most >> 3, most];
      return 0xff000000 | blue << 16 | (most * 5 >> 3) << 8 | red;
    });
    const bars = Uint32Array.from({length: 256}, (_, q) => grey(Math.round(255 * clamp(q * unit / (width / 4), 0, 1))));
    return {plain, signed, bars};
  }

  function picture([normal, across, up], volume, {plain, signed, bars}) {
    const [w, h] = [shape[across], shape[up]], image = new ImageData(w, h), pixels = new Uint32Array(image.data.buffer);
    const [data, offsets] = volumes[VOLUMES.indexOf(volume) > 2 ? 'rebuilt' : volume], cubic = volumes.cubic[0];
    const error = volumes.error[0];
    const certain = i => {  // detail that is smaller than its error bar fades into the cubic interpolation
      const detail = data[i] - cubic[i], share = Math.min(Math.abs(detail) / Math.max(error[i], 1), 1);
      return Math.round(cubic[i] + share * detail);
    };
    for (let row = 0, p = 0; row < h; row++) {  // the patient's right and front hang at the left, the top on top
      const begin = offsets[normal][at[normal]] + offsets[up][h - 1 - row];
      for (let column = w - 1; column >= 0; column--, p++) {
        const i = begin + offsets[across][column];
        if (volume === 'difference') pixels[p] = signed[data[i] - cubic[i] + 255];
        else if (volume === 'error') pixels[p] = bars[error[i]];
        else pixels[p] = plain[volume === 'certain' ? certain(i) : data[i]];
      }
    }
    return image;
  }

  function draw() {
    const greys = tables(), mm = place(), ratio = devicePixelRatio;
    for (const panel of panels) {
      const {canvas, name, volume, slider} = panel, [normal, across, up] = PLANES[name];
      const pen = canvas.getContext('2d'), [W, H] = [canvas.width, canvas.height];
      const scale = panel.scale = zoom * Math.min(W / panel.extent[0], H / panel.extent[1]);  // pixels per mm
      const x = i => W / 2 - (i * edges[across] - centre[across]) * scale;
      const y = i => H / 2 - (i * edges[up] - centre[up]) * scale;
      pen.fillStyle = '#000';
      pen.fillRect(0, 0, W, H);
      const image = picture(PLANES[name], volume, greys);
      Object.assign(panel.film, {width: image.width, height: image.height});
      panel.film.getContext('2d').putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = scale * Math.min(edges[across], edges[up]) < 5 * ratio;  // large voxels have edges
      pen.drawImage(panel.film, x(image.width - .5), y(image.height - .5), extent[across] * scale, extent[up] * scale);
      if (get('crosshair').checked) {
        pen.fillStyle = 'rgba(255, 208, 64, .75)';
        const [cx, cy] = [x(at[across]), y(at[up])].map(Math.round), gap = 9 * ratio, rim = 26 * ratio;
        const line = (from, to, box) => to > from && pen.fillRect(...box);  // clear of the place itself and of letters
        line(rim, cx - gap, [rim, cy, cx - gap - rim, ratio]);
        line(cx + gap, W - rim, [cx + gap, cy, W - rim - cx - gap, ratio]);
        line(rim, cy - gap, [cx, rim, ratio, cy - gap - rim]);
        line(cy + gap, H - rim, [cx, cy + gap, ratio, H - rim - cy - gap]);
      }
      for (const [a, index] of facts.borders) {  // a dashed line where the guide's field of view ends
        if (a === normal) continue;
        Object.assign(pen, {strokeStyle: '#ff5ad2', lineWidth: 1.5 * ratio});
        pen.setLineDash([7 * ratio, 5 * ratio]);
        pen.beginPath();
        if (a === across) pen.moveTo(x(index), 0), pen.lineTo(x(index), H);
        else pen.moveTo(0, y(index)), pen.lineTo(W, y(index));
        pen.stroke();
        pen.setLineDash([]);
      }
      for (const mark of facts.marks) {  // a circle on the planes that are near
        if (Math.abs(mark[normal] - at[normal]) * edges[normal] > MARK) continue;
        Object.assign(pen, {strokeStyle: '#ff5ad2', lineWidth: 2 * ratio});
        pen.beginPath();
        pen.arc(x(mark[across]), y(mark[up]), MARK * scale, 0, 2 * Math.PI);
        pen.stroke();
      }
      pen.font = `600 ${13 * ratio}px system-ui, sans-serif`;
      const edge = 6 * ratio;
      const write = (text, px, py, align, baseline) => {
        Object.assign(pen, {textAlign: align, textBaseline: baseline, lineWidth: 3 * ratio, strokeStyle: '#000'});
        pen.fillStyle = '#ffd67a';
        pen.strokeText(text, px, py);
        pen.fillText(text, px, py);
      };
      write(facts.sides[across][1], edge, H / 2, 'left', 'middle');
      write(facts.sides[across][0], W - edge, H / 2, 'right', 'middle');
      write(facts.sides[up][1], W / 2, edge, 'center', 'top');
      write(facts.sides[up][0], W / 2, H - edge, 'center', 'bottom');
      write(volume, edge, edge, 'left', 'top');
      write(`${side(mm[normal], normal)} mm`, W - edge, edge, 'right', 'top');
      const unit = 10 * scale < W * .4 ? 10 : 1, bar = unit * scale;  // mm; large voxels leave no room for 10
      const steps = clamp(Math.floor(W * .3 / bar), 1, 10);
      pen.fillStyle = '#fff';
      pen.fillRect(edge, H - edge - ratio, steps * bar, 2 * ratio);
      for (let k = 0; k <= steps; k++) pen.fillRect(edge + k * bar - ratio / 2, H - edge - 6 * ratio, ratio, 6 * ratio);
      write(`${unit * steps} mm`, edge, H - edge - 8 * ratio, 'left', 'bottom');
      canvas.setAttribute('aria-label', `${name} plane, ${volume}, ${side(mm[normal], normal)} mm`);
      slider.value = at[normal];
    }
    const numbers = VOLUMES.slice(0, 3).map(name => `${name} ${short(value(name, at))}`);
    if (facts.error) numbers[2] += ` ± ${short(value('error', at) - low)}`;
    root.querySelector('.place').textContent = `${mm.map(side).join(', ')} mm: ${numbers.join(', ')}`;
    for (const name of ['level', 'width']) get(name).nextElementSibling.value = short(+get(name).value);
  }

  // --- panels: a canvas with its slider for each chosen plane of each chosen volume ---
  function lay() {
    const names = chosen('plane') === 'all' ? Object.keys(PLANES) : [chosen('plane')];
    const shown = chosen('volume') === 'all' ? VOLUMES : [chosen('volume')];
    if (panels.length === names.length && shown.length === 1 && panels.every((p, k) => p.name === names[k])) {
      panels.forEach(p => { p.volume = shown[0]; });
      return draw();
    }
    const boxes = names.map(name => PLANES[name].slice(1).map(a => extent[a]));
    const box = [0, 1].map(k => Math.max(...boxes.map(b => b[k])));  // mm; one scale for all planes
    panels = names.flatMap(name => shown.map(volume => panel(name, volume, box)));
    const grid = root.querySelector('.panels'), columns = shown.length > 1 ? (names.length > 1 ? Math.min(shown.length, 6) : 2) : names.length;
    grid.style.setProperty('--columns', columns);
    grid.classList.toggle('pairs', shown.length > 1);
    grid.style.maxWidth = `calc(${columns} * 80vh * ${box[0] / box[1]})`;
    watch.disconnect();
    grid.replaceChildren(...panels.map(p => p.figure));
    panels.forEach(p => watch.observe(p.canvas));
    fit();
  }

  function fit() {
    for (const {canvas, extent: [w, h]} of panels) {
      canvas.width = Math.max(Math.round(canvas.clientWidth * devicePixelRatio), 1);
      canvas.height = Math.max(Math.round(canvas.width * h / w), 1);
    }
    draw();
  }
  const watch = new ResizeObserver(() => {
    if (panels.some(({canvas}) => canvas.width !== Math.round(canvas.clientWidth * devicePixelRatio))) fit();
  });

  function panel(name, volume, box) {
    const figure = document.createElement('figure'), canvas = document.createElement('canvas');
    const slider = document.createElement('input');
    Object.assign(slider, {type: 'range', min: 0, max: shape[PLANES[name][0]] - 1});
    slider.setAttribute('aria-label', `${name} plane`);
    canvas.style.aspectRatio = `${box[0]} / ${box[1]}`;
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'img');
    figure.append(canvas, slider);
    const it = {figure, canvas, slider, name, volume, extent: box, film: document.createElement('canvas'), scale: 1};
    slider.oninput = () => go(PLANES[name][0], +slider.value);
    handle(it);
    return it;
  }

  // --- hands: mouse, fingers and keys ---
  function go(a, index) {
    at[a] = clamp(index, 0, shape[a] - 1);
    draw();
  }

  function enlarge(factor, {canvas, name, scale}, x = canvas.width / 2, y = canvas.height / 2) {
    const [, across, up] = PLANES[name], before = zoom;
    zoom = clamp(zoom * factor, 1, 20);
    const share = (1 / scale) * (1 - before / zoom);  // what is under the hand stays there
    centre[across] -= (x - canvas.width / 2) * share;
    centre[up] -= (y - canvas.height / 2) * share;
    draw();
  }

  function handle(panel) {
    const {canvas, name} = panel, [normal, across, up] = PLANES[name], fingers = new Map();
    const pixel = e => [e.offsetX * devicePixelRatio, e.offsetY * devicePixelRatio];
    let wheel = 0;
    const scroll = by => {  // a step of the wheel is one plane; a touchpad or finger sends many small ones
      wheel = wheel * by < 0 ? by : wheel + by;
      if (Math.abs(wheel) < 30) return;
      go(normal, at[normal] - Math.sign(wheel) * (Math.abs(wheel) < 90 ? 1 : Math.round(Math.abs(wheel) / 90)));
      wheel = 0;
    };
    const point = e => [across, up].forEach((a, k) => {
      const mm = centre[a] - (pixel(e)[k] - [canvas.width, canvas.height][k] / 2) / panel.scale;
      go(a, Math.round(mm / edges[a]));
    });
    const pan = (dx, dy) => {
      centre[across] += dx * devicePixelRatio / panel.scale;
      centre[up] += dy * devicePixelRatio / panel.scale;
      draw();
    };
    canvas.onwheel = e => {
      e.preventDefault();
      if (e.ctrlKey) enlarge(Math.exp(-e.deltaY / 300), panel, ...pixel(e));
      else scroll(e.deltaMode ? 90 * Math.sign(e.deltaY) : e.deltaY);
    };
    canvas.onpointerenter = e => e.pointerType === 'mouse' && canvas.focus({preventScroll: true});
    canvas.oncontextmenu = e => e.preventDefault();
    canvas.ondblclick = reset;
    canvas.onclick = e => e.shiftKey || point(e);
    canvas.onpointerdown = e => {
      if (e.button === 1) e.preventDefault();
      if (e.isTrusted) canvas.setPointerCapture(e.pointerId);
      fingers.set(e.pointerId, e);
    };
    canvas.onpointerup = canvas.onpointercancel = e => fingers.delete(e.pointerId);
    canvas.onpointermove = e => {
      const last = fingers.get(e.pointerId);
      if (!last) return;
      const [dx, dy] = [e.clientX - last.clientX, e.clientY - last.clientY];
      if (fingers.size > 1) {
        const other = [...fingers.values()].find(finger => finger.pointerId !== e.pointerId);
        const apart = finger => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY) + 1;
        const middle = [0, 1].map(k => (pixel(e)[k] + pixel(other)[k]) / 2);
        pan(dx / 2, dy / 2);
        enlarge(apart(e) / apart(last), panel, ...middle);
      } else if (e.pointerType === 'touch') scroll(-6 * dx);
      else if (e.buttons & 2) {
        get('width').value = +get('width').value + dx / 300 * (high - low);
        get('level').value = +get('level').value - dy / 300 * (high - low);
        draw();
      } else if (e.buttons & 4 || e.shiftKey) pan(dx, dy);
      else point(e);
      fingers.set(e.pointerId, e);
    };
  }

  function choose(volume) {
    root.querySelector(`[name=volume][value=${volume}]`).checked = true;
    lay();
  }

  function reset() {
    ({at, centre, zoom} = structuredClone(start));
    windowed();
    draw();
  }

  function windowed() {
    const [bottom, top] = facts.window;
    get('level').value = (bottom + top) / 2;
    get('width').value = top - bottom;
  }

  root.onkeydown = e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.target.matches('input, button') && /^( |Arrow.*|Page.*)$/.test(e.key)) return;  // these have uses for them
    const panel = panels.find(p => p.canvas === e.target) ?? panels[0], normal = PLANES[panel.name][0];
    const by = {ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10}[e.key];
    if (by) go(normal, at[normal] + by);
    else if (e.key > 0 && e.key <= VOLUMES.length + 1) choose([...VOLUMES, 'all'][e.key - 1]);
    else if (e.key === ' ') choose(chosen('volume') === 'rebuilt' ? 'measured' : 'rebuilt');
    else if (/^[+=-]$/.test(e.key)) enlarge(e.key === '-' ? 1 / 1.25 : 1.25, panel);
    else if (e.key === '0') reset();
    else if (e.key === 'c') get('crosshair').click();
    else return;
    e.preventDefault();
  };
  root.querySelectorAll('[name=plane], [name=volume]').forEach(input => { input.onchange = lay; });
  root.querySelectorAll('[name=level], [name=width], [name=crosshair]').forEach(input => { input.oninput = draw; });
  get('reset').onclick = reset;
  if (facts.marks.length) get('mark').hidden = false;
  get('mark').onclick = () => {  // the next one
    at = facts.marks[0].map((i, a) => clamp(Math.round(i), 0, shape[a] - 1));
    facts.marks.push(facts.marks.shift());
    draw();
  };
  Object.assign(get('level'), {min: low, max: high, step: unit});
  Object.assign(get('width'), {min: unit, max: high - low, step: unit});
  status.hidden = true;
  root.querySelector('.tools').hidden = false;
  windowed();
  lay();
  root.dataset.ready = 'true';
})();
