import { expect, test } from "bun:test";
import type { Context, Step, Stream, VerifierEvent } from "./client";
import { chatPrompt, context, endless } from "./fixtures";
import { modelPath } from "./library";

const repeating = 'root ::= ("one two three four ")+';

function asked(engine: Context, config: Parameters<Context["open"]>[0]): Stream {
  const stream = engine.open(config);
  stream.prefill(chatPrompt(engine, "Count."));
  return stream;
}

/** Returns all steps of a generation with a limit. */
function steps(stream: Stream, tokensCap = 32): Step[] {
  const taken = [stream.next(tokensCap)];
  while (!taken.at(-1)!.done) taken.push(stream.next(tokensCap));
  return taken;
}

const tokensOf = (taken: Step[]) => taken.flatMap((step) => step.tokens);
const textOf = (taken: Step[]) => taken.map((step) => step.text).join("");
const sum = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0);

test("an accepted draft gives several tokens per step, and the text is unchanged", () => {
  const config = { grammar: repeating, maxTokens: 60 };
  const alone = steps(asked(context(), config));
  const drafting = steps(asked(context(), { ...config, draftMin: 1, draftMax: 6 }));
  expect(alone.every((step) => step.tokens.length <= 1 && step.drafted === 0)).toBe(true);
  expect(drafting.length).toBeLessThan(alone.length);
  expect(Math.max(...drafting.map((step) => step.tokens.length))).toBeGreaterThan(1);
  expect(tokensOf(drafting)).toEqual(tokensOf(alone));
  expect(textOf(drafting)).toBe(textOf(alone));
});

test("a step returns at most as many tokens as fit into the buffer", () => {
  const config = { grammar: repeating, maxTokens: 60, draftMin: 1, draftMax: 8 };
  const whole = steps(asked(context(), config));
  for (const cap of [1, 2, 3]) {
    const taken = steps(asked(context(), config), cap);
    expect(Math.max(...taken.map((step) => step.tokens.length))).toBe(cap);
    expect(tokensOf(taken)).toEqual(tokensOf(whole));
  }
});

test("verifier events agree with the tokens and the counts", () => {
  const engine = context();
  const events: VerifierEvent[] = [];
  const clear = engine.onVerify((event) => void events.push(event));
  // The drafter ignores the grammar, so some drafts are rejected.
  const config = { grammar: endless, maxTokens: 60, draftMin: 1, draftMax: 4, drafter: modelPath };
  const taken = steps(asked(engine, config));
  clear();
  const tokens = tokensOf(taken);
  expect(sum(events.map((event) => event.accepted.length))).toBe(sum(taken.map((step) => step.accepted)));
  let dropped = 0;
  for (const { accepted, rejectedFrom, rejectedTo, corrected } of events) {
    if (rejectedFrom < 0) {
      expect([rejectedTo, corrected]).toEqual([-1, []]);
      continue;
    }
    dropped += rejectedTo - rejectedFrom + 1;
    expect(tokens.slice(rejectedFrom - accepted.length, rejectedFrom)).toEqual(accepted);
    expect(corrected).toEqual([tokens[rejectedFrom]!]);
  }
  expect(dropped).toBeGreaterThan(0);
  expect(dropped).toBe(sum(taken.map((step) => step.drafted - step.accepted)));
});

test("pushed tokens are the same, with one callback per token", () => {
  const config = { grammar: repeating, maxTokens: 30, draftMin: 1, draftMax: 5 };
  const pushed: number[] = [];
  asked(context(), config).generate(0, (token) => void (token >= 0 && pushed.push(token)));
  expect(pushed).toEqual(tokensOf(steps(asked(context(), config))));
});

test("invalid draft settings are rejected", () => {
  const engine = context();
  expect(() => engine.open({ draftMin: 5, draftMax: 4 })).toThrow("draft_min is above draft_max");
  expect(() => engine.open({ draftMin: 1, draftMax: 257 })).toThrow("draft_max is above 256");
  expect(() => engine.open({ draftMin: 1, draftMax: 4, drafter: "/no/such.gguf" })).toThrow("/no/such.gguf");
});
