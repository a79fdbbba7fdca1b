/** Converts strings, errors and the stream configuration between JavaScript and C. */
import { CString, ptr, type Pointer } from "bun:ffi";
import type { Symbols } from "./library";

export const status = { ok: 0, notImplemented: -1, invalidArgument: -2, fault: -4, cancelled: -7 } as const;

export class ElizaError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
    this.name = "ElizaError";
  }
}

/** Returns a NUL-terminated copy of a string. Keep it alive until the C call has returned. */
export function cString(text: string): Buffer {
  return Buffer.from(`${text}\0`, "utf8");
}

/** Returns a pointer to a typed array, or NULL for an empty array. */
export function pointer(view: NodeJS.TypedArray): Pointer | null {
  return view.length > 0 ? ptr(view) : null;
}

/** Storage for a `char **` error argument. `take` reads the text and frees it. */
export class ErrorText {
  private readonly slot = new BigUint64Array(1);
  readonly out = ptr(this.slot);

  constructor(private readonly symbols: Symbols) {}

  take(): string {
    const address = this.slot[0]!;
    if (address === 0n) return "";
    const text = new CString(Number(address) as Pointer).toString();
    this.symbols.eliza_inference_free_string!(address);
    this.slot[0] = 0n;
    return text;
  }

  /** @throws ElizaError if `result` is negative. */
  check(result: number): number {
    if (result < 0) throw new ElizaError(result, this.take());
    return result;
  }
}

export interface StreamConfig {
  maxTokens?: number;
  temperature?: number;
  slotId?: number;
  promptCacheKey?: string;
  grammar?: string;
  draftMin?: number;
  draftMax?: number;
  drafter?: string;
  cacheTypeK?: string;
  cacheTypeV?: string;
}

/** Returns the 80 bytes of eliza_llm_stream_config_t, and the strings that they point to. */
export function packConfig(config: StreamConfig): { bytes: Buffer; texts: Buffer[] } {
  const bytes = Buffer.alloc(80);
  const texts: Buffer[] = [];
  const writeText = (offset: number, text: string | undefined) => {
    if (text === undefined) return;
    const memory = cString(text);
    texts.push(memory);
    bytes.writeBigUInt64LE(BigInt(ptr(memory)), offset);
  };
  bytes.writeInt32LE(config.maxTokens ?? 0, 0);
  bytes.writeFloatLE(config.temperature ?? 0, 4);
  bytes.writeInt32LE(config.slotId ?? -1, 20);
  writeText(24, config.promptCacheKey);
  bytes.writeInt32LE(config.draftMin ?? 0, 32);
  bytes.writeInt32LE(config.draftMax ?? 0, 36);
  writeText(40, config.drafter);
  writeText(48, config.grammar);
  bytes.writeInt32LE(-1, 60);
  writeText(64, config.cacheTypeK);
  writeText(72, config.cacheTypeV);
  return { bytes, texts };
}
