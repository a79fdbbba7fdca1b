// Loads a model, lets it choose and streams the choice:  choose [MODEL.gguf]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eliza/eliza_inference.h"

static void check(int ok, const char * error) {
    if (!ok) {
        fprintf(stderr, "choose: %s\n", error ? error : "failed");
        exit(1);
    }
}

static int print_token(int32_t id, const char * text, void * user) {
    (void)user;
    return printf("token %d: \"%s\"\n", id, text) < 0;  // non-zero would stop the generation
}

int main(int argc, char ** argv) {
    char *err = NULL, payload[1024] = "{\"modelId\":\"\",\"descriptors\":[{\"path\":\"action\",\"leaves\":[", name[64];
    const char *prompt = "Is this message for you? Answer: ", *names[] = {"RESPOND", "IGNORE", "STOP"};
    size_t n, used = strlen(payload);
    int * tokens;
    EliInferenceContext * ctx = eliza_inference_create(argc > 1 ? argv[1] : "models/eliza-tiny.gguf", &err);
    check(ctx != NULL, err);
    for (int i = 0; i < 3; ++i) {
        check(!eliza_inference_tokenize(ctx, names[i], strlen(names[i]), 0, 0, &tokens, &n, &err), err);
        used +=
            snprintf(payload + used, sizeof payload - used, "%s{\"name\":\"%s\",\"tokens\":[", i ? "," : "", names[i]);
        for (size_t t = 0; t < n; ++t)
            used += snprintf(payload + used, sizeof payload - used, t ? ",%d" : "%d", tokens[t]);
        used += snprintf(payload + used, sizeof payload - used, i < 2 ? "]}" : "]}]}]}");
        eliza_inference_free_tokens(tokens);
    }
    check(!eliza_inference_tokenize(ctx, prompt, strlen(prompt), 1, 0, &tokens, &n, &err), err);
    EliLlmStream * stream = eliza_inference_llm_stream_open(ctx, NULL, &err);
    check(stream != NULL, err);
    check(!eliza_inference_llm_stream_prefill(stream, tokens, n, &err), err);
    check(!eliza_inference_set_token_trie(stream, payload, used, ELIZA_TRIE_STOP_AT_LEAF),
          eliza_inference_last_error(stream));
    check(!eliza_inference_llm_stream_generate(stream, 0, print_token, NULL, &err), err);
    check(!eliza_inference_token_trie_leaf(stream, name, sizeof name, NULL), eliza_inference_last_error(stream));
    printf("chosen: %s\n", name);
    eliza_inference_free_tokens(tokens);
    eliza_inference_destroy(ctx);
    return 0;
}
