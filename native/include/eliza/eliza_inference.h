/*
 * Streams of libelizainference: generate text, restrict tokens, fill structured answers, and the functions of
 * elizaOS's ABI. eliza.h has the short interface, and the conventions of both headers. In addition:
 *   - Different streams may be used from different threads at the same time. If two threads call into the
 *     same stream, the second call fails. eliza_inference_llm_stream_cancel() is safe from any thread at any
 *     time.
 *   - A span is a part of the generated text in which only the tokens of given labels (leaves) are allowed.
 */
#ifndef ELIZA_INFERENCE_H
#define ELIZA_INFERENCE_H

#include "eliza.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EliLlmStream EliLlmStream; /* one generation in one KV slot */

/* Returns "12", the version of elizaOS's ABI whose text functions this library implements. Static storage. */
ELIZA_API const char * eliza_inference_abi_version(void);

/* mmap_acquire("text") loads the model now. mmap_evict("text") unloads it, unless a stream is open. The voice
 * regions (tts asr mtp dflash vad wakeword) return ELIZA_ERR_NOT_IMPLEMENTED. */
ELIZA_API int eliza_inference_mmap_acquire(EliInferenceContext * ctx, const char * region, char ** err);
ELIZA_API int eliza_inference_mmap_evict(EliInferenceContext * ctx, const char * region, char ** err);

/* ---- Embeddings and scores -------------------------------------------------------------------- */

enum {
    ELIZA_TOKEN_CONTROL = 1, /* a control token: its bytes are its name, not text */
    ELIZA_TOKEN_END = 2      /* ends a generation */
};

/* Returns the whole vocabulary in one call, for programs that compute token masks. Writes the bytes of all tokens
 * one after another into bytes_out, and for each token the offset where its bytes end and its kind (a sum of
 * ELIZA_TOKEN_*). Returns the number of tokens, and sets *n_bytes_out to the number of bytes. If n_tokens_cap
 * is 0, the other outputs are ignored. If a buffer is too small, the call fails and writes only *n_bytes_out. */
ELIZA_API int32_t eliza_inference_vocabulary(EliInferenceContext * ctx, int64_t * ends_out, uint8_t * kinds_out,
                                             uint64_t n_tokens_cap, uint8_t * bytes_out, uint64_t n_bytes_cap,
                                             int64_t * n_bytes_out, char ** err);

ELIZA_API int eliza_inference_llm_eot_supported(void); /* 1 */

/* Computes the probability that `target` (for example an end-of-turn token) follows the given tokens, and the
 * most probable next token. Uses a free slot while it runs, and decodes only those tokens that the slot's KV
 * cache does not already hold. Pass NULL for outputs you do not need. */
ELIZA_API int eliza_inference_llm_eot_score(EliInferenceContext * ctx, const int32_t * tokens, size_t n, int32_t target,
                                            float * out_prob, int32_t * out_top, float * out_top_prob, char ** err);

/* ---- Streams ---------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_llm_stream_supported(void);   /* 1 */
ELIZA_API int eliza_inference_llm_mtp_supported(void);      /* 1: draft_min and draft_max enable speculation */
ELIZA_API int eliza_inference_llm_kv_quant_supported(void); /* 1 */

typedef struct {
    int32_t max_tokens;            /*  0: tokens to generate after each prefill; 0 = no limit */
    float temperature;             /*  4: <= 0 = greedy */
    float top_p;                   /*  8: <= 0 or >= 1 = off */
    int32_t top_k;                 /* 12: <= 0 = off */
    float repeat_penalty;          /* 16: 0 or 1 = off; over the last 64 tokens */
    int32_t slot_id;               /* 20: 0 .. n_slots-1, or -1 = any free slot */
    const char * prompt_cache_key; /* 24: NULL, or the name of a slot to prefer if slot_id is -1 */
    int32_t draft_min;             /* 32: drafts with fewer tokens are dropped unchecked; see draft_max */
    int32_t draft_max;             /* 36: tokens per draft; if draft_min or draft_max is 0, no speculation */
    const char * mtp_drafter_path; /* 40: a model of the same vocabulary, MTP head or assistant; NULL: see below */
    const char * gbnf_grammar;     /* 48: NULL or empty = none; start rule "root" */
    int32_t disable_thinking;      /* 56: 1 = never sample <think> */
    int32_t n_gpu_layers;          /* 60: -1 = all, 0 = CPU; only the first stream's value has an effect */
    const char * cache_type_k;     /* 64: "f32" "f16" "bf16" "q8_0" ...; NULL = f16 */
    const char * cache_type_v;     /* 72: as above */
} eliza_llm_stream_config_t;       /* 80 bytes; the library reads no more than these */

