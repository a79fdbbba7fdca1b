// Loads a model and lets it choose an action: choose [MODEL.gguf]
#include <stdio.h>

#include "eliza/eliza.h"

int main(int argc, char ** argv) {
    const char * labels[] = {"RESPOND", "IGNORE", "STOP"};
    double probabilities[3];
    eliza_choice_t choice;
    char * err = NULL;

    EliInferenceContext * ctx = eliza_inference_create(argc > 1 ? argv[1] : "models/eliza-tiny.gguf", &err);
    if (ctx == NULL ||
        eliza_inference_choose(ctx, "message: stop!\naction: ", labels, 3, NULL, &choice, probabilities, &err) != 0) {
        fprintf(stderr, "choose: %s\n", err);
        eliza_inference_free_string(err);
        eliza_inference_destroy(ctx);
        return 1;
    }
    printf("chosen: %s, in %d forward passes after the prompt\n", labels[choice.label], choice.forward_passes);
    for (int i = 0; i < 3; ++i) {
        printf("%8s %.4f\n", labels[i], probabilities[i]);
    }
    eliza_inference_destroy(ctx);
    return 0;
}
