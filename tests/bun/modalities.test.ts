import { expect, test } from "bun:test";
import { chatPrompt, context } from "./fixtures";

const pooling = { mean: 1, cls: 2, last: 3 };

test("an embedding has length 1 and depends only on its text", () => {
  const engine = context();
  for (const kind of Object.values(pooling)) {
    const first = engine.embed("a cat sat on the mat", kind);
    const other = engine.embed("quarterly revenue", kind);
    expect(Math.hypot(...first)).toBeCloseTo(1, 4);
    expect([...engine.embed("a cat sat on the mat", kind)]).toEqual([...first]);
    if (kind !== pooling.cls) expect([...other]).not.toEqual([...first]);
  }
});

test("a too small buffer gives an error with the required size", () => {
  const engine = context();
  const needed = engine.embed("hello", pooling.mean).length;
  expect(() => engine.embed("hello", pooling.mean, 1)).toThrow(`[out_dim ${needed}]`);
});

test("the end-of-turn score is the probability of its token", () => {
  const engine = context();
  const [end] = engine.tokenize("<|im_end|>", true);
  const tokens = chatPrompt(engine, "How are you today?").slice(0, -3);
  const score = engine.endOfTurn(tokens, end!);
  expect(score.probability).toBeGreaterThanOrEqual(0);
  expect(score.topProbability).toBeGreaterThanOrEqual(score.probability);
  expect(score.topProbability).toBeLessThanOrEqual(1);
  const top = engine.endOfTurn(tokens, score.top);
  expect(top.probability).toBeCloseTo(score.topProbability, 5);
});
