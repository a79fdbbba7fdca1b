/*
 * libelizainference: stream text from a local language model, and make it choose.
 *
 * This file is the one source of truth of the C ABI. C and C++ programs include it; the Python
 * package reads it with cffi, so it stays plain C: no macros in declarations but ELIZA_API.
 *
 * Conventions
 *   - Functions return ELIZA_OK (0) or a negative eliza_status, unless their comment says otherwise.
 *   - `err`, where present, may be NULL. On failure it receives a heap string that says what was
 *     wrong, to be freed with eliza_inference_free_string(); on success it is left alone.
 *   - Handles are opaque numbers dressed as pointers. They are never reused, so a closed handle is
 *     recognised and refused; it is never dereferenced by the caller.
 *   - Two streams may be used from two threads at once. Two calls at once on one stream: the second
 *     gets an error. eliza_inference_llm_stream_cancel() is safe from any thread at any time.
 *   - No exception leaves the library and no argument makes it abort.
 */
#ifndef ELIZA_INFERENCE_H
#define ELIZA_INFERENCE_H

#include <stddef.h>
#include <stdint.h>

#ifndef ELIZA_API
#if defined(_WIN32)
#define ELIZA_API __declspec(dllexport)
#else
#define ELIZA_API __attribute__((visibility("default")))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status, handles, memory ------------------------------------------------------------------ */

typedef enum {
    ELIZA_OK = 0,
    ELIZA_ERR_NOT_IMPLEMENTED = -1,
    ELIZA_ERR_INVALID_ARG = -2,
    ELIZA_ERR_BUNDLE_INVALID = -3, /* no usable model where create() looked */
    ELIZA_ERR_FFI_FAULT = -4,      /* decoding, memory mapping or input/output failed */
    ELIZA_ERR_OOM = -5,
    ELIZA_ERR_ABI_MISMATCH = -6,
    ELIZA_ERR_CANCELLED = -7,
    ELIZA_ERR_BUSY = -8,         /* no slot became free in time (option slot_wait_ms) */
    ELIZA_ERR_CONTEXT_FULL = -9, /* the tokens do not fit the KV cache (option n_ctx) */
    ELIZA_ERR_TEXT_CAP = -10     /* the next token's text does not fit the caller's buffer */
} eliza_status;

typedef struct EliInferenceContext EliInferenceContext; /* one model and its KV caches */
typedef struct EliLlmStream EliLlmStream;               /* one generation in one KV slot */
typedef struct EliChoices EliChoices;                   /* what can be chosen from, as a model's tokens */

/* "12": the version of elizaOS's ABI whose text surface this library serves. Static storage. */
ELIZA_API const char * eliza_inference_abi_version(void);

/* `bundle_dir` is an elizaOS bundle, whose model is text/<name>.gguf, or a .gguf file itself. The
 * file is found and its header checked here; the weights load when they are first needed. NULL on
 * failure. */
ELIZA_API EliInferenceContext * eliza_inference_create(const char * bundle_dir, char ** err);

/* Closes the streams still open on the context (a running call is cancelled and waited for). */
ELIZA_API void eliza_inference_destroy(EliInferenceContext * ctx);

ELIZA_API void eliza_inference_free_string(char * string);
ELIZA_API void eliza_inference_free_tokens(int * tokens);

/* Region "text": acquire loads the model now; evict unloads it if no stream is open and keeps it
 * otherwise. Voice regions (tts asr mtp dflash vad wakeword) answer ELIZA_ERR_NOT_IMPLEMENTED. */
ELIZA_API int eliza_inference_mmap_acquire(EliInferenceContext * ctx, const char * region, char ** err);
ELIZA_API int eliza_inference_mmap_evict(EliInferenceContext * ctx, const char * region, char ** err);

/* ---- Options and observation ------------------------------------------------------------------ */

