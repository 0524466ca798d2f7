// Builds the page into the package: one script, one style sheet, one document. Nothing of it comes from another host.
import { build } from "esbuild";
import { cp, mkdir, rm } from "node:fs/promises";

const into = new URL("../src/recto/web/", import.meta.url).pathname;
const from = new URL("./src/", import.meta.url).pathname;

await rm(into, { recursive: true, force: true });
await mkdir(into, { recursive: true });
await build({
  entryPoints: { app: `${from}main.tsx`, style: `${from}style.css` },
  outdir: into,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof", // the licences of what is bundled go with it
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) await cp(`${from}${name}`, `${into}${name}`);
