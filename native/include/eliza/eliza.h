/*
 * libelizainference: let a local language model choose among known labels.
 *
 * This header has what most programs need: open a model, choose, rank, embed. eliza_inference.h adds streams (generate
 * text, restrict tokens, fill structured answers) and the functions that elizaOS, a framework for AI agents, needs.
 *
 *     const char * labels[] = {"billing", "sales", "support"};
 *     eliza_choice_t choice;
 *     char * err = NULL;
 *     const char * prompt = "My parcel is late.\nTeam: ";
 *     EliInferenceContext * ctx = eliza_inference_create("model.gguf", &err);
 *     if (ctx == NULL || eliza_inference_choose(ctx, prompt, labels, 3, NULL, &choice, NULL, &err) != ELIZA_OK) {
 *         fprintf(stderr, "%s\n", err);
 *         eliza_inference_free_string(err);
 *     } else {
 *         printf("%s, probability %.3f\n", labels[choice.label], exp(choice.logprob));
 *     }
 *     eliza_inference_destroy(ctx);
 *
 * Conventions
 *   - Functions return ELIZA_OK (0) or a negative eliza_status, unless their comment says otherwise.
 *   - Where a function has a parameter `err`, you may pass NULL. On failure *err receives a heap-allocated
 *     message, which you free with eliza_inference_free_string(). On success *err is not touched.
 *   - Paths are UTF-8, on every system.
 *   - A handle is an opaque number with the type of a pointer. Never dereference it. Handles are not reused,
 *     so a call with a closed handle is rejected.
 *   - Any number of threads may use one context at the same time.
 *   - No exception leaves the library. No argument aborts the process, unless memory runs out
 * (docs/explanation/security.md).
 *   - Within a major version, functions are only added. A struct whose size the program passes, as a field or as an
 *     argument, may get more fields at its end. All other structs never change.
 *
 * Other languages read this header, too, so it stays plain C, and the only macro in a declaration is ELIZA_API.
 */
#ifndef ELIZA_H
#define ELIZA_H

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
typedef struct EliChoices EliChoices;                   /* a prepared set of labels, as tokens of one model */

/* Opens a model. `bundle_dir` is the path of a .gguf file, or of an elizaOS bundle, which is a directory that
 * contains text/<name>.gguf. This call finds the file and checks its header. The weights are loaded when they
 * are first needed. Returns NULL on failure. */
ELIZA_API EliInferenceContext * eliza_inference_create(const char * bundle_dir, char ** err);

/* Closes the context and its open streams. A running call is cancelled first, and this function waits for it. */
ELIZA_API void eliza_inference_destroy(EliInferenceContext * ctx);

ELIZA_API void eliza_inference_free_string(char * string);

/* Returns the status of the last failed call on this thread, ELIZA_OK if none. Use it after a function that
 * returns a handle: NULL alone does not tell the reason. */
ELIZA_API int eliza_inference_last_status(void);

/* ---- Choose one of several labels -------------------------------------------------------------- */

typedef enum {
    ELIZA_TRIE_ARGMAX = 0,          /* the most probable allowed token at each step */
    ELIZA_TRIE_SAMPLE = 1,          /* sample from the allowed tokens with the stream's samplers */
    ELIZA_TRIE_BEST_LEAF = 2,       /* the label with the highest probability as a whole */
    ELIZA_TRIE_STOP_AT_LEAF = 0x100 /* flag, or-ed in: the generation ends when a label is complete */
} eliza_trie_mode;

typedef struct {
    uint32_t size;          /* sizeof(eliza_choose_options_t); all other fields may be 0. Later versions may add
                             * fields at the end, and take them as 0 from programs that pass a smaller size */
    int32_t mode;           /* an eliza_trie_mode, without ELIZA_TRIE_STOP_AT_LEAF */
    float temperature;      /* for ELIZA_TRIE_SAMPLE; 0 = 1.0 */
    int32_t plain_prompt;   /* 1 = the names of control tokens in the prompt are plain text */
    const char * cache_key; /* a slot name, like prompt_cache_key of a stream; NULL = any slot */
} eliza_choose_options_t;

