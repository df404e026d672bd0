/** A volume of three axes. Its last axis lies closest in memory. */
interface Volume {
  data: Float32Array;
  shape: number[];
}

/** Rows of a matrix from voxels to mm. The fourth row is left out. */
type Affine = number[][];

/** First voxel and end along each axis of a volume. */
type Box = number[][];

/** In a scan's own units: `low` becomes -1, `high` becomes 1; what is brighter than the ceiling is no tissue. */
interface IntensityRange {
  low: number;
  high: number;
  ceiling: number;
}

/** Standard deviation in the units of the slices, and the band that the scanner measured, see scripts/stack/noise.py. */
interface Noise {
  deviation: number;
  widths: number[];
  round: boolean;
  taper: number;
}

/** Measured slices with their facts, see scripts/stack/slices.py; the head is 1 inside and 0 outside. */
interface Slices {
  volume: Volume;
  a: Acquisition;
  edges: number[];
  tissueRange: IntensityRange;
  head: Volume;
  noise: Noise;
}

/** How a stack was acquired, and the fine grid that it is rebuilt on, see scripts/stack/acquisition.py; lengths in mm. */
interface Acquisition {
  sliceAxis: number;
  sliceCount: number;
  sliceSpacing: number;
  sliceThickness: number;
  targetSpacing: number;
  fineCount: number;
  /** Standard deviation, as a share of the range of tissue; undefined for what the slices show. */
  noise: number | undefined;
  /** Index of a slice that was not measured -> what it is. */
  missing: Map<number, string>;
  /** Name of a field -> where it came from, for people. */
  sources: Record<string, string>;
  warnings: string[];
}

/** The user's values, which win over a file's. */
interface Options {
  slice_thickness?: number;
  target_thickness?: number;
  slice_axis?: number;
  /** In % of the range of tissue. */
  noise?: number;
}

/** A file as a user gives it. */
interface NamedBytes {
  name: string;
  /** From what was given; the name where that is a file. */
  path?: string;
  bytes: Uint8Array;
}

/** A measured scan. */
interface Scan {
  name: string;
  volume: Volume;
  affine: Affine;
  /** Its files' facts of the acquisition, as they stand there: value and source. */
  stated: Record<string, [number, string]>;
  /** Fields of a NIfTI header that hold for the result as they stand. */
  header: { sform_code: number; qform_code: number; dim_info: number; xyzt_units: number };
  /** Paths of its files. */
  sources: string[];
  /** Warnings of the reader. */
  warnings: string[];
}

/** A scan whose files are not known yet. */
type ReadScan = Omit<Scan, "sources"> & {
  intent?: number;
  /** Why it may be no scan of a head. */
  doubt?: string;
};

/** Whose head a scan shows and by which contrast, see scripts/inputs/identity.py. */
interface Identity {
  /** Patient and study of DICOM and of sidecars, folder and subject of BIDS; empty where no standard says it. */
  head: string[];
  /** Of a subject of BIDS; empty where there is none. */
  session: string;
  /** The contrast for people, a remark on names, and what names alone say; empty where nothing says it. */
  shows: { contrast: string; remark: string; named: string };
  /** The contrast by a standard; of BIDS suffix and entities. */
  stated: string[];
  agent: boolean;
  fatSaturated: boolean;
  /** Times of echo, inversion and repetition, in ms; NaN where they are missing. */
  times: number[];
  /** Words of a file's name that say no contrast. */
  words: string[];
  folder: string;
}

/** A volume with its affine. */
interface Placed {
  volume: Volume;
  affine: Affine;
}

/** A guide beside the scan that it guides: on the fine grid in [-1, 1], as thick slices, how far it counts; names of it and its files. */
interface Guide {
  fine: Volume;
  slices: Volume;
  share: Volume;
  name: string;
  sources: string[];
  likeness: number;
  /** From the scan's world to the guide's; its turn in degrees, and its shift of the scan's middle in mm. */
  motion: Affine;
  degrees: number;
  millimetres: number;
  coverage: Coverage;
}

/** The part of a head that a guide saw: side of the patient -> a place in mm on the border of its field of view toward it. */
interface Coverage {
  share: number;
  borders: Record<string, number[]>;
}

/** An input of a graph. */
interface Tensor {
  data: Float32Array | number[];
  shape: number[];
}

/** The graphs that bundle/web/export.py writes, ready to run. Planes are `(B, 1, H, W)`, their sizes in `dims`. */
interface Networks {
  /** Planes, each with its neighbours in its data; with a guide its planes, and those of its slices. */
  stage1(given: Volume[], lengths: number[], rows: number[]): Promise<Float32Array>;
  /** For each Euler step the modulation of the velocity's norms. */
  modulations(lengths: number[], steps: number): Promise<Float32Array[]>;
  /** An Euler step, of a length in time, under a modulation. */
  refine(x: Float32Array, dims: number[], modulation: Float32Array, step: number): Promise<Float32Array>;
  families(one: Volume, other: Volume, spacing: number[], sliceSpacing: number): Promise<Float32Array>;
  /** Patterns of slices, of which they see so much, over that and the regularisation of each in-plane frequency. */
  weighed(seen: Volume, values: number[], regularisation: number[]): Promise<Float32Array>;
}

/** The emscripten module of dcm2niix, as far as it is used. */
declare module "*/dcm2niix.jpeg.js" {
  export default function create(options: object): Promise<{
    FS: {
      mkdir(path: string): void;
      readdir(path: string): string[];
      writeFile(path: string, bytes: Uint8Array): void;
      readFile(path: string, options?: { encoding: "utf8" }): any;
    };
    callMain(given: string[]): number;
  }>;
}

declare module "dcmjs";

/** Lets comlink speak to a thread of Node. */
declare module "comlink/dist/esm/node-adapter.mjs" {
  export default function endpoint(port: import("node:worker_threads").MessagePort | import("node:worker_threads").Worker): import("comlink").Endpoint;
}
