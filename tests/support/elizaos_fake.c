/*
 * A small engine with the ABI of libelizainference, to test the package with other libraries of that
 * name. The compiler's command line selects the functions that it exports.
 *
 * Its vocabulary is the 256 bytes. It ignores the prompt and writes the same text three times, one byte
 * per token, so a character may span two tokens. Like elizaOS's library, it does not reject wrong calls,
 * but it records calls that would crash such a library: two calls at the same time on one stream, and
 * calls on a closed stream or context. The first token of the prompt selects how the engine behaves,
 * see enum manner.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT(name) EXPORT_##name
#define HOOK __attribute__((visibility("default")))

#ifdef STUB /* a build without text generation */
enum { IS_STUB = 1 };
#else
enum { IS_STUB = 0 };
#endif

static const char text[] = "Gr\xC3\xBC\xC3\x9F" "e ";
enum { TEXT_LENGTH = sizeof text - 1, MAX_STREAMS = 4096 };

enum manner {
    MANNER_PLAIN = 1,
    MANNER_REFUSE = 2,     /* prefill fails */
    MANNER_FAIL = 3,       /* the fourth token fails */
    MANNER_ENDLESS = 4,    /* the third token is computed until the call is cancelled */
};

typedef struct { int is_alive, n_streams; void (*verify)(const void *, void *); void * user; } context;

typedef struct {
    context * ctx;
    int is_alive, manner, position, last, max_tokens, has_trie;
    atomic_int calls, is_cancelled;
} stream;

/* Never freed, so that a closed handle can be recognized. */
static stream streams[MAX_STREAMS];
static context contexts[MAX_STREAMS];
static int n_streams, n_contexts;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static char harm[256];
static unsigned char config_read[88];
static int last_limit;
static atomic_int n_sampled, n_stuck;

static void note(char * where, size_t size, const char * what) {
    pthread_mutex_lock(&lock);
    if (strlen(where) + strlen(what) + 2 < size) strcat(strcat(where, *where ? " " : ""), what);
    pthread_mutex_unlock(&lock);
}
static void called(const char * name) { note(log_text, sizeof log_text, name); }
static void harmed(const char * what) { note(harm, sizeof harm, what); }

HOOK const char * fake_calls(void) { return log_text; }
HOOK const char * fake_harm(void) { return harm; }
HOOK int fake_sampled(void) { return n_sampled; }
HOOK int fake_stuck(void) { return n_stuck; }
HOOK int fake_limit(void) { return last_limit; }
HOOK int fake_config(unsigned char * out) { memcpy(out, config_read, sizeof config_read); return sizeof config_read; }
HOOK void fake_forget(void) { log_text[0] = harm[0] = 0; n_sampled = n_stuck = 0; }

static void fail(char ** err, const char * why) { if (err) *err = strdup(why); }

static void enter(stream * s, const char * name) {
    called(name);
    if (!s->is_alive) harmed("use-of-closed-stream");
    if (atomic_fetch_add(&s->calls, 1) > 0) harmed("two-calls-at-once");
}
static int leave(stream * s, int result) { atomic_fetch_sub(&s->calls, 1); return result; }

/* ---- Required --------------------------------------------------------------------------------- */

#ifndef VERSION_TEXT
#define VERSION_TEXT "12"
#endif
EXPORT(abi_version) const char * eliza_inference_abi_version(void) { return VERSION_TEXT; }
EXPORT(free_string) void eliza_inference_free_string(char * string) { free(string); }
EXPORT(free_tokens) void eliza_inference_free_tokens(int * tokens) { free(tokens); }

EXPORT(create) void * eliza_inference_create(const char * path, char ** err) {
    if (strstr(path, "missing")) { fail(err, "no model there"); return NULL; }
    context * ctx = &contexts[n_contexts++];
    ctx->is_alive = 1;
    return ctx;
}
EXPORT(destroy) void eliza_inference_destroy(context * ctx) {
    called("destroy");
    if (!ctx->is_alive) harmed("context-destroyed-twice");
    if (ctx->n_streams > 0) harmed("context-destroyed-under-its-streams");
    ctx->is_alive = 0;
}