typedef struct {
    int32_t label;                /* index of the chosen label, from 0 */
    int32_t forward_passes;       /* in addition to the prompt's forward passes */
    int32_t prompt_tokens;        /* tokens in the prompt */
    int32_t prompt_tokens_cached; /* of those, not decoded because the KV cache held them */
    double logprob;               /* natural logarithm of the label's probability among the labels */
} eliza_choice_t;

/* Chooses one of `n_labels` labels as the continuation of `prompt`. The prompt and the labels are NUL-terminated
 * UTF-8 strings. The special tokens that the model expects at the beginning are added to the prompt. Spaces at the end
 * of the prompt count as a part of each label, because in most vocabularies a space and the word after it are one
 * token. Labels must be distinct and not empty. `options` may be NULL. If `probabilities_out` is not NULL, it receives
 * the probability of each label, in the order of the labels. On failure nothing is written. Any number of threads may
 * call this at the same time with one context: they share forward passes. */
ELIZA_API int32_t eliza_inference_choose(EliInferenceContext * ctx, const char * prompt, const char * const * labels,
                                         uint64_t n_labels, const eliza_choose_options_t * options,
                                         eliza_choice_t * result, double * probabilities_out, char ** err);

/* Prepares labels for any number of calls of eliza_inference_choose_prepared(). Free them with
 * eliza_inference_free_choices(). Returns NULL on failure. */
ELIZA_API EliChoices * eliza_inference_prepare_labels(EliInferenceContext * ctx, const char * const * labels,
                                                      uint64_t n_labels, char ** err);
ELIZA_API void eliza_inference_free_choices(EliChoices * choices);

/* Like eliza_inference_choose(), with prepared labels. */
ELIZA_API int32_t eliza_inference_choose_prepared(EliInferenceContext * ctx, const char * prompt, EliChoices * labels,
                                                  const eliza_choose_options_t * options, eliza_choice_t * result,
                                                  double * probabilities_out, char ** err);

/* ---- Rank the most probable of many labels ----------------------------------------------------- */

typedef enum {
    ELIZA_RANK_LEGAL = 0, /* the probability among the labels, as in eliza_inference_token_trie_leaf */
    ELIZA_RANK_JOINT = 1  /* the probability that the model generates the label's tokens */
} eliza_rank_rule;

typedef struct {
    uint32_t size;          /* sizeof(eliza_rank_options_t), as in eliza_choose_options_t; all other fields may be 0 */
    uint32_t k;             /* how many labels to return; 0 = 1 */
    int32_t rule;           /* an eliza_rank_rule */
    int32_t max_passes;     /* stop after this number of forward passes, proven or not; 0 = no limit, -1 = run none */
    const int32_t * groups; /* NULL, or n_groups numbers from 0 to n_groups - 1: the group of each label. Then groups
                             * are ranked, by the sum of their labels' probabilities. Only with ELIZA_RANK_LEGAL */
    uint64_t n_groups;      /* the number of labels, if `groups` is not NULL */
    const char * cache_key; /* only for eliza_inference_rank(), as in eliza_choose_options_t */
    int32_t plain_prompt;   /* only for eliza_inference_rank(), as in eliza_choose_options_t */
} eliza_rank_options_t;

typedef struct {
    int32_t label;       /* index of the label, or number of the group */
    double logprob;      /* natural logarithm of its probability */
    double most_logprob; /* the same, unless a group's probability is not fully known: then an upper bound */
} eliza_ranked_t;

