// Builds the page into the package: one script, one style sheet, one document. Nothing of it comes from another host.
import { build } from "esbuild";
import { cp, mkdir, readdir, rename, rm } from "node:fs/promises";

const into = new URL("../src/recto/web/", import.meta.url).pathname;
const from = new URL("./src/", import.meta.url).pathname;
const beside = new URL("../build/web/", import.meta.url).pathname; // a gateway that starts meanwhile finds whole files

await rm(beside, { recursive: true, force: true });
await mkdir(beside, { recursive: true });
await build({
  entryPoints: { app: `${from}main.tsx`, style: `${from}style.css` },
  outdir: beside,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof", // the licences of what is bundled go with it
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) await cp(`${from}${name}`, `${beside}${name}`);

const made = await readdir(beside);
await mkdir(into, { recursive: true });
for (const name of made) await rename(`${beside}${name}`, `${into}${name}`);
for (const name of await readdir(into)) if (!made.includes(name)) await rm(`${into}${name}`, { recursive: true });
