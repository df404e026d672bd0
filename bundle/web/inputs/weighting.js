/** Words of names: those of scripts/inputs/weighting.py. */
import constants from "../model/constants.js";

/** @type {(pattern: string, word: string) => RegExpExecArray | null} */
export const whole = (pattern, word) => new RegExp(`^(?:${pattern})$`).exec(word);
/** @type {(name: string) => string[]} */
export const split = (name) => name.toLowerCase().split(/[^\p{L}\p{N}_*+]+|_+/u).filter(Boolean);
/** @type {(word: string) => boolean} */
export const ofProtocol = (word) => word.length < 40 && whole(constants.weighting.PROTOCOL, word) !== null;