typedef struct {
    uint32_t n_ranked;      /* entries written to ranked_out */
    int32_t proven;         /* 1 = these are the most probable labels, and their probabilities are exact */
    int32_t forward_passes; /* in addition to the prompt's forward passes */
    int32_t rows_read;      /* prefixes of labels after which logits were read */
    double rest;            /* the probability of all other labels together. With ELIZA_RANK_JOINT only an upper
                             * bound, and not even that if a label is the beginning of another one */
} eliza_ranking_t;

/* Finds the k most probable of prepared labels that may follow `prompt`, most probable first, without computing the
 * probability of every label: eliza_inference_llm_stream_rank() says how. The prompt is as in eliza_inference_choose().
 * `ranked_out` has room for `cap` entries, k or more. On failure nothing is written. */
ELIZA_API int32_t eliza_inference_rank(EliInferenceContext * ctx, const char * prompt, EliChoices * labels,
                                       const eliza_rank_options_t * options, eliza_ranked_t * ranked_out, uint64_t cap,
                                       eliza_ranking_t * ranking_out, char ** err);

/* ---- Embed text -------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_embed_supported(void); /* 1 */

/* Computes the embedding of a text of `len` bytes, normalized to unit length. `pooling` is 1 (mean over the
 * tokens), 2 (first token), 3 (last token), or 0 (what the model's file says; if it says nothing, the mean). Writes
 * *out_dim floats. If *out_dim exceeds `cap`, only *out_dim is written and the call returns ELIZA_ERR_INVALID_ARG.
 * `out` may be NULL if `cap` is 0. */
ELIZA_API int eliza_inference_embed(EliInferenceContext * ctx, const char * text, size_t len, int pooling, float * out,
                                    size_t cap, int * out_dim, char ** err);

/* Computes the embeddings of n texts, at most 1024, one after the other in `out`, as eliza_inference_embed() does.
 * Short texts share forward passes. With in_windows = 1, a text that is longer than the model allows is read in
 * overlapping windows, and its embedding is the average of theirs; otherwise such a text is an error. */
ELIZA_API int32_t eliza_inference_embed_texts(EliInferenceContext * ctx, const char * const * texts,
                                              const uint64_t * lengths, uint64_t n, int32_t pooling, int32_t in_windows,
                                              float * out, uint64_t cap, int * out_dim, char ** err);

ELIZA_API int eliza_inference_rerank_supported(void); /* 1 */

/* Writes the relevance of n documents, at most 1024, for a query, as computed by a reranker: a model whose file has the
 * pooling "rank". The higher, the more relevant; the values have no fixed range. Other models return
 * ELIZA_ERR_NOT_IMPLEMENTED.
 */
ELIZA_API int32_t eliza_inference_rerank(EliInferenceContext * ctx, const char * query, uint64_t query_len,
                                         const char * const * documents, const uint64_t * lengths, uint64_t n,
                                         float * out, uint64_t cap, char ** err);

/* ---- Tokens ----------------------------------------------------------------------------------- */

ELIZA_API int eliza_inference_tokenize_supported(void); /* 1 */

/* Converts text to tokens. `text` has `len` bytes and may contain NULs. With add_special, the BOS and EOS tokens
 * that the model asks for are added. With parse_special, the names of special tokens in the text become those
 * tokens. Free *out with eliza_inference_free_tokens(). It is never NULL on success. */
ELIZA_API int eliza_inference_tokenize(EliInferenceContext * ctx, const char * text, size_t len, int add_special,
                                       int parse_special, int ** out, size_t * out_n, char ** err);

/* The same, into the caller's buffer. Returns the number of tokens, or a negative status. If the number is at most
 * `cap`, the tokens were written. Otherwise the buffer is untouched: call again with a larger buffer. `out` may be NULL
 * if `cap` is 0. */
ELIZA_API int32_t eliza_inference_tokenize_into(EliInferenceContext * ctx, const char * text, uint64_t len,
                                                int32_t add_special, int32_t parse_special, int32_t * out, uint64_t cap,
                                                char ** err);

