// Bundles static/src into static/dist: minified, named by the hash of their
// content, with gzipped twins and a manifest. The same sources give the same
// bytes wherever they lie, so that CI can compare them with what is committed.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { gzipSync } from "fflate"; // zlib's output differs between builds of Node

const root = fileURLToPath(new URL("..", import.meta.url));
const src = join(root, "static/src");
const dist = join(root, "static/dist");
const compressed = new Set([".css", ".js", ".svg", ".txt"]);
const manifest = {};

const hash = (content) => createHash("sha256").update(content).digest("hex").slice(0, 10);

async function put(name, content) {
  await writeFile(join(dist, name), content);
  if (compressed.has(extname(name))) {
    await writeFile(join(dist, name + ".gz"), gzipSync(content, { level: 9, mtime: 0 }));
  }
}

async function add(name, content) {
  const ext = extname(name);
  const hashed = `${basename(name, ext)}-${hash(content)}${ext}`;
  manifest[name] = hashed;
  await put(hashed, content);
}

await rm(dist, { recursive: true, force: true });
await mkdir(dist, { recursive: true });

const bundle = await esbuild.build({
  absWorkingDir: root,
  entryPoints: [join(src, "app.css")],
  outdir: dist,
  entryNames: "[name]",
  assetNames: "[name]-[hash]",
  loader: { ".woff2": "file" },
  bundle: true,
  minify: true,
  write: false,
  legalComments: "none",
});
for (const file of bundle.outputFiles) {
  const name = basename(file.path);
  if (extname(name) === ".css") {
    await add(name, file.contents);
  } else {
    manifest[name.replace(/-[^-]+(\.\w+)$/, "$1")] = name; // hashed by esbuild, which wrote it into the CSS
    await put(name, file.contents);
  }
}
await add("favicon.svg", await readFile(join(src, "favicon.svg")));
for (const font of ["inter", "jetbrains-mono"]) {
  await add(`${font}-license.txt`, await readFile(join(root, "node_modules/@fontsource-variable", font, "LICENSE")));
}

const sorted = Object.fromEntries(Object.entries(manifest).sort(([a], [b]) => (a < b ? -1 : 1)));
await writeFile(join(dist, "manifest.json"), JSON.stringify(sorted, null, 2) + "\n");
