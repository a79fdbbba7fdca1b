import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chatPrompt, context, pull } from "./fixtures";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "eliza-slots-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Saves an answer after its first tokens; returns the file and how the answer goes on. */
function saved(name: string): { file: string; rest: number[] } {
  const engine = context();
  const stream = engine.open();
  stream.prefill(chatPrompt(engine, "Tell me something."));
  pull(stream, 3);
  const file = join(folder, name);
  stream.save(file);
  const rest = pull(stream, 30);
  expect(rest.length).toBeGreaterThan(3);
  return { file, rest };
}

test("a restored slot goes on in another context as the saved one did", () => {
  const { file, rest } = saved("slot.bin");
  const stream = context().open();
  stream.restore(file);
  expect(pull(stream, 30)).toEqual(rest);
});

test("a damaged, a cut and a foreign file are refused, and the stream is as it was", () => {
  const { file } = saved("good.bin");
  const bytes = readFileSync(file);
  const damaged = Buffer.from(bytes);
  damaged[bytes.length >> 1]! ^= 0x40;
  const cut = bytes.subarray(0, bytes.length - 7);
  const files = { damaged, cut, foreign: Buffer.from("not a slot"), empty: Buffer.alloc(0) };
  for (const [name, content] of Object.entries(files)) {
    const engine = context();
    const [untouched, stream] = [engine.open(), engine.open()];
    for (const s of [untouched, stream]) s.prefill(chatPrompt(engine, "Hello!"));
    const bad = join(folder, `${name}.bin`);
    writeFileSync(bad, content);
    expect(() => stream.restore(bad)).toThrow(/.+/);
    expect(pull(stream, 6)).toEqual(pull(untouched, 6));
  }
});

test("a file that cannot be written or read is an error that names it", () => {
  const engine = context();
  const stream = engine.open();
  stream.prefill(chatPrompt(engine, "Hello!"));
  const nowhere = join(folder, "no", "such", "slot.bin");
  expect(() => stream.save(nowhere)).toThrow(nowhere);
  expect(() => stream.restore(nowhere)).toThrow(nowhere);
  expect(existsSync(nowhere)).toBe(false);
});