/* Converts tokens to text. Returns the length of the text in bytes, without the terminating NUL, or a negative
 * status. If the length is less than `cap`, the text and its NUL were written. Otherwise the buffer is untouched:
 * call again with a larger buffer. `out` may be NULL if `cap` is 0. */
ELIZA_API int eliza_inference_detokenize(EliInferenceContext * ctx, const int * tokens, size_t n, int remove_special,
                                         int unparse_special, char * out, size_t cap, char ** err);

ELIZA_API void eliza_inference_free_tokens(int * tokens);

/* ---- Options and observation ------------------------------------------------------------------ */

/* Sets one option by name. An unknown name or a bad value is an error whose message lists what is allowed.
 *
 * Before the model is loaded:
 *   n_gpu_layers  number of layers to offload; -1 = all (default). When the first stream opens, n_gpu_layers in its
 *                 configuration replaces this value
 *   use_mmap      "1" (default) or "0"
 *   mtp_head      "on" (default) or "off": whether to load the model's head for multi-token prediction
 *   lora          LoRA adapters to apply, as a JSON array of {"path": "...", "scale": 1.0}; "" (default) = none
 *   device        "auto" (default: all GPUs), "none" (CPU only), or device names joined by commas, as listed by
 *                 eliza_inference_describe
 *   rpc           servers of llama.cpp's RPC backend, as "host:port,...". Layers are placed on them before the
 *                 local devices. Requires a library built with that backend. The connection is neither
 *                 authenticated nor encrypted: use it on private networks only
 * Before the first stream is opened:
 *   n_ctx         tokens in the KV cache, shared by all slots, which also share the cells of equal prompts;
 *                 0 (default) = min(trained length, 8192)
 *   n_slots       KV slots, which is the number of streams that can be open at once, 1 to 64 (default 8)
 *   n_batch       prompt tokens per forward pass, 1 to 65536 (default 512); values above n_ctx act like n_ctx
 *   parking       "on" (default): tokens that leave a full KV cache move to host memory, and they return when a
 *                 prompt begins with the same tokens. At most n_ctx tokens are kept there. "off": they are
 *                 dropped and decoded again. Has an effect on the CPU only
 *   n_threads     compute threads, at most one per CPU that this process may use. 0 (default) = as many as each
 *                 pass can keep busy, up to the number of physical cores, or one thread while other programs
 *                 use those cores
 *   batching      "auto" (default): streams that decode at the same time share forward passes. "off": every
 *                 request runs its own passes. Sharing a pass changes only how logits are rounded
 *   flash_attn    "auto" (default: on, except on the CPU for a KV cache of type f32), "on" or "off"
 * Any time, for streams opened afterwards:
 *   slot_wait_ms  how long a request waits for a free slot before it fails with ELIZA_ERR_BUSY. Requests are
 *                 served in the order of arrival; 0 = do not wait (default 30000)
 *   grammar_order "last" (default): sample a token, check it, and apply the grammar to all tokens only if it was
 *                 rejected. "first": apply the grammar before sampling
 *   grammar_triggers  a JSON array of {"type": "word" | "token", "value": ...}. The grammar applies
 *                 only after a trigger has been generated; "" (default) = it applies from the start
 *   grammar_budget  the maximum number of steps through a grammar to find the allowed successors of one
 *                 token. Beyond it, the call fails with ELIZA_ERR_INVALID_ARG (default 10000000, about one
 *                 second)
 *   grammar_engine  "states" (default), or "llama.cpp" for llama.cpp's own grammar sampler, the reference
 *                 implementation, which has neither a budget nor triggers
 *   model_id      the value required of a payload's modelId; "" (default) = any
 *   span_limit    a trie set by eliza_inference_set_token_trie() is deactivated after this many tokens, unless it
 *                 was cleared before (default 500). Other label sets have no such limit
 *   restricted_head "auto" (default): compute the logits of the allowed tokens only, where the model's output
 *                 layer is one plain matrix on the CPU. "off": compute all logits
 *   strategy      how the tokens of a span are decoded. The resulting tokens are the same
 *                 "auto" (default)   tree or skip-ahead, depending on the measured cost of a pass
 *                 "tree"             decode all possible decisions of the span in one pass, where that fits
 *                 "skip-ahead"       decode a token only when a later decision needs its logits
 *                 "token-by-token"   decode each token immediately and alone: the reference implementation
 * Sampling options, any time, for streams opened afterwards. If a stream's configuration turns on temperature,
 * top_p, top_k or repeat_penalty, its value takes precedence:
 *   preset        "greedy", "balanced", "creative", "very-creative" or "code": sets temperature, top_k,
 *                 top_p and min_p
 *   samplers      the samplers that truncate and penalize, in the order in which to apply them, joined by ';'.
 *                 Default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature. Also available:
 *                 infill, adaptive_p
 *   seed          a 32-bit seed; "random" (default) draws one per stream
 *   draw          "cdf" (default) or "gumbel": see eliza_gumbel_sampler.h
 *   temperature (0 = greedy, default), dynatemp_range, dynatemp_exponent; top_k (0 = off), top_p (1 = off),
 *   min_p (0 = off), typical_p (1 = off), top_n_sigma (0 = off); xtc_probability (0 = off), xtc_threshold
 *   repeat_last_n (64), repeat_penalty (1 = off), frequency_penalty, presence_penalty (0 = off)
 *   dry_multiplier (0 = off), dry_base (1.75), dry_allowed_length (2), dry_penalty_last_n (1024),
 *   dry_sequence_breakers (a JSON array of strings)
 *   mirostat (0 = off; 1 or 2 replaces all truncation), mirostat_tau (5), mirostat_eta (0.1)
 *   adaptive_target (below 0 = off), adaptive_decay (0.9): require adaptive_p in samplers
 *   logit_bias    a JSON array of [token, bias] pairs, where a bias is a number or "-inf"
 *   disable_thinking  "0" (default) or "1": never sample <think>
 *   reasoning_budget  the most tokens allowed between reasoning_start ("<think>") and reasoning_end
 *                 ("</think>"). When they are used up, reasoning_message ("") and reasoning_end are written.
 *                 -1 (default) = no limit. Grammar triggers are not recognized inside that block. While a span
 *                 of labels is active, it takes precedence over the budget
 */