/* Opens a stream in a free KV slot. If no slot is free, waits up to option slot_wait_ms. With `cfg` NULL, the
 * defaults apply: greedy, any slot, no token limit. Returns NULL on failure.
 *
 * Speculation: the model, MTP head or Gemma 4 assistant in mtp_drafter_path writes the drafts. If mtp_drafter_path is
 * NULL, the model's own MTP head writes them. If the model has no MTP head, drafts come from the conversation: the
 * library finds an earlier occurrence of the last few tokens, and the draft is the text that followed it. */
ELIZA_API EliLlmStream * eliza_inference_llm_stream_open(EliInferenceContext * ctx,
                                                         const eliza_llm_stream_config_t * cfg, char ** err);

/* Appends the prompt, or the next part of a conversation, and decodes it. Tokens that the slot's KV cache already
 * holds are not decoded again. n = 0 is allowed and does nothing. */
ELIZA_API int eliza_inference_llm_stream_prefill(EliLlmStream * stream, const int32_t * tokens, size_t n, char ** err);

/* Generates the next step. Returns 0 if more may follow, 1 if the generation has ended, or a negative status.
 * Writes the step's tokens and their NUL-terminated text. A step is one token. With speculation, it is all tokens
 * that a checked draft has produced, up to the capacity of the buffers. The text consists of whole UTF-8 characters: a
 * token that ends inside a character has empty text, and the token that completes the character has all of its bytes.
 * Invalid bytes and NUL are written as U+FFFD. If a token's text does not fit, the call returns ELIZA_ERR_TEXT_CAP and
 * the next call returns the same token. If the KV cache is full, the call returns ELIZA_ERR_CONTEXT_FULL after all
 * earlier tokens have been returned. The end-of-generation token itself is never returned. A draft ends when all of its
 * tokens were accepted, or one was rejected. *drafted_out receives the number of tokens in the drafts that ended
 * during this call, and *accepted_out how many of those tokens were accepted. Both may be NULL. */
ELIZA_API int eliza_inference_llm_stream_next(EliLlmStream * stream, int32_t * tokens_out, size_t tokens_cap,
                                              size_t * num_tokens_out, char * text_out, size_t text_cap,
                                              int32_t * drafted_out, int32_t * accepted_out, char ** err);

/* Generates steps like eliza_inference_llm_stream_next(), until the generation ends, a buffer is full, a stop string is
 * complete, or most_ms milliseconds have passed. A whole text therefore needs few calls. If choosing a token takes
 * little time, the thread that runs the forward passes chooses it, and the calling thread sleeps meanwhile. An error
 * after the first token is reported by the next call. */
ELIZA_API int32_t eliza_inference_llm_stream_next_many(EliLlmStream * stream, uint32_t most_ms, int32_t * tokens_out,
                                                       uint64_t tokens_cap, uint64_t * num_tokens_out, char * text_out,
                                                       uint64_t text_cap, int32_t * drafted_out, int32_t * accepted_out,
                                                       char ** err);

/* Sets stop strings. eliza_inference_llm_stream_next() and eliza_inference_llm_stream_next_many() return after the
 * token that completes a stop string. They also return after a control token whose name is a stop string, although the
 * token has no text. The generation has not ended, and the next call continues it. The strings are copied and stay set
 * until the next call of this function; n_stops 0 removes them. A stop string is found only within generated text that
 * no prefill, reset or fill interrupts. */
ELIZA_API int32_t eliza_inference_llm_stream_set_stops(EliLlmStream * stream, const char * const * stops,
                                                       uint64_t n_stops, char ** err);

/* Receives each token with its text, which is valid during the call. Return non-zero to stop. If the generation
 * ends inside a UTF-8 character, a last call with token_id -1 delivers the remaining text. */
typedef int (*eliza_token_callback)(int32_t token_id, const char * token_text, void * user);

/* Generates up to max_tokens tokens and passes each to the callback. With max_tokens 0, only the limit of the
 * stream's configuration applies. Returns 0 when done, or ELIZA_ERR_CANCELLED if the callback or a cancel stopped
 * it. Call it again to resume. */
ELIZA_API int eliza_inference_llm_stream_generate(EliLlmStream * stream, int32_t max_tokens,
                                                  eliza_token_callback on_token, void * user, char ** err);

/* Changes the sampling of all following tokens. `json` has `len` bytes and is an object that maps sampling options
 * of eliza_inference_set_option to numbers, strings or arrays. Other settings keep their values. On failure
 * nothing changes. */
