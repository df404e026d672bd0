/** Workers, and what they read: files of the page's own folder. */

/** A worker under this page's Content-Security-Policy: one from a blob inherits it. @type {(file: string, name?: string) => Worker} */
export function thread(file, name) {
  const code = `import ${JSON.stringify(new URL(file, import.meta.url))};`;
  return new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), { type: "module", name });
}

/** A file of the page's own folder. @type {(name: string) => Promise<Uint8Array>} */
export async function own(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name} was not loaded: ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}