ELIZA_API int eliza_inference_set_option(EliInferenceContext * ctx, const char * key, const char * value, char ** err);

/* Returns facts about the library as a JSON object: llama.cpp commit, CPU features and devices. With a context,
 * also facts about its model: description, vocabulary and trained context length; this loads the model if
 * necessary. `ctx` may be NULL. Free *out with eliza_inference_free_string(). */
ELIZA_API int eliza_inference_describe(EliInferenceContext * ctx, char ** out, char ** err);

/* Sets a callback that reports the progress of long operations. `stage` is "load" or "prefill", and `fraction`
 * runs from 0 to 1. The callback runs on the thread that requested the operation, and must not call the library.
 * To report about twice a second, prompts are split into shorter passes (except with batching=off). A stream
 * keeps the callback that was set when it was opened, so `user` must live as long as the context. NULL turns
 * progress off for new streams. */
typedef void (*eliza_progress_callback)(const char * stage, float fraction, void * user);
ELIZA_API int eliza_inference_set_progress_callback(EliInferenceContext * ctx, eliza_progress_callback callback,
                                                    void * user, char ** err);

/* Sets the process-wide log callback. The library writes nothing to stdout or stderr: its log lines, including
 * llama.cpp's, go to this callback. Levels: 1 debug, 2 info, 3 warning, 4 error. NULL (default) drops them. */
typedef void (*eliza_log_callback)(int level, const char * text, void * user);
ELIZA_API void eliza_inference_set_log_callback(eliza_log_callback callback, void * user);

#ifdef __cplusplus
}
#endif

#endif /* ELIZA_H */
