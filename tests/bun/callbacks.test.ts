import { JSCallback } from "bun:ffi";
import { expect, test } from "bun:test";
import { ElizaError, status, type Stream } from "./client";
import { chatPrompt, context, endless, library, pull } from "./fixtures";

function talking(): Stream {
  const engine = context();
  const stream = engine.open({ grammar: endless });
  stream.prefill(chatPrompt(engine, "Talk."));
  return stream;
}

function failure(run: () => void): ElizaError {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ElizaError);
    return error as ElizaError;
  }
  return expect.unreachable() as never;
}

test("pushed tokens equal pulled tokens", () => {
  const pushed: number[] = [];
  talking().generate(12, (token) => void pushed.push(token));
  expect(pushed).toEqual(pull(talking(), 12));
});

test("a callback can stop the generation, which can be resumed", () => {
  const stream = talking();
  const tokens: number[] = [];
  const error = failure(() => stream.generate(0, (token) => tokens.push(token) === 4));
  expect(error.status).toBe(status.cancelled);
  stream.generate(4, (token) => void tokens.push(token));
  expect(tokens).toEqual(pull(talking(), 8));
});

test("an exception in a callback reaches the caller, and the stream stays usable", () => {
  const stream = talking();
  let calls = 0;
  const thrown = new RangeError("thrown in the callback");
  expect(() =>
    stream.generate(0, () => {
      if (++calls === 3) throw thrown;
    }),
  ).toThrow(thrown);
  expect(calls).toBe(3);
  expect(pull(stream, 2)).toHaveLength(2);
});

test("an exception in a bare JSCallback reaches the caller, and the stream stays usable", () => {
  const stream = talking();
  const thrown = new RangeError("thrown in the callback");
  const native = new JSCallback(() => { throw thrown; }, { args: ["i32", "ptr", "ptr"], returns: "i32" });
  const generate = library.symbols.eliza_inference_llm_stream_generate!;
  expect(() => generate(stream.handle, 3, BigInt(native.ptr!), 0n, null)).toThrow(thrown);
  native.close();
  expect(pull(stream, 2)).toHaveLength(2);
});

test("a callback that calls its own stream gets an error, and the generation continues", () => {
  const stream = talking();
  const errors: ElizaError[] = [];
  stream.generate(3, () => void errors.push(failure(() => stream.next())));
  expect(errors).toHaveLength(3);
  expect(errors[0]!.status).toBe(status.invalidArgument);
  expect(errors[0]!.message).toBe("another call is running on this stream");
});

test("a callback may use another stream", () => {
  const [one, other] = [talking(), talking()];
  const inside: number[] = [];
  one.generate(3, () => void inside.push(...other.next().tokens));
  expect(inside).toEqual(pull(talking(), 3));
});

test("a callback that closes its stream ends the generation", () => {
  const stream = talking();
  let calls = 0;
  const error = failure(() =>
    stream.generate(0, () => {
      calls += 1;
      stream.close();
    }),
  );
  expect(error.status).toBe(status.cancelled);
  expect(calls).toBe(1);
  expect(failure(() => stream.next()).message).toBe("the stream is closed, or its handle is invalid");
});

test("the verifier callback can be set and cleared", () => {
  const engine = context();
  let events = 0;
  const clear = engine.onVerify(() => void (events += 1));
  const drafting = () => {
    const grammar = 'root ::= "one two three one two three one two three"';
    const stream = engine.open({ grammar, draftMin: 1, draftMax: 4 });
    stream.prefill(chatPrompt(engine, "one two three one two three one two three"));
    pull(stream, 100);
    stream.close();
  };
  drafting();
  expect(events).toBeGreaterThan(0);
  clear();
  const before = events;
  drafting();
  expect(events).toBe(before);
});