ELIZA_API int eliza_inference_llm_stream_set_sampling(EliLlmStream * stream, const char * json, size_t len,
                                                      char ** err);

typedef struct {
    int32_t token; /* -1: none */
    float logprob; /* natural logarithm of its probability, computed from the model's unmodified logits */
} eliza_token_logprob_t;

/* Reports log-probabilities for all following tokens, together with the n_top most probable tokens at each
 * position: 0 to 1024, or -1 (default) = off. */
ELIZA_API int eliza_inference_llm_stream_set_logprobs(EliLlmStream * stream, int n_top, char ** err);

/* Like eliza_inference_llm_stream_prefill(), but the tokens are decoded only when something needs the logits after
 * them, in one pass with the labels or endings that follow. That call then returns the errors of decoding, and
 * the stream keeps the tokens. A stream with a progress callback decodes the tokens at once. */
ELIZA_API int32_t eliza_inference_llm_stream_append(EliLlmStream * stream, const int32_t * tokens, uint64_t n,
                                                    char ** err);

/* Like eliza_inference_llm_stream_prefill(), and also writes the log-probability of each of these tokens, given all
 * tokens before it. Each token has 1 + n_top entries in `out`: the token itself, then the n_top most probable tokens at
 * its position in descending order. The first token of a conversation has NaN and no alternatives (token -1). `cap` is
 * the number of entries for which `out` has room, at least n * (1 + n_top). A forward pass computes the logits of as
 * many tokens as fit into a batch and 64 MiB, whether or not the KV cache holds these tokens. On failure, the stream is
 * unchanged. */
ELIZA_API int32_t eliza_inference_llm_stream_prefill_logprobs(EliLlmStream * stream, const int32_t * tokens, uint64_t n,
                                                              int32_t n_top, eliza_token_logprob_t * out, uint64_t cap,
                                                              char ** err);

/* ---- Hidden states ---- */

ELIZA_API int eliza_inference_token_embeddings_supported(void); /* 1 */

/* Writes llama.cpp's embeddings of single tokens: *out_dim values for each of the ascending
 * `positions` in `tokens`. The values are not normalized. For some decision models, they are scores. The tokens are
 * read without additional special tokens. `cap` is the number of values for which `out` has room; with less than
 * n_positions * *out_dim, only *out_dim is written and the call returns ELIZA_ERR_INVALID_ARG.
 *
 * `roles` is NULL, except for models with the architecture "clef", which score the options of all questions in a prompt
 * together. It has a number for each token: 1 = of a question with the answers true and false, 2 = of a question with
 * options, 3 = of a question with levels, 4 = of an option of the last question before it, 0 = of anything else.
 * Neighbouring tokens with the same number are one question or one option. `positions` are then numbers of options,
 * from 0, each with one value, its score. */
ELIZA_API int32_t eliza_inference_token_embeddings(EliInferenceContext * ctx, const int32_t * tokens,
                                                   const int32_t * roles, uint64_t n, const int32_t * positions,
                                                   uint64_t n_positions, float * out, uint64_t cap, int * out_dim,
                                                   char ** err);

/* Writes the log-probabilities of the tokens returned since the last call. Each token has 1 + n_top entries: the
 * token itself, then the n_top most probable tokens in descending order. A token of a span of labels has NaN and
 * no alternatives (eliza_inference_token_trie_scores reports the labels' probabilities). Returns the number of
 * tokens. If `cap` is less than the number of entries, tokens * (1 + n_top), the call fails and the entries remain
 * available. */
ELIZA_API int eliza_inference_llm_stream_take_logprobs(EliLlmStream * stream, eliza_token_logprob_t * out, size_t cap,
                                                       char ** err);

/* Describes the stream's samplers in the order in which they act, separated by ';', for example
 * "penalties;top_k;dist". Free *out with eliza_inference_free_string(). */
ELIZA_API int eliza_inference_llm_stream_describe_chain(EliLlmStream * stream, char ** out, char ** err);

/* The outcome of a draft. It is reported when all tokens of the draft were accepted or one was rejected. Indices
 * count the tokens since the prompt. The arrays are valid during the call. */
typedef struct {
    const int * accepted_token_ids;
    size_t n_accepted;
    int rejected_from, rejected_to;  /* the first and the last rejected token of the draft; -1 -1 = none */
    const int * corrected_token_ids; /* the token generated instead of the first rejected one, if any */
    size_t n_corrected;
} EliVerifierEvent;
typedef void (*eliza_verifier_callback)(const EliVerifierEvent * event, void * user);

