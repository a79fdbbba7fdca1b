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

/** Saves a slot after the first tokens of an answer. Returns the file and the following tokens. */
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

test("a restored slot continues in another context like the saved one", () => {
  const { file, rest } = saved("slot.bin");
  const stream = context().open();
  stream.restore(file);
  expect(pull(stream, 30)).toEqual(rest);
});

test("damaged, truncated and foreign files are rejected, and the stream is unchanged", () => {
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

test("an error for an unwritable or unreadable file names the file", () => {
  const engine = context();
  const stream = engine.open();
  stream.prefill(chatPrompt(engine, "Hello!"));
  const nowhere = join(folder, "no", "such", "slot.bin");
  expect(() => stream.save(nowhere)).toThrow(nowhere);
  expect(() => stream.restore(nowhere)).toThrow(nowhere);
  expect(existsSync(nowhere)).toBe(false);
});
