/** Contexts and streams for JavaScript. Uses the library as elizaOS's runner does, and supports token tries. */
import { CString, JSCallback, ptr, read, toArrayBuffer, type Pointer } from "bun:ffi";
import type { Library, Symbols } from "./library";
import { cString, ElizaError, ErrorText, packConfig, pointer, status, type StreamConfig } from "./memory";

export { ElizaError, ErrorText, status };

export interface Step {
  tokens: number[];
  text: string;
  done: boolean;
  drafted: number;
  accepted: number;
}

/** The result of a draft. Positions count tokens since the prompt. */
export interface VerifierEvent {
  accepted: number[];
  rejectedFrom: number;
  rejectedTo: number;
  corrected: number[];
}

/** Reads the 40 bytes of an EliVerifierEvent, whose arrays are valid only during the callback. */
function readEvent(address: Pointer): VerifierEvent {
  const tokens = (offset: number) => {
    const n = Number(read.u64(address, offset + 8));
    const array = read.ptr(address, offset);
    return n === 0 ? [] : [...new Int32Array(toArrayBuffer(array as Pointer, 0, n * 4))];
  };
  return {
    accepted: tokens(0),
    rejectedFrom: read.i32(address, 16),
    rejectedTo: read.i32(address, 20),
    corrected: tokens(24),
  };
}

export class Context {
  readonly handle: number;
  private readonly symbols: Symbols;

  constructor(readonly library: Library, path: string, options: Record<string, string> = {}) {
    this.symbols = library.symbols;
    const error = new ErrorText(this.symbols);
    const handle = this.symbols.eliza_inference_create!(ptr(cString(path)), error.out);
    if (!handle) throw new ElizaError(status.fault, error.take());
    this.handle = handle;
    for (const [key, value] of Object.entries(options)) {
      const [k, v] = [cString(key), cString(value)];
      error.check(this.symbols.eliza_inference_set_option!(this.handle, ptr(k), ptr(v), error.out));
    }
  }

  tokenize(text: string, parseSpecial = false): Int32Array {
    const error = new ErrorText(this.symbols);
    const bytes = cString(text);
    const out = new BigUint64Array(1);
    const count = new BigUint64Array(1);
    error.check(
      this.symbols.eliza_inference_tokenize!(
        this.handle, ptr(bytes), BigInt(bytes.length - 1), 0, parseSpecial ? 1 : 0, ptr(out), ptr(count), error.out,
      ),
    );
    const n = Number(count[0]);
    const tokens = new Int32Array(n);
    if (n > 0) tokens.set(new Int32Array(toArrayBuffer(Number(out[0]) as Pointer, 0, n * 4)));
    this.symbols.eliza_inference_free_tokens!(out[0]!);
    return tokens;
  }

  detokenize(tokens: Int32Array): string {
    const error = new ErrorText(this.symbols);
    const text = new Uint8Array(65536);
    const length = error.check(
      this.symbols.eliza_inference_detokenize!(
        this.handle, pointer(tokens), BigInt(tokens.length), 0, 1, ptr(text), BigInt(text.length), error.out,
      ),
    );
    return new TextDecoder().decode(text.subarray(0, length));
  }

  /** Returns the embedding of a text. If `room` is too small, the error ends with the required size. */
  embed(text: string, pooling: number, room = 4096): Float32Array {
    const error = new ErrorText(this.symbols);
    const bytes = cString(text);
    const out = new Float32Array(room);
    const dimension = new Int32Array(1);
    const result = this.symbols.eliza_inference_embed!(
      this.handle, ptr(bytes), BigInt(bytes.length - 1), pooling, ptr(out), BigInt(room), ptr(dimension), error.out,
    );
    if (result < 0) throw new ElizaError(result, `${error.take()} [out_dim ${dimension[0]}]`);
    return out.slice(0, dimension[0]);
  }

  endOfTurn(tokens: Int32Array, target: number): { probability: number; top: number; topProbability: number } {
    const error = new ErrorText(this.symbols);
    const probability = new Float32Array(1);
    const top = new Int32Array(1);
    const topProbability = new Float32Array(1);
    error.check(
      this.symbols.eliza_inference_llm_eot_score!(
        this.handle, pointer(tokens), BigInt(tokens.length), target, ptr(probability), ptr(top),
        ptr(topProbability), error.out,
      ),
    );
    return { probability: probability[0]!, top: top[0]!, topProbability: topProbability[0]! };
  }

  /** Calls `callback` with the result of each draft. Returns a function that removes the callback. */
  onVerify(callback: (event: VerifierEvent) => void): () => void {
    const native = new JSCallback((event: Pointer) => callback(readEvent(event)), { args: ["ptr", "ptr"], returns: "void" });
    const set = (address: bigint) => {
      const error = new ErrorText(this.symbols);
      error.check(this.symbols.eliza_inference_set_verifier_callback!(this.handle, address, 0n, error.out));
    };
    set(BigInt(native.ptr!));
    return () => {
      set(0n);
      native.close();
    };
  }