/* Sets a callback that receives the outcome of every draft, for all streams of the context, including those
 * already open. It is called on the thread that generates, and must not call the library. NULL turns it off; a
 * call that is already running on another thread may still finish afterwards. */
ELIZA_API int eliza_inference_set_verifier_callback(EliInferenceContext * ctx, eliza_verifier_callback callback,
                                                    void * user, char ** err);

/* Cancels the call that is running on the stream, or if none is running, the next one. That call returns
 * ELIZA_ERR_CANCELLED. A call of next_many that already has tokens returns them, and the next call of any function that
 * computes returns ELIZA_ERR_CANCELLED. Afterwards the stream can be used again. */
ELIZA_API int eliza_inference_llm_stream_cancel(EliLlmStream * stream);

/* Clears all tokens, the span of labels and the state of the samplers. The configuration stays. */
ELIZA_API int eliza_inference_llm_stream_reset(EliLlmStream * stream);

/* Like reset, but keeps the first n_keep tokens. Returns how many were kept. */
ELIZA_API int eliza_inference_llm_stream_reset_keep(EliLlmStream * stream, int32_t n_keep);

/* Writes the stream's tokens and their KV cache to a file, either completely or not at all. Tokens that were
 * generated but not yet decoded are decoded first. */
ELIZA_API int eliza_inference_llm_stream_save_slot(EliLlmStream * stream, const char * file, char ** err);

/* Replaces the stream's conversation by the conversation in the file, without a prefill. Generation continues after its
 * last token; samplers and grammar restart there. A file that is not a slot file, is truncated or damaged, or
 * was written with another model, KV cache type or version of llama.cpp is rejected, and the stream stays
 * unchanged. */
ELIZA_API int eliza_inference_llm_stream_restore_slot(EliLlmStream * stream, const char * file, char ** err);

/* Closes the stream and frees its slot. The tokens stay in the KV cache for a later stream with the same prompt. A
 * call that is running on another thread is cancelled, and this function waits for it. From inside a callback, do
 * not close another stream whose own callback may be waiting to close this one. NULL and closed handles are
 * ignored. */
ELIZA_API void eliza_inference_llm_stream_close(EliLlmStream * stream);

/* Returns the message of the last failed call on this stream, "" if none. It is valid until this thread calls this
 * function again. */
ELIZA_API const char * eliza_inference_last_error(EliLlmStream * stream);

typedef enum {
    ELIZA_FINISH_NONE = 0,        /* the generation has not ended */
    ELIZA_FINISH_END = 1,         /* the model generated an end-of-generation token */
    ELIZA_FINISH_LENGTH = 2,      /* max_tokens of the configuration was reached */
    ELIZA_FINISH_LEAF = 3,        /* the span ended, with ELIZA_TRIE_STOP_AT_LEAF set */
    ELIZA_FINISH_CONTEXT_FULL = 4 /* the KV cache has no room for another token */
} eliza_finish_reason;

/* How the tokens of a span were decoded; see option strategy. The stats hold a bit set of these. */
typedef enum {
    ELIZA_STRATEGY_TOKEN_BY_TOKEN = 1,
    ELIZA_STRATEGY_SKIP_AHEAD = 2,
    ELIZA_STRATEGY_TREE = 4
} eliza_strategy;

typedef struct {
    int64_t prompt_tokens;        /* tokens passed to prefill, or read for hidden states */
    int64_t prompt_tokens_reused; /* of those, found in the KV cache */
    int64_t generated_tokens;     /* tokens generated */
    int64_t forward_passes;       /* llama_decode calls, including the prompt's */
    int64_t prompt_passes;        /* of those, run for prompt_tokens */
    int64_t forward_passes_saved; /* tokens that did not need their own forward pass */
    int64_t decisions;            /* selections among two or more allowed tokens, in spans and under masks */
    int64_t candidates_seen;      /* allowed tokens, summed over those decisions */
    int64_t tokens_forced;        /* tokens in spans and under masks that had no alternative */
    int64_t tokens_sampled;       /* tokens selected outside spans and without a mask */
    int64_t spans;                /* spans started */
    int64_t trie_departures;      /* spans that ended because a token outside the trie was accepted */
    int64_t span_limit_hits;      /* spans that ended at span_limit */
    int64_t tree_passes;          /* forward passes that decoded several decisions at once */
    int64_t decode_us;            /* microseconds in llama_decode */
    int64_t select_us;            /* microseconds selecting tokens */
    int32_t n_past;               /* tokens of the conversation so far */
    int32_t n_vocab;
    int32_t finish_reason;   /* eliza_finish_reason */
    int32_t trie_active;     /* 1 while a span constrains the next token */
    int64_t select_ns;       /* select_us in nanoseconds */
    int32_t strategies;      /* strategies used for decisions in spans: bits of eliza_strategy */
    int64_t tokens_drafted;  /* tokens of the speculative drafts that have ended */
    int64_t tokens_accepted; /* of those, accepted */
    int64_t bytes_copied;    /* bytes of logits and hidden states copied from forward passes to token selection */
    int64_t passes_shared;   /* forward_passes shared with other streams */
    int64_t sequences;       /* streams per forward pass, summed over all forward_passes */
    int64_t wait_us;         /* microseconds waiting for a forward pass, excluding passes the stream was in */
} eliza_llm_stream_stats_t;