/* Sets one option by name; an unknown name or a bad value is an error that lists what is allowed.
 *
 * Before the model is loaded:
 *   n_gpu_layers  layers to offload when no stream has asked yet; -1 = all (default)
 *   use_mmap      "1" (default) or "0"
 *   mtp_head      "on" (default) or "off": leave the head for multi-token prediction in the file
 *   lora          adapters that are added to the model, a JSON array of {"path": "...", "scale": 1.0};
 *                 "" (default) = none
 *   device        "auto" (default: all GPUs), "none" (the CPU alone) or names of devices, as
 *                 eliza_inference_describe lists them, joined by commas
 *   rpc           servers of llama.cpp's RPC backend, "host:port,...", that layers are put on before
 *                 the devices here; only in a library built with it. Nothing authenticates the
 *                 servers or encrypts what they are sent: private networks only
 * Before the first stream is opened:
 *   n_ctx         tokens of KV cache, shared by all slots; 0 (default) = min(trained length, 8192)
 *   n_slots       KV slots, that is streams open at once, 1 to 64 (default 8)
 *   n_batch       tokens decoded in one piece of a prompt, 1 to n_ctx (default 512)
 *   park_after    passes of others after which what a closed stream left in the KV cache, which every
 *                 pass reads, moves to the host's memory and waits there for a prompt that begins like it,
 *                 as many tokens as n_ctx at most; on the CPU; 0 = never (default 8)
 *   n_threads     compute threads, at most one for each CPU this process may use; 0 (default) = as many
 *                 as each pass has work for, up to the physical cores, and one while other programs
 *                 have those
 *   batching      "auto" (default): streams that decode at the same time share forward passes; or
 *                 "off": each of their requests has passes of its own. A stream's neighbours in a pass
 *                 change how its logits are rounded, and nothing else
 *   flash_attn    "auto" (default: on a GPU, and for a quantized V cache), "on" or "off"
 *   backend_sampling  where all logits are computed on a device, a decision copies those of its legal
 *                 tokens only (up to 1,024): "on" or "off"; "auto" (default) is off until a device has
 *                 shown to gain by it
 * Any time, for streams opened afterwards:
 *   slot_wait_ms  how long what needs a slot waits for one to become free before it fails with
 *                 ELIZA_ERR_BUSY, first come, first served; 0 = not at all (default 30000)
 *   grammar_order "last" (default: sample, check, and mask only if it was illegal) or "first"
 *   grammar_triggers  a JSON array of {"type": "word" | "pattern" | "token", "value": ...}: a grammar
 *                 waits for one of them before it constrains; "" (default) = it constrains at once
 *   grammar_budget  steps through a grammar that finding a token's legal successors may take before it
 *                 fails with ELIZA_ERR_INVALID_ARG (default 10000000, about a second)
 *   grammar_engine  "states" (default), or "llama.cpp": its own sampler, the reference, which knows no
 *                 such limit and no triggers
 *   model_id      what a payload's modelId must equal; "" (default) accepts any
 *   span_limit    tokens after which a trie of eliza_inference_set_token_trie() that was never
 *                 cleared lets go (default 500); no other choices have such a limit
 *   restricted_head "auto" (default: where the model's output is one plain matrix on the CPU, a
 *                 decision computes the logits of its legal tokens only) or "off"
 *   strategy      how the tokens of a span are decoded; the tokens are the same
 *                 "auto" (default)   tree or skip-ahead, by the measured costs of a pass
 *                 "tree"             all decisions that may follow in one pass, where that fits
 *                 "skip-ahead"       a token is decoded when a later decision needs logits
 *                 "token-by-token"   every token is decoded at once, alone: the reference
 * Sampling, any time, for streams opened afterwards; where a stream's configuration switches
 * temperature, top_p, top_k or repeat_penalty on, that holds:
 *   preset        "greedy", "balanced", "creative", "very-creative" or "code": sets temperature, top_k,
 *                 top_p and min_p
 *   samplers      the order of those that truncate and penalize, of penalties, dry, top_n_sigma, top_k,
 *                 typ_p, top_p, min_p, xtc, temperature (this is the default order), infill, adaptive_p
 *   seed          32-bit seed; "random" (default) draws one per stream
 *   draw          "cdf" (default) or "gumbel": see eliza_gumbel_sampler.h
 *   temperature (0 = greedy, default), dynatemp_range, dynatemp_exponent; top_k (0 = off), top_p (1 = off),
 *   min_p (0 = off), typical_p (1 = off), top_n_sigma (0 = off); xtc_probability (0 = off), xtc_threshold
 *   repeat_last_n (64), repeat_penalty (1 = off), frequency_penalty, presence_penalty (0 = off)
 *   dry_multiplier (0 = off), dry_base (1.75), dry_allowed_length (2), dry_penalty_last_n (1024),
 *   dry_sequence_breakers (a JSON array of strings)
 *   mirostat (0 = off, 1, 2: instead of all truncation), mirostat_tau (5), mirostat_eta (0.1)
 *   adaptive_target (below 0 = off), adaptive_decay (0.9): for adaptive_p in samplers
 *   logit_bias    a JSON array of [token, bias], a bias being a number or "-inf"
 *   disable_thinking  "0" (default) or "1": never sample <think>
 *   reasoning_budget  tokens that may come between reasoning_start ("<think>") and reasoning_end
 *                 ("</think>"); then reasoning_message ("") and reasoning_end are written. -1 (default) =
 *                 no limit. A lazy grammar does not look into that block; choices, while they are
 *                 active, come first
 */
ELIZA_API int eliza_inference_set_option(EliInferenceContext * ctx, const char * key, const char * value, char ** err);

/* Facts about the library and, with a context, about its model, as a JSON object: llama.cpp commit,
 * CPU features, devices; model description, vocabulary, trained context. Loads the model if it
 * is not loaded yet. `ctx` may be NULL. *out is freed with eliza_inference_free_string(). */
