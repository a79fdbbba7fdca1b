/** Requests to `eliza-ffi serve` with the AI SDK, and as elizaOS's OpenAI plugin sends them. */
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError, embedMany, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool,
  type LanguageModel, type ModelMessage,
} from "ai";
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { resolve } from "node:path";
import { z } from "zod";
import { root } from "./library";
import { serve, type Server } from "./server";

setDefaultTimeout(60_000); // the first test waits for the server
globalThis.AI_SDK_LOG_WARNINGS = false;

const hello = "Hello, who are you?";
const twoTeas = "Two teas, please.";
const order = z.object({ item: z.enum(["tea", "coffee"]), count: z.number().int().min(1).max(9) });
const greedy = { temperature: 0, maxRetries: 0 };

let server: Server;
beforeAll(async () => {
  server = await serve();
});
afterAll(() => server.stop());

const address = () => ({ baseURL: `${server.url}/v1`, apiKey: "any" });
const compatible = () =>
  createOpenAICompatible({
    name: "eliza-ffi", supportsStructuredOutputs: true, includeUsage: true, ...address(),
  });

/** Sends a request without a client library. */
async function post(path: string, body: object): Promise<any> {
  const response = await fetch(`${server.url}/v1/${path}`, { method: "POST", body: JSON.stringify(body) });
  expect(response.status).toBe(200);
  return response.json();
}

const plain = (content: string, more: object = {}) =>
  post("chat/completions", { messages: [{ role: "user", content }], temperature: 0, ...more });

async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

const providers: [string, () => LanguageModel][] = [
  ["openai-compatible", () => compatible()("any")],
  ["openai, chat", () => createOpenAI(address()).chat("any")],
  ["openai, responses", () => createOpenAI(address())("any")],
];