/* Returns counters since the stream was opened. Writes at most sizeof_stats bytes, so a caller compiled with an
 * older, shorter struct still works. */
ELIZA_API int eliza_inference_llm_stream_stats(EliLlmStream * stream, eliza_llm_stream_stats_t * stats,
                                               size_t sizeof_stats);

/* ---- Choices: the token trie ------------------------------------------------------------------ */

/* Returns a bit set: bit m is set if mode m is supported, and ELIZA_TRIE_STOP_AT_LEAF if that flag is. */
ELIZA_API int eliza_inference_token_trie_supported(void);

/* Starts a span: from the next token on, only tokens that lead to a leaf of the payload are allowed, until a leaf
 * is complete. `payload` is `len` bytes of JSON:
 *   {"modelId": "...", "descriptors": [{"path": "action",
 *     "leaves": [{"name": "REPLY", "tokens": [1, 2]}, ...]}, ...]}
 * or a binary tree in the format RTKT, recognized by its first bytes. RTKT is little-endian: u32 magic
 * 0x544B5452, u32 version 1, u32 length of the path and its bytes, u32 number of nodes; then for each node, depth
 * first: i32 token (root -1), u8 terminal, u32 number of children, u32 index of each child. Its leaves are named
 * by their index: "0", "1", ...
 * If there are several descriptors, all of their leaves are allowed. A payload that is rejected (see
 * eliza_inference_last_error) leaves the stream unchanged. */
ELIZA_API int eliza_inference_set_token_trie(EliLlmStream * stream, const char * payload, size_t len, int mode);

/* Tokenizes a set of labels once, for any number of spans. `json_array_of_strings` contains distinct, non-empty
 * strings. Each is tokenized as in the middle of other text, on as many threads as there are CPUs. Returns
 * NULL and sets *err if the array is empty, a label is empty or repeated, or the tokenizer cannot spell a label
 * exactly. The result can be used with all streams of the same model file, on any context and from any thread.
 * Free it at any time with eliza_inference_free_choices(); spans that have already started are not affected.
 * *longest_out, if not NULL, receives the number of tokens of the longest label. */
ELIZA_API EliChoices * eliza_inference_prepare_choices(EliInferenceContext * ctx, const char * json_array_of_strings,
                                                       size_t len, size_t * longest_out, char ** err);

/* Like eliza_inference_prepare_choices, for the leaves of a payload in either format of
 * eliza_inference_set_token_trie. */
ELIZA_API EliChoices * eliza_inference_prepare_token_trie(EliInferenceContext * ctx, const char * payload, size_t len,
                                                          size_t * longest_out, char ** err);

/* Starts a span of prepared labels, like eliza_inference_set_token_trie. The leaves are in the order of the labels
 * and are named by their index: "0", "1", ... Labels that were prepared for another model are rejected. */
ELIZA_API int eliza_inference_set_choices(EliLlmStream * stream, EliChoices * choices, int mode);

/* Appends a prompt and chooses one of the prepared labels after it, in one call: the same as
 * eliza_inference_llm_stream_append(), eliza_inference_set_choices() with ELIZA_TRIE_STOP_AT_LEAF,
 * eliza_inference_token_trie_scores() if `logprobs_out` is not NULL, eliza_inference_llm_stream_generate(), and
 * eliza_inference_llm_stream_stats() if `stats` is not NULL. `mode` is an eliza_trie_mode. Writes the tokens of the
 * chosen label into tokens_out, which has room for the longest label. Returns the number of these tokens, or a negative
 * status. On failure nothing is written, but the stream may already hold the prompt. */