ELIZA_API int eliza_inference_describe(EliInferenceContext * ctx, char ** out, char ** err);

/* Progress of long work: stage is "load" or "prefill", fraction runs from 0 to 1. Prompts are cut into
 * shorter passes then, so that it is told about twice a second (but with batching=off). Called on the
 * thread that asked for the work; it must not call the library. A stream keeps the callback it was
 * opened with, so `user` must live as long as the context. NULL switches it off for new streams. */
typedef void (*eliza_progress_callback)(const char * stage, float fraction, void * user);
ELIZA_API int eliza_inference_set_progress_callback(EliInferenceContext * ctx, eliza_progress_callback callback,
                                                    void * user, char ** err);

/* The library writes nothing to stdout or stderr. Its log lines, llama.cpp's among them, go to this
 * process-wide callback: level is 1 debug, 2 info, 3 warning, 4 error. NULL (default) drops them. */
typedef void (*eliza_log_callback)(int level, const char * text, void * user);
ELIZA_API void eliza_inference_set_log_callback(eliza_log_callback callback, void * user);

/* ---- Tokens ----------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_tokenize_supported(void); /* 1 */

/* `text` is `len` bytes and may hold NULs. add_special: add BOS/EOS as the model asks for.
 * parse_special: read the text of special tokens as those tokens. *out is freed with
 * eliza_inference_free_tokens(); it is never NULL on success. */
ELIZA_API int eliza_inference_tokenize(EliInferenceContext * ctx, const char * text, size_t len, int add_special,
                                       int parse_special, int ** out, size_t * out_n, char ** err);

/* Returns the number of bytes the text needs, excluding the NUL that ends it, or a negative status.
 * If that is less than `cap`, the text and its NUL were written; otherwise nothing was: call again
 * with more room. `out` may be NULL when `cap` is 0. */
ELIZA_API int eliza_inference_detokenize(EliInferenceContext * ctx, const int * tokens, size_t n, int remove_special,
                                         int unparse_special, char * out, size_t cap, char ** err);

/* ---- Embeddings and scores -------------------------------------------------------------------- */

enum {
    ELIZA_TOKEN_CONTROL = 1, /* no part of a text: its bytes are its name */
    ELIZA_TOKEN_END = 2      /* ends a generation */
};

/* The whole vocabulary in one call, for programs that compute masks. Writes the bytes of all tokens one
 * after the other, and for each token where its bytes end and its kind, a sum of ELIZA_TOKEN_*. Returns
 * the number of tokens and sets *n_bytes_out to the number of bytes. With n_tokens_cap 0 that is all it
 * does; otherwise a cap that is too small is an error and nothing is written. */
ELIZA_API int eliza_inference_vocabulary(EliInferenceContext * ctx, int64_t * ends_out, uint8_t * kinds_out,
                                         size_t n_tokens_cap, uint8_t * bytes_out, size_t n_bytes_cap,
                                         int64_t * n_bytes_out, char ** err);

ELIZA_API int eliza_inference_embed_supported(void); /* 1 */

/* The embedding of a text of `len` bytes, of unit length: `pooling` is 1 (mean over its tokens), 2 (the
 * first) or 3 (the last). Writes *out_dim floats. If that is more than `cap`, *out_dim is set, nothing
 * is written and ELIZA_ERR_INVALID_ARG returned; `out` may be NULL when `cap` is 0. */
ELIZA_API int eliza_inference_embed(EliInferenceContext * ctx, const char * text, size_t len, int pooling, float * out,
                                    size_t cap, int * out_dim, char ** err);

ELIZA_API int eliza_inference_llm_eot_supported(void); /* 1 */

/* How probable it is that `target` (an end-of-turn token, say) comes after the tokens, and which token is
 * the most probable one. Takes a free slot while it runs; what a slot holds of the tokens is not decoded
 * again. Outputs that are NULL are left out. */
ELIZA_API int eliza_inference_llm_eot_score(EliInferenceContext * ctx, const int32_t * tokens, size_t n, int32_t target,
                                            float * out_prob, int32_t * out_top, float * out_top_prob, char ** err);

/* ---- Streams ---------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_llm_stream_supported(void);   /* 1 */
ELIZA_API int eliza_inference_llm_mtp_supported(void);      /* 1: draft_min and draft_max ask for speculation */
ELIZA_API int eliza_inference_llm_kv_quant_supported(void); /* 1 */

