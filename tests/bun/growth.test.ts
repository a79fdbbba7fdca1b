import { expect, test } from "bun:test";
import { Context } from "./client";
import { chatPrompt, context, library, payload } from "./fixtures";
import { modelPath } from "./library";

/** Returns the growth of the process in 1,000 rounds, in bytes, after 300 rounds to settle. */
function growth(round: () => void): number {
  const settled = () => {
    Bun.gc(true);
    return process.memoryUsage.rss();
  };
  for (let i = 0; i < 300; ++i) round();
  const before = settled();
  for (let i = 0; i < 1000; ++i) round();
  return settled() - before;
}

const bound = 8 * 1024 * 1024; // 8 KiB per round: far less than a stream or context

test("opening, using and closing 1,000 streams leaks nothing", () => {
  const engine = context();
  const prompt = chatPrompt(engine, "Hello!");
  const actions = payload(engine, ["REPLY", "IGNORE"]);
  const round = () => {
    const stream = engine.open({ maxTokens: 1, promptCacheKey: "chat", grammar: 'root ::= "a" | "b"' });
    stream.prefill(prompt);
    stream.setTrie(actions, 0);
    stream.next();
    stream.close();
  };
  expect(growth(round)).toBeLessThan(bound);
}, 120_000);

test("creating and destroying 1,000 contexts leaks nothing", () => {
  const prompt = chatPrompt(context(), "Hello!");
  const round = () => {
    const engine = new Context(library, modelPath, { n_ctx: "256", n_threads: "1" });
    engine.open().prefill(prompt); // closed with its context
    engine.destroy();
  };
  expect(growth(round)).toBeLessThan(bound);
}, 120_000);

test("1,000 errors leak nothing", () => {
  const engine = context();
  const long = "x".repeat(65536);
  const round = () => {
    expect(() => engine.open({ cacheTypeK: long })).toThrow("cache_type_k");
  };
  expect(growth(round)).toBeLessThan(bound); // an eighth of the error texts' size
}, 120_000);