ELIZA_API int32_t eliza_inference_llm_stream_choose(EliLlmStream * stream, const int32_t * tokens, uint64_t n,
                                                    EliChoices * choices, int32_t mode, eliza_choice_t * result,
                                                    int32_t * tokens_out, uint64_t tokens_cap, double * logprobs_out,
                                                    uint64_t logprobs_cap, eliza_llm_stream_stats_t * stats,
                                                    uint64_t sizeof_stats, char ** err);

enum {
    ELIZA_TEXT_HEAL_PROMPT = 0x200 /* take the prompt's last token off and generate its text again */
};

/* Starts a span of labels that may be split into tokens in any way: from the next token on, the generated bytes
 * spell one of the strings, as with a grammar that allows exactly those strings. `mode` is ELIZA_TRIE_ARGMAX or
 * ELIZA_TRIE_SAMPLE, optionally with ELIZA_TRIE_STOP_AT_LEAF and ELIZA_TEXT_HEAL_PROMPT. If a label is the
 * beginning of another one, the model decides whether it ends there: with ELIZA_TRIE_STOP_AT_LEAF by an
 * end-of-generation token, otherwise by any token that does not continue a label. With ELIZA_TEXT_HEAL_PROMPT the
 * prompt's last token may be replaced by a longer token, which extends into the label; the text of the old token is
 * not returned again. End the span with eliza_inference_clear_token_trie. The leaf's name is the string. A payload
 * that is rejected leaves the stream unchanged. */
ELIZA_API int eliza_inference_set_text_choices(EliLlmStream * stream, const char * json_array_of_strings, size_t len,
                                               int mode);

/* Ends the span, if one is active. The stream's grammar, if any, applies again. */
ELIZA_API void eliza_inference_clear_token_trie(EliLlmStream * stream);

/* Returns the leaf on which the last span ended: its NUL-terminated name, and the natural logarithm of its
 * probability among the leaves. That probability is the product over all steps of the softmax over the allowed
 * tokens, computed from the model's unmodified logits. Both outputs may be NULL. Fails if no span has ended on a
 * leaf. If the name does not fit, nothing is written, and the error message gives the size it needs. */
ELIZA_API int eliza_inference_token_trie_leaf(EliLlmStream * stream, char * name_out, size_t cap, double * logprob_out);

/* Computes the natural logarithm of every leaf's probability, defined as in eliza_inference_token_trie_leaf, in the
 * order of the payload. Leaves with identical tokens have one probability, which is reported for each. Call this
 * function between setting a span and generating the span's first token. Later calls return the same scores until the
 * next span starts. Generating the span does not repeat the forward passes. Returns the number of leaves. If `cap` is
 * 0, nothing is computed; if `cap` is otherwise too small, the call fails and writes nothing. */
ELIZA_API int eliza_inference_token_trie_scores(EliLlmStream * stream, double * logprobs_out, size_t cap);

/* ---- Masks: restrict the next token ------------------------------------------------------------ */

ELIZA_API int eliza_inference_llm_token_mask_supported(void); /* 1 */

/* Restricts the next token to a set of allowed tokens: bit t % 32 of bits[t / 32] stands for token t. n_words must
 * be (n_vocab + 31) / 32, and at least one token of the vocabulary must be allowed. The stream's samplers choose
 * among the allowed tokens. If only one token is allowed, no forward pass runs. An allowed end-of-generation token
 * ends the generation as usual when it is chosen. The mask applies to one token. A prefill, a span of labels, a
 * span of a structured answer or a reset also removes it. So does a call with NULL and 0 words. Fails, and leaves
 * the stream unchanged, if the stream has a grammar or a span of labels is active. */
ELIZA_API int eliza_inference_llm_stream_set_token_mask(EliLlmStream * stream, const uint32_t * bits, size_t n_words,
                                                        char ** err);

/* Sets the next n tokens of the text instead of choosing them. They do not need a forward pass each, and one call of
 * eliza_inference_llm_stream_next() returns as many of them as its buffers hold. An end-of-generation token among them
 * ends the generation. Replaces a token mask. The calls that remove a mask also remove forced tokens, and a stream that
 * rejects a mask also rejects forced tokens. An empty list removes the tokens that have not been returned yet. */
ELIZA_API int32_t eliza_inference_llm_stream_set_forced_tokens(EliLlmStream * stream, const int32_t * tokens,
                                                               uint64_t n, char ** err);

/* Runs the forward pass that the next token needs, if it needs one. Call it before the mask is known, to compute
 * the mask on another thread in the meantime. */
ELIZA_API int eliza_inference_llm_stream_decode(EliLlmStream * stream, char ** err);

/* ---- Choices: several questions after one prompt ----------------------------------------------- */

