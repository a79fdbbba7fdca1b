import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chatPrompt, context, pull } from "./fixtures";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "eliza-slots-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

test("a restored slot continues in another context like the saved one", () => {
  const engine = context();
  const stream = engine.open();
  stream.prefill(chatPrompt(engine, "Tell me something."));
  pull(stream, 3);
  const file = join(folder, "slot.bin");
  stream.save(file);
  const rest = pull(stream, 30);
  expect(rest.length).toBeGreaterThan(3);
  const restored = context().open();
  restored.restore(file);
  expect(pull(restored, 30)).toEqual(rest);
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
