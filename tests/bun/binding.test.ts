import { dlopen } from "bun:ffi";
import { expect, test } from "bun:test";
import { ErrorText, status } from "./client";
import { families, version12 } from "./families";
import { library } from "./fixtures";
import { bind, libraryPath, type Open, type Symbols } from "./library";

/** Returns an `open` that behaves as if the library lacked one function. */
function lacking(missing: string): Open {
  return (path, table) => {
    if (missing in table) throw new Error(`no ${missing}`);
    return dlopen(path, table) as unknown as { symbols: Symbols };
  };
}

test("every family of version 12 is bound and none is dropped", () => {
  expect(library.version).toBe("12");
  expect(library.dropped).toEqual([]);
});

test("functions of later versions are missing, because loaders would reject version 12 with them", () => {
  for (const [name, signature] of Object.entries({ ...families.visionStream13, ...families.phonemes14 })) {
    expect(() => dlopen(libraryPath, { [name]: signature })).toThrow(name);
  }
});

test("a missing function disables its family and all later families", () => {
  expect(bind(libraryPath, lacking("eliza_inference_llm_eot_score")).dropped).toEqual(["endOfTurn", "timestamps"]);
  expect(bind(libraryPath, lacking("eliza_inference_describe_image")).dropped).toEqual([
    "modalities", "kokoro", "endOfTurn", "timestamps",
  ]);
  expect(bind(libraryPath, lacking("eliza_inference_vad_close")).dropped).toContain("stream");
});

test("without any one function of the core, nothing is bound", () => {
  for (const name of Object.keys(families.core)) {
    expect(() => bind(libraryPath, lacking(name))).toThrow(name);
  }
});

test("a wrong path raises the linker's error", () => {
  expect(() => bind("/no/such/library.so")).toThrow("/no/such/library.so");
});

test("the library reports which families it supports", () => {
  const bound = version12.flatMap((family) => Object.keys(families[family]));
  const supported = bound
    .filter((name) => name.endsWith("_supported") && library.symbols[name]!() === 1)
    .map((name) => name.slice("eliza_inference_".length, -"_supported".length));
  expect(supported.sort()).toEqual(["embed", "llm_eot", "llm_kv_quant", "llm_mtp", "tokenize"]);
  expect(library.symbols.eliza_inference_llm_stream_supported!()).toBe(1);
});

test("voice functions report that they are not supported", () => {
  const error = new ErrorText(library.symbols);
  expect(library.symbols.eliza_inference_vad_open!(null, 16000, error.out)).toBeNull();
  expect(error.take()).toStartWith("voice activity detection is not supported");
  const rate = library.symbols.eliza_inference_kokoro_sample_rate!(null);
  expect(rate).toBe(status.notImplemented);
});
