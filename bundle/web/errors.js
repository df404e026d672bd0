/** A mistake in what the user gave. Its message says what was given, what is allowed and what to do. */
export class InputError extends Error {
  name = "InputError"; // it goes from the worker to the page
}

/** Ends with an `InputError`, if there is a mistake. @type {(mistake: boolean, message: string) => void} */
export function refuse(mistake, message) {
  if (mistake) throw new InputError(message);
}

/** What is made of one of several things, as a list; none of it where it is refused, and the reason is kept. Without such a list all is thrown.
 * @type {<T>(made: () => T | Promise<T>, skipped: Set<string> | undefined) => Promise<T[]>} */
export async function orSkip(made, skipped) {
  try {
    return [await made()];
  } catch (error) {
    if (!skipped || !(error instanceof InputError)) throw error;
    skipped.add(error.message);
    return [];
  }
}

/** The message of an exception. @type {(error: unknown) => string} */
export const reason = (error) => (error instanceof Error ? error.message : String(error));

/** The first names, and how many more there are. @type {(names: string[]) => string} */
export const few = (names) => names.slice(0, 5).join(", ") + (names.length > 5 ? ` and ${names.length - 5} more` : "");

/** A number in so many digits; halves are rounded to even digits, as Python rounds them. @type {(x: number, digits: object) => string} */
const written = (x, digits) => new Intl.NumberFormat("en", { ...digits, roundingMode: "halfEven", useGrouping: false }).format(x);

/** A number as Python's `format(x, ".{digits}f")` writes it. @type {(x: number, digits: number) => string} */
export const f = (x, digits) => written(x, { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** A number as Python's `format(x, ".{digits}g")` writes it. @type {(x: number, digits?: number) => string} */
export function g(x, digits = 6) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e").map(Number);
  if (x === 0 || (exponent >= -4 && exponent < digits)) return written(x, { maximumSignificantDigits: digits });
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** A text of Python's, `{name}`, `{name:.1f}` or in their order `{}` in the place of values. @type {(text: string, values: Record<string, any> | any[]) => string} */
export function filled(text, values) {
  let [all, at] = [/** @type {Record<string, any>} */ (values), 0];
  return text.replace(/\{(\w*)(?::\.(\d)([fg%]))?\}/g, (_, name, digits, kind) => {
    const value = all[name || at++];
    if (kind === "%") return `${f(100 * value, Number(digits))}%`;
    return kind ? { f, g }[/** @type {"f" | "g"} */ (kind)](value, Number(digits)) : String(value);
  });
}