EXPORT(llm_stream_open) void * eliza_inference_llm_stream_open(context * ctx, const void * cfg, char ** err) {
    called("open");
    if (!ctx->is_alive) harmed("use-of-destroyed-context");
    memcpy(config_read, cfg, sizeof config_read);
    if (IS_STUB) { fail(err, "a build for speech alone"); return NULL; }
    stream * s = &streams[n_streams++];
    memcpy(&s->max_tokens, cfg, sizeof s->max_tokens);
    s->ctx = ctx;
    s->is_alive = 1;
    ctx->n_streams++;
    return s;
}

EXPORT(llm_stream_close) void eliza_inference_llm_stream_close(stream * s) {
    called("close");
    if (!s->is_alive) harmed("stream-closed-twice");
    if (s->calls > 0) harmed("closed-during-a-call");
    s->is_alive = 0;
    s->ctx->n_streams--;
}

EXPORT(llm_stream_prefill) int eliza_inference_llm_stream_prefill(stream * s, const int32_t * tokens, size_t n,
                                                                   char ** err) {
    enter(s, "prefill");
    if (n > 0) s->manner = tokens[0];
    if (s->manner == MANNER_REFUSE) { fail(err, "token 2 is not for prompts"); return leave(s, -2); }
    s->last = s->max_tokens > 0 ? s->position + s->max_tokens : 1 << 30;
    return leave(s, (int)n); /* some libraries return the number of tokens */
}

/* ---- Generation ------------------------------------------------------------------------------- */

/* Returns 1 for a token, 0 at the end, or a negative status. The text is written three times. */
static int sample(stream * s, int32_t * token, char ** err) {
    if (s->is_cancelled) { s->is_cancelled = 0; return -7; }
    if (s->position >= s->last || s->position >= 3 * TEXT_LENGTH) return 0;
    if (s->position == 3 && s->manner == MANNER_FAIL) { fail(err, "the disk is on fire"); return -4; }
    if (s->position == 2 && s->manner == MANNER_ENDLESS) {
        n_stuck++;
        while (!s->is_cancelled) usleep(500);
        s->is_cancelled = 0;
        s->manner = MANNER_PLAIN;
        return -7;
    }
    *token = (unsigned char)text[s->position++ % TEXT_LENGTH];
    n_sampled++;
    return 1;
}

EXPORT(llm_stream_next) int eliza_inference_llm_stream_next(stream * s, int32_t * tokens_out, size_t tokens_cap,
        size_t * num_tokens_out, char * text_out, size_t text_cap, int32_t * drafted_out, int32_t * accepted_out,
        char ** err) {
    (void)tokens_cap; (void)text_cap;
    enter(s, "next");
    int result = sample(s, tokens_out, err);
    if (result < 0) return leave(s, result);
    *num_tokens_out = (size_t)result;
    text_out[0] = result ? (char)tokens_out[0] : 0;
    text_out[1] = 0;
    *drafted_out = *accepted_out = 0;
    if (s->ctx->verify) {
        struct { const int * accepted; size_t n_accepted; int from, to; const int * corrected; size_t n; }
            event = {tokens_out, 1, s->position, s->position + 2, tokens_out, 1};
        if (s->position == 1) event.from = event.to = -1, event.n = 0;
        s->ctx->verify(&event, s->ctx->user);
    }
    return leave(s, result ? 0 : 1);
}

EXPORT(llm_stream_generate) int eliza_inference_llm_stream_generate(stream * s, int32_t max_tokens,
        int (*on_token)(int32_t, const char *, void *), void * user, char ** err) {
    enter(s, "generate");
    last_limit = max_tokens;
    for (int i = 0; i < max_tokens; i++) { /* 0 means no token, as in some libraries */
        int32_t token;
        const int result = sample(s, &token, err);
        if (result <= 0) return leave(s, result);
        const char piece[2] = {(char)token, 0};
        if (on_token(token, piece, user)) return leave(s, -7);
    }
    return leave(s, 0);
}

EXPORT(llm_stream_cancel) int eliza_inference_llm_stream_cancel(stream * s) {
    called("cancel");
    if (!s->is_alive) harmed("use-of-closed-stream");
    s->is_cancelled = s->calls > 0;
    return 0;
}

/* ---- The trie --------------------------------------------------------------------------------- */

EXPORT(token_trie_supported) int eliza_inference_token_trie_supported(void) { return 0x103; }
EXPORT(set_token_trie) int eliza_inference_set_token_trie(stream * s, const char * json, size_t len, int mode) {
    (void)mode;
    enter(s, "set");
    if (len >= 7 && strstr(json, "\"leaves\":[{\"name\":\"REFUSE\"")) return leave(s, -2);
    s->has_trie = 1;
    return leave(s, 0);
}
EXPORT(clear_token_trie) void eliza_inference_clear_token_trie(stream * s) {
    enter(s, "clear");
    s->has_trie = 0;
    leave(s, 0);
}

