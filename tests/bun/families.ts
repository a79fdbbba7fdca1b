/**
 * The functions that elizaOS's loader binds, by family and in the loader's order.
 *
 * bun's dlopen takes a table of functions and fails if any of them is missing. The loader therefore tries
 * the full table first, and then smaller tables without whole families. One missing function thus disables
 * its family, and others with it, without any message.
 */
import type { FFIFunction } from "bun:ffi";

export type Signatures = Record<string, FFIFunction>;

function takes(args: string, returns: string = "i32"): FFIFunction {
  return { args: args === "" ? [] : args.split(" "), returns } as FFIFunction;
}

/** Handles of the library are numbers ("usize"); "ptr" is JavaScript memory. */
export const families = {
  core: {
    eliza_inference_abi_version: takes("", "cstring"),
    eliza_inference_create: takes("ptr ptr", "ptr"),
    eliza_inference_destroy: takes("ptr", "void"),
    eliza_inference_mmap_acquire: takes("ptr ptr ptr"),
    eliza_inference_mmap_evict: takes("ptr ptr ptr"),
    eliza_inference_tts_synthesize: takes("ptr ptr usize ptr ptr usize ptr"),
    eliza_inference_asr_transcribe: takes("ptr ptr usize i32 ptr usize ptr"),
    eliza_inference_tts_stream_supported: takes(""),
    eliza_inference_tts_synthesize_stream: takes("ptr ptr usize ptr usize usize ptr"),
    eliza_inference_cancel_tts: takes("ptr ptr"),
    eliza_inference_set_verifier_callback: takes("ptr usize usize ptr"),
    eliza_inference_asr_stream_supported: takes(""),
    eliza_inference_asr_stream_open: takes("ptr i32 ptr", "ptr"),
    eliza_inference_asr_stream_feed: takes("usize ptr usize ptr"),
    eliza_inference_asr_stream_partial: takes("usize ptr usize ptr ptr ptr"),
    eliza_inference_asr_stream_finish: takes("usize ptr usize ptr ptr ptr"),
    eliza_inference_asr_stream_close: takes("usize", "void"),
    eliza_inference_free_string: takes("usize", "void"),
  },
  reference: {
    eliza_inference_encode_reference: takes("ptr ptr usize i32 ptr ptr ptr ptr"),
    eliza_inference_free_tokens: takes("usize", "void"),
  },
  vad: {
    eliza_inference_vad_supported: takes(""),
    eliza_inference_vad_open: takes("ptr i32 ptr", "ptr"),
    eliza_inference_vad_process: takes("usize ptr usize ptr ptr"),
    eliza_inference_vad_reset: takes("usize ptr"),
    eliza_inference_vad_close: takes("usize", "void"),
  },
  wakeword: {
    eliza_inference_wakeword_supported: takes(""),
    eliza_inference_wakeword_open: takes("ptr i32 ptr ptr", "ptr"),
    eliza_inference_wakeword_score: takes("usize ptr usize ptr ptr"),
    eliza_inference_wakeword_reset: takes("usize ptr"),
    eliza_inference_wakeword_close: takes("usize", "void"),
  },
  speakers: {
    eliza_inference_speaker_supported: takes(""),
    eliza_inference_speaker_open: takes("ptr ptr ptr", "ptr"),
    eliza_inference_speaker_embed: takes("usize ptr usize ptr ptr"),
    eliza_inference_speaker_close: takes("usize", "void"),
    eliza_inference_diariz_supported: takes(""),
    eliza_inference_diariz_open: takes("ptr ptr ptr", "ptr"),
    eliza_inference_diariz_segment: takes("usize ptr usize ptr ptr ptr"),
    eliza_inference_diariz_close: takes("usize", "void"),
  },
  stream: {
    eliza_inference_llm_stream_open: takes("ptr ptr ptr", "ptr"),
    eliza_inference_llm_stream_prefill: takes("usize ptr usize ptr"),
    eliza_inference_llm_stream_next: takes("usize ptr usize ptr ptr usize ptr ptr ptr"),
    eliza_inference_llm_stream_cancel: takes("usize"),
    eliza_inference_llm_stream_save_slot: takes("usize ptr ptr"),
    eliza_inference_llm_stream_restore_slot: takes("usize ptr ptr"),
    eliza_inference_llm_stream_close: takes("usize", "void"),
  },
  capabilities: {
    eliza_inference_llm_mtp_supported: takes(""),
    eliza_inference_llm_kv_quant_supported: takes(""),
  },
  modalities: {
    eliza_inference_embed_supported: takes(""),
    eliza_inference_embed: takes("ptr ptr usize i32 ptr usize ptr ptr"),
    eliza_inference_vision_supported: takes(""),
    eliza_inference_describe_image: takes("ptr ptr usize ptr ptr ptr usize ptr"),
    eliza_inference_tokenize_supported: takes(""),
    eliza_inference_tokenize: takes("ptr ptr usize i32 i32 ptr ptr ptr"),
    eliza_inference_detokenize: takes("ptr ptr usize i32 i32 ptr usize ptr"),
    eliza_inference_free_tokens: takes("usize", "void"),
  },
  kokoro: {
    eliza_inference_kokoro_supported: takes(""),
    eliza_inference_kokoro_load: takes("ptr ptr ptr i32 ptr"),
    eliza_inference_kokoro_synthesize: takes("ptr ptr usize f32 ptr usize ptr"),
    eliza_inference_kokoro_sample_rate: takes("ptr"),
  },
  endOfTurn: {
    eliza_inference_llm_eot_supported: takes(""),
    eliza_inference_llm_eot_score: takes("ptr ptr usize i32 ptr ptr ptr ptr"),
  },
  timestamps: {
    eliza_inference_asr_timestamps_supported: takes(""),
    eliza_inference_asr_transcribe_timed: takes("ptr ptr usize i32 ptr usize ptr ptr ptr ptr"),
  },
  // Families of later versions. Loaders reject a library of version 12 that exports them.
  visionStream13: {
    eliza_inference_vision_stream_supported: takes(""),
    eliza_inference_describe_image_stream_open: takes("ptr ptr usize ptr ptr ptr", "ptr"),
  },
  phonemes14: {
    eliza_inference_kokoro_g2p_kind: takes("ptr"),
    eliza_inference_kokoro_synthesize_ipa: takes("ptr ptr usize f32 ptr usize ptr"),
  },
} satisfies Record<string, Signatures>;