typedef struct {
    int32_t max_tokens;            /*  0: tokens to generate after each prefill; 0 = unbounded */
    float temperature;             /*  4: <= 0 = greedy */
    float top_p;                   /*  8: <= 0 or >= 1 = off */
    int32_t top_k;                 /* 12: <= 0 = off */
    float repeat_penalty;          /* 16: 0 or 1 = off; over the last 64 tokens */
    int32_t slot_id;               /* 20: 0 .. n_slots-1, or -1 = any free slot */
    const char * prompt_cache_key; /* 24: NULL ok; names a slot when slot_id is -1 */
    int32_t draft_min;             /* 32: with draft_max > 0, shorter drafts are not checked */
    int32_t draft_max;             /* 36: tokens of a draft; 0 in either = no speculation */
    const char * mtp_drafter_path; /* 40: a model of the same vocabulary or a head; NULL: see below */
    const char * gbnf_grammar;     /* 48: NULL or empty = none; start rule "root" */
    int32_t disable_thinking;      /* 56: 1 = never sample <think> */
    int32_t n_gpu_layers;          /* 60: -1 = all, 0 = CPU; the first stream of a context decides */
    const char * cache_type_k;     /* 64: "f32" "f16" "bf16" "q8_0" ...; NULL = f16 */
    const char * cache_type_v;     /* 72: as above */
} eliza_llm_stream_config_t;       /* 80 bytes; never read past that */

/* Takes a free KV slot; where none is, waits for one, at most as long as option slot_wait_ms says. `cfg`
 * may be NULL for the defaults: greedy, any slot, no limit. NULL on failure.
 *
 * Drafts are guessed by the model or the MTP head in mtp_drafter_path; where that is NULL, by the model's
 * own head, or if it has none, by what followed the same few tokens before. */
ELIZA_API EliLlmStream * eliza_inference_llm_stream_open(EliInferenceContext * ctx,
                                                         const eliza_llm_stream_config_t * cfg, char ** err);

/* Appends the prompt (or the next part of a conversation) and decodes it. What the slot already
 * holds of it is not decoded again. n = 0 is allowed and does nothing. */
ELIZA_API int eliza_inference_llm_stream_prefill(EliLlmStream * stream, const int32_t * tokens, size_t n, char ** err);

/* Pulls the next step: returns 0 when more may come, 1 when the generation has ended, negative on
 * failure. Writes the step's tokens, one of them or, under speculation, those of a checked draft as far
 * as there is room, and their text, ended by a NUL. The text is whole UTF-8
 * characters, so a token in the middle of one has empty text and the token that completes it has
 * all of it; invalid bytes and NUL come out as U+FFFD. If a token's text does not fit, the call
 * returns ELIZA_ERR_TEXT_CAP, and the token waits for the next call. If the KV cache is full, the
 * call returns ELIZA_ERR_CONTEXT_FULL, after all tokens before it were given out.
 * The end-of-generation token itself is not given out. drafted_out and accepted_out, which may be NULL,
 * count the tokens of the drafts that came to their end in this call, and those of them generated. */
ELIZA_API int eliza_inference_llm_stream_next(EliLlmStream * stream, int32_t * tokens_out, size_t tokens_cap,
                                              size_t * num_tokens_out, char * text_out, size_t text_cap,
                                              int32_t * drafted_out, int32_t * accepted_out, char ** err);

/* Return non-zero to stop. The text is valid during the call. A last call with token_id -1 hands
 * over what text was held back when the generation ended inside a character. */
typedef int (*eliza_token_callback)(int32_t token_id, const char * token_text, void * user);

/* Pushes up to max_tokens tokens (0 = no limit of its own; the config's still holds) to the
 * callback. Returns 0 when done, ELIZA_ERR_CANCELLED when the callback or a cancel stopped it; it
 * may be called again to go on. */
ELIZA_API int eliza_inference_llm_stream_generate(EliLlmStream * stream, int32_t max_tokens,
                                                  eliza_token_callback on_token, void * user, char ** err);

/* Samples otherwise from now on. `json` is `len` bytes, an object of the sampling options of
 * eliza_inference_set_option by name, with numbers, strings and arrays as values; what it does not
 * name stays. On failure nothing changes. */
ELIZA_API int eliza_inference_llm_stream_set_sampling(EliLlmStream * stream, const char * json, size_t len,
                                                      char ** err);

typedef struct {
    int32_t token; /* -1: none */
    float logprob; /* natural logarithm of its probability, from the logits as the model gave them */
} eliza_token_logprob_t;

/* Has the tokens that come from now on told with their log-probabilities, and the n_top likeliest tokens in
 * their place, 0 to 1024; -1 (default) = off. */
ELIZA_API int eliza_inference_llm_stream_set_logprobs(EliLlmStream * stream, int n_top, char ** err);

/* Those of the tokens that were given out since the last call: for one after the other itself, then the n_top
 * likeliest, the likeliest first. A token of a span of choices has NaN, and no tokens beside it (see
 * eliza_inference_token_trie_scores for those). Returns how many tokens that is. If they are more than
 * `cap` entries nothing is taken; TOKENS * (n_top + 1) is enough. */
ELIZA_API int eliza_inference_llm_stream_take_logprobs(EliLlmStream * stream, eliza_token_logprob_t * out, size_t cap,
                                                       char ** err);

/* The samplers the stream runs, in the order they act, with ';' between them: "penalties;top_k;dist",
 * say. *out is freed with eliza_inference_free_string(). */