typedef struct {
    const int32_t * tokens; /* follow the prompt; may be NULL if n_tokens is 0 */
    size_t n_tokens;
    EliChoices * choices; /* the labels that may follow these tokens */
} eliza_ending_t;

ELIZA_API int eliza_inference_llm_score_endings_supported(void); /* 1 */

/* Scores the labels after each of up to 65536 endings of the conversation. All endings go through the model
 * together, in one pass or in as many as they need. The stream stays unchanged. Outputs that are NULL are not
 * computed.
 * One value per leaf, for all leaves of the first ending, then of the second, and so on:
 *   legal_out: as in eliza_inference_token_trie_scores
 *   joint_out: the sum of the natural logarithms of the probabilities of the leaf's tokens, each from the softmax
 *     over the whole vocabulary. Needs whole rows of logits
 * One value per ending:
 *   option_mass_out: the probability that the next token is the first token of some leaf, from the softmax over
 *     the whole vocabulary. Needs one whole row of logits
 * Returns the number of leaves of all endings. If `cap` is 0, nothing is computed; a cap less than the number
 * of leaves is an error. On failure nothing is written. */
ELIZA_API int eliza_inference_llm_stream_score_endings(EliLlmStream * stream, const eliza_ending_t * endings,
                                                       size_t n_endings, double * legal_out, double * joint_out,
                                                       double * option_mass_out, size_t cap, char ** err);

/* ---- Decisions: several questions about one prompt, in one call --------------------------------- */

/* The request and the results of eliza_inference_decide(). Set all of it to 0 first. */
typedef struct {
    size_t size; /* sizeof(eliza_decide_t) */

    const int32_t * tokens; /* the prompt, at least one token */
    uint64_t n_tokens;
    const eliza_llm_stream_config_t * config; /* only its slot and cache are used. NULL = any slot */

    /* Set by eliza_inference_cancel_decide(). A request that has it set is not run. */
    int32_t cancelled;

    /* The questions. The outputs are as in eliza_inference_llm_stream_score_endings(). Without hidden states, there
     * must be at least one ending. */
    const eliza_ending_t * endings;
    uint64_t n_endings;
    double * legal_out;
    double * joint_out;
    double * option_mass_out;
    uint64_t cap;

    /* Means of hidden states over ranges of the prompt's tokens: for each of n_layers layers, for each of n_ranges
     * ranges, n_embd values, which are not normalized to unit length. Layer i is the input of block i, counted from 0,
     * and layer n_layer is the output of the final norm. `layers` is ascending, from 1 to n_layer.
     * eliza_inference_describe() reports "n_layer" and "n_embd". `ranges` has the begin and the end of each range, as
     * indices of `tokens`. n_layers = 0 means no hidden states. `states_cap` is the number of values for which
     * `states_out` has room. */
    const int32_t * layers;
    uint64_t n_layers;
    const uint64_t * ranges;
    uint64_t n_ranges;
    /* Without endings, if all requests in a forward pass are for hidden states, the pass stops after the deepest of
     * their layers, and the KV cache does not keep its tokens. The first n_kept tokens are decoded completely
     * beforehand, so later calls find them. */
    uint64_t n_kept;
    float * states_out;
    uint64_t states_cap;

    /* Results, also of a call that fails. */
    int64_t forward_passes;
    int64_t tokens_cached; /* tokens of the prompt that the KV cache held */
} eliza_decide_t;

/* Reads a prompt, and scores the labels after each of several endings of it, without a stream. The prompt and all
 * endings go through the model together, in one forward pass or in as many as they need. Hidden states come from the
 * same passes. All tokens from the first range on are read, and the earlier tokens that the KV cache does not hold.
 * The call takes a slot while it runs.
 * Returns the number of leaves of all endings. On failure no output is written. */
ELIZA_API int32_t eliza_inference_decide(EliInferenceContext * ctx, eliza_decide_t * request, char ** err);

/* Ends the call of eliza_inference_decide() with this request, from any thread. Later calls with it end at once. */
ELIZA_API int eliza_inference_cancel_decide(EliInferenceContext * ctx, eliza_decide_t * request);

/* ---- Ranking: the most probable of many labels ------------------------------------------------- */

ELIZA_API int eliza_inference_llm_rank_supported(void); /* 1 */

/* Finds the k most probable labels that may follow the conversation and then the tokens of `after`, most probable
 * first. It does not compute the probability of every label: a label is at most as probable as each prefix of it, so
 * prefixes that are less probable than the k-th label need not be read. `ranked_out` has room for `cap` entries, k or
 * more. Leaves with identical tokens are one label, the first of them. The stream stays unchanged. It keeps the logits
 * that it has read until its conversation changes, so another ranking of the same labels needs fewer passes, or none.
 * On failure nothing is written. */