  open(config: StreamConfig = {}): Stream {
    const error = new ErrorText(this.symbols);
    const { bytes, texts } = packConfig(config);
    const handle = this.symbols.eliza_inference_llm_stream_open!(this.handle, ptr(bytes), error.out);
    texts.length = 0; // keeps the texts alive until here
    if (!handle) throw new ElizaError(status.fault, error.take());
    return new Stream(this.symbols, handle);
  }

  destroy(): void {
    this.symbols.eliza_inference_destroy!(this.handle);
  }
}

export class Stream {
  constructor(private readonly symbols: Symbols, readonly handle: number) {}

  prefill(tokens: Int32Array): void {
    const error = new ErrorText(this.symbols);
    error.check(
      this.symbols.eliza_inference_llm_stream_prefill!(
        this.handle, pointer(tokens), BigInt(tokens.length), error.out,
      ),
    );
  }

  /** Runs one step, with the buffer sizes of elizaOS's runner. */
  next(tokensCap = 32, textCap = 1024): Step {
    const error = new ErrorText(this.symbols);
    const tokens = new Int32Array(tokensCap);
    const count = new BigUint64Array(1);
    const text = new Uint8Array(textCap);
    const drafted = new Int32Array(1);
    const accepted = new Int32Array(1);
    const result = error.check(
      this.symbols.eliza_inference_llm_stream_next!(
        this.handle, ptr(tokens), BigInt(tokensCap), ptr(count), ptr(text), BigInt(textCap), ptr(drafted),
        ptr(accepted), error.out,
      ),
    );
    const end = text.indexOf(0);
    return {
      tokens: [...tokens.subarray(0, Number(count[0]))],
      text: new TextDecoder("utf-8", { fatal: true }).decode(text.subarray(0, end)),
      done: result === 1,
      drafted: drafted[0]!,
      accepted: accepted[0]!,
    };
  }

  /**
   * Pulls until the end. Yields to the event loop between steps, so that abort signals arrive.
   *
   * @throws the signal's reason if the signal aborts
   */
  async *steps(signal?: AbortSignal): AsyncGenerator<Step> {
    const cancel = () => this.cancel();
    signal?.throwIfAborted();
    signal?.addEventListener("abort", cancel);
    try {
      for (let done = false; !done; ) {
        let step: Step;
        try {
          step = this.next();
        } catch (error) {
          signal?.throwIfAborted();
          throw error;
        }
        yield step;
        done = step.done;
        await new Promise((resolve) => setImmediate(resolve));
      }
    } finally {
      signal?.removeEventListener("abort", cancel);
    }
  }

  async text(signal?: AbortSignal): Promise<string> {
    let text = "";
    for await (const step of this.steps(signal)) text += step.text;
    return text;
  }

  /**
   * Pushes tokens to a callback, which can return true to stop the generation.
   *
   * @throws the callback's exception, after the library has returned, or ElizaError
   */
  generate(maxTokens: number, onToken: (token: number, text: string) => boolean | void): void {
    const error = new ErrorText(this.symbols);
    let thrown: { error: unknown } | undefined;
    const native = new JSCallback(
      (token: number, text: Pointer) => {
        try {
          return onToken(token, new CString(text).toString()) === true ? 1 : 0;
        } catch (error) {
          thrown = { error }; // exceptions must not pass through C frames
          return 1;
        }
      },
      { args: ["i32", "ptr", "ptr"], returns: "i32" },
    );
    try {
      const result = this.symbols.eliza_inference_llm_stream_generate!(
        this.handle, maxTokens, BigInt(native.ptr!), 0n, error.out,
      );
      const text = error.take();
      if (thrown) throw thrown.error;
      if (result < 0) throw new ElizaError(result, text);
    } finally {
      native.close();
    }
  }

  setTrie(payload: object, mode: number): void {
    const json = cString(JSON.stringify(payload));
    const result = this.symbols.eliza_inference_set_token_trie!(
      this.handle, ptr(json), BigInt(json.length - 1), mode,
    );
    if (result < 0) throw new ElizaError(result, this.lastError());
  }

  clearTrie(): void {
    this.symbols.eliza_inference_clear_token_trie!(this.handle);
  }

  leaf(): string {
    const name = new Uint8Array(256);
    const result = this.symbols.eliza_inference_token_trie_leaf!(this.handle, ptr(name), 256n, null);
    if (result < 0) throw new ElizaError(result, this.lastError());
    return new TextDecoder().decode(name.subarray(0, name.indexOf(0)));
  }

  save(path: string): void {
    const error = new ErrorText(this.symbols);
    error.check(this.symbols.eliza_inference_llm_stream_save_slot!(this.handle, ptr(cString(path)), error.out));
  }

  restore(path: string): void {
    const error = new ErrorText(this.symbols);
    error.check(this.symbols.eliza_inference_llm_stream_restore_slot!(this.handle, ptr(cString(path)), error.out));
  }

  lastError(): string {
    return String(this.symbols.eliza_inference_last_error!(this.handle));
  }

  reset(): void {
    this.symbols.eliza_inference_llm_stream_reset!(this.handle);
  }

  cancel(): number {
    return this.symbols.eliza_inference_llm_stream_cancel!(this.handle);
  }

  close(): void {
    this.symbols.eliza_inference_llm_stream_close!(this.handle);
  }
}