ELIZA_API int eliza_inference_llm_stream_describe_chain(EliLlmStream * stream, char ** out, char ** err);

/* What became of a draft, told once all its tokens were generated or one was not. Indices count the
 * tokens since the prompt. The arrays are valid during the call. */
typedef struct {
    const int * accepted_token_ids;
    size_t n_accepted;
    int rejected_from, rejected_to;  /* the first and the last drafted token that was dropped; -1 -1 = none */
    const int * corrected_token_ids; /* what was generated instead: one token, or none */
    size_t n_corrected;
} EliVerifierEvent;
typedef void (*eliza_verifier_callback)(const EliVerifierEvent * event, void * user);

/* For all streams of the context, those that are open too. Called on the thread that generates; it must
 * not call the library. NULL switches it off; a call that is running on another thread may still
 * end after that. */
ELIZA_API int eliza_inference_set_verifier_callback(EliInferenceContext * ctx, eliza_verifier_callback callback,
                                                    void * user, char ** err);

/* Stops the call that is running on the stream, or if none is, the next one: that call returns
 * ELIZA_ERR_CANCELLED and the stream can be used again. */
ELIZA_API int eliza_inference_llm_stream_cancel(EliLlmStream * stream);

/* Forgets all tokens, the trie and the sampler's state; the configuration stays. */
ELIZA_API int eliza_inference_llm_stream_reset(EliLlmStream * stream);

/* Like reset, but keeps the first n_keep tokens. Returns how many were kept. */
ELIZA_API int eliza_inference_llm_stream_reset_keep(EliLlmStream * stream, int32_t n_keep);

/* Writes the stream's tokens and their KV cache to a file, whole or not at all. What was generated and
 * not yet decoded is decoded first. */
ELIZA_API int eliza_inference_llm_stream_save_slot(EliLlmStream * stream, const char * file, char ** err);

/* The conversation of a file instead of the stream's own, with no prefill: generation goes on behind it,
 * samplers and grammar beginning anew. A file that is none of ours, cut short, damaged, or of another
 * model, KV cache type or llama.cpp is refused, and the stream is as it was. */
ELIZA_API int eliza_inference_llm_stream_restore_slot(EliLlmStream * stream, const char * file, char ** err);

/* Frees the slot; what it holds stays in the KV cache for a later stream with the same prompt. A
 * call running on another thread is cancelled and waited for; from inside a callback, do not close a
 * stream whose own callback may be waiting for this one. NULL and closed handles are ignored. */
ELIZA_API void eliza_inference_llm_stream_close(EliLlmStream * stream);

/* The text of the last failed call on this stream, "" if none. Valid on this thread until its next
 * call of this function. */
ELIZA_API const char * eliza_inference_last_error(EliLlmStream * stream);

/* The status of the last call that failed on this thread, ELIZA_OK if none did. For functions that
 * return a handle: NULL does not say why. */
ELIZA_API int eliza_inference_last_status(void);

typedef enum {
    ELIZA_FINISH_NONE = 0,        /* the generation goes on */
    ELIZA_FINISH_END = 1,         /* the model sent an end-of-generation token */
    ELIZA_FINISH_LENGTH = 2,      /* max_tokens of the configuration */
    ELIZA_FINISH_LEAF = 3,        /* the span ended under ELIZA_TRIE_STOP_AT_LEAF */
    ELIZA_FINISH_CONTEXT_FULL = 4 /* the KV cache has no room for another token */
} eliza_finish_reason;

/* How the tokens of a span were decoded; see option strategy. A bit set in the stats. */
typedef enum {
    ELIZA_STRATEGY_TOKEN_BY_TOKEN = 1,
    ELIZA_STRATEGY_SKIP_AHEAD = 2,
    ELIZA_STRATEGY_TREE = 4
} eliza_strategy;

typedef struct {
    int64_t prompt_tokens;        /* tokens given to prefill */
    int64_t prompt_tokens_reused; /* of those, found in the KV cache */
    int64_t generated_tokens;     /* tokens given out */
    int64_t forward_passes;       /* llama_decode calls, the prompt's included */
    int64_t prompt_passes;        /* of those, run by prefill */
    int64_t forward_passes_saved; /* tokens that ran no forward pass of their own */
    int64_t decisions;            /* selections among two or more legal tokens, inside spans and under masks */
    int64_t candidates_seen;      /* legal tokens over all those decisions */
    int64_t tokens_forced;        /* tokens inside spans and under masks that had no alternative */
    int64_t tokens_sampled;       /* tokens chosen outside spans and without a mask */
    int64_t spans;                /* tries set */
    int64_t trie_departures;      /* spans that ended because a token was outside the trie */
    int64_t span_limit_hits;      /* spans that ended at span_limit */
    int64_t tree_passes;          /* forward passes that decoded several decisions at once */
    int64_t decode_us;            /* microseconds inside llama_decode */
    int64_t select_us;            /* microseconds choosing tokens */
    int32_t n_past;               /* tokens of the conversation so far */
    int32_t n_vocab;
    int32_t finish_reason;   /* eliza_finish_reason */
    int32_t trie_active;     /* 1 while a span constrains the next token */
    int64_t select_ns;       /* select_us in nanoseconds */
    int32_t strategies;      /* those that decisions inside spans were made by: bits of eliza_strategy */
    int64_t tokens_drafted;  /* by speculation, of drafts that came to their end */
    int64_t tokens_accepted; /* of those, generated */
    int64_t bytes_copied;  /* of logits and hidden states, from where passes compute them to where tokens are chosen */
    int64_t passes_shared; /* of forward_passes, with tokens of other streams in them */
    int64_t sequences;     /* over all forward_passes, the streams whose tokens were in them */
    int64_t wait_us;       /* microseconds waiting for passes, those it was in left out */
} eliza_llm_stream_stats_t;

