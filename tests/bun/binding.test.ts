import { dlopen } from "bun:ffi";
import { expect, test } from "bun:test";
import { ErrorText, status } from "./client";
import { families, version12 } from "./families";
import { library } from "./fixtures";
import { bind, libraryPath, type Open, type Symbols } from "./library";

/** Opens the library as if it lacked a function. */
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

test("none of the later versions' functions is there, for a loader would refuse version 12 with them", () => {
  for (const [name, signature] of Object.entries({ ...families.visionStream13, ...families.phonemes14 })) {
    expect(() => dlopen(libraryPath, { [name]: signature })).toThrow(name);
  }
});

test("one missing function costs a family and those that came after it", () => {
  expect(bind(libraryPath, lacking("eliza_inference_llm_eot_score")).dropped).toEqual(["endOfTurn", "timestamps"]);
  expect(bind(libraryPath, lacking("eliza_inference_describe_image")).dropped).toEqual([
    "modalities", "kokoro", "endOfTurn", "timestamps",
  ]);
  expect(bind(libraryPath, lacking("eliza_inference_vad_close")).dropped).toContain("stream");
});

test("without one function of the core, voice or not, nothing is bound", () => {
  for (const name of Object.keys(families.core)) {
    expect(() => bind(libraryPath, lacking(name))).toThrow(name);
  }
});

test("a path that is no library fails with the linker's words", () => {
  expect(() => bind("/no/such/library.so")).toThrow("/no/such/library.so");
});

test("what is served is said to be, and what is not is not", () => {
  const bound = version12.flatMap((family) => Object.keys(families[family]));
  const supported = bound
    .filter((name) => name.endsWith("_supported") && library.symbols[name]!() === 1)
    .map((name) => name.slice("eliza_inference_".length, -"_supported".length));
  expect(supported.sort()).toEqual(["embed", "llm_eot", "llm_kv_quant", "llm_mtp", "tokenize"]);
  expect(library.symbols.eliza_inference_llm_stream_supported!()).toBe(1);
});

test("voice is refused with a text that names what is missing", () => {
  const error = new ErrorText(library.symbols);
  expect(library.symbols.eliza_inference_vad_open!(null, 16000, error.out)).toBeNull();
  expect(error.take()).toStartWith("voice activity detection is not supported");
  const rate = library.symbols.eliza_inference_kokoro_sample_rate!(null);
  expect(rate).toBe(status.notImplemented);
});
