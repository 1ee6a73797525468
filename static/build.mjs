// Bundles static/src into static/dist: minified, named by the hash of their
// content, with gzipped twins and a manifest. The same sources give the same
// bytes wherever they lie, so that CI can compare them with what is committed.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { gzipSync } from "fflate"; // zlib's output differs between builds of Node
import { basemap } from "./basemap.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const src = join(root, "static/src");
const dist = join(root, "static/dist");
const modules = join(root, "node_modules");
const compressed = new Set([".css", ".js", ".json", ".svg", ".txt"]);
const manifest = {};
const packed = {}; // bytes as sent, by name

// What of our own a browser loads, without MapLibre: htmx, terra-draw, ours.
const budget = 110_000;

const hash = (content) => createHash("sha256").update(content).digest("hex").slice(0, 10);

async function put(name, content) {
  await writeFile(join(dist, name), content);
  if (!compressed.has(extname(name))) return content.length;
  const gz = gzipSync(content, { level: 9, mtime: 0 });
  await writeFile(join(dist, name + ".gz"), gz);
  return gz.length;
}

async function add(name, content) {
  if (typeof content === "string") content = new TextEncoder().encode(content);
  const ext = extname(name);
  const hashed = `${basename(name, ext)}-${hash(content)}${ext}`;
  manifest[name] = hashed;
  packed[name] = await put(hashed, content);
  return hashed;
}

const shared = {
  absWorkingDir: root,
  bundle: true,
  minify: true,
  write: false,
  legalComments: "none",
  target: "es2023",
};

await rm(dist, { recursive: true, force: true });
await mkdir(dist, { recursive: true });

// Style.
const styles = await esbuild.build({
  ...shared,
  entryPoints: [join(src, "app.css")],
  outdir: dist,
  entryNames: "[name]",
  assetNames: "[name]-[hash]",
  loader: { ".woff2": "file" },
});
for (const file of styles.outputFiles) {
  const name = basename(file.path);
  if (extname(name) === ".css") {
    await add(name, file.contents);
  } else {
    manifest[name.replace(/-[^-]+(\.\w+)$/, "$1")] = name; // hashed by esbuild, which wrote it into the CSS
    await put(name, file.contents);
  }
}

// MapLibre as its makers built it, and its worker, each a file of our origin.
const withoutMap = (text) => text.replace(/\n?\/\/# sourceMappingURL=.*\n?$/, "\n");
const maplibre = await add("maplibre.js", withoutMap(await readFile(join(modules, "maplibre-gl/dist/maplibre-gl.mjs"), "utf8")));
await add("maplibre-worker.js", withoutMap(await readFile(join(modules, "maplibre-gl/dist/maplibre-gl-worker.mjs"), "utf8")));
const besideMapLibre = {
  name: "maplibre stays a file of its own",
  setup(build) {
    build.onResolve({ filter: /^maplibre-gl$/ }, () => ({ path: `./${maplibre}`, external: true }));
  },
};

// Scripts: app.js first, map.js when there is a map to draw.
for (const entry of ["app", "map"]) {
  const script = await esbuild.build({
    ...shared,
    entryPoints: [join(src, `${entry}.ts`)],
    format: "esm",
    plugins: [besideMapLibre],
  });
  await add(`${entry}.js`, script.outputFiles[0].contents);
}

await add("basemap.json", basemap());
await add("favicon.svg", await readFile(join(src, "favicon.svg")));

const licenses = {
  inter: "@fontsource-variable/inter/LICENSE",
  "jetbrains-mono": "@fontsource-variable/jetbrains-mono/LICENSE",
  htmx: "htmx.org/LICENSE",
  maplibre: "maplibre-gl/LICENSE.txt",
  "world-atlas": "world-atlas/LICENSE",
};
for (const [name, path] of Object.entries(licenses)) {
  await add(`${name}-license.txt`, await readFile(join(modules, path)));
}
// Its packages come without the text.
await add("terra-draw-license.txt", await readFile(join(src, "licenses/terra-draw.txt")));

const sorted = Object.fromEntries(Object.entries(manifest).sort(([a], [b]) => (a < b ? -1 : 1)));
await writeFile(join(dist, "manifest.json"), JSON.stringify(sorted, null, 2) + "\n");

for (const name of ["app.css", "app.js", "map.js", "maplibre.js", "maplibre-worker.js", "basemap.json"]) {
  console.log(`${name.padEnd(20)} ${(packed[name] / 1000).toFixed(1).padStart(7)} kB gzipped`);
}
const ours = packed["app.js"] + packed["map.js"];
console.log(`${"ours, no MapLibre".padEnd(20)} ${(ours / 1000).toFixed(1).padStart(7)} kB of ${budget / 1000}`);
if (ours > budget) {
  console.error("over the budget");
  process.exitCode = 1;
}
