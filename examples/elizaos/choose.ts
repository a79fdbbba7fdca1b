import { CString, dlopen, ptr, toArrayBuffer, type Pointer } from "bun:ffi";

const { symbols: lib } = dlopen(process.env.ELIZA_FFI_LIBRARY!, {
  eliza_inference_create: { args: ["ptr", "ptr"], returns: "ptr" },
  eliza_inference_destroy: { args: ["ptr"], returns: "void" },
  eliza_inference_free_string: { args: ["usize"], returns: "void" },
  eliza_inference_free_tokens: { args: ["usize"], returns: "void" },
  eliza_inference_set_option: { args: ["ptr", "ptr", "ptr", "ptr"], returns: "i32" },
  eliza_inference_tokenize: {
    args: ["ptr", "ptr", "usize", "i32", "i32", "ptr", "ptr", "ptr"], returns: "i32",
  },
  eliza_inference_llm_stream_open: { args: ["ptr", "ptr", "ptr"], returns: "ptr" },
  eliza_inference_llm_stream_prefill: { args: ["ptr", "ptr", "usize", "ptr"], returns: "i32" },
  eliza_inference_set_token_trie: { args: ["ptr", "ptr", "usize", "i32"], returns: "i32" },
  eliza_inference_llm_stream_next: {
    args: ["ptr", "ptr", "usize", "ptr", "ptr", "usize", "ptr", "ptr", "ptr"], returns: "i32",
  },
  eliza_inference_token_trie_leaf: { args: ["ptr", "ptr", "usize", "ptr"], returns: "i32" },
  eliza_inference_last_error: { args: ["ptr"], returns: "cstring" },
  eliza_inference_llm_stream_close: { args: ["ptr"], returns: "void" },
});

const ARGMAX = 0;
const STOP_AT_LEAF = 0x100;

/** The string in memory that C can read. Keep the buffer until the call returns. */
const cText = (text: string) => Buffer.from(`${text}\0`);

/** Receives an error message, which the library allocates and we free. */
class Failure {
  private readonly slot = new BigUint64Array(1);
  readonly out = ptr(this.slot);

  check(failed: boolean): void {
    if (!failed) return;
    const address = this.slot[0]!;
    if (!address) throw new Error("no reason given");
    const text = new CString(Number(address) as Pointer).toString();
    lib.eliza_inference_free_string(address);
    throw new Error(text);
  }
}

export interface Choice {
  value: string;
  /** Among the labels: the product, over all steps, of the softmax over the allowed tokens. */
  probability: number;
}

export class Chooser {
  private readonly ctx: Pointer;

  constructor(modelPath: string) {
    const failure = new Failure();
    this.ctx = lib.eliza_inference_create(ptr(cText(modelPath)), failure.out) as Pointer;
    failure.check(!this.ctx);
    // Do not wait for a slot: JavaScript has one thread, and only this thread can free a slot.
    const [key, none] = [cText("slot_wait_ms"), cText("0")];
    const set = lib.eliza_inference_set_option(this.ctx, ptr(key), ptr(none), failure.out);
    failure.check(set < 0);
  }

  /** `control`: whether text such as <|im_end|> becomes a control token; false for users' text. */
  tokenize(text: string, control: boolean): number[] {
    if (text === "") return [];
    const failure = new Failure();
    const bytes = Buffer.from(text);
    const tokens = new BigUint64Array(1);
    const count = new BigUint64Array(1);
    const done = lib.eliza_inference_tokenize(
      this.ctx, ptr(bytes), BigInt(bytes.length), 0, control ? 1 : 0, ptr(tokens), ptr(count),
      failure.out,
    );
    failure.check(done < 0);
    const n = Number(count[0]);
    const memory = Number(tokens[0]) as Pointer;
    const copied = n === 0 ? [] : [...new Int32Array(toArrayBuffer(memory, 0, n * 4))];
    lib.eliza_inference_free_tokens(tokens[0]!);
    return copied;
  }

  choose(prompt: number[], choices: string[]): Choice {
    const failure = new Failure();
    const stream = lib.eliza_inference_llm_stream_open(this.ctx, null, failure.out) as Pointer;
    failure.check(!stream);
    try {
      const tokens = Int32Array.from(prompt);
      const n = BigInt(tokens.length);
      const read = lib.eliza_inference_llm_stream_prefill(stream, ptr(tokens), n, failure.out);
      failure.check(read < 0);

      const leaves = choices.map((name) => ({ name, tokens: this.tokenize(name, false) }));
      const payload = { modelId: "", descriptors: [{ path: "choice", leaves }] };
      const trie = Buffer.from(JSON.stringify(payload));
      const mode = ARGMAX | STOP_AT_LEAF;
      if (lib.eliza_inference_set_token_trie(stream, ptr(trie), BigInt(trie.length), mode) < 0) {
        throw new Error(String(lib.eliza_inference_last_error(stream)));
      }

      const [token, count] = [new Int32Array(16), new BigUint64Array(1)];
      const text = new Uint8Array(1024);
      for (let ended = 0; ended === 0; ) {
        ended = lib.eliza_inference_llm_stream_next(
          stream, ptr(token), 16n, ptr(count), ptr(text), 1024n, null, null, failure.out,
        );
        failure.check(ended < 0);
      }

      const [name, logprob] = [new Uint8Array(1024), new Float64Array(1)];
      if (lib.eliza_inference_token_trie_leaf(stream, ptr(name), 1024n, ptr(logprob)) < 0) {
        throw new Error(String(lib.eliza_inference_last_error(stream)));
      }
      const value = new TextDecoder().decode(name.subarray(0, name.indexOf(0)));
      return { value, probability: Math.exp(logprob[0]!) };
    } finally {
      lib.eliza_inference_llm_stream_close(stream);
    }
  }

  close(): void {
    lib.eliza_inference_destroy(this.ctx);
  }
}