describe.each(providers)("%s", (_, model) => {
  test("generateText returns the server's text and usage", async () => {
    const expected = await plain(hello);
    const { text, usage, finishReason } = await generateText({ model: model(), prompt: hello, ...greedy });
    expect(text).toBe(expected.choices[0].message.content);
    expect(finishReason).toBe("stop");
    expect(usage.inputTokens).toBe(expected.usage.prompt_tokens);
    expect(usage.outputTokens).toBe(expected.usage.completion_tokens);
  });

  test("a text that reaches its limit is reported as such", async () => {
    const { finishReason, usage } = await generateText({
      model: model(), prompt: hello, maxOutputTokens: 3, ...greedy,
    });
    expect([finishReason, usage.outputTokens]).toEqual(["length", 3]);
  });

  test("streamText streams the text of generateText in pieces", async () => {
    const expected = await generateText({ model: model(), prompt: hello, ...greedy });
    const stream = streamText({ model: model(), prompt: hello, ...greedy });
    const pieces = await all(stream.textStream);
    expect(pieces.join("")).toBe(expected.text);
    expect(pieces.length).toBeGreaterThan(5);
    expect((await stream.usage).outputTokens).toBe(expected.usage.outputTokens);
  });

  test("generateObject and streamObject return the same valid object", async () => {
    for (const prompt of [twoTeas, hello, "???"]) {
      const { object } = await generateObject({ model: model(), schema: order, prompt, ...greedy });
      expect(order.parse(object)).toEqual(object);
      const stream = streamObject({ model: model(), schema: order, prompt, ...greedy });
      expect((await all(stream.partialObjectStream)).at(-1)).toEqual(object);
    }
  });

  test("an enum and a choice are always one of the options", async () => {
    const options = ["yes", "no"] as const;
    const { object } = await generateObject({
      model: model(), output: "enum", enum: [...options], prompt: hello, ...greedy,
    });
    const { output } = await generateText({
      model: model(), output: Output.choice({ options: [...options] }), prompt: hello, ...greedy,
    });
    expect(options).toContain(object);
    expect(output).toBe(object);
  });

  test("an object without a schema is valid JSON", async () => {
    const { object } = await generateObject({ model: model(), output: "no-schema", prompt: hello, ...greedy });
    expect(object).toBeObject();
  });

  test("required tools are called in a loop, with valid arguments", async () => {
    const executed: z.infer<typeof order>[] = [];
    const tools = {
      order: tool({
        description: "Orders drinks.",
        inputSchema: order,
        execute: async (given) => {
          executed.push(given);
          return { ordered: given.count };
        },
      }),
    };
    const asked = { tools, toolChoice: "required", stopWhen: stepCountIs(2), prompt: twoTeas, ...greedy } as const;
    const { steps } = await generateText({ model: model(), ...asked });
    expect(steps.map((step) => step.finishReason)).toEqual(["tool-calls", "tool-calls"]);
    const inputs = steps.flatMap((step) => step.toolCalls.map((call) => call.input));
    expect(inputs.length).toBeGreaterThanOrEqual(2);
    expect(executed).toEqual(inputs as typeof executed);
    executed.forEach((given) => order.parse(given));

    const stream = streamText({ model: model(), ...asked });
    const parts = await all(stream.fullStream);
    expect(parts.flatMap((part) => (part.type === "tool-call" ? [part.input] : []))).toEqual(inputs);
    expect(parts.filter((part) => part.type === "tool-result").length).toBe(inputs.length);
  });

  test("a named tool is called", async () => {
    const empty = z.object({});
    const { toolCalls } = await generateText({
      model: model(),
      prompt: twoTeas,
      tools: { cancel: tool({ inputSchema: empty }), order: tool({ inputSchema: order }) },
      toolChoice: { type: "tool", toolName: "order" },
      ...greedy,
    });
    expect([...new Set(toolCalls.map((call) => call.toolName))]).toEqual(["order"]);
  });

  test("a conversation with tools continues", async () => {
    const tools = { order: tool({ inputSchema: order, execute: async () => "done" }) };
    const providerOptions = { openai: { store: false } };
    const messages: ModelMessage[] = [{ role: "user", content: twoTeas }];
    const asked = { model: model(), system: "Be brief.", tools, providerOptions, ...greedy };
    const called = await generateText({ ...asked, messages, toolChoice: "required" });
    messages.push(...called.response.messages, { role: "user", content: hello });
    const said = await generateText({ ...asked, messages, toolChoice: "none" });
    messages.push(...said.response.messages, { role: "user", content: hello });
    const last = await generateText({ ...asked, messages, toolChoice: "none" });
    expect(last.usage.inputTokens!).toBeGreaterThan(said.usage.inputTokens!);
  });

  test("a rejected request raises the server's message", async () => {
    const image = { type: "image", image: new Uint8Array([137, 80, 78, 71]) } as const;
    const failed = await generateText({
      model: model(), messages: [{ role: "user", content: [image] }], ...greedy,
    }).catch((error) => error);
    expect(APICallError.isInstance(failed)).toBe(true);
    expect([failed.statusCode, failed.isRetryable]).toEqual([400, false]);
    expect(failed.message).toContain("content[0].type: expected ");
  });

  test("an unfinished object is an error, also in a stream", async () => {
    const asked = { model: model(), schema: order, prompt: twoTeas, maxOutputTokens: 2, ...greedy };
    await expect(generateObject(asked)).rejects.toThrow("before it was complete");
    const errors: any[] = [];
    const stream = streamObject({ ...asked, onError: ({ error }) => void errors.push(error) });
    stream.object.catch(() => {});
    await all(stream.fullStream);
    expect(errors.map((error) => error.message).join()).toContain(
      " after 2 tokens, before it was complete",
    );
  });
});

test("an exact choice has the probabilities of the labels", async () => {
  const { text, response } = await generateText({
    model: compatible()("any"),
    prompt: hello,
    maxRetries: 0,
    providerOptions: { elizaFfi: { guided_choice: ["yes", "no"] } },
  });
  const { probabilities } = (response.body as any).choices[0];
  expect(Object.keys(probabilities).sort()).toEqual(["no", "yes"]);
  expect(probabilities.yes + probabilities.no).toBeCloseTo(1, 5);
  expect(probabilities[text]).toBeGreaterThanOrEqual(0.5);
});

