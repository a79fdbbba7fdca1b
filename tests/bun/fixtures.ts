/** What the tests share: one library, prompts, and contexts that close themselves. */
import { afterEach } from "bun:test";
import { Context, Stream } from "./client";
import { bind, modelPath } from "./library";

export const library = bind();

const opened: Context[] = [];
afterEach(() => {
  while (opened.length > 0) opened.pop()!.destroy();
});

/** A context on the embedded model that the test's end destroys. */
export function context(options: Record<string, string> = {}): Context {
  const made = new Context(library, modelPath, { n_ctx: "2048", n_threads: "1", ...options });
  opened.push(made);
  return made;
}

/** A question in the model's own format, so that it answers rather than ends at once. */
export function chatPrompt(engine: Context, question: string): Int32Array {
  return engine.tokenize(`<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`, true);
}

/** Lower-case text without an end: only a limit, a cancel or a full context stops it. */
export const endless = 'root ::= [a-z ] root';

export function payload(engine: Context, names: string[]): object {
  const leaves = names.map((name) => ({ name, tokens: [...engine.tokenize(name)] }));
  return { modelId: "", descriptors: [{ path: "action", leaves }] };
}

/** Pulls at most `limit` tokens. */
export function pull(stream: Stream, limit: number): number[] {
  const tokens: number[] = [];
  while (tokens.length < limit) {
    const step = stream.next();
    tokens.push(...step.tokens);
    if (step.done) break;
  }
  return tokens;
}
