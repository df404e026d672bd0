/** Workers, and what they read: files of the page's own folder. */

/** A worker under this page's Content-Security-Policy: one from a blob inherits it. @type {(file: string, name?: string) => Worker} */
export function thread(file, name) {
  const code = `import ${JSON.stringify(new URL(file, import.meta.url))};`;
  return new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), { type: "module", name });
}

/** A file of the page's own folder. @type {(name: string) => Promise<Uint8Array>} */
export const own = async (name) => new Uint8Array(await (await fetch(new URL(name, import.meta.url))).arrayBuffer());