/* Counts since the stream was opened. Writes at most sizeof_stats bytes, so that older callers may
 * pass an older, shorter struct. */
ELIZA_API int eliza_inference_llm_stream_stats(EliLlmStream * stream, eliza_llm_stream_stats_t * stats,
                                               size_t sizeof_stats);

/* ---- Choices: the token trie ------------------------------------------------------------------ */

typedef enum {
    ELIZA_TRIE_ARGMAX = 0,          /* the most likely legal token */
    ELIZA_TRIE_SAMPLE = 1,          /* sampled from the legal tokens through the stream's samplers */
    ELIZA_TRIE_BEST_LEAF = 2,       /* the leaf with the highest probability as a whole */
    ELIZA_TRIE_STOP_AT_LEAF = 0x100 /* or-ed in: the generation ends with the span */
} eliza_trie_mode;

/* A bit set: bit m is set when mode m is supported, and ELIZA_TRIE_STOP_AT_LEAF when that is. */
ELIZA_API int eliza_inference_token_trie_supported(void);

/* Starts a span: from the next token on, only the leaves of the payload are possible, until one is
 * complete. `payload` is `len` bytes of JSON:
 *   {"modelId": "...", "descriptors": [{"path": "action",
 *     "leaves": [{"name": "REPLY", "tokens": [1, 2]}, ...]}, ...]}
 * or the binary tree of the same purpose, told apart by its first bytes, RTKT (little-endian: u32 magic
 * 0x544B5452, u32 version 1, u32 length of the path and its bytes, u32 number of nodes, then per node,
 * depth first: i32 token (root -1), u8 terminal, u32 number of children, u32 place of each child). Its
 * leaves are named by their place, "0", "1", ...
 * Several descriptors mean the union of their leaves. A payload that is refused (see
 * eliza_inference_last_error) leaves the stream exactly as it was. */
ELIZA_API int eliza_inference_set_token_trie(EliLlmStream * stream, const char * payload, size_t len, int mode);

/* Cuts choices into the model's tokens, once for all spans of them that are to come: `json_array_of_strings`
 * holds distinct texts, which become the tokens that the tokenizer gives them in the middle of a text, on
 * as many threads as there are CPUs. Returns NULL and says why in *err if there are none, one is empty or
 * there twice, or the tokenizer has no tokens that spell one of them exactly. They serve all streams of
 * the model's file, on any context and from any thread, and are freed with eliza_inference_free_choices(),
 * whenever: spans that have begun go on. *longest_out, if not NULL, is how many tokens the longest of them has. */
ELIZA_API EliChoices * eliza_inference_prepare_choices(EliInferenceContext * ctx, const char * json_array_of_strings,
                                                       size_t len, size_t * longest_out, char ** err);
ELIZA_API void eliza_inference_free_choices(EliChoices * choices);

/* The same with the leaves of a payload, as eliza_inference_set_token_trie takes it. *longest_out, if not
 * NULL, is how many tokens the longest of them has. */
ELIZA_API EliChoices * eliza_inference_prepare_token_trie(EliInferenceContext * ctx, const char * payload, size_t len,
                                                          size_t * longest_out, char ** err);

/* Starts a span of them, as eliza_inference_set_token_trie does. The leaves are in the order of the texts
 * and named by their place, "0", "1", ... Choices of another model are refused. */
ELIZA_API int eliza_inference_set_choices(EliLlmStream * stream, EliChoices * choices, int mode);

enum {
    ELIZA_TEXT_HEAL_PROMPT = 0x200 /* the prompt's last token is taken off, and its text comes first */
};

