// Guesses at what a stream will generate next, with llama.cpp's own speculative code: by a small model of
// the same vocabulary, or by what followed the same few tokens before. The guesses are only checked, so
// they never change what is generated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/decoder.h"
#include "llama-cpp.h"

struct common_speculative;

namespace eliza {

struct DraftConfig {
    int32_t least = 0;       // shorter drafts are not worth checking
    int32_t most = 0;        // tokens of a draft; 0: no speculation
    std::string model_path;  // "": the stream's own tokens
};

class Drafter {
public:
    // Throws Error where the model cannot be loaded or has another vocabulary.
    Drafter(const DraftConfig & config, Decoder & decoder, const Options & options);
    ~Drafter();
    Drafter(const Drafter &) = delete;
    Drafter & operator=(const Drafter &) = delete;

    // What may follow the tokens: `least` to `most` of them, or none. Not empty: `tokens`.
    std::vector<llama_token> draft(const std::vector<llama_token> & tokens, int32_t most);

private:
    // Brings the model's cache to hold all but the last of the tokens; false where it cannot.
    bool catch_up(const std::vector<llama_token> & tokens);

    int32_t least_;
    std::shared_ptr<Model> model_;
    llama_context_ptr context_;        // of the model
    std::vector<llama_token> cached_;  // tokens in it
    std::unique_ptr<common_speculative, void (*)(common_speculative *)> speculative_;
};

}  // namespace eliza