test("a reference to a stored message is rejected with the remedy", async () => {
  const model = createOpenAI(address())("any");
  const messages: ModelMessage[] = [{ role: "user", content: hello }];
  const first = await generateText({ model, messages, ...greedy });
  messages.push(...first.response.messages, { role: "user", content: hello });
  await expect(generateText({ model, messages, ...greedy })).rejects.toThrow(
    "input[1]: expected the item itself, got a reference to it: the server stores nothing. " +
      "With the AI SDK, set providerOptions.openai.store to false",
  );
});

test("embedMany returns the vectors of a plain request", async () => {
  const values = ["a cat", "a dog"];
  const expected = await post("embeddings", { input: values });
  for (const model of [compatible().embeddingModel("any"), createOpenAI(address()).embedding("any")]) {
    const { embeddings, usage } = await embedMany({ model, values });
    expect(embeddings).toEqual(expected.data.map((each: any) => each.embedding));
    expect(usage.tokens).toBe(expected.usage.prompt_tokens);
  }
});

test("completionModel continues a prompt", async () => {
  const { text } = await generateText({
    model: compatible().completionModel("any"), prompt: hello, maxOutputTokens: 5, ...greedy,
  });
  expect(text).not.toBe("");
});

test("the program of the how-to page runs", async () => {
  const page = await Bun.file(resolve(root, "docs/guides/http-clients.md")).text();
  const program = /```ts\n(.*?)```/s.exec(page)![1]!
    .replace("http://127.0.0.1:8080", server.url)
    .replaceAll("prompt:", "temperature: 0, prompt:"); // a sampled text may begin with a space, or be empty
  const run = Bun.spawn([process.execPath, "run", "-"], {
    cwd: import.meta.dir,
    stdin: new Blob([program]),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [output, errors] = await Promise.all([run.stdout.text(), run.stderr.text()]);
  expect([await run.exited, errors]).toEqual([0, ""]);
  expect(output).toMatch(/^\S.*\{\s*item: "(tea|coffee)",\s*count: \d+,?\s*\}\n(yes|no) 0\.\d+\n$/s);
});

/** `@elizaos/plugin-openai` passes the names of OpenAI's models to the AI SDK, which renames fields for some of them. */
const plugins: [string, () => LanguageModel, object][] = [
  ["1.6.0", () => createOpenAI(address()).languageModel("gpt-4o-mini"), { temperature: 0.7 }],
  [
    "in elizaOS's sources",
    () => createOpenAI(address()).chat("gpt-5.6-luna"),
    { providerOptions: { openai: { promptCacheKey: "agent", promptCacheRetention: "24h", reasoningEffort: "low" } } },
  ],
];

describe.each(plugins)("requests of elizaOS's OpenAI plugin %s", (_, model, options) => {
  const asked = { system: "You are Ada.", maxOutputTokens: 8192, maxRetries: 0, ...options }; // more than the context

  test("text is generated and streamed", async () => {
    const { text } = await generateText({ model: model(), prompt: hello, ...asked });
    expect(text).not.toBe("");
    const stream = streamText({ model: model(), prompt: hello, ...asked });
    expect((await all(stream.textStream)).join("")).not.toBe("");
    expect((await stream.usage).outputTokens!).toBeGreaterThan(0);
  });

  test("objects are valid, with and without a schema", async () => {
    const { output } = await generateText({
      model: model(), prompt: twoTeas, output: Output.object({ schema: order }), ...asked,
    });
    expect(order.parse(output)).toEqual(output);
    const { object } = await generateObject({ model: model(), prompt: twoTeas, output: "no-schema", ...greedy });
    expect(object).toBeObject();
  });

  test("a required action is called", async () => {
    const tools = { ORDER: tool({ inputSchema: order }) };
    const { toolCalls } = await generateText({
      model: model(), prompt: twoTeas, tools, toolChoice: "required", ...asked,
    });
    expect(toolCalls[0]!.toolName).toBe("ORDER");
    toolCalls.forEach((call) => order.parse(call.input));
  });
});

test("elizaOS's OpenAI plugin gets an embedding without naming its format", async () => {
  const { data, usage } = await post("embeddings", { model: "text-embedding-3-small", input: hello });
  expect(data[0].embedding.every(Number.isFinite)).toBe(true);
  expect(data[0].embedding.length).toBe(128); // the embedded model's dimension
  expect(usage.total_tokens).toBe(usage.prompt_tokens);
});