/* Starts a span of choices that may be cut into tokens in every way there is: from the next token on,
 * the bytes that come spell one of the strings, as under a grammar of just them. `mode` is
 * ELIZA_TRIE_ARGMAX or ELIZA_TRIE_SAMPLE, with or without ELIZA_TRIE_STOP_AT_LEAF and
 * ELIZA_TEXT_HEAL_PROMPT. A choice that others continue ends where the model prefers it to: with
 * ELIZA_TRIE_STOP_AT_LEAF by an end-of-generation token, otherwise by any token that does not go on
 * with one of them. With ELIZA_TEXT_HEAL_PROMPT the prompt's last token may become a longer one that
 * reaches into the choice; its text is not given out again. Ends with
 * eliza_inference_clear_token_trie; the leaf's name is the string. A payload that is refused leaves
 * the stream exactly as it was. */
ELIZA_API int eliza_inference_set_text_choices(EliLlmStream * stream, const char * json_array_of_strings, size_t len,
                                               int mode);

/* Ends the span, if one is active. The grammar, if any, applies again. */
ELIZA_API void eliza_inference_clear_token_trie(EliLlmStream * stream);

/* The leaf the last span ended on: its name, ended by a NUL, and the natural logarithm of its
 * probability among the leaves (at each step the softmax over the legal tokens, from the logits as
 * the model gave them). Both outputs may be NULL. Fails while no span has ended on a leaf. If the
 * name does not fit, nothing is written and the error says how many bytes it needs. */
ELIZA_API int eliza_inference_token_trie_leaf(EliLlmStream * stream, char * name_out, size_t cap, double * logprob_out);

/* The natural logarithm of every leaf's probability, as in eliza_inference_token_trie_leaf, in payload
 * order; leaves with the same tokens each get their common one. To be asked after
 * eliza_inference_set_token_trie and before the span's first token; afterwards the answer stays until
 * the next trie. The passes this takes are not run again when the span is generated. Returns the
 * number of leaves. With cap 0 only that; a cap that is too small is an error and writes nothing. */
ELIZA_API int eliza_inference_token_trie_scores(EliLlmStream * stream, double * logprobs_out, size_t cap);

/* ---- Choosing in one call ---------------------------------------------------------------------- */

typedef struct {
    uint32_t size;          /* sizeof(eliza_choose_options_t); all other fields may be 0 */
    int32_t mode;           /* eliza_trie_mode, without ELIZA_TRIE_STOP_AT_LEAF */
    float temperature;      /* of ELIZA_TRIE_SAMPLE; 0 = 1.0 */
    int32_t plain_prompt;   /* 1 = the names of control tokens in the prompt are plain text */
    const char * cache_key; /* the name of a slot, as prompt_cache_key of a stream; NULL = any slot */
} eliza_choose_options_t;

typedef struct {
    int32_t label;                /* the place of the chosen label, from 0 */
    int32_t forward_passes;       /* beyond those of the prompt */
    int32_t prompt_tokens;        /* of the prompt */
    int32_t prompt_tokens_cached; /* of them, those that a slot's KV cache held already */
    double logprob;               /* the natural logarithm of the label's probability among the labels */
} eliza_choice_t;

/* Chooses one of `n_labels` labels as the continuation of `prompt`. Both are UTF-8 text that ends with a
 * NUL. The prompt gets the tokens that the model begins a text with. Labels are distinct and not empty.
 * `options` may be NULL. If `probabilities_out` is not NULL, it receives the probability of each label, in
 * the order of the labels. On failure nothing is written. Any number of threads may call this at the same
 * time with one context: their forward passes are shared. */
ELIZA_API int32_t eliza_inference_choose(EliInferenceContext * ctx, const char * prompt, const char * const * labels,
                                         uint64_t n_labels, const eliza_choose_options_t * options,
                                         eliza_choice_t * result, double * probabilities_out, char ** err);

/* Prepares labels once, for any number of calls of eliza_inference_choose_prepared(). They are freed with
 * eliza_inference_free_choices(). NULL on failure. */
ELIZA_API EliChoices * eliza_inference_prepare_labels(EliInferenceContext * ctx, const char * const * labels,
                                                      uint64_t n_labels, char ** err);

/* The same as eliza_inference_choose() with prepared labels. */
ELIZA_API int32_t eliza_inference_choose_prepared(EliInferenceContext * ctx, const char * prompt, EliChoices * labels,
                                                  const eliza_choose_options_t * options, eliza_choice_t * result,
                                                  double * probabilities_out, char ** err);

/* ---- Masks: which tokens may come next --------------------------------------------------------- */

ELIZA_API int eliza_inference_llm_token_mask_supported(void); /* 1 */

/* Allows these tokens alone as the next one: bit t % 32 of bits[t / 32] stands for token t, n_words is
 * (n_vocab + 31) / 32, and at least one token of the vocabulary must be allowed. The stream's samplers act on
 * the allowed tokens; the only one allowed takes no forward pass. An end-of-generation token that is allowed
 * and chosen ends the generation as ever. The next token forgets the mask, as do a prompt, a span of choices,
 * an answer's span and a reset; NULL with 0 words takes it back. Refused, and the stream as it was, for
 * streams with a grammar and while a span of choices is active. */