/* ---- Other functions -------------------------------------------------------------------------- */

EXPORT(llm_stream_supported) int eliza_inference_llm_stream_supported(void) { return !IS_STUB; }
EXPORT(llm_mtp_supported) int eliza_inference_llm_mtp_supported(void) { return 1; }
EXPORT(llm_kv_quant_supported) int eliza_inference_llm_kv_quant_supported(void) { return 1; }
EXPORT(tts_stream_supported) int eliza_inference_tts_stream_supported(void) { return 1; }
EXPORT(vision_supported) int eliza_inference_vision_supported(void) { return 0; }

static int slot_file(stream * s, const char * name, const char * file, const char * mode, char ** err) {
    enter(s, name);
    FILE * f = fopen(file, mode);
    if (!f) { fail(err, "cannot open the file"); return leave(s, -4); }
    const int is_done = *mode == 'w' ? fprintf(f, "%d", s->position) > 0 : fscanf(f, "%d", &s->position) == 1;
    fclose(f);
    if (!is_done) fail(err, "not a slot file");
    return leave(s, is_done ? 0 : -2);
}
EXPORT(llm_stream_save_slot) int eliza_inference_llm_stream_save_slot(stream * s, const char * file, char ** err) {
    return slot_file(s, "save", file, "w", err);
}
EXPORT(llm_stream_restore_slot) int eliza_inference_llm_stream_restore_slot(stream * s, const char * file,
                                                                             char ** err) {
    return slot_file(s, "restore", file, "r", err);
}

EXPORT(tokenize_supported) int eliza_inference_tokenize_supported(void) { return 1; }
EXPORT(tokenize) int eliza_inference_tokenize(context * ctx, const char * in, size_t len, int add_special,
        int parse_special, int ** out, size_t * out_n, char ** err) {
    (void)ctx; (void)add_special; (void)parse_special; (void)err;
    *out = malloc((len + 1) * sizeof **out);
    for (size_t i = 0; i < len; i++) (*out)[i] = (unsigned char)in[i];
    *out_n = len;
    return 0;
}
EXPORT(detokenize) int eliza_inference_detokenize(context * ctx, const int * tokens, size_t n, int remove_special,
        int unparse_special, char * out, size_t cap, char ** err) {
    (void)ctx; (void)remove_special; (void)unparse_special; (void)err;
    if (n < cap) for (size_t i = 0; i <= n; i++) out[i] = i < n ? (char)tokens[i] : 0;
    return (int)n;
}

/* Returns EMBEDDING values: the pooling, the length of the input, and zeros. */
#ifndef EMBEDDING
#define EMBEDDING 8
#endif
EXPORT(embed_supported) int eliza_inference_embed_supported(void) { return 1; }
EXPORT(embed) int eliza_inference_embed(context * ctx, const char * in, size_t len, int pooling, float * out,
        size_t cap, int * out_dim, char ** err) {
    (void)ctx;
    if (len && in[0] == '!') { fail(err, "nothing to embed"); return -2; }
    *out_dim = EMBEDDING;
    if (cap < EMBEDDING) { fail(err, "too small"); return -2; }
    memset(out, 0, EMBEDDING * sizeof *out);
    out[0] = (float)pooling;
    out[1] = (float)len;
    return 0;
}

EXPORT(llm_eot_supported) int eliza_inference_llm_eot_supported(void) { return 1; }
EXPORT(llm_eot_score) int eliza_inference_llm_eot_score(context * ctx, const int32_t * tokens, size_t n,
        int32_t target, float * prob, int32_t * top, float * top_prob, char ** err) {
    (void)ctx;
    if (n == 0) { fail(err, "no tokens"); return -2; }
    *top = tokens[n - 1];
    *top_prob = 0.75f;
    *prob = target == *top ? 0.75f : 0.25f;
    return 0;
}

EXPORT(set_verifier_callback) int eliza_inference_set_verifier_callback(context * ctx,
        void (*callback)(const void *, void *), void * user, char ** err) {
    (void)err;
    ctx->verify = callback;
    ctx->user = user;
    return 0;
}