ELIZA_API int32_t eliza_inference_llm_stream_rank(EliLlmStream * stream, const eliza_ending_t * after,
                                                  const eliza_rank_options_t * options, eliza_ranked_t * ranked_out,
                                                  uint64_t cap, eliza_ranking_t * ranking_out, char ** err);

/* Ranks labels that directly follow the conversation and that any tokens may spell. A label ends as in
 * eliza_inference_set_text_choices() with ELIZA_TRIE_STOP_AT_LEAF. Other parameters and results are as in
 * eliza_inference_llm_stream_rank(). The probability of a label is the sum over all its
 * spellings. The ranking is proven when the order is certain and the bounds of each probability in `ranked_out` differ
 * by 0.001 or less. options->rule must be ELIZA_RANK_LEGAL. max_passes = 0 means 100. */
ELIZA_API int32_t eliza_inference_llm_stream_rank_texts(EliLlmStream * stream, const char * json_array_of_strings,
                                                        uint64_t len, const eliza_rank_options_t * options,
                                                        eliza_ranked_t * ranked_out, uint64_t cap,
                                                        eliza_ranking_t * ranking_out, char ** err);

/* ---- Structured answers ----------------------------------------------------------------------- */

ELIZA_API int eliza_inference_llm_fill_supported(void); /* 2; 1 = without "best" and "take_back" */

/* Writes the next span of a structured answer: fixed text and one value in between. `span` is `len` bytes of JSON,
 * an object with these members:
 *   "before"       fixed text before the value
 *   At most one of the following; none, if the span is only fixed text:
 *     "choices"    an array of strings; the value is one of these
 *     "json"       "string" (with its quotes), "string-body" (the text between the quotes), "number", "integer"
 *                  or "value" (any JSON value, nested at most "depth" deep: 1 to 64, default 16)
 *     "dfa"        {"classes": [256 numbers], "transitions": [[...], ...], "accepting": [...]}: the column of
 *                  each byte; for each state and column the next state, or -1; and the states in which the
 *                  value may end. State 0 is the initial state
 *     "grammar"    a GBNF grammar whose rule "root" describes the value
 *   "after"        fixed text after the value; do not repeat it as the "before" of the next span
 *   "temperature"  0 (default) = the most probable token at each step; also "top_k" and "top_p"
 *   "max_tokens"   limit for a value (default 256; 0 = no limit). A value that reaches it is completed with the
 *                  shortest valid ending
 *   "logprobs"     true: compute "logprob" for all values, not only for choices
 *   "best"         true: with temperature 0, take the most probable of the "choices" as a whole
 *   "take_back"    first remove this number of bytes from the end of the answer, at most its last token. The rest of
 *                  that token is tokenized again together with "before". The other tokens of the answer stay
 *                  unchanged; with 0, all tokens do
 *   "heal"         true: in the answer's first span, the prompt's last token may be tokenized again together with
 *                  the text that follows
 * Any other member is an error.
 *
 * Fixed text does not need its own forward pass. It is tokenized together with the fixed text around it. If a "dfa"
 * allows only one continuation, that text counts as fixed too. A value may share its first and last token with the
 * text around it. If the next byte could belong to the value or to "after", it belongs to the value. Therefore
 * begin "after" with a byte that the value cannot contain, such as the quote after a "string-body".
 * With a fixed seed, each span since the last reset draws with a different seed, derived from the fixed one. The
 * same spans after a reset give the same values again. Tokens of an answer do not count towards max_tokens of
 * the stream's configuration.
 *
 * *out receives a JSON object, which you free with eliza_inference_free_string(). It is also set if the call
 * fails after it has started:
 *   {"text": the value, "logprob": natural logarithm of its probability among the allowed tokens of each step, or
 *    null, "choice": the index of the choice, or -1, "tokens": number of tokens, "truncated": whether
 *    "max_tokens" ended the value, "complete": false after a failure, "answer_tokens": all tokens since the
 *    prompt, without a healed prompt token, "answer_bytes": the number of bytes of each of them}
 * Afterwards the stream can fill further spans or generate. This also holds after a failure. If the failed call has
 * written a part of the value, the stream continues after that part. Otherwise it continues as if the call had not
 * been made. */
ELIZA_API int eliza_inference_llm_stream_fill(EliLlmStream * stream, const char * span, size_t len, char ** out,
                                              char ** err);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_INFERENCE_H */
