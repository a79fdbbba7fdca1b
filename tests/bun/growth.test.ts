import { expect, test } from "bun:test";
import { Context } from "./client";
import { chatPrompt, context, library, payload } from "./fixtures";
import { modelPath } from "./library";

/** Bytes by which the process grows over 1,000 rounds, after as many as it takes to settle. */
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

const bound = 8 * 1024 * 1024; // 8 KiB a round: far below what one stream or context takes

test("1,000 streams that were opened, used and closed leave nothing behind", () => {
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

test("1,000 contexts that were created and destroyed leave nothing behind", () => {
  const prompt = chatPrompt(context(), "Hello!");
  const round = () => {
    const engine = new Context(library, modelPath, { n_ctx: "256", n_threads: "1" });
    engine.open().prefill(prompt); // closed with its context
    engine.destroy();
  };
  expect(growth(round)).toBeLessThan(bound);
}, 120_000);

test("1,000 errors leave nothing behind", () => {
  const engine = context();
  const long = "x".repeat(65536);
  const round = () => {
    expect(() => engine.open({ cacheTypeK: long })).toThrow("cache_type_k");
  };
  expect(growth(round)).toBeLessThan(bound); // an eighth of the texts
}, 120_000);