ELIZA_API int eliza_inference_llm_stream_set_token_mask(EliLlmStream * stream, const uint32_t * bits, size_t n_words,
                                                        char ** err);

/* Makes these n tokens the next ones, without choosing among others. They need no forward pass each, and one
 * call of eliza_inference_llm_stream_next() returns as many of them as its buffers hold. An end-of-generation
 * token among them ends the generation. Replaces a token mask; the same calls remove the tokens, and the same
 * streams reject them. An empty list removes the tokens that have not been returned yet. */
ELIZA_API int eliza_inference_llm_stream_set_forced_tokens(EliLlmStream * stream, const int32_t * tokens, size_t n,
                                                           char ** err);

/* Runs the forward pass that the next token needs, if it needs one, so that its mask can be computed on
 * another thread meanwhile; it need not be known yet. */
ELIZA_API int eliza_inference_llm_stream_decode(EliLlmStream * stream, char ** err);

/* ---- Choices: many questions behind one prompt ------------------------------------------------- */

typedef struct {
    const int32_t * tokens; /* behind the prompt; NULL where n_tokens is 0 */
    size_t n_tokens;
    EliChoices * choices; /* what may come behind them */
} eliza_ending_t;

ELIZA_API int eliza_inference_llm_score_endings_supported(void); /* 1 */

/* How likely the choices behind each of up to 65536 endings of the conversation are. The endings go through
 * the model together, in one pass or in as many as they need, and leave nothing behind: the stream goes on
 * where it was. An output that is NULL is not computed. For all leaves of all endings, one after the other:
 * legal_out: as in eliza_inference_token_trie_scores;
 * joint_out: the sum of the natural logarithms of a leaf's tokens' probabilities, each from the softmax over
 *   the whole vocabulary. Needs whole rows of logits.
 * For each ending:
 * option_mass_out: of the next token's probability, the share of the tokens that leaves begin with. Needs one
 *   whole row of logits.
 * Returns the number of leaves of all endings. With cap 0 only that; a cap that is too small for it is an
 * error. On failure nothing was written. */
ELIZA_API int eliza_inference_llm_stream_score_endings(EliLlmStream * stream, const eliza_ending_t * endings,
                                                       size_t n_endings, double * legal_out, double * joint_out,
                                                       double * option_mass_out, size_t cap, char ** err);

/* ---- Structured answers ----------------------------------------------------------------------- */

ELIZA_API int eliza_inference_llm_fill_supported(void); /* 1 */

/* Writes the next span of a structured answer: known text, and between it one value. `span` is `len`
 * bytes of JSON, an object with
 *   "before"       text that comes before the value
 *   one of, or none where there is only known text:
 *     "choices"    an array of strings, of which the value is one
 *     "json"       "string" (with its quotes), "string-body" (what stands between them), "number",
 *                  "integer" or "value" (any, nested at most "depth" deep: 1 to 64, default 16)
 *     "dfa"        {"classes": [256 numbers], "transitions": [[...], ...], "accepting": [...]}: the
 *                  column of each byte, for each state and column the next state or -1, and the states
 *                  in which the value may end; state 0 is the first
 *     "grammar"    a GBNF grammar whose rule "root" describes it
 *   "after"        text that follows the value; not to be given again as the next span's "before"
 *   "temperature"  0 (default) = the most likely token at each step; "top_k", "top_p"
 *   "max_tokens"   of a value (default 256; 0 = no limit), which is then brought to its shortest end
 *   "logprobs"     true: compute "logprob" for values too, not only for choices
 *   "heal"         true: in the answer's first span, the prompt's last token may be spelled anew
 * Any other member is an error. Known text takes no forward pass of its own and is cut into tokens
 * together with what is known around it, as is text that a "dfa" leaves no choice about; a value may
 * share its first and last token with the text around it. Where a value can go on with the byte that
 * "after" begins with, it goes on: give text that the value cannot hold, such as the quote behind a
 * "string-body". With a fixed seed every span since the last reset draws anew, and the same spans draw
 * the same again. What is filled does not count against the config's max_tokens. *out receives, to be
 * freed with eliza_inference_free_string(), and also where a call fails after it began:
 *   {"text": the value, "logprob": natural logarithm of its probability among what was legal at each
 *    step, or null, "choice": its place or -1, "tokens": how many, "truncated": whether "max_tokens"
 *    ended it, "complete": false after a failure, "answer_tokens": all tokens since the prompt, without
 *    one that was healed, "answer_bytes": how many bytes each of them spells}
 * Afterwards the stream can be filled further, or generate; so it can after a failure, from behind what
 * there is of the value, or where there is nothing of it, as if the call had not been made. */
ELIZA_API int eliza_inference_llm_stream_fill(EliLlmStream * stream, const char * span, size_t len, char ** out,
                                              char ** err);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_INFERENCE_H */
