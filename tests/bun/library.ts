/** Opens libelizainference as elizaOS's loader does, and reports the missing families. */
import { dlopen } from "bun:ffi";
import { resolve } from "node:path";
import { extras, families, rungs, version12, type Family, type Signatures } from "./families";

type Value = number | bigint | ReturnType<typeof import("bun:ffi").ptr> | null;
export type Symbols = Record<string, (...args: Value[]) => any>;
export type Open = (path: string, table: Signatures) => { symbols: Symbols };

export const root = resolve(import.meta.dir, "../..");
const suffix = process.platform === "darwin" ? "dylib" : "so";

export const libraryPath =
  process.env.ELIZA_FFI_LIBRARY ?? resolve(root, `build/cpu/libelizainference.${suffix}`);
export const modelPath = resolve(root, "models/eliza-tiny.gguf");

export interface Library {
  symbols: Symbols;
  version: string;
  /** Families of version 12 of which the library lacks a function. */
  dropped: Family[];
}

const bunOpen: Open = (path, table) => dlopen(path, table) as unknown as { symbols: Symbols };

/**
 * Binds the first table in `rungs` whose functions the library all has.
 *
 * @throws the linker's error if the core is incomplete, or an Error if the library reports version 12 but
 *   exports functions of a later version.
 */
export function bind(path: string = libraryPath, open: Open = bunOpen): Library {
  let failure: unknown;
  for (const rung of rungs) {
    let symbols: Symbols;
    try {
      const table: Signatures = Object.assign({}, ...rung.map((family) => families[family]));
      symbols = { ...open(path, table).symbols };
    } catch (error) {
      failure = error;
      continue;
    }
    const version = String(symbols.eliza_inference_abi_version!());
    const isLater = rung.includes("visionStream13") || rung.includes("phonemes14");
    if (version === "12" && isLater) {
      throw new Error(`${path}: expected only functions of version 12, got functions of a later version`);
    }
    for (const [name, signature] of Object.entries(extras)) {
      try {
        Object.assign(symbols, open(path, { [name]: signature }).symbols);
      } catch {
        // A test that calls it will fail.
      }
    }
    return { symbols, version, dropped: version12.filter((family) => !rung.includes(family)) };
  }
  throw failure;
}
