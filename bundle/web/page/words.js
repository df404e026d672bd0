/** The command's messages in the words of the page, which has fields and no options. */

/** @type {[RegExp, string][]} what the command calls a thing, and what the page does */
const WORDS = [
  [/ \(--include [^)]*\)/g, ""],
  [/Set it as in --\w+ ([\d.]+)/g, "Type it as $1"],
  [/auto, or (?=0 to)/g, ""],
  [/Leave out --slice_axis/g, "Leave the slice axis as found"],
  [/Set --(slice_thickness|target_thickness|slice_axis|noise)\b/g, "Set the field --$1"],
  [/(?:[^.:;]|\.(?=\d))*(?<=\s)--(?!slice_(?!spacing)|target_|noise)\w+(?:[^.]|\.(?=\w))*\.?/g, ""], // a remedy that the page has not
  [/(?:the field )?(?:--)?\b(slice|target)_(thickness|axis)\b/g, "$1 $2"],
  [/the field --noise/g, "noise"],
];

/** @type {(message: string) => string} */
export const plain = (message) => WORDS.reduce((text, [own, word]) => text.replace(own, word), message).trim().replace(/[,:;]$/, ".");

/** How long it takes, for people. @type {(seconds: number) => string} */
export const duration = (seconds) => (seconds < 90 ? `${Math.max(5, 5 * Math.ceil(seconds / 5))} s` : `${Math.round(seconds / 60)} min`);