export type Family = keyof typeof families;

/** Our additional functions. Each may be missing independently. */
export const extras = {
  eliza_inference_llm_stream_supported: takes(""),
  eliza_inference_llm_stream_generate: takes("usize i32 usize usize ptr"),
  eliza_inference_llm_stream_reset: takes("usize"),
  eliza_inference_llm_stream_reset_keep: takes("usize i32"),
  eliza_inference_last_error: takes("usize", "cstring"),
  eliza_inference_set_option: takes("ptr ptr ptr ptr"),
  eliza_inference_set_token_trie: takes("usize ptr usize i32"),
  eliza_inference_clear_token_trie: takes("usize", "void"),
  eliza_inference_token_trie_leaf: takes("usize ptr usize ptr"),
} satisfies Signatures;

/** The families of version 12. */
export const version12: Family[] = [
  "core", "reference", "vad", "wakeword", "speakers", "stream", "capabilities", "modalities", "kokoro",
  "endOfTurn", "timestamps",
];

const without = (...left: Family[]) => version12.filter((family) => !left.includes(family));

/** The tables that the loader tries, in this order, until the library has all functions of one. */
export const rungs: Family[][] = [
  [...version12, "visionStream13", "phonemes14"],
  [...version12, "phonemes14"],
  [...version12, "visionStream13"],
  version12,
  without("timestamps"),
  without("timestamps", "endOfTurn"),
  without("timestamps", "endOfTurn", "kokoro"),
  without("timestamps", "endOfTurn", "kokoro", "modalities"),
  without("timestamps", "endOfTurn", "kokoro", "modalities", "reference"),
  ["core", "reference", "vad", "wakeword", "stream"],
  ["core", "vad", "wakeword", "stream"],
  ["core", "reference", "vad", "stream"],
  ["core", "vad", "stream"],
  ["core", "reference", "vad"],
  ["core", "vad"],
  ["core", "reference"],
  ["core"],
];
