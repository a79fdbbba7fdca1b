// Loads a model, gives it three choices and streams the one it makes:  choose MODEL.gguf
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eliza/eliza_inference.h"

static int print_token(int32_t id, const char * text, void * user) {
    (void)user;
    printf("token %d: \"%s\"\n", id, text);
    return 0;  // non-zero would stop the generation
}

static void check(int ok, const char * what, const char * error) {
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, error ? error : "failed");
        exit(1);
    }
}

int main(int argc, char ** argv) {
    char * err = NULL;
    EliInferenceContext * ctx = eliza_inference_create(argc > 1 ? argv[1] : "models/eliza-tiny.gguf", &err);
    check(ctx != NULL, "create", err);

    const char * prompt = "The user says hello. What does Eliza do?";
    const char * names[] = {"RESPOND", "IGNORE", "STOP"};
    char payload[1024] = "{\"modelId\":\"\",\"descriptors\":[{\"path\":\"action\",\"leaves\":[";
    for (int i = 0; i < 3; ++i) {
        int * tokens = NULL;
        size_t n = 0, end = strlen(payload);
        check(eliza_inference_tokenize(ctx, names[i], strlen(names[i]), 0, 0, &tokens, &n, &err) == 0, "tokenize", err);
        end += (size_t)sprintf(payload + end, "%s{\"name\":\"%s\",\"tokens\":[", i ? "," : "", names[i]);
        for (size_t t = 0; t < n; ++t) {
            end += (size_t)sprintf(payload + end, "%s%d", t ? "," : "", tokens[t]);
        }
        strcat(payload, "]}");
        eliza_inference_free_tokens(tokens);
    }
    strcat(payload, "]}]}");

    int * tokens = NULL;
    size_t n = 0;
    check(eliza_inference_tokenize(ctx, prompt, strlen(prompt), 1, 1, &tokens, &n, &err) == 0, "tokenize", err);
    EliLlmStream * stream = eliza_inference_llm_stream_open(ctx, NULL, &err);
    check(stream != NULL, "open", err);
    check(eliza_inference_llm_stream_prefill(stream, tokens, n, &err) == 0, "prefill", err);
    check(eliza_inference_set_token_trie(stream, payload, strlen(payload),
                                         ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF) == 0,
          "set_token_trie", eliza_inference_last_error(stream));
    check(eliza_inference_llm_stream_generate(stream, 0, print_token, NULL, &err) == 0, "generate", err);

    char name[64];
    double logprob = 0;
    check(eliza_inference_token_trie_leaf(stream, name, sizeof name, &logprob) == 0, "leaf",
          eliza_inference_last_error(stream));
    printf("chosen: %s (log probability %.3f)\n", name, logprob);
    eliza_inference_free_tokens(tokens);
    eliza_inference_llm_stream_close(stream);
    eliza_inference_destroy(ctx);
    return 0;
}
