/** A mistake in what the user gave. Its message says what was given, what is allowed and what to do. */
export class InputError extends Error {
  name = "InputError"; // it goes from the worker to the page
}

/** Ends with an `InputError`, if there is a mistake. @type {(mistake: boolean, message: string) => void} */
export function refuse(mistake, message) {
  if (mistake) throw new InputError(message);
}

/** What an exception says. @type {(error: unknown) => string} */
export const reason = (error) => (error instanceof Error ? error.message : String(error));

/** A number as Python's `format(x, ".{digits}g")` writes it. @type {(x: number, digits?: number) => string} */
export function g(x, digits = 6) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e").map(Number);
  if (x === 0 || (exponent >= -4 && exponent < digits)) return String(Number(x.toPrecision(digits)));
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}
