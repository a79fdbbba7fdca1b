/** Shared by the tests: one library, prompts, and contexts that are destroyed after each test. */
import { afterEach } from "bun:test";
import { Context, Stream } from "./client";
import { bind, modelPath } from "./library";

export const library = bind();

const opened: Context[] = [];
afterEach(() => {
  while (opened.length > 0) opened.pop()!.destroy();
});

/** Returns a context with the embedded model. It is destroyed after the test. */
export function context(options: Record<string, string> = {}): Context {
  const made = new Context(library, modelPath, { n_ctx: "2048", n_threads: "1", ...options });
  opened.push(made);
  return made;
}

/** Returns a question in the model's chat format. Without it, the model would end its answer at once. */
export function chatPrompt(engine: Context, question: string): Int32Array {
  return engine.tokenize(`<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`, true);
}

/** A grammar for endless lower-case text: only a limit, a cancellation or a full context ends it. */
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
