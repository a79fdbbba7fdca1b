import { describe, expect, test } from "bun:test";
import { Context, ElizaError, status } from "./client";
import { chatPrompt, context, endless, library, payload, pull } from "./fixtures";

const argmax = 0;
const stopAtLeaf = 0x100;

describe("tokens", () => {
  test("detokenize is the inverse of tokenize", () => {
    const engine = context();
    for (const text of ["Hello, world!", "SEND_EMAIL", "naïve 🎉 日本", "a\0b"]) {
      expect(engine.detokenize(engine.tokenize(text))).toBe(text);
    }
    expect(engine.tokenize("")).toHaveLength(0);
  });
});

describe("streaming", () => {
  test("each piece of an answer consists of whole characters", async () => {
    const engine = context();
    const stream = engine.open({ maxTokens: 40 });
    stream.prefill(chatPrompt(engine, "What is your name?"));
    const tokens: number[] = [];
    let text = "";
    let steps = 0;
    for await (const step of stream.steps()) {
      tokens.push(...step.tokens);
      text += step.text;
      steps += 1;
    }
    expect(steps).toBeGreaterThan(1);
    expect(text.length).toBeGreaterThan(0);
    expect(text).toBe(engine.detokenize(Int32Array.from(tokens)));
  });

  test("a grammar restricts the output", async () => {
    const engine = context();
    const stream = engine.open({ grammar: 'root ::= "{\\"ok\\":" ("true" | "false") "}"' });
    stream.prefill(chatPrompt(engine, "Answer in JSON."));
    expect(["{\"ok\":true}", "{\"ok\":false}"]).toContain(await stream.text());
  });

  test("text that does not fit into the buffer is kept for the next call", () => {
    const engine = context();
    const stream = engine.open({ grammar: 'root ::= "REPLY"' });
    stream.prefill(chatPrompt(engine, "Act."));
    expect(() => stream.next(32, 1)).toThrow(/^text_cap: expected room/);
    let text = "";
    for (let done = false; !done; ) {
      const step = stream.next();
      text += step.text;
      done = step.done;
    }
    expect(text).toBe("REPLY");
  });
});

describe("cancelling", () => {
  test("an abort signal ends the stream with its reason, and the stream stays usable", async () => {
    const engine = context();
    const stream = engine.open({ grammar: endless });
    stream.prefill(chatPrompt(engine, "Talk."));
    const controller = new AbortController();
    let steps = 0;
    const run = (async () => {
      for await (const _ of stream.steps(controller.signal)) {
        if (++steps === 5) setTimeout(() => controller.abort(new Error("enough")), 0);
      }
    })();
    await expect(run).rejects.toThrow("enough");
    expect(steps).toBeGreaterThanOrEqual(5);
    expect(stream.next().done).toBe(false);
  });

  test("with an aborted signal, no generation starts", async () => {
    const engine = context();
    const stream = engine.open({ grammar: endless });
    stream.prefill(chatPrompt(engine, "Talk."));
    await expect(stream.text(AbortSignal.abort(new Error("no")))).rejects.toThrow("no");
    expect(stream.next().done).toBe(false);
  });

  test("a running call on another thread can be cancelled", async () => {
    const engine = context();
    const stream = engine.open({ grammar: endless });
    stream.prefill(chatPrompt(engine, "Talk."));
    const worker = new Worker(new URL("./generating_worker.ts", import.meta.url).href);
    const result = new Promise<{ status: number; text: string }>((resolve, reject) => {
      worker.onerror = reject;
      worker.onmessage = ({ data }) => {
        if (data === "generating") stream.cancel();
        else resolve(data);
      };
    });
    worker.postMessage(stream.handle);
    expect((await result).status).toBe(status.cancelled);
    worker.terminate();
    expect(stream.next().done).toBe(false);
  });
});

describe("the trie", () => {
  const actions = ["REPLY", "SEND_EMAIL", "SEND_MESSAGE", "IGNORE"];

  test("restricts the output to its leaves, and names the chosen leaf", async () => {
    const engine = context();
    const stream = engine.open();
    stream.prefill(chatPrompt(engine, "Someone says hello. Action?"));
    stream.setTrie(payload(engine, actions), argmax | stopAtLeaf);
    const text = await stream.text();
    expect(actions).toContain(text);
    expect(stream.leaf()).toBe(text);
  });

  test("has no effect after it was cleared", () => {
    const engine = context();
    const [free, cleared] = [engine.open(), engine.open()];
    for (const stream of [free, cleared]) stream.prefill(chatPrompt(engine, "Hello!"));
    cleared.setTrie(payload(engine, actions), argmax);
    cleared.clearTrie();
    expect(pull(cleared, 8)).toEqual(pull(free, 8));
  });

  test("a rejected payload gives an error and leaves the stream unchanged", () => {
    const engine = context();
    const [free, rejected] = [engine.open(), engine.open()];
    for (const stream of [free, rejected]) stream.prefill(chatPrompt(engine, "Hello!"));
    expect(() => rejected.setTrie({ modelId: "", descriptors: [] }, argmax)).toThrow("the payload has no leaves");
    expect(pull(rejected, 8)).toEqual(pull(free, 8));
  });
});

describe("errors", () => {
  test("name the cause", () => {
    const engine = context();
    expect(() => new Context(library, "/no/such/model.gguf")).toThrow("/no/such/model.gguf");
    expect(() => engine.open({ grammar: "root ::= (" })).toThrow("gbnf_grammar");
    expect(() => engine.open({ cacheTypeK: "q7" })).toThrow('cache_type_k: expected one of f32, f16, ');
    expect(() => engine.open().prefill(Int32Array.of(-3))).toThrow("outside the vocabulary");
  });

  test("have a status code", () => {
    const stream = context().open();
    stream.close();
    try {
      stream.next();
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(ElizaError);
      expect((error as ElizaError).status).toBe(status.invalidArgument);
      expect((error as ElizaError).message).toBe("the stream is closed, or its handle is invalid");
    }
  });

  test("a quantized cache works", () => {
    const engine = context();
    const stream = engine.open({ maxTokens: 5, cacheTypeK: "q8_0", cacheTypeV: "q8_0", grammar: endless });
    stream.prefill(chatPrompt(engine, "Hi."));
    expect(pull(stream, 5)).toHaveLength(5);
  });
});
